"""A recorder of attention weights and block outputs in a forward pass.

Axes: B batch, T query length, S key length, N query heads, D d_model.
"""


class Trace:
    """Arrays recorded in a forward pass, by layer path: `trace["decoder/block_3/cross_attention"]`.

    Pass one to a model's call and read it afterwards. It is not a dict because Keras copies dicts that are passed to a
    layer.

    Args:
        kinds: what to record: `attention`, the weights (B, N, T, S) of each `MultiHeadAttention`; `output`, the vectors
            (B, T, D) that each block returns.
    """

    def __init__(self, kinds=("attention",)):
        self.kinds, self.records = tuple(kinds), {}

    def record(self, kind: str, layer, array):
        """Store the array of a layer if its kind is in `kinds`."""
        if kind in self.kinds:
            self.records[path_in_model(layer)] = array

    def __getitem__(self, path):
        return self.records[path]

    def __iter__(self):
        return iter(self.records)


def path_in_model(layer):
    """Return the path of a layer inside its model."""
    return layer.path.split("/", 1)[-1]
