"""The texts of a distillation: what the teacher translates, real pairs, and what the student is scored on."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from heedful.config import Config
from heedful.config.data import BUILT_IN
from heedful.config.named_texts import refuse_training_on_test_text
from heedful.core.errors import InputError, counted
from heedful.core.plugins import find_task
from heedful.data.bilingual_files import TABLE, has_both_sides
from heedful.data.corpus import Corpus, read_pairs, resolve_all, resolve_pairs
from heedful.data.doctor.repeats import normal_form
from heedful.data.text_files import read_lines, uncompressed_name
from heedful.workflows.distillation.plan import Plan

SCORED = ("valid", "test")  # parts that no training text may have
RECORDS = (".jsonl", ".parquet")


def has_part(config: Config, part: str) -> bool:
    """Return whether a config has a part of a text: train, valid or test."""
    return config.data.corpus in BUILT_IN or bool(getattr(config.data, part))


def corpus_of(config: Config, part: str) -> Corpus:
    """Return a part of the text of a config, whatever other parts it has.

    Raises:
        InputError: it has none, or files are missing.
    """
    if not has_part(config, part):
        raise InputError(f"data.{part} must name text files.")
    if config.data.corpus in BUILT_IN:
        return find_task(config.task).find_corpora(config)[part]
    return Corpus.from_files(getattr(config.data, part), config.data.origin)


def require_texts(plan: Plan, config: Config) -> None:
    """Raise `InputError` if a text is missing, is of no use here, or belongs to a test set."""
    for path in plan.text:
        refuse_training_on_test_text(Path(path))
        if (ending := Path(uncompressed_name(Path(path))).suffix) in RECORDS:
            raise InputError(f"{path} has records: give lines, or a {TABLE} of texts and references, not {ending}.")
    sources, references = resolve_all(plan.text), resolve_all(plan.references)
    if references and any(map(has_both_sides, sources)):
        raise InputError("A table has texts and references: leave out --references.")
    if references and len(sources) != len(references):
        raise InputError(f"{counted(len(sources), 'file')} of text came with {len(references)} of references.")
    corpus_of(config, "valid")
    if not plan.text or (plan.real_weight and (plan.back or not has_references(plan.text, plan.references))):
        corpus_of(config, "train")


def texts_to_translate(plan: Plan, config: Config) -> Iterator[dict[str, Any]]:
    """Yield `text`, `reference` if there is one, and the `file` and `line` of each text of a plan."""
    if plan.text:
        files: Iterable[tuple[Path, ...]] = itertools.zip_longest(resolve_all(plan.text), resolve_all(plan.references))
    elif config.data.corpus in BUILT_IN:
        corpus = corpus_of(config, "train")
        yield from _records(corpus.name, corpus)
        return
    else:
        files = resolve_pairs(config.data.train, config.data.origin)
    for group in files:
        paths = [path for path in group if path is not None]
        rows = (
            read_pairs(paths) if len(paths) == 2 or has_both_sides(paths[0]) else zip(read_lines(paths[0]), strict=True)
        )
        yield from _records(str(paths[0]), rows)


def has_references(text: Sequence[str], references: Sequence[str] = ()) -> bool:
    """Return whether the files of a text, or those that patterns match, have references or come with them."""
    files = [file for name in text for file in (resolve_all([name]) if "*" in name else [name])]
    return bool(references) or any(map(has_both_sides, files))


def scored_texts(config: Config, side: int) -> set[bytes]:
    """Return the keys of all validation and test texts, in their normal form, on a side (0: source, 1: target)."""
    parts = [corpus_of(config, part) for part in SCORED if has_part(config, part)]
    return {key_of(normal_form(pair[side])) for corpus in parts for pair in corpus}


def real_pairs(plan: Plan, config: Config, translated: Callable[[], Iterable[dict[str, Any]]]) -> Iterator[Any]:
    """Yield the real pairs of a plan: texts with their references, or the training text of the student's recipe.

    Those whose source is a validation or test text are left out.

    Args:
        plan: the plan.
        config: that of the student.
        translated: returns the texts that were translated.
    """
    pairs: Iterable[Any] = ((one["text"], one["reference"]) for one in translated() if "reference" in one)
    if plan.back or not has_references(plan.text, plan.references):
        pairs = corpus_of(config, "train")
    scored = scored_texts(config, 0)
    return (pair for pair in pairs if key_of(normal_form(pair[0])) not in scored)


def key_of(text: str) -> bytes:
    """Return a short key of a text: a set of millions of them takes less memory than one of texts."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _records(file: str, rows: Iterable[tuple[str, ...]]) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows, start=1):
        yield dict(zip(("text", "reference"), row, strict=False)) | {"file": file, "line": number}
