"""Normalisation layers, configured once for a whole model.

Axes: B batch, T length, D d_model.
"""

from dataclasses import dataclass
from typing import Any

import keras

from heedful import backend
from heedful.backend import Tensor
from heedful.config.architecture import choices
from heedful.layers.initial_values import LoadableLayer

NORMS = choices("norm")
EPSILON = 1e-6  # Keras' default of 1e-3 changes outputs noticeably; reference implementations use 1e-6 or 1e-5


@keras.saving.register_keras_serializable("heedful")
class LayerNorm(LoadableLayer, keras.layers.LayerNormalization):
    """Keras' layer over the last axis, computed by `backend.layer_norm`."""

    def call(self, inputs: Tensor) -> Tensor:
        normal = backend.layer_norm(inputs, self.gamma, self.beta, self.epsilon)
        return keras.ops.cast(normal, self.compute_dtype)


@keras.saving.register_keras_serializable("heedful")
class RMSNorm(LoadableLayer, keras.layers.RMSNormalization):
    """Keras' layer over the last axis, computed by `backend.rms_norm`."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.supports_masking = True  # Keras says so of its layer norm only

    def call(self, inputs: Tensor) -> Tensor:
        return keras.ops.cast(backend.rms_norm(inputs, self.scale, self.epsilon), self.compute_dtype)


@dataclass(frozen=True)
class Norm:
    """Factory for the norms of a model: call it with a name to create a layer from (B, T, D) to (B, T, D).

    Args:
        kind: `layer` (Ba et al. 2016), or `rms`, which does not centre and has no bias (Zhang and Sennrich 2019).
        epsilon: added to the variance, or to the mean square of an RMS norm.
        bias: whether a layer norm has a learned bias.
    """

    kind: str = "layer"
    epsilon: float = EPSILON
    bias: bool = True

    def __post_init__(self) -> None:
        if self.kind not in NORMS:
            raise ValueError(f"Unknown kind of norm {self.kind!r}: choose one of {', '.join(NORMS)}.")

    def __call__(self, name: str, dtype: Any = None) -> keras.Layer:
        """Return a new layer."""
        if self.kind == "rms":
            return RMSNorm(epsilon=self.epsilon, name=name, dtype=dtype)
        return LayerNorm(epsilon=self.epsilon, center=self.bias, name=name, dtype=dtype)
