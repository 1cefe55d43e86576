"""The model of a served page: it answers with the weights of a run, in ids; the page knows the texts.

It is the second implementation of the interface in web/model.js; the first one computes in the browser.
"""

import base64
import contextlib
import dataclasses
import functools
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from heedful.core.errors import InputError
from heedful.core.special_tokens import MASK
from heedful.core.storage import read_with_checksum
from heedful.decoding.candidates import forbidden_ids
from heedful.inspection.nearest_pairs import NearestPairs
from heedful.inspection.page.contents import best_update, describe, earlier_checkpoints, require_page
from heedful.inspection.readers import reader_of
from heedful.inspection.reading import Head, Look, Variant
from heedful.inspection.run_text import text_to_show
from heedful.inspection.search_tree import TreeSearch
from heedful.models.precisions import in_precision
from heedful.runs.run import Run
from heedful.runs.weights import load_weights, weights_by_name

MAX_CHECKPOINTS = 50  # checkpoints that a page can choose from
MAX_VARIANTS = 2048  # variants scored for one question
MAX_BEAM_WIDTH = 16
NUM_CANDIDATES = 8  # most likely tokens that are shown at each position, the chosen one included


class PageModel:
    """Answers what a page asks about a run. Threads may share it: they take turns.

    Args:
        run: a trained `Run`, see `contents.require_page`. The model computes in float32.
    """

    def __init__(self, run: Run):
        require_page(run)
        self.run, self._lock = run, threading.Lock()
        self.model = in_precision(run.load_model(), "float32")
        starts, mask = run.task.starts_texts(run.config), run.tokenizer.lookup(MASK)
        self.reader = reader_of(self.model, starts, mask)
        # A model without a causal mask reads what follows; it writes token by token all the same.
        self._causal = self.model if self.model.architecture.causal_mask else _causal_copy(self.model)
        self._writer = self.reader if self._causal is self.model else reader_of(self._causal, starts, mask)
        self._earlier = {one.update: one.read for one in earlier_checkpoints(run, MAX_CHECKPOINTS)}
        self._trained = best_update(run)
        self._names = list(weights_by_name(self.model))
        self._loaded: int | None = self._trained
        self._nearest: NearestPairs | None = None

    @functools.cached_property
    def about(self) -> dict[str, Any]:
        """The description of the run, see `contents.describe`, and what the reader knows."""
        known = {"kinds": list(self.reader.layers), "ends": self.reader.ends, "nearest": self._has_pairs()}
        return describe(self.run, list(self._earlier)) | known

    def look(self, source: Any, target: Any, off: Any = None, checkpoint: Any = None) -> dict[str, Any]:
        """Return the log-probability, entropy and most likely tokens at each target position, and every attention map.

        Args:
            source, target: lists of ids, see `Variant`.
            off: attention heads to disable: `{kind: {layer: {head: true}}}`.
            checkpoint: update of one of the checkpoints in `about`; None: the trained model.

        Raises:
            InputError: an argument does not fit the model.
        """
        variant = self._variant(source, target, off)
        with self._using(checkpoint):
            seen: Look = self.reader.look(variant)
        forbidden = list(self.reader.forbidden)
        targets = self.reader.targets(variant)
        return {
            "steps": [_step(token, row, forbidden) for token, row in zip(targets, seen.log_probabilities, strict=True)],
            "maps": {kind: [_as_json(layer) for layer in layers] for kind, layers in seen.attention.items()},
            "reading": {"map": self.reader.read_map, "readers": self.reader.readers(variant),
                        "column": self.reader.first_column},
        }  # fmt: skip

    def score(self, variants: Any, checkpoint: Any = None) -> Iterator[tuple[int, list[float]]]:
        """Yield the number of each variant, a dict of arguments of `look`, with the scores of its target.

        Raises:
            InputError: see `look`; or there are more than `MAX_VARIANTS`.
        """
        if not isinstance(variants, list) or not all(isinstance(one, dict) for one in variants):
            raise InputError("The field 'variants' must be a list of objects.")
        if len(variants) > MAX_VARIANTS:
            raise InputError(f"There may be {MAX_VARIANTS} variants at most.")
        checked = [self._variant(one.get("source"), one.get("target"), one.get("off")) for one in variants]
        with self._using(checkpoint):
            for number, scores in self.reader.scores(checked):
                yield number, scores.tolist()

    def write(
        self,
        source: Any,
        prefix: Any = None,
        off: Any = None,
        width: int = 1,
        checkpoint: Any = None,
        tokens: int = 0,
    ) -> Iterator[dict[str, Any]]:
        """Yield what the model writes.

        That is `{id, logp}` for each token; once `{nodes, done}` for a beam; once `{ids}` if it fills or classifies.

        Args:
            source, off, checkpoint: see `look`.
            prefix: ids that the output starts with.
            width: of the beam; 1: greedy.
            tokens: maximum number of new tokens; 0: the run's limit.

        Raises:
            InputError: see `look`; or the beam is too wide.
        """
        max_width = min(MAX_BEAM_WIDTH, self.reader.vocabularies[1] // 2)
        if not 1 <= width <= max_width:
            raise InputError(f"The field 'width' must be from 1 to {max_width}.")
        if not self.run.task.writes:
            yield {"ids": self._chosen(source, off, checkpoint)}
            return
        variant = self._variant(source, [] if prefix is None else prefix, off)
        forbidden = forbidden_ids(self.run.config.decode, self.run.target_tokenizer)
        search = TreeSearch(
            self._writer, self.run.config.decode, forbidden, variant.source, variant.target, variant.off, tokens
        )
        if width > 1:
            with self._using(checkpoint):
                nodes, done = search.beam(width)
            yield {
                "nodes": [dataclasses.asdict(one) for one in nodes],
                "done": [dataclasses.asdict(one) for one in done],
            }
            return
        steps = search.greedy()
        while True:
            with self._using(checkpoint):
                step = next(steps, None)
            if step is None:
                return
            yield step._asdict()

    def nearest(self, text: str) -> dict[str, Any]:
        """Return the training pairs that are nearest to a text; `InputError` if there are none on this machine."""
        with self._lock:
            self._nearest = self._nearest or NearestPairs.of(self.run)
        return {"pairs": [pair._asdict() for pair in self._nearest(text)], "total": len(self._nearest.pairs)}

    def _has_pairs(self):
        """Return whether the run's training text is on this machine, may be shown, and has pairs."""
        try:
            first = next(iter(text_to_show(self.run)["train"]), None)
        except InputError:
            return False
        return first is not None and self.run.task.pair_of(first) is not None

    def _chosen(self, source, off, checkpoint) -> list[int]:
        """Return the most likely token for each mask, or the most likely class."""
        targets = [0] * len(self.reader.rows(Variant(_ids("source", source), [])))
        variant = self._variant(source, targets, off)
        with self._using(checkpoint):
            scores = self.reader.look(variant).log_probabilities.copy()
        scores[:, list(self.reader.forbidden)] = -np.inf
        return scores.argmax(axis=-1).tolist()

    @contextlib.contextmanager
    def _using(self, checkpoint: Any) -> Iterator[None]:
        """Reserve the model for a thread, with the weights of a checkpoint."""
        update = self._trained if checkpoint is None else checkpoint
        if isinstance(update, bool) or update not in (*self._earlier, self._trained):
            known = ", ".join(map(str, (*self._earlier, self._trained)))
            raise InputError(f"There is no checkpoint at update {update!r}, or it was deleted; choose one of: {known}.")
        with self._lock:
            if update != self._loaded:
                self._load(update)
            yield

    def _load(self, update):
        path = self.run.weights_path()
        weights = read_with_checksum(path)[0] if update == self._trained else self._earlier[update]()
        weights = {name: weights[name] for name in self._names}  # a checkpoint has more than the model's weights
        self._loaded = None  # until everything is read
        for model in {id(one): one for one in (self.model, self._causal)}.values():
            load_weights(model, weights, path)
        self._loaded = update

    def _variant(self, source: Any, target: Any, off: Any) -> Variant:
        """Return a checked variant."""
        variant = Variant(_ids("source", source), _ids("target", target), frozenset(self._heads(off or {})))
        counts = self.reader.vocabularies
        for name, ids, count in (("source", variant.source, counts[0]), ("target", variant.target, counts[1])):
            if any(not 0 <= token < count for token in ids):
                raise InputError(f"The field {name!r} contains an id outside 0 to {count - 1}.")
        self.reader.inputs(variant)  # refuses what is too long
        if len(self.reader.rows(variant)) != len(self.reader.targets(variant)):
            raise InputError("The field 'target' must have an id for each mask, or one class.")
        return variant

    def _heads(self, off: Any) -> Iterator[Head]:
        """Yield the heads of `off`; `InputError` if there is no such head."""
        try:
            for kind, layers in off.items():
                for layer, heads in layers.items():
                    for head, is_off in heads.items():
                        if not 0 <= int(head) < self.reader.layers[kind][int(layer)].num_heads or int(layer) < 0:
                            raise IndexError
                        if is_off:
                            yield kind, int(layer), int(head)
        except (AttributeError, KeyError, IndexError, ValueError) as error:
            raise InputError(
                "The field 'off' must be {kind: {layer: {head: true}}} with heads of this model."
            ) from error


def _causal_copy(model):
    copy = type(model)(**{**model.arguments, "causal_mask": True}, name=model.name, dtype="float32")
    for own, other in zip(copy.variables, model.variables, strict=True):
        own.assign(other)
    return copy


def _ids(name: str, given: Any) -> list[int]:
    if not isinstance(given, list) or any(not isinstance(token, int) or isinstance(token, bool) for token in given):
        raise InputError(f"The field {name!r} must be a list of ids.")
    return given


def _step(token: int, log_probabilities: np.ndarray, forbidden: list[int]) -> dict[str, Any]:
    """Return the probability of a token, the entropy at its position, and the most likely tokens."""
    likely = log_probabilities > -50
    entropy = float(-(np.exp(log_probabilities[likely], dtype=np.float64) * log_probabilities[likely]).sum())
    best = np.argsort(-log_probabilities, kind="stable")[: NUM_CANDIDATES + len(forbidden)]
    rivals = [int(other) for other in best if other not in forbidden][:NUM_CANDIDATES]
    return {"id": token, "logp": float(log_probabilities[token]), "entropy": entropy,
            "top": [{"id": other, "logp": float(log_probabilities[other])} for other in rivals]}  # fmt: skip


def _as_json(attention: np.ndarray) -> Mapping[str, Any]:
    """Return a map (N, T, S) for JSON: its weights as float32 in base64."""
    content = base64.b64encode(np.ascontiguousarray(attention, "<f4").tobytes()).decode("ascii")
    return {"weights": content, "rows": attention.shape[1], "columns": attention.shape[2]}
