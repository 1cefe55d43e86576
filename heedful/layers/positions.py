"""Position encodings: sinusoidal, learned and rotary.

Axes: B batch, T length, N heads, H head size, D d_model.
"""

from typing import Any

import keras
from keras import ops

from heedful import backend
from heedful.backend import Shape, Tensor
from heedful.layers.checks import check_positions
from heedful.layers.initial_values import LoadableLayer
from heedful.layers.same_shape import SameShape


def sinusoid(positions: Tensor, d_model: int, concatenated: bool = False, endpoint: bool = False) -> Tensor:
    """Return the sinusoidal encoding of `positions` (..., T) as float32 (..., T, D) (Vaswani et al. 2017, section 3.5).

    Dimension pair i has the wavelength 2 pi 10000^(2i / d_model). The paper interleaves sine and cosine;
    `concatenated` puts all sines before all cosines, as the TensorFlow tutorial does. The two differ
    only by a permutation of dimensions, but weights trained with one do not fit the other. With `endpoint`, the last
    pair has the wavelength 2 pi 10000, as in tensor2tensor and Marian: pair i has 2 pi 10000^(2i / (d_model - 2)).
    """
    if d_model % 2:
        raise ValueError(f"Sinusoidal positions come in pairs: d_model ({d_model}) must be even.")
    last = max(d_model - 2, 1) if endpoint else d_model
    rates = 10000.0 ** (-ops.arange(0, d_model, 2, dtype="float32") / last)  # (D/2,)
    angles = ops.cast(positions, "float32")[..., None] * rates  # (..., T, D/2)
    sines, cosines = ops.sin(angles), ops.cos(angles)
    if concatenated:
        return ops.concatenate([sines, cosines], axis=-1)
    return ops.reshape(ops.stack([sines, cosines], axis=-1), (*ops.shape(positions), d_model))


def rotate(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    """Rotate each pair of dimensions of `x` (B, T, N, H) by an angle that grows with its position (Su et al. 2021).

    Positions enter the dot product of two rotated vectors only through their distance. Dimension i is paired with
    dimension i + H/2, and has the wavelength 2 pi base^(2i / H). `positions` is (T,) or (B, T).
    """
    half = x.shape[-1] // 2
    rates = base ** (-ops.arange(half, dtype="float32") / half)
    angles = ops.cast(positions, "float32")[..., None, None] * rates  # (T, 1, H/2) or (B, T, 1, H/2)
    cos, sin = ops.cast(ops.cos(angles), x.dtype), ops.cast(ops.sin(angles), x.dtype)
    first, second = x[..., :half], x[..., half:]
    return ops.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


@keras.saving.register_keras_serializable("heedful")
class SinusoidalPositions(SameShape):
    """Add the sinusoidal encoding of each position to its vector; texts may have any length."""

    def __init__(self, d_model: int, concatenated: bool = False, endpoint: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        if d_model % 2:
            raise ValueError(f"Sinusoidal positions come in pairs: d_model ({d_model}) must be even.")
        self.d_model, self.concatenated, self.endpoint, self.supports_masking = d_model, concatenated, endpoint, True

    def call(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Add to `x` (B, T, D) the encodings of `positions`, (T,) or (B, T); 0 to T - 1 if none are given."""
        positions = ops.arange(ops.shape(x)[1]) if positions is None else positions
        return x + ops.cast(self.table(positions), x.dtype)

    def table(self, positions: Tensor) -> Tensor:
        """Return the encodings (..., T, D) of `positions` (..., T)."""
        return sinusoid(positions, self.d_model, self.concatenated, self.endpoint)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "d_model": self.d_model, "concatenated": self.concatenated, "endpoint": self.endpoint,
        }  # fmt: skip


@keras.saving.register_keras_serializable("heedful")
class LearnedPositions(LoadableLayer):
    """Add a learned vector for each position up to `max_length` (Gehring et al. 2017, section 3.1)."""

    def __init__(self, d_model: int, max_length: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.d_model, self.max_length, self.supports_masking = d_model, max_length, True

    def build(self, input_shape: Shape | None = None) -> None:
        initializer = keras.initializers.RandomNormal(stddev=0.02)  # small initial values, as in BERT and GPT-2
        self.embeddings = self.add_weight((self.max_length, self.d_model), initializer, name="embeddings")

    def call(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Add to `x` (B, T, D) the vectors of `positions`, (T,) or (B, T); 0 to T - 1 if none are given."""
        length = ops.shape(x)[1]
        if positions is None:
            if isinstance(length, int) and length > self.max_length:
                raise ValueError(
                    f"Position {length} was never learned: max_length is {self.max_length}. "
                    "Shorten the text or build the model with a larger max_length."
                )
            positions = ops.arange(length)
        else:
            check_positions(positions, self.max_length)
        return x + ops.cast(backend.look_up(self.embeddings, positions), x.dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Return the input shape; Keras on PyTorch would try a length that may exceed `max_length`."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"d_model": self.d_model, "max_length": self.max_length}
