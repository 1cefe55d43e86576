"""Search with CTranslate2, with the interface of `BatchSearch`."""

import functools
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.config import DecodeConfig
from heedful.core.errors import InputError, extra_needed
from heedful.core.processors import cores
from heedful.core.special_tokens import PAD, SPECIAL
from heedful.core.storage import file_hash
from heedful.decoding.candidates import Candidate, forbidden_ids, require_room
from heedful.inference.line_reader import LineReader
from heedful.inference.line_translator import LineTranslator
from heedful.interop.export.folders import exported_weights

if TYPE_CHECKING:
    from heedful.runs.run import Run

EXPORTED = "ctranslate2"  # subfolder of a run for the exported model
SHORTLIST = "vmap.txt"  # file of an export that has a shortlist
_SAMPLING = threading.Lock()  # CTranslate2 has one seed for the whole process, which is read at the first draw


def ctranslate2_translator(
    run: "Run", decode: DecodeConfig | None = None, folder: Path | None = None, **options: Any
) -> Any:
    """Return a `LineTranslator` of a `Run` that searches with CTranslate2; for `options` see `CTranslate2Model`."""
    exported = CTranslate2Model(run, folder or run.path / EXPORTED, **options)

    def new_aligner():
        from heedful.inference.aligner import Aligner  # which imports Keras

        return Aligner.of_run(run, run.load_model())

    return LineTranslator(
        functools.partial(CTranslate2Search, exported), run.source_tokenizer, run.target_tokenizer,
        decode or run.config.decode, run.config.model.max_length, new_aligner, LineReader.of_run(run),
    )  # fmt: skip


def ctranslate2() -> Any:
    """Return the `ctranslate2` module.

    Raises:
        InputError: it is not installed.
    """
    with extra_needed("ctranslate2", "CTranslate2 is not installed"):
        import ctranslate2
    return ctranslate2


def require_export(run: "Run", folder: Path) -> None:
    """Raise `InputError` if there is no CTranslate2 model of a run in a folder."""
    if not (Path(folder) / "model.bin").is_file():
        raise InputError(
            f"{folder} holds no CTranslate2 model: create one with heedful export {run.path} --to ctranslate2."
        )


def export_identity(folder: Path) -> str:
    """Return a hash of what determines the translations of an export: its weights, and its shortlist if it has one."""
    files = [Path(folder) / name for name in ("model.bin", SHORTLIST)]
    return " ".join(file_hash(path) for path in files if path.is_file())


def require_settings(decode: DecodeConfig, scored: bool = True) -> None:
    """Raise `InputError` if CTranslate2 lacks one of the settings that are used; `scored`: see `CTranslate2Search`."""
    missing = [f"decode.{name} = {value!r}" for name, value in decode.lacking("ctranslate2", scored).items()]
    missing = [name for name in missing if name != "decode.precision = 'float32'"]
    if decode.sample and decode.top_k == 1 and decode.n_best > 1:
        missing.append("decode.top_k = 1 with n_best above 1")
    if missing:
        advice = " Export with --quantization instead." if "precision" in missing[0] else ""
        raise InputError(
            f"CTranslate2 does not support {missing[0]}: leave it out, or use heedful's own engine.{advice}"
        )


def shortens(decode: DecodeConfig) -> bool:
    """Return whether a search with these settings may consider the tokens of a shortlist only.

    CTranslate2 4.8 looks up positions on an earlier shortlist for all tokens but three: those that are unknown, the
    start and the end, which have the same positions on all. So no other token may be named by a setting.
    """
    return (
        not decode.sample and decode.repetition_penalty == 1.0 and not decode.no_repeat_ngram
        and set(decode.forbidden) <= set(SPECIAL)
    )  # fmt: skip


class CTranslate2Model:
    """A model that was exported to CTranslate2, opened once for all searches in it. Threads may share it.

    Args:
        run: the `Run` that was exported; its tokenizers map ids to tokens.
        folder: the exported model, with a shortlist or without.
        compute_type: as CTranslate2 names it; `default` keeps the type of the weights.
        threads: (workers, threads per worker); by default one worker per core.

    Raises:
        InputError: there is no exported model, or it has other weights than the run.
    """

    def __init__(self, run: "Run", folder: Path, compute_type: str = "default", threads: tuple[int, int] | None = None):
        require_export(run, folder)
        if exported_weights(folder) != run.weights_fingerprint():
            raise InputError(
                f"{folder} was exported from other weights than those of {run.path}: export again with "
                f"heedful export {run.path} --to ctranslate2."
            )
        self.run, self._folder, self._compute_type, self._threads = run, Path(folder), compute_type, threads
        self.has_shortlist = (self._folder / SHORTLIST).is_file()
        self._opened: dict[bool, Any] = {}
        self._lock = threading.Lock()

    def translator(self, sampling: bool, shortlist: bool = False) -> Any:
        """Return a `ctranslate2.Translator`: one for all searches, but a new one for each call that samples.

        A translator takes its seed at its first draw and keeps it. With several workers, the order of the draws would
        not be deterministic. Searches with a shortlist have a translator of their own: CTranslate2 4.8 mixes the
        positions of tokens on the shortlists of several calls, and those in the whole vocabulary.
        """
        if sampling:
            return self._open(1)
        with self._lock:
            if shortlist not in self._opened:
                self._opened[shortlist] = self._open(cores())
        return self._opened[shortlist]

    def _open(self, workers):
        workers, each = self._threads or (workers, 1)
        return ctranslate2().Translator(
            str(self._folder), device="cpu", inter_threads=workers, intra_threads=each, compute_type=self._compute_type
        )


