"""Convolutions over the tokens of a text.

Axes: B batch, T length, D d_model, W width.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from heedful.backend import Shape, Tensor
from heedful.layers.projection import Projection
from heedful.layers.same_shape import SameShape


@keras.saving.register_keras_serializable("heedful")
class Convolutions(SameShape):
    """Convolutions of several odd widths with GELU, whose sum is added to the input.

    Each reads the W neighbouring vectors of a position as one vector (B, T, W D) and projects it to (B, T, D).
    Positions outside the text and padding read as zeros, so padding changes no result.

    Args:
        d_model: width D of input and output.
        widths: the number of positions W that each convolution reads.
    """

    def __init__(self, d_model: int, widths: Sequence[int], **kwargs: Any):
        super().__init__(**kwargs)
        self.d_model, self.widths = d_model, tuple(widths)
        self.projections = [
            Projection(d_model, activation="gelu", name=f"width_{width}", dtype=self.dtype_policy)
            for width in self.widths
        ]

    def build(self, input_shape: Shape | None = None) -> None:
        for width, projection in zip(self.widths, self.projections, strict=True):
            projection.build((None, None, width * self.d_model))
        self.built = True

    def call(self, x: Tensor, real: Tensor) -> Tensor:
        """Map x (B, T, D) to (B, T, D); `real` (B, T) is True at tokens, False at padding."""
        length = ops.shape(x)[1]
        masked = x * ops.cast(real, x.dtype)[..., None]
        total = x
        for width, projection in zip(self.widths, self.projections, strict=True):
            reach = width // 2
            padded = ops.pad(masked, ((0, 0), (reach, reach), (0, 0)))
            total = total + projection(ops.concatenate([padded[:, i : i + length] for i in range(width)], axis=-1))
        return total

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"d_model": self.d_model, "widths": self.widths}
