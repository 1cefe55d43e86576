"""The decoding loop: turns a model that scores the next token into whole sequences, in one compiled program.

The search calls three methods of a model: `prefill` encodes the sources, `empty_cache` returns empty caches, and
`decode_step` reads one token of each hypothesis and scores the next. A strategy chooses tokens; constraints say which
tokens are allowed.

A slot decodes one sentence. When the sentence is done, the slot takes the next waiting one (continuous batching), so no
sentence waits for a longer one. Slots are independent.

The caches are ring buffers: at each step every slot stores its new token at the same index, and attends to as many
entries back as its sentence has tokens. A slot can thus start a new sentence without moving or clearing anything.

Axes: W sentences, B slots, K hypotheses of each, C capacity in tokens, S source length, V vocabulary, P results of a
sentence.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from keras import ops
from keras.tree import map_structure

from heedful.backend import Tensor
from heedful.decoding.constraints import TokenConstraints
from heedful.decoding.strategies import Step, Strategy


class SearchResults(NamedTuple):
    """The results of a search, in the order of the sources."""

    tokens: Any  # (W, P, C), padded with zeros
    scores: Any  # (W, P)
    complete: Any  # (W,), False where the capacity may have cut off a sentence


class LoopState(NamedTuple):
    """The state of the loop: what changes from step to step."""

    clock: Any  # steps so far
    sentence: Any  # (B,), the number of each slot's sentence; W where the slot is idle
    age: Any  # (B,), tokens written
    memory: Any  # of the sentences in the slots, from `prefill`
    past: Any  # caches
    hypotheses: Any  # the state of the strategy
    waiting: Any  # number of the next sentence
    results: Any  # `SearchResults` with one more row, for idle slots


@dataclass(frozen=True)
class Setup:
    """The constants of a search.

    Args:
        model: see the module docstring. The first axis of the arrays that `prefill` returns is W, or a multiple of W.
        strategy: `Greedy`, `BeamSearch` or `Sampling`.
        constraints: `TokenConstraints`, or None.
        first: first input token of each sentence (W,).
        limits: maximum length of each sentence, and 0 for an idle slot (W + 1,).
        fresh: the initial hypotheses of a sentence.
        slots: number of sentences decoded together, B.
        capacity: C.
        memory: of all sentences, from `prefill`.
        padding: which tokens of each source are padding (W, 1, S), for a strategy that needs attention.
        ring: whether the search takes more steps than the capacity, so that cache entries are reused.
    """

    model: Any
    strategy: Strategy
    constraints: TokenConstraints | None
    first: Any
    limits: Any
    fresh: Any
    slots: int
    capacity: int
    memory: Any
    padding: Any = None
    ring: bool = False

    @property
    def count(self) -> int:
        """The number of sentences, W."""
        return self.first.shape[0]

    @property
    def refills(self) -> bool:
        """Whether a slot takes another sentence when one is done."""
        return self.slots < self.count


def search(setup: Setup) -> SearchResults:
    """Generate the best continuation of every sentence."""
    condition, body = lambda state: unfinished(setup, state), lambda state: (advance(setup, state),)
    return search_results(setup, ops.while_loop(condition, body, (first_state(setup),))[0])


def new_setup(
    model: Any, memory: Any, first: Tensor, limits: Tensor, strategy: Strategy,
    constraints: TokenConstraints | None = None, *, slots: int | None = None, capacity: int, ring: bool = False,
) -> Setup:  # fmt: skip
    """Return the `Setup` of a search.

    Args:
        memory: result of `prefill`.
        limits: maximum length of each sentence (W,).
        slots: number of sentences decoded together, a Python number; None: all.
        capacity: C, a Python number.
        ring: see `Setup`; always set where there are more sentences than slots.
        model, first, strategy, constraints: see `Setup`.
    """
    count = first.shape[0]
    limits = ops.concatenate([ops.cast(limits, "int32"), ops.zeros((1,), "int32")])
    fresh = strategy.start(1, capacity, memory.visible.shape[-1])
    padding = ops.logical_not(memory.visible[:, 0]) if strategy.attention else None
    first = ops.cast(first, "int32")
    slots = min(slots or count, count)
    ring = ring or slots < count
    return Setup(model, strategy, constraints, first, limits, fresh, slots, capacity, memory, padding, ring)


def first_state(setup: Setup) -> LoopState:
    """Return the initial `LoopState`: every slot has a sentence, and no token is generated yet."""
    count, slots, strategy = setup.count, setup.slots, setup.strategy
    nothing, score = strategy.results(setup.fresh)
    memory = setup.memory
    return LoopState(
        clock=ops.convert_to_tensor(0, "int32"),
        sentence=ops.arange(slots, dtype="int32"),
        age=ops.zeros((slots,), "int32"),
        memory=map_structure(lambda x: x[: x.shape[0] // count * slots], memory) if setup.refills else memory,
        past=setup.model.empty_cache(slots, setup.capacity * strategy.width),
        hypotheses=_reading(strategy.start(slots, setup.capacity, memory.visible.shape[-1]), setup.first[:slots]),
        waiting=ops.convert_to_tensor(slots, "int32"),
        results=SearchResults(
            ops.repeat(nothing, count + 1, axis=0),
            ops.repeat(score, count + 1, axis=0),
            ops.ones((count + 1,), "bool"),
        ),
    )


def unfinished(setup: Setup, state: LoopState) -> Tensor:
    """Return whether any slot has a sentence."""
    return ops.any(state.sentence < setup.count)


def advance(setup: Setup, state: LoopState) -> LoopState:
    """Generate one token of every hypothesis; return the next state."""
    capacity, strategy = setup.capacity, setup.strategy
    place = state.clock % capacity if setup.ring else state.clock
    places = ops.arange(capacity, dtype="int32")
    in_sentence = (place - places) % capacity <= state.age[:, None]  # (B, C)
    hypotheses = state.hypotheses.writing_at(place)
    logits, past, attention = setup.model.decode_step(
        hypotheses.last, state.memory, state.past,
        place=place * strategy.width,
        positions=ops.minimum(state.age, capacity - 1)[:, None],  # the age of an idle slot grows without limit
        visible=_visible(hypotheses.ancestors, in_sentence),
        attention=strategy.attention,
    )  # fmt: skip
    logits = ops.cast(logits, "float32")
    if attention is not None:
        padding = ops.take(setup.padding, ops.minimum(state.sentence, setup.count - 1), axis=0)
        attention = ops.where(padding, 1.0, attention)  # padding counts as covered
    if setup.constraints is not None:
        logits = setup.constraints.apply(logits, hypotheses.tokens, state.age, state.sentence)
    limit = ops.take(setup.limits, state.sentence, axis=0)
    last = state.age + 1 >= ops.minimum(limit, capacity)
    step = Step(state.age, limit, last, state.sentence, attention)
    hypotheses, done = strategy.extend(hypotheses, logits, step)
    done = ops.logical_and(done, state.sentence < setup.count)
    state = state._replace(clock=state.clock + 1, past=past, hypotheses=hypotheses)
    state = _replace_done(setup, state, done)
    return state._replace(age=state.age + 1)


def search_results(setup: Setup, state: LoopState) -> SearchResults:
    """Return the `SearchResults` of a finished search."""
    results, count = state.results, setup.count
    within = ops.arange(setup.capacity, dtype="int32") < setup.limits[:count, None, None]
    return SearchResults(ops.where(within, results.tokens[:count], 0), results.scores[:count], results.complete[:count])


def _replace_done(setup: Setup, state: LoopState, done: Tensor) -> LoopState:
    """Store the results of the `done` sentences (B,), and give their slots to waiting ones."""

    def replace_first(state: LoopState, done: Tensor) -> tuple[LoopState, Tensor]:
        slot = ops.cast(ops.argmax(ops.cast(done, "int32")), "int32")
        state = _admit(setup, _store(setup, state, slot), slot)
        return state, ops.logical_and(done, ops.not_equal(ops.arange(setup.slots, dtype="int32"), slot))

    return ops.while_loop(lambda state, done: ops.any(done), replace_first, (state, done))[0]


def _store(setup: Setup, state: LoopState, slot: Tensor) -> LoopState:
    """Store the results of the sentence in a slot."""
    number = ops.take(state.sentence, slot[None], axis=0)[0]
    hypotheses = map_structure(lambda x: ops.take(x, slot[None], axis=0), state.hypotheses)
    age = ops.take(state.age, slot[None], axis=0) + 1
    limit = ops.take(setup.limits, number[None], axis=0)
    complete = ops.logical_or(limit <= setup.capacity, age < setup.capacity)
    tokens, scores = setup.strategy.results(hypotheses)
    result = SearchResults(tokens, scores, complete)
    return state._replace(results=map_structure(lambda x, row: _set_row(x, number, row), state.results, result))


def _admit(setup: Setup, state: LoopState, slot: Tensor) -> LoopState:
    """Give a slot to the next waiting sentence, if any."""
    following = ops.minimum(state.waiting, setup.count)
    state = state._replace(
        sentence=_set_row(state.sentence, slot, following[None]),
        waiting=state.waiting + 1,
    )
    if not setup.refills:
        return state
    number = ops.minimum(following, setup.count - 1)
    hypotheses = _reading(setup.fresh, ops.take(setup.first, number[None], axis=0))
    return state._replace(
        age=_set_row(state.age, slot, ops.full((1,), -1, "int32")),  # 0 after this step
        hypotheses=map_structure(lambda x, row: _set_row(x, slot, row), state.hypotheses, hypotheses),
        memory=map_structure(lambda x, rows: _refilled(x, slot, setup.slots, rows, number), state.memory, setup.memory),
    )


def _visible(ancestors: Tensor, in_sentence: Tensor) -> Tensor:
    """Return the mask (B, 1, K, C x K) of the cached tokens that each hypothesis sees; K tokens share a place.

    Args:
        ancestors: which of the K tokens at each place belongs to the hypothesis (B, K, C).
        in_sentence: which places belong to the sentence (B, C).
    """
    _, width, capacity = ancestors.shape
    if width == 1:
        return in_sentence[:, None, None, :]
    own = ops.equal(ancestors[..., None], ops.arange(width, dtype="int32"))  # (B, K, C, K)
    visible = ops.logical_and(own, in_sentence[:, None, :, None])
    return ops.reshape(visible, (-1, 1, width, capacity * width))


def _reading(hypotheses: Any, ids: Tensor) -> Any:
    """Return hypotheses with `ids` (B,) as their next input tokens."""
    return hypotheses._replace(last=ops.broadcast_to(ids[:, None], ops.shape(hypotheses.last)))


def _refilled(x: Tensor, slot: Tensor, slots: int, all_rows: Tensor, number: Tensor) -> Tensor:
    """Return `x` with sentence `number` of `all_rows` in one of its `slots`; a sentence may have several rows."""
    each = x.shape[0] // slots
    other_axes = [0] * (len(x.shape) - 1)
    rows = ops.slice(all_rows, (number * each, *other_axes), (each, *x.shape[1:]))
    return ops.slice_update(x, (slot * each, *other_axes), rows)


def _set_row(x: Tensor, index: Tensor, row: Tensor) -> Tensor:
    """Return `x` with `row` (1, ...) at `index` of its first axis."""
    return ops.slice_update(x, (index, *[0] * (len(x.shape) - 1)), ops.cast(row, x.dtype))