class CTranslate2Search:
    """Searches with CTranslate2 in an exported model, with the interface of `BatchSearch` except for `limits`.

    CTranslate2 has one length limit for a whole batch; greedy search without scores cuts its results to each sentence's
    own. It has its own stopping rule for beams: with a length penalty, up to a fifth of the translations differ from
    heedful's. Scores are normalised as heedful's are, except that a coverage penalty is normalised too, and that an
    empty result of a beam has a score of minus infinity. With a shortlist, probabilities are those among its tokens.
    A batch has the shortlists of all its texts, so that a result may depend on the others. Searches whose settings name
    tokens, or read what was written, consider the whole vocabulary, see `shortens`.

    Args:
        exported: the `CTranslate2Model`.
        decode: a `DecodeConfig`.
        scored: whether scores are requested.

    Raises:
        InputError: CTranslate2 does not support a setting.
    """

    def __init__(self, exported: CTranslate2Model, decode: DecodeConfig, scored: bool = False):
        ctranslate2()  # that it is missing is reported before what it lacks
        require_settings(decode, scored)
        forbidden_ids(decode, exported.run.target_tokenizer)  # raise our own error rather than CTranslate2's
        self.exported, self.run, self.decode, self.scored = exported, exported.run, decode, scored
        self.shortened = exported.has_shortlist and shortens(decode)

    def __call__(
        self,
        sources: Sequence[list[int]],
        numbers: Sequence[int] | None = None,
        prefixes: Sequence[list[int]] | None = None,
    ) -> list[Any]:
        """Continue every source, as `BatchSearch` does, but samples depend on the seed and the first number."""
        if not sources:
            return []
        decode, tokenizer = self.decode, self.run.target_tokenizer
        if prefixes is None and tokenizer.prefix_ids:
            prefixes = [tokenizer.prefix_ids] * len(sources)
        limits = [decode.length_limit(len(ids), self.run.config.model.max_length) for ids in sources]
        for index, limit in enumerate(limits):
            require_room(prefixes[index] if prefixes else [], limit, numbers[index] if numbers else None)
        shortened = self.shortened and not prefixes
        # In greedy search, scores cost a pass over the vocabulary at each step; our own search skips it too.
        scored = self.scored or decode.beam_size > 1 or decode.sample
        options = decode.called_in("ctranslate2") | {
            "length_penalty": decode.length_penalty if decode.beam_size > 1 else 0.0,
            "suppress_sequences": [[token] for token in decode.forbidden if not (shortened and token == PAD)] or None,
            "min_decoding_length": min(decode.min_length, max(limits)),
            "max_decoding_length": max(limits),
            "max_input_length": 0,
            "return_scores": scored,
            "use_vmap": shortened,
        }
        if decode.sample:
            options["sampling_topk"] = min(decode.top_k, len(tokenizer))
        if prefixes:
            options["target_prefix"] = [[tokenizer.lookup(token) for token in prefix] for prefix in prefixes]
        spelled = [[self.run.source_tokenizer.lookup(token) for token in ids] for ids in sources]
        if decode.sample:
            entropy = [decode.seed, numbers[0] if numbers else 0]
            with _SAMPLING:
                ctranslate2().set_random_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
                results = self.exported.translator(sampling=True).translate_batch(spelled, **options)
        else:
            results = self.exported.translator(False, shortened).translate_batch(spelled, **options)
        return [self._candidates(result, own, max(limits)) for result, own in zip(results, limits, strict=True)]

    def _candidates(self, result, own_limit, limit):
        """Return the `Candidate`s of a result of up to `limit` tokens, best first; greedy ones end at `own_limit`."""
        texts = [[self.run.target_tokenizer.lookup(token) for token in tokens] for tokens in result.hypotheses]
        if not result.scores:
            return [Candidate(ids[:own_limit], 0.0) for ids in texts]
        pairs = zip(texts, result.scores, strict=True)
        candidates = [Candidate(ids, self._normalised(score, len(ids), limit)) for ids, score in pairs]
        return sorted(candidates, key=lambda candidate: -candidate.score)

    def _normalised(self, score, length, limit):
        """Return a score normalised by the length with the end token, if any; CTranslate2 does so in beams only."""
        if self.decode.beam_size > 1:
            return score
        return score / (length + (length < limit)) ** self.decode.length_penalty
