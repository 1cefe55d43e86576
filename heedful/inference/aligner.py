"""Word alignment of translations by the cross-attention heads that align best.

Axes: B sentences, L layers, N heads, T target length, S source length.
"""

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from keras import ops

from heedful import __version__, backend
from heedful.backend import Tensor
from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID, START_ID
from heedful.core.storage import plain_file, write_text
from heedful.core.validation import from_dict, read_json
from heedful.data.corpus import Corpus
from heedful.data.lengths import cut, round_up, run_by_length
from heedful.data.markup.aligned_text import AlignedText
from heedful.data.markup.words import Word
from heedful.data.padding import padded_batch
from heedful.data.tokenizer import Tokenizer
from heedful.data.word_alignment import Links, aligned_both_ways
from heedful.layers import Trace

if TYPE_CHECKING:
    from heedful.runs.run import Run

FILE = "alignment.json"  # of a run: its chosen heads
LENGTH_STEP, BATCH = 16, 32  # lengths are rounded up to multiples of the step, so that few programs are compiled
CHOSEN_ON, LEARNED_FROM = 500, 20_000  # pairs of lines
MAX_HEADS = 6


@dataclass(frozen=True)
class AlignmentHeads:
    """The cross-attention heads that align words."""

    heads: tuple[str, ...] = ()
    """Each as LAYER.HEAD, counted from 1. Empty: all heads of the layer before the last."""
    read_as: str = "output"
    """Whether a word is aligned when the decoder writes it (output), or when it reads it (input), see Chen et al. 2020,
    "Accurate Word Alignment Induction from Neural Machine Translation"."""
    agreement: float = 0.0
    """F1 of its links with those of word statistics, see `data.word_alignment`. 0: nothing was measured."""
    pairs: int = 0
    """Pairs of validation lines on which the heads were chosen."""
    version: str = __version__

    def signature(self) -> str:
        """Return in one line how words are aligned, for a report."""
        heads = "+".join(self.heads) or "layer before the last"
        measured = f"agreement:{self.agreement:.3f}|pairs:{self.pairs}"
        return f"heads:{heads}|read:{self.read_as}|{measured}|version:{self.version}"

    def indices(self, layers: int, heads: int) -> list[tuple[int, int]]:
        """Return (layer, head) of each chosen one, from 0.

        Raises:
            InputError: the model has no such heads.
        """
        if not self.heads:
            return [(max(0, layers - 2), head) for head in range(heads)]
        try:
            chosen = [(int(layer) - 1, int(head) - 1) for layer, head in (text.split(".") for text in self.heads)]
        except ValueError:
            chosen = [(-1, -1)]
        if any(not (0 <= layer < layers and 0 <= head < heads) for layer, head in chosen):
            raise InputError(f"{FILE} names heads that the model does not have: {', '.join(self.heads)}.")
        return chosen


