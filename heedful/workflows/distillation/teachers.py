"""Teachers: what translates the text of a distillation."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from heedful import backend
from heedful.config import DecodeConfig
from heedful.core.errors import InputError, extra_needed
from heedful.core.processors import cores
from heedful.core.storage import file_hash
from heedful.core.validation import read_json
from heedful.data.text_files import one_line
from heedful.inference.line_translator import BATCHES_AHEAD, LineTranslator
from heedful.inference.predictor import ScoredText, Warn
from heedful.inference.translator import Translator
from heedful.interop.export.ctranslate2_search import (
    EXPORTED,
    ctranslate2,
    ctranslate2_translator,
    export_identity,
    require_settings,
)
from heedful.interop.export.folders import exported_weights
from heedful.runs.run import Run
from heedful.workflows.distillation.plan import TeacherPlan

MODEL = "model.bin"  # of a CTranslate2 model
SHARED = ("sentencepiece.model", "spm.model", "../sentencepiece.model")  # one vocabulary for both sides; Argos
SIDES = ("source.spm", "target.spm")  # of OPUS-MT
END = "</s>"
LONGEST = 256  # tokens of a translation


class Teacher:
    """Translates lines. The same lines in the same windows have the same candidates.

    Attributes:
        identity: what its translations depend on, as JSON.
        window: number of lines that are translated together.
    """

    identity: dict[str, Any]
    window: int

    def candidates(self, lines: Iterable[str], first: int) -> Iterator[list[ScoredText]]:
        """Yield the translations of each line, the best first; `first` is the number of the first line."""
        raise NotImplementedError

    def announce(self, texts: Callable[[], Iterable[str]]) -> None:
        """Say what translating texts will cost, if that is more than time."""


class ModelTeacher(Teacher):
    """A model of this machine.

    Args:
        new_translator: returns its `LineTranslator`; called when the first line is translated.
        identity: of its weights.
        decode: how it searches.
        warn: called with warnings.
    """

    def __init__(
        self,
        new_translator: Callable[[], LineTranslator],
        identity: dict[str, Any],
        decode: DecodeConfig,
        warn: Warn | None,
    ):
        self.identity = identity | {"decode": dataclasses.asdict(decode)}
        self.window = BATCHES_AHEAD * decode.batch_size
        self._new_translator, self._warn = new_translator, warn

    @functools.cached_property
    def _translator(self):
        backend.keep_compilations()
        return self._new_translator()

    def candidates(self, lines: Iterable[str], first: int) -> Iterator[list[ScoredText]]:
        for candidates in self._translator.predict_stream(lines, self._warn, scored=True, first=first):
            yield [ScoredText(one_line(text), score) for text, score in candidates]


class SentencePieceTeacher(Teacher):
    """A CTranslate2 model whose vocabularies are SentencePiece models, such as one of OPUS-MT or Argos.

    Args:
        folder: of the model.
        decode: how it searches.

    Raises:
        InputError: CTranslate2 or sentencepiece is not installed, or there is no vocabulary.
    """

    def __init__(self, folder: Path, decode: DecodeConfig):
        if decode.sample:
            raise InputError("A CTranslate2 model with SentencePiece vocabularies does not sample: leave out --sample.")
        require_settings(decode)
        if decode.forbidden:
            raise InputError(
                "A CTranslate2 model with SentencePiece vocabularies forbids no words: leave out --forbidden."
            )
        self._folder, self._decode = folder, decode
        self._vocabularies = vocabularies_of(folder)
        self._source, self._target = map(_sentencepiece, self._vocabularies)
        self.identity = {
            "ctranslate2": [file_hash(path) for path in (folder / MODEL, *self._vocabularies)],
            "decode": dataclasses.asdict(decode),
        }
        self.window = BATCHES_AHEAD * decode.batch_size

    @functools.cached_property
    def _model(self):
        return ctranslate2().Translator(str(self._folder), device="cpu", inter_threads=cores(), intra_threads=1)

    def candidates(self, lines: Iterable[str], first: int) -> Iterator[list[ScoredText]]:
        config = read_json(self._folder / "config.json") if (self._folder / "config.json").is_file() else {}
        # Conversions by way of transformers leave the end token to the caller; OpenNMT's models read none.
        ending = [END] if self._vocabularies[0].name == SIDES[0] and not config.get("add_source_eos") else []
        texts = list(lines)
        spelled = [[*pieces, *ending] if (pieces := self._source.encode(text, out_type=str)) else [] for text in texts]
        limits = [self._decode.length_limit(len(pieces), LONGEST) for pieces in spelled]
        options = self._decode.called_in("ctranslate2") | {
            "return_scores": True, "max_decoding_length": max(limits, default=1),
            "min_decoding_length": min(self._decode.min_length, max(limits, default=1)),
        }  # fmt: skip
        try:
            results = self._model.translate_batch(spelled, **options)
        except (RuntimeError, ValueError) as error:
            raise InputError(f"{self._folder} cannot translate lines from {first} on: {error}.") from error
        for result, limit in zip(results, limits, strict=True):
            pairs = zip(result.hypotheses, result.scores, strict=True)
            yield [ScoredText(one_line(self._target.decode(pieces[:limit])), score) for pieces, score in pairs]


def vocabularies_of(folder: Path) -> tuple[Path, Path]:
    """Return the SentencePiece models of both sides of a CTranslate2 model; raise `InputError` if there are none."""
    source, target = (folder / name for name in SIDES)
    if source.is_file() and target.is_file():
        return source, target
    for name in SHARED:
        if (folder / name).is_file():
            return folder / name, folder / name
    raise InputError(
        f"{folder} has a CTranslate2 model without vocabularies: put {' and '.join(SIDES)}, or {SHARED[0]}, beside it."
    )


def _sentencepiece(path):
    with extra_needed("sentencepiece", "sentencepiece is not installed"):
        import sentencepiece
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def model_teacher(plan: TeacherPlan, decode: DecodeConfig, warn: Warn | None = None) -> Teacher:
    """Return the teacher of a plan that names run folders, or the folder of a CTranslate2 model."""
    first, *others = map(Path, plan.paths)
    if (first / MODEL).is_file():
        if others:
            raise InputError("A CTranslate2 model teaches alone: name one folder.")
        if exported_weights(first):
            return _exported(Run.open(first.parent), first, decode, warn)
        return SentencePieceTeacher(first, decode)
    runs = [Run.open(path).of_task("translate") for path in (first, *others)]
    if plan.engine == "heedful":
        identity = {"weights": [run.weights_fingerprint() for run in runs]}
        return ModelTeacher(lambda: Translator.from_runs(runs, decode), identity, decode, warn)
    if others:
        raise InputError("CTranslate2 translates with one run: name one, or use our own engine.")
    return _exported(runs[0], first / EXPORTED, decode, warn)


def _exported(run, folder, decode, warn):
    ctranslate2()
    if not (folder / MODEL).is_file():
        raise InputError(f"{run.path} has no export: heedful export {run.path} --to ctranslate2.")
    identity = {"ctranslate2": export_identity(folder)}
    return ModelTeacher(lambda: ctranslate2_translator(run, decode, folder), identity, decode, warn)
