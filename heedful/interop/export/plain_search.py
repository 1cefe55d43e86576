"""The search by which exports are compared, with what every engine defines the same way."""

import dataclasses
from typing import TYPE_CHECKING

from heedful.config import Config, DecodeConfig
from heedful.core.special_tokens import PAD, START, UNKNOWN
from heedful.decoding.candidates import forbidden_ids

if TYPE_CHECKING:
    from heedful.runs.run import Run

WRITTEN_TOKENS = 40  # tokens that language models write


def plain_search(run: "Run", beam_size: int = 1) -> DecodeConfig:
    """Return the settings of a search that all engines define the same way: scores are plain log-probabilities."""
    return dataclasses.replace(
        run.config.decode, beam_size=beam_size, n_best=1, sample=False, length_penalty=0.0, coverage_penalty=0.0,
        stop="attainable", min_ratio=0.0, min_length=0, min_p=0.0, max_ratio=1e6, max_length=0, repetition_penalty=1.0,
        no_repeat_ngram=0, precision="float32", forbidden=never_written(run), split="never", markup="none",
    )  # fmt: skip


def never_written(run: "Run") -> tuple[str, ...]:
    """Return the tokens that an export never writes.

    They are padding and the start token, for language models the unknown token too, and those that the run forbids.
    """
    unknown = () if run.task.translates else (UNKNOWN,)
    return tuple(dict.fromkeys((PAD, START, *unknown, *run.config.decode.forbidden)))


def never_written_ids(run: "Run") -> list[int]:
    """Return the ids of `never_written`; raise `InputError` if the run forbids a token that it does not know."""
    return list(forbidden_ids(plain_search(run), run.target_tokenizer))


def read_tokens(config: Config) -> int:
    """Return the number of tokens of a text that a model reads, special ones included."""
    return config.data.max_tokens if config.data.labels else config.model.max_length
