"""A model whose products with weights are rounded, made of a trained one."""

from heedful import backend
from heedful.layers.rounding import RoundingPolicy, rounded_values
from heedful.models.ensemble import Ensemble


def rounded(model, precision):
    """Return a copy of a model that multiplies with weights in less precision; it cannot be trained.

    Args:
        model: of one of the families, or an `Ensemble`.
        precision: `bfloat16` or `int8`, see `RoundingPolicy`.
    """
    if isinstance(model, Ensemble):
        return Ensemble([rounded(each, precision) for each in model.models])
    copy = type(model).from_config(model.get_config() | {"dtype": RoundingPolicy(precision), "trainable": False})
    weights = {_place(variable): variable for variable in model.variables}
    for variable in copy.variables:
        place = _place(variable)
        if place in weights:
            variable.assign(backend.to_numpy(weights[place]))
            continue
        name, _, kind = place.rpartition("_")
        kernel = backend.to_numpy(weights[name]).astype("float32")
        if name.endswith("embeddings"):  # a row a word there; here a column
            kernel = kernel.T
        variable.assign(rounded_values(kernel, precision)[kind])
    return copy


class Precisions:
    """A trained model and its rounded copies, each made when it is first asked for: `precisions["int8"]`.

    Args:
        model: does not learn on.
    """

    def __init__(self, model):
        self._models = {"as_trained": model}

    def __getitem__(self, precision):
        if precision not in self._models:
            self._models[precision] = rounded(self._models["as_trained"], precision)
        return self._models[precision]


def _place(variable):
    """Return the path of a variable in its model."""
    return variable.path.split("/", 1)[1]
