"""Translation with a trained model: translations, scores of given ones, and alternatives."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heedful.backend.program_cache import ProgramCache
from heedful.config import DecodeConfig
from heedful.core.errors import InputError, counted
from heedful.core.special_tokens import END_ID
from heedful.core.validation import require_text, require_texts
from heedful.data.sentences import gap_after
from heedful.data.tokenizer import Tokenizer
from heedful.decoding.batch_search import BatchSearch
from heedful.decoding.candidates import SENTENCE_STRIDE, require_room
from heedful.inference.adapted import AdaptedSearch, AdapterSwitch
from heedful.inference.aligner import Aligner
from heedful.inference.line_reader import LineReader, message_of
from heedful.inference.line_translator import LineTranslator
from heedful.inference.predictor import Alternative, Warn, require_vocabulary, warn_of_cut_texts
from heedful.inference.scoring import Scorer
from heedful.inference.token_stream import new_text
from heedful.models.ensemble import Ensemble
from heedful.models.precisions import Precisions
from heedful.runs.adapters import Adapter, read_adapter_of
from heedful.runs.run import Run


class Translator(LineTranslator):
    """Translates lines of text with a trained encoder-decoder model, and scores given translations.

    Args:
        model: a `Transformer`, or an `Ensemble`.
        source_tokenizer, target_tokenizer: those it was trained with.
        decode: default settings of all calls.
        adapters: trained on the weights of the model, by name. Each call may choose one by `adapter=NAME`.
        reader: see `LineTranslator`.
        run: the `Run` of the model, with which its alignment heads are stored; None: those of one layer are used.
    """

    def __init__(
        self, model: Any, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, decode: DecodeConfig | None = None,
        adapters: Mapping[str, Adapter] | None = None, reader: LineReader | None = None, run: Run | None = None,
    ):  # fmt: skip
        require_vocabulary(model, source_vocab_size=source_tokenizer, target_vocab_size=target_tokenizer)
        precisions, programs = Precisions(model), ProgramCache()

        def new_search(decode: DecodeConfig, scored: bool) -> Any:
            return BatchSearch(precisions[decode.precision], decode, target_tokenizer, scored, programs)

        def new_aligner() -> Aligner:
            one = model.models[0] if isinstance(model, Ensemble) else model
            return Aligner.of_run(run, one) if run else Aligner(one, source_tokenizer, target_tokenizer)

        decode = decode or DecodeConfig()
        super().__init__(new_search, source_tokenizer, target_tokenizer, decode, model.max_length, new_aligner, reader)
        self.model, self._precisions = model, precisions
        self._scorer = functools.cache(lambda model: Scorer(model, self.decode.batch_size))
        self._switch = AdapterSwitch(model, adapters or {}, precisions.refresh)

    @property
    def decoding_model(self) -> Any:
        """The model in the precision of the settings."""
        return self._precisions[self.decode.precision]

    def refresh(self) -> None:
        self._precisions.refresh()

    @classmethod
    def from_run(
        cls, run: Run, decode: DecodeConfig | None = None, adapters: Mapping[str, str | Path] | None = None
    ) -> "Translator":
        """Load the model of a `Run`; `decode` replaces the settings of the run.

        Args:
            run: a `Run`.
            decode: settings that replace those of the run.
            adapters: paths of adapters trained on its weights (files, or the runs that trained them), by name.

        Raises:
            InputError: an adapter is missing, or was trained on other weights.
        """
        return cls.from_runs([run], decode, adapters)

    @classmethod
    def from_runs(
        cls, runs: Sequence[Run], decode: DecodeConfig | None = None, adapters: Mapping[str, str | Path] | None = None
    ) -> "Translator":
        """Load the models of one or several runs; several form an ensemble, which takes no adapters."""
        first = runs[0]
        for run in runs[1:]:
            if run.fingerprints() != first.fingerprints():
                raise InputError(f"{first.path} and {run.path} have different vocabularies: they cannot vote.")
        models = [run.load_model() for run in runs]
        model = models[0] if len(models) == 1 else Ensemble(models)
        if adapters and len(models) > 1:
            raise InputError("An ensemble takes no adapters: train one run for each.")
        base = first.weights_fingerprint()
        loaded = {name: read_adapter_of(path, base, first.path) for name, path in (adapters or {}).items()}
        decode = decode or first.config.decode
        reader = LineReader.of_run(first, model.max_length)
        return cls(model, first.source_tokenizer, first.target_tokenizer, decode, loaded, reader, first)

    def search_with(self, scored: bool = False, adapter: str = "", **options: Any) -> Any:
        """As `LineTranslator.search_with`, with the weights of an adapter."""
        search = super().search_with(scored, **options)
        return AdaptedSearch(search, self._switch, adapter) if adapter or self._switch.adapters else search

    def score(
        self, lines: Iterable[str], references: Iterable[str], warn: Warn | None = None, adapter: str = ""
    ) -> list[np.ndarray]:
        """Return the log-probability in nats of each token of each reference, the end token last.

        `warn` is called with a message for each line that is longer than the model reads.

        Raises:
            InputError: the numbers of lines and references differ, or a reference is too long for the model.
        """
        sources = self.read(list(require_texts(lines)), warn=warn)
        targets = self.target_tokenizer.encode_batch(require_texts(references))
        if len(sources) != len(targets):
            raise InputError(f"{counted(len(sources), 'line')} came with {counted(len(targets), 'reference')}.")
        for number, ids in enumerate(targets, start=1):
            if len(ids) >= self.max_length:
                raise InputError(f"Reference {number} has {len(ids)} tokens; the model writes {self.max_length - 1}.")
        with self._switch.applied(adapter):
            return self._scorer(self.decoding_model)(sources, targets)

    def alternatives(
        self, line: str, prefix: str = "", count: int = 5, warn: Warn | None = None, adapter: str = "", **options: Any
    ) -> list[Alternative]:
        """Return the most likely tokens after `prefix` in the translation of `line`, and how each continues.

        Args:
            line: a text.
            prefix: the beginning of the translation, see `predict_stream`.
            count: how many alternatives.
            warn, options: see `translate`.
            adapter: name of an adapter; empty: none.
        """
        source, search = self.read([require_text(line)], warn=warn)[0], self.search_with(adapter=adapter, **options)
        if not source:
            raise InputError("There is no text to translate.")
        [begun] = self._encode_prefixes([prefix])
        limit = search.length_limit(len(source))
        require_room(begun, limit)
        with self._switch.applied(adapter):
            scores = self._scorer(search.model).next_token(source, begun)
        left_out = (END_ID, *search.forbidden)
        best = [int(token) for token in np.argsort(-scores) if token not in left_out][:count]
        continued = [[*begun, token] for token in best]
        if len(begun) + 1 < limit:  # something can follow
            continued = [candidates[0].ids for candidates in search([source] * len(best), prefixes=continued)]
        texts = map(self.target_tokenizer.decode, continued)
        pieces = self.target_tokenizer.pieces(best)
        return [
            Alternative(piece, float(scores[token]), text)
            for piece, token, text in zip(pieces, best, texts, strict=True)
        ]

    def stream_tokens(
        self, line: str, warn: Warn | None = None, prefix: str = "", number: int = 1, **options: Any
    ) -> Iterator[str]:
        """Yield the translation of one line piece by piece, each as soon as its token is chosen.

        Args:
            line: a text.
            warn: called with a message if the line is longer than the model reads.
            prefix: the beginning of the translation, see `predict_stream`.
            number: of the line, on which a sample depends.
            options: see `translate`. Tokens are chosen greedily or sampled; a configured beam is ignored, since its
                tokens are not final before the end.
        """
        greedy = {"beam_size": 1, "n_best": 1}
        search = self.search_with(**greedy | options)
        glossary = None if prefix else self.glossary
        read = self.reader.reading(search.decode, bool(prefix), warn, glossary)(require_text(line), "the line")
        # Markup, and a text without words, is put back into a whole translation; so are the texts of a message.
        if read.marked or read.pieces.joined or (not prefix and message_of(line, search.decode)):
            yield self.translate(line, warn, **greedy | options)
            return
        pieces = read.pieces
        warn_of_cut_texts(pieces.notes, warn)
        [begun] = self._encode_prefixes([prefix])
        written = ""
        for index, ids in enumerate(self.read(pieces.texts, warn=warn)):
            if index:
                yield gap_after(written, pieces.gaps[index - 1])
            written = ""
            tokens = search.stream(ids, number + SENTENCE_STRIDE * index, begun) if ids else ()
            for part in new_text(self.target_tokenizer, tokens):
                written += part
                yield part