class Aligner:
    """Aligns the words of translations with those of their sources.

    Args:
        model: a `Transformer`.
        source_tokenizer, target_tokenizer: those it was trained with.
        heads: the heads that align best.

    Attributes:
        cut: number of texts so far of which only the beginning was read.
    """

    def __init__(
        self, model: Any, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, heads: AlignmentHeads | None = None
    ):
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.heads, self.max_length, self.cut = heads or AlignmentHeads(), model.max_length, 0
        depth = model.architecture.depths["decoder"]
        self._size = depth, model.architecture.num_heads
        paths = [f"decoder/block_{layer}/cross_attention" for layer in range(depth)]

        def read(source: Tensor, target: Tensor) -> Tensor:
            trace = Trace()
            model((source, target), trace=trace)
            return ops.cast(ops.stack([trace[path] for path in paths], axis=1), "float32")

        self._program = backend.compiled(read, model, brief=True)

    @classmethod
    def of_run(cls, run: "Run", model: Any) -> "Aligner":
        """Return the aligner of a run, with the heads that are stored with it.

        If there are none, they are chosen on its validation text, where that can be read, and stored.
        """
        aligner = cls(model, run.source_tokenizer, run.target_tokenizer)
        aligner.heads = stored_heads(run) or choose_heads(run, aligner)
        return aligner

    def __call__(self, pairs: Sequence[tuple[AlignedText, AlignedText]]) -> list[np.ndarray]:
        """Return for each pair of source and target how each target word belongs to each source word (T, S).

        Rows of words that the model has read sum to 1, see `balanced`.
        """
        chosen = self.heads.indices(*self._size)
        layers, heads = (np.array(one) for one in zip(*chosen, strict=True))
        shift = int(self.heads.read_as == "input")
        return self._between_words(pairs, lambda weights: balanced(weights[shift, layers, heads].mean(axis=0)))

    def links(self, pairs: Sequence[tuple[str, str]]) -> list[Links]:
        """Return for each pair of texts the links of its words: (source, target), from 0.

        Each target word has the source word that it attends to most; a word that attends to none has no link.
        """
        texts = [(AlignedText.of(source), AlignedText.of(target)) for source, target in pairs]
        return [links_of(matrix) for matrix in self(texts)]

    def every_head(self, pairs: Sequence[tuple[AlignedText, AlignedText]]) -> list[np.ndarray]:
        """Return for each pair the attention of all heads between words: (2, L, N, T, S), written and read."""
        return self._between_words(pairs, lambda weights: weights)

    def _between_words(
        self, pairs: Sequence[tuple[AlignedText, AlignedText]], kept: Callable[[np.ndarray], np.ndarray]
    ) -> list[np.ndarray]:
        """Return for each pair what is `kept` of the attention of all heads, which is large: see `every_head`."""
        sources = [self._encoded(self.source_tokenizer, source.text) for source, _ in pairs]
        targets = [self._encoded(self.target_tokenizer, target.text) for _, target in pairs]

        def run(order: Sequence[int]) -> list[np.ndarray]:
            rows = [*order, *[order[0]] * (BATCH - len(order))]
            weights = np.asarray(backend.to_numpy(self._program(
                self._batch([[*sources[row][0], END_ID] for row in rows]),
                self._batch([[START_ID, *targets[row][0]] for row in rows]),
            )))  # fmt: skip
            results = []
            for weight, index in zip(weights, order, strict=False):
                source, target = pairs[index]
                from_source = _pooling(sources[index][1], source.words, mean=False)
                from_target = _pooling(targets[index][1], target.words, mean=True)
                length, read = from_target.shape[1], from_source.shape[1]
                shifted = np.stack([weight[:, :, start : start + length, :read] for start in (0, 1)])
                results.append(kept(from_target @ shifted @ from_source.T))
            return results

        lengths = [(len(s[0]), len(t[0])) for s, t in zip(sources, targets, strict=True)]
        return run_by_length(lengths, lambda order: cut(order, BATCH), run)

    def _encoded(self, tokenizer: Tokenizer, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        ids, spans = tokenizer.ids_and_spans(text)
        self.cut += len(ids) > self.max_length - 1
        return ids[: self.max_length - 1], spans[: self.max_length - 1]

    def _batch(self, rows: Sequence[list[int]]) -> np.ndarray:
        # One place more than the longest text, so that its last word is read too.
        length = min(self.max_length, round_up(max(map(len, rows)), LENGTH_STEP))
        return padded_batch(rows, length, "max_length", truncation=False)["ids"]


def stored_heads(run: "Run") -> AlignmentHeads | None:
    """Return the heads that are stored with a run, if any."""
    if not (run.path / FILE).is_file():
        return None
    return from_dict(AlignmentHeads, read_json(plain_file(run.path, FILE)), str(run.path / FILE))


def choose_heads(run: "Run", aligner: Aligner) -> AlignmentHeads:
    """Return the heads that agree best with word statistics on the validation text of a run; store them with it.

    Without its text, the heads of the layer before the last are taken (Garg et al. 2019, "Jointly Learning to Align and
    Translate with Transformer Models", section 4.1), and nothing is stored.
    """
    try:
        corpora = run.task.find_corpora(run.config)
        valid = _texts(corpora["valid"], CHOSEN_ON)
        pairs = valid + _texts(corpora["train"], LEARNED_FROM)
    except (InputError, OSError):  # or it belongs to somebody else
        return AlignmentHeads()
    if not valid:
        return AlignmentHeads()
    words = [(source.split(), target.split()) for source, target in pairs]
    heads = best_heads(aligner.every_head(valid), aligned_both_ways(words, len(valid)))
    with contextlib.suppress(OSError):  # a folder that cannot be written to; the choice is the same next time
        write_text(run.path / FILE, json.dumps(dataclasses.asdict(heads), indent=2) + "\n")
    return heads


def best_heads(every: Sequence[np.ndarray], links: Sequence[Links]) -> AlignmentHeads:
    """Return the heads whose mean attention has the best F1 with given links; heads are added while it grows.

    Args:
        every: attention of all heads, see `Aligner.every_head`.
        links: of the same pairs.
    """

    def agreement(shift: int, chosen: Sequence[tuple[int, int]]) -> float:
        predicted = [links_of(balanced(sum(weights[(shift, *one)] for one in chosen))) for weights in every]
        right = sum(len(one & other) for one, other in zip(predicted, links, strict=True))
        return 2 * right / max(1, sum(map(len, predicted)) + sum(map(len, links)))

    layers, heads = every[0].shape[1:3]
    alone = {
        (shift, layer, head): agreement(shift, [(layer, head)])
        for shift, layer, head in itertools.product((0, 1), range(layers), range(heads))
    }
    shift, *_ = max(alone, key=lambda one: alone[one])
    ranked = sorted(
        ((layer, head) for read, layer, head in alone if read == shift), key=lambda one: -alone[shift, *one]
    )
    chosen, best = ranked[:1], alone[shift, *ranked[0]]
    for other in ranked[1 : 2 * MAX_HEADS]:
        if len(chosen) < MAX_HEADS and (score := agreement(shift, [*chosen, other])) > best:
            chosen, best = [*chosen, other], score
    names = tuple(f"{layer + 1}.{head + 1}" for layer, head in sorted(chosen))
    return AlignmentHeads(names, "input" if shift else "output", round(best, 4), len(every))


def _texts(corpus: Corpus, count: int) -> list[tuple[AlignedText, AlignedText]]:
    pairs = itertools.islice(corpus, count)
    return [(AlignedText.of(pair[0]), AlignedText.of(pair[1])) for pair in pairs if pair[0] and pair[1]]


def links_of(matrix: np.ndarray) -> Links:
    """Return the links (source, target) of an alignment (T, S): each target word with its strongest source word."""
    best = matrix.argmax(axis=1) if matrix.size else []
    return {(int(source), target) for target, source in enumerate(best) if matrix[target, source] > 0}


def balanced(attention: np.ndarray) -> np.ndarray:
    """Return attention (T, S) as an alignment: each source word has the same weight in total, then rows sum to 1.

    Models rest much of their attention on a few words, such as the last one, whatever they write.
    """
    weights = attention / np.maximum(attention.sum(axis=0, keepdims=True), 1e-9)
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)


def _pooling(spans: Sequence[tuple[int, int]], words: Sequence[Word], mean: bool) -> np.ndarray:
    """Return which tokens (the columns) belong to which words; a token in several is shared by them.

    Args:
        spans: characters of each token.
        words: in order.
        mean: whether rows are divided by their sum.
    """
    pooling = np.zeros((len(words), len(spans)), np.float32)
    if words and spans:
        starts, ends = (np.array([word[side] for word in words])[:, None] for side in (0, 1))
        begins, stops = (np.array([span[side] for span in spans])[None, :] for side in (0, 1))
        pooling[:] = np.clip(np.minimum(ends, stops) - np.maximum(starts, begins), 0, None)
        pooling /= np.maximum(pooling.sum(axis=0, keepdims=True), 1)
    if mean:
        pooling /= np.maximum(pooling.sum(axis=1, keepdims=True), 1e-9)
    return pooling
