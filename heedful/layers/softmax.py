"""The softmax of attention and of sampling."""

from keras import ops

from heedful.backend import Tensor

HIDDEN_SCORE = -1e30  # score of a hidden key: its weight is exactly 0


def softmax(scores: Tensor, visible: Tensor | None = None) -> Tensor:
    """Turn float32 scores (..., S) into weights that sum to 1; a weight that is not `visible` is exactly 0."""
    if visible is not None:
        scores = ops.where(visible, scores, HIDDEN_SCORE)
    exponentials = ops.exp(scores - ops.max(scores, axis=-1, keepdims=True))
    return exponentials / ops.sum(exponentials, axis=-1, keepdims=True)
