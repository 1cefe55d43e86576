"""The softmax of attention and of sampling."""

from keras import ops

from heedful.backend import Tensor
from heedful.backend.tensors import HIDDEN_SCORE


def softmax(scores: Tensor, visible: Tensor | None = None) -> Tensor:
    """Turn float32 scores (..., S) into weights that sum to 1: 0 for keys that are not visible, unless none is."""
    if visible is not None:
        scores = ops.where(visible, scores, HIDDEN_SCORE)
    exponentials = ops.exp(scores - ops.max(scores, axis=-1, keepdims=True))
    return exponentials / ops.sum(exponentials, axis=-1, keepdims=True)
