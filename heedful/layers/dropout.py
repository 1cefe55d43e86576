"""Dropout that is reproducible from the training state, identical on all backends, and nearly free."""

import math
import random
from typing import Any

import keras
from keras import ops

from heedful import backend
from heedful.backend import Shape, Tensor

LARGEST = 2**31  # elements of the largest array in which each gets a hash of its own


@keras.saving.register_keras_serializable("heedful")
class Dropout(keras.layers.Layer):
    """Set a random fraction of the inputs to zero in training, and scale up the others (Srivastava et al. 2014).

    Axes of the subclasses' inputs: B batch, T length, D d_model.

    The mask is a hash of the layer's seed, the call count and the element's index. This arithmetic is fused into the
    operation that computes the inputs. Keras' own dropout draws with Threefry, which writes its bits to memory, or on
    PyTorch with the global generator, which is not part of the model's state.

    Args:
        rate: fraction of the inputs to drop, at least 0 and less than 1.
        seed: from 0 to 2^31 - 1; None: drawn from the process's generator (see `backend.set_seed`).
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"rate ({rate}) must be at least 0 and less than 1.")
        self.rate, self.supports_masking = rate, True
        self.seed = random.randrange(2**31) if seed is None else seed
        if rate:
            self.seed_generator = keras.random.SeedGenerator(self.seed)
        self.built = True

    def build(self, input_shape: Shape) -> None:
        """Do nothing; Keras records the shape for `summary`."""

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training or not self.rate:
            return inputs
        kept = self.kept(ops.shape(inputs))
        # Scaling last puts the select last in the gradient, which XLA then computes once for all its consumers
        return ops.where(kept, inputs, ops.zeros_like(inputs)) * (1 / (1 - self.rate))

    def kept(self, shape: Shape) -> Tensor:
        """Return a random mask of a given shape that is False for the fraction `rate` of its elements."""
        return draws(shape, self.seed_generator.next()) >= round(self.rate * (2**32 - 1)) - 2**31

    def save_own_variables(self, store: Any) -> None:
        """Save the call count too, so that a loaded model continues the same random sequence."""
        super().save_own_variables(store)
        if self.rate:
            store["seed_state"] = ops.convert_to_numpy(self.seed_generator.state)

    def load_own_variables(self, store: Any) -> None:
        if self.rate and "seed_state" in store:  # heedful 0.1.0 did not save it
            self.seed_generator.state.assign(store["seed_state"])

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"rate": self.rate, "seed": self.seed}


@keras.saving.register_keras_serializable("heedful")
class TokenDropout(Dropout):
    """Set the vectors (B, T, D) of random tokens to zero in training (token cut-off, Shen et al. 2020).

    The others are not scaled: a vector that is zero is meant to look like a missing word.
    """

    spares_first_of_pairs = False
    """Whether only every second row of a batch loses tokens, as SimCut's pairs need."""

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training or not self.rate:
            return inputs
        kept = self.kept(ops.shape(inputs)[:2])
        if self.spares_first_of_pairs:
            kept = ops.logical_or(kept, ops.arange(ops.shape(inputs)[0])[:, None] % 2 == 0)
        return ops.where(kept[..., None], inputs, ops.zeros_like(inputs))


@keras.saving.register_keras_serializable("heedful")
class TextDropout(Dropout):
    """Set all vectors (B, T, D) of random rows to zero in training, and scale up the other rows.

    Applied to what a sublayer adds, it skips the sublayer for these texts (stochastic depth, Huang et al. 2016).
    """

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        if not training or not self.rate:
            return inputs
        kept = self.kept(ops.shape(inputs)[:1])[:, None, None]
        return ops.where(kept, inputs, ops.zeros_like(inputs)) * (1 / (1 - self.rate))


def draws(shape: Shape, state: Tensor) -> Tensor:
    """Return uniform random int32 numbers of a given shape, from a state (2,): a seed and a call count.

    Each index is hashed by two multiplications and xor-shifts (Wellons' `lowbias32`, 2018). The state enters before
    each multiplication, so that the numbers of two states are not permutations of each other.
    """
    if all(isinstance(axis, int) for axis in shape) and math.prod(shape) > LARGEST:
        raise ValueError(f"Dropout draws at most {LARGEST:,} numbers at once, not for the shape {tuple(shape)}.")
    seed, count = (ops.cast(state[i], "int32") for i in range(2))
    before, between = (
        _hash(ops.bitwise_xor(count, _hash(ops.bitwise_xor(seed, _signed(salt))))) for salt in (0x9E3779B9, 0x85EBCA6B)
    )
    places = ops.reshape(ops.arange(math.prod(shape), dtype="int32"), shape)
    first = backend.first_index(shape)  # the rows of a device draw what they would draw on one device
    return _hash(places + before + first, between)


def _hash(numbers: Tensor, between: Tensor = 0) -> Tensor:
    numbers = _folded(numbers, 16) * _signed(0x7FEB352D)
    numbers = ops.bitwise_xor(numbers, between)
    numbers = _folded(numbers, 15) * _signed(0x846CA68B)
    return _folded(numbers, 16)


def _folded(numbers: Tensor, places: int) -> Tensor:
    """Return numbers ^ (numbers >> places) with a logical shift; in int32, since few backends multiply uint32."""
    shifted = ops.bitwise_and(ops.right_shift(numbers, places), 2 ** (32 - places) - 1)
    return ops.bitwise_xor(numbers, shifted)


def _signed(number: int) -> int:
    """Reinterpret an unsigned 32-bit integer as a signed one."""
    return (number + 2**31) % 2**32 - 2**31
