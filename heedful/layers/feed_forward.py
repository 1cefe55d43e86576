"""The position-wise feed-forward networks.

Axes: B batch, T length, D d_model, F d_ff.
"""

from typing import Any

import keras

from heedful import backend
from heedful.backend import Shape, Tensor
from heedful.config.architecture import choices
from heedful.layers.dropout import Dropout
from heedful.layers.projection import Projection
from heedful.layers.same_shape import SameShape

ACTIVATIONS = choices("activation")


def gelu_tanh(x: Tensor) -> Tensor:
    """Return the Gaussian error linear unit of `x`, by its approximation with tanh (Hendrycks and Gimpel 2016)."""
    return keras.activations.gelu(x, approximate=True)


def activation_function(activation: str) -> Any:
    """Return the nonlinearity of an activation: a function, or a name that Keras knows.

    A gated form has the nonlinearity of its ungated half.
    """
    functions = {"relu": backend.relu, "gelu_tanh": gelu_tanh, "geglu": "gelu", "swiglu": "silu"}
    return functions.get(activation, activation)


def is_gated(activation: str) -> bool:
    """Return whether an activation multiplies two projections (Shazeer 2020)."""
    return activation in ("geglu", "swiglu")


@keras.saving.register_keras_serializable("heedful")
class FeedForward(SameShape):
    """Two projections with a nonlinearity between them, the same at every position (Vaswani et al. 2017, section 3.3).

    Args:
        d_model: width D of input and output.
        d_ff: inner width F.
        activation: `relu` (the paper), `gelu` (BERT), `gelu_tanh` (its approximation in GPT-2), `silu` (Marian), or a
            gated form, `geglu` or `swiglu`, in which a second projection gates the first (Shazeer 2020).
        bias: whether the projections have a bias.
        dropout: fraction of the inner values dropped in training.
        residual_init: factor of the initial weights of the second projection.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
        *,
        residual_init: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if activation not in ACTIVATIONS:
            raise ValueError(f"Unknown activation {activation!r}: choose one of {', '.join(ACTIVATIONS)}.")
        self.d_model, self.d_ff, self.activation, self.bias, self.rate = d_model, d_ff, activation, bias, dropout
        self.supports_masking, self.residual_init = True, residual_init
        function = activation_function(activation)
        options = {"use_bias": bias, "dtype": self.dtype_policy}
        self.inner = Projection(d_ff, activation=function, name="inner", **options)
        self.gate = Projection(d_ff, name="gate", **options) if is_gated(activation) else None
        initializer = keras.initializers.VarianceScaling(residual_init**2, mode="fan_avg", distribution="uniform")
        self.outer = Projection(d_model, name="outer", kernel_initializer=initializer, **options)
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy) if dropout else None

    def build(self, input_shape: Shape | None = None) -> None:
        self.inner.build((None, None, self.d_model))
        if self.gate:
            self.gate.build((None, None, self.d_model))
        self.outer.build((None, None, self.d_ff))

    def call(self, x: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        inner = self.inner(x)  # (B, T, F)
        if self.gate:
            inner = inner * self.gate(x)
        return self.outer(self.dropout(inner) if self.dropout else inner)

    def get_config(self) -> dict[str, Any]:
        arguments = {"d_model": self.d_model, "d_ff": self.d_ff, "activation": self.activation, "bias": self.bias}
        return super().get_config() | arguments | {"dropout": self.rate, "residual_init": self.residual_init}
