"""From a model that scores the next token to whole sequences, in one compiled loop.

The model is known by three methods only: `begin` reads sources, `room` gives empty caches, `step` reads one token of
each hypothesis and scores the next. How a token is chosen is a strategy's business, what may be chosen the rules'.

Axes: W sentences, B slots in which sentences are worked on, K hypotheses of each, C places for tokens, S source
length, V vocabulary, P results of a sentence.
"""

from typing import Any, NamedTuple

from keras import ops
from keras.tree import map_structure

from heedful.generation.strategies import Step
from heedful.layers import Trace


class Found(NamedTuple):
    """The results of a search, in the order of the sources."""

    tokens: Any  # (W, P, C), padded with zeros
    scores: Any  # (W, P)
    complete: Any  # (W,), False where C places were too few for a sentence that may be longer


class _Slots(NamedTuple):
    """The state of the loop. A slot holds one sentence until it is done, then the next that waits."""

    clock: Any
    sentence: Any  # (B,), W where there is nothing left to do
    age: Any  # (B,), tokens written
    memory: Any  # of the sentences in the slots
    past: Any
    hypotheses: Any
    waiting: Any  # number of the next sentence
    found: Any  # as `Found`, with a row more


def search(model, source, first, limits, strategy, rules=None, *, slots=None, room):
    """Write the best continuation of every sentence.

    A sentence that is done makes place for one that waits, so no sentence waits for a longer one. Nothing that happens
    in one slot depends on the others.

    The caches are rings: at each tick of the clock every slot stores its new token at the same place, and reads as
    many places back as its sentence is old. So a slot starts anew without anything being moved or cleared.

    Args:
        model: has `begin(source) -> memory`, whose arrays have W, or a multiple of it, as their first axis;
            `room(B, places) -> past`; and `step(ids (B, K), memory, past, place=, positions=, visible=, trace=) ->
            (logits (B, K, V), past)`.
        source: what `begin` takes, its first axis W.
        first: the token that each sentence reads first (W,).
        limits: most tokens of each sentence (W,).
        strategy: `Greedy`, `BeamSearch` or `Sampling`.
        rules: `Rules`, or None.
        slots: how many sentences are worked on at a time, a Python number; None: all.
        room: places C for tokens, a Python number.

    Returns:
        `Found`.
    """
    count = source.shape[0]
    slots = min(slots or count, count)
    refill = slots < count
    width = strategy.width
    memory = model.begin(source)
    limits = ops.concatenate([ops.cast(limits, "int32"), ops.zeros((1,), "int32")])  # a row for "no sentence"
    first = ops.cast(first, "int32")
    fresh = strategy.start(1, room, source.shape[-1])
    places = ops.arange(room, dtype="int32")
    hidden = ops.logical_not(memory.visible[:, 0]) if strategy.attention else None  # (W, 1, S)

    def unfinished(state):
        return ops.any(state.sentence < count)

    def tick(state):
        place = state.clock % room if refill else state.clock
        in_time = (place - places) % room <= state.age[:, None]  # (B, C)
        hypotheses = state.hypotheses.writing_at(place)
        told = {
            "place": place * width,
            "positions": ops.minimum(state.age, room - 1)[:, None],  # idle slots grow older without end
            "visible": _visible(hypotheses.ancestors, in_time),
        }
        logits, past, attention = _step(model, hypotheses.last, state, strategy.attention, told)
        logits = ops.cast(logits, "float32")
        if attention is not None:
            padding = ops.take(hidden, ops.minimum(state.sentence, count - 1), axis=0)
            attention = ops.where(padding, 1.0, attention)  # no attention is expected there
        if rules is not None:
            logits = rules.apply(logits, hypotheses.tokens, state.age, state.sentence)
        limit = ops.take(limits, state.sentence, axis=0)
        last = state.age + 1 >= ops.minimum(limit, room)
        step = Step(state.age, limit, last, state.sentence, attention)
        hypotheses, done = strategy.extend(hypotheses, logits, step)
        done = ops.logical_and(done, state.sentence < count)
        state = state._replace(clock=state.clock + 1, past=past, hypotheses=hypotheses)
        state = hand_over(state, done)
        return state._replace(age=state.age + 1)

    def hand_over(state, done):
        """Put the results of done sentences away, and give their slots to those that wait, one slot after another."""

        def one(state, done):
            slot = ops.cast(ops.argmax(ops.cast(done, "int32")), "int32")
            state = admit(put_away(state, slot), slot)
            return state, ops.logical_and(done, ops.not_equal(ops.arange(slots, dtype="int32"), slot))

        return ops.while_loop(lambda state, done: ops.any(done), one, (state, done))[0]

    def put_away(state, slot):
        """Store the results of the sentence in a slot."""
        number = ops.take(state.sentence, slot[None], axis=0)[0]
        hypotheses = map_structure(lambda x: ops.take(x, slot[None], axis=0), state.hypotheses)
        age = ops.take(state.age, slot[None], axis=0) + 1
        complete = ops.logical_or(ops.take(limits, number[None], axis=0) <= room, age < room)
        result = Found(*strategy.results(hypotheses), complete)
        return state._replace(found=map_structure(lambda x, row: _set_row(x, number, row), state.found, result))

    def admit(state, slot):
        """Give a slot to the next sentence that waits, if there is one."""
        following = ops.minimum(state.waiting, count)
        state = state._replace(
            sentence=_set_row(state.sentence, slot, following[None]),
            waiting=state.waiting + 1,
        )
        if not refill:
            return state
        number = ops.minimum(following, count - 1)
        hypotheses = _with_last(fresh, ops.take(first, number[None], axis=0))
        return state._replace(
            age=_set_row(state.age, slot, ops.full((1,), -1, "int32")),  # 0 after this tick
            hypotheses=map_structure(lambda x, row: _set_row(x, slot, row), state.hypotheses, hypotheses),
            memory=map_structure(lambda x, rows: _refill(x, slot, slots, rows, number), state.memory, memory),
        )

    nothing, score = strategy.results(fresh)
    state = _Slots(
        clock=ops.convert_to_tensor(0, "int32"),
        sentence=ops.arange(slots, dtype="int32"),
        age=ops.zeros((slots,), "int32"),
        memory=map_structure(lambda x: x[: x.shape[0] // count * slots], memory) if refill else memory,
        past=model.room(slots, room * width),
        hypotheses=_with_last(strategy.start(slots, room, source.shape[-1]), first[:slots]),
        waiting=ops.convert_to_tensor(slots, "int32"),
        found=Found(
            ops.repeat(nothing, count + 1, axis=0),
            ops.repeat(score, count + 1, axis=0),
            ops.ones((count + 1,), "bool"),
        ),
    )
    found = ops.while_loop(unfinished, lambda state: (tick(state),), (state,))[0].found
    within = places < limits[:count, None, None]
    return Found(ops.where(within, found.tokens[:count], 0), found.scores[:count], found.complete[:count])


def _visible(ancestors, in_time):
    """Return what each hypothesis may read (B, 1, K, C x K); the cache holds K tokens at each place.

    Args:
        ancestors: which of the K tokens at each place belongs to its past (B, K, C).
        in_time: which places are the sentence's (B, C).
    """
    _, width, room = ancestors.shape
    if width == 1:
        return in_time[:, None, None, :]
    mine = ops.equal(ancestors[..., None], ops.arange(width, dtype="int32"))  # (B, K, C, K)
    visible = ops.logical_and(mine, in_time[:, None, :, None])
    return ops.reshape(visible, (-1, 1, width, room * width))


def _step(model, ids, state, attention, told):
    """Let the model read `ids`; return logits, caches, and what it read of the source (B, K, S) if that is wanted."""
    if not attention:
        return (*model.step(ids, state.memory, state.past, **told), None)
    trace = Trace()
    logits, past = model.step(ids, state.memory, state.past, **told, trace=trace)
    return logits, past, trace.to_source()


def _with_last(hypotheses, ids):
    """Return hypotheses that read the tokens `ids` (B,) next."""
    return hypotheses._replace(last=ops.broadcast_to(ids[:, None], ops.shape(hypotheses.last)))


def _refill(x, slot, slots, all_rows, number):
    """Return `x` with sentence `number` of `all_rows` in one of its `slots`; a sentence may have several rows."""
    each = x.shape[0] // slots
    behind = [0] * (len(x.shape) - 1)
    rows = ops.slice(all_rows, (number * each, *behind), (each, *x.shape[1:]))
    return ops.slice_update(x, (slot * each, *behind), rows)


def _set_row(x, index, row):
    """Return `x` with `row` (1, ...) at `index` of its first axis."""
    return ops.slice_update(x, (index, *[0] * (len(x.shape) - 1)), ops.cast(row, x.dtype))
