"""The floating point operations of a training."""

import re
from collections.abc import Mapping

import keras
import numpy as np

from heedful.core.storage import name_in_model


class FlopCounter:
    """Counts the operations of matrix products with weights in an update, forward and backward, without padding.

    Each weight counts two per token forward and four backward; frozen weights count forward only. The products of
    queries, keys and values and all elementwise operations are left out: for short texts they are a few per cent.

    Args:
        model: one of heedful's models.
    """

    def __init__(self, model: keras.Model):
        self._each = {"read": 0, "written": 0, "scored": 0}
        for weight in model.weights:
            if len(weight.shape) == 2 and weight.path.endswith("kernel"):
                name = name_in_model(weight)
                self._each[_reader(name)] += (6 if weight.trainable else 2) * int(np.prod(weight.shape))
        self._each["scored"] += 6 * int(np.prod(model.output_projection.embeddings.shape))

    def of(self, batch: Mapping[str, np.ndarray]) -> int:
        """Return the operations needed for a batch from `examples.batch(n)`."""
        written = int(np.count_nonzero(batch["target"] if "target" in batch else batch["ids"]))
        read = int(np.count_nonzero(batch["source"])) if "source" in batch else written
        return (
            self._each["read"] * read
            + self._each["written"] * written
            + self._each["scored"] * int(np.count_nonzero(batch["weights"]))
        )


def _reader(name):
    """Return which tokens a kernel processes: those that are read, written, or only those that are scored."""
    if name.startswith("encoder/") or re.search(r"cross_attention/key_value/kernel$", name):
        return "read"
    return "written" if name.startswith("decoder/") else "scored"
