"""What a training asks of the machine: operations."""

import re

import numpy as np

from heedful.storage import name_in_model


class Demand:
    """The floating point operations of an update's products with weights, forward and backward, padding left out.

    Two a weight and token forward, four backward; of weights that do not learn only the first two. Attention's own
    products and all that is no product are left out: for short texts they are few per cent of the operations.

    Args:
        model: one of the families.
    """

    def __init__(self, model):
        self._each = {"read": 0, "written": 0, "scored": 0}
        for weight in model.weights:
            if len(weight.shape) == 2 and weight.path.endswith("kernel"):
                name = name_in_model(weight)
                self._each[_reader(name)] += (6 if weight.trainable else 2) * int(np.prod(weight.shape))
        self._each["scored"] += 6 * int(np.prod(model.output_projection.embeddings.shape))

    def of(self, batch):
        """Return the operations that a batch needs, as `examples.batch(n)` has made it."""
        written = np.count_nonzero(batch["target"] if "target" in batch else batch["ids"])
        read = np.count_nonzero(batch["source"]) if "source" in batch else written
        return (
            self._each["read"] * read
            + self._each["written"] * written
            + self._each["scored"] * np.count_nonzero(batch["weights"])
        )


def _reader(name):
    """Return which tokens pass through a kernel: those that are read, written, or only those that are scored."""
    if name.startswith("encoder/") or re.search(r"cross_attention/key_value/kernel$", name):
        return "read"
    return "written" if name.startswith("decoder/") else "scored"
