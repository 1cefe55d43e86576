"""From a model that scores the next token to whole sequences. A model is known only as `begin` and `step`.

Axes: B batch, T steps, V vocabulary.
"""

from keras import ops


def greedy(model, source, limits, *, max_steps, start_id, end_id):
    """Take the likeliest token at each step, in one loop, until every sentence has ended.

    A sentence that has ended is given padding and waits; what is made of it does not depend on the others.

    Args:
        model: has `begin(source, max_steps) -> state` and `step(ids, state) -> (logits (B, V), state)`.
        source: what `begin` takes, its first axis B.
        limits: most tokens of each sentence (B,), at most `max_steps`.
        max_steps: room for tokens, a Python number.
        start_id, end_id: of the target vocabulary.

    Returns:
        Ids (B, max_steps): the tokens, the end token if there was room for it, then zeros.
    """
    batch_size = ops.shape(source)[0]
    state = model.begin(source, max_steps)
    ids = ops.zeros((batch_size, max_steps), "int32")
    last = ops.zeros((batch_size,), "int32") + start_id
    limits = ops.cast(limits, "int32")

    def unfinished(t, ids, last, done, state):
        return ops.logical_and(t < max_steps, ops.logical_not(ops.all(done)))

    def extend(t, ids, last, done, state):
        logits, state = model.step(last, state)
        best = ops.cast(ops.argmax(logits, axis=-1), "int32")
        best = ops.where(done, 0, best)
        ids = ops.slice_update(ids, (0, t), best[:, None])
        done = ops.logical_or(done, ops.logical_or(ops.equal(best, end_id), t + 1 >= limits))
        return t + 1, ids, best, done, state

    start = (ops.convert_to_tensor(0, "int32"), ids, last, limits <= 0, state)
    return ops.while_loop(unfinished, extend, start)[1]
