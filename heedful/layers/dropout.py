"""Dropout whose every draw belongs to the training state, is the same on every backend, and costs next to nothing."""

import math
import random

import keras
from keras import ops


@keras.saving.register_keras_serializable("heedful")
class Dropout(keras.layers.Layer):
    """Set a share of the inputs to zero in training, and scale the others up (Srivastava et al. 2014).

    Which ones is a hash of the layer's seed, the number of the call, and the place: arithmetic that is fused into
    whatever made the inputs. Keras draws with Threefry, which writes its bits to memory: a sixth of an update of size
    `tutorial` on a CPU; and with torch's global generator, which no state of the model contains.

    Args:
        rate: share of the inputs that is dropped, from 0 up to 1.
        seed: from 0 to 2^31 - 1; None draws one from the seed of the process (`backend.set_seed`).
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"rate ({rate}) must be at least 0 and less than 1.")
        self.rate, self.supports_masking = rate, True
        self.seed = random.randrange(2**31) if seed is None else seed
        if rate:
            self.seed_generator = keras.random.SeedGenerator(self.seed)
        self.built = True

    def call(self, inputs, training=False):
        if not training or not self.rate:
            return inputs
        kept = draws(ops.shape(inputs), self.seed_generator.next()) >= round(self.rate * (2**32 - 1)) - 2**31
        # Scaled last, so that the gradient is chosen last, which XLA then makes once for all that reads it
        return ops.where(kept, inputs, ops.zeros_like(inputs)) * (1 / (1 - self.rate))

    def save_own_variables(self, store):
        """Keep the number of calls too, so that a model that was saved and loaded continues with the same draws."""
        super().save_own_variables(store)
        if self.rate:
            store["seed_state"] = ops.convert_to_numpy(self.seed_generator.state)

    def load_own_variables(self, store):
        if self.rate and "seed_state" in store:  # heedful 0.1.0 did not keep it
            self.seed_generator.state.assign(store["seed_state"])

    def get_config(self):
        return super().get_config() | {"rate": self.rate, "seed": self.seed}


def draws(shape, state):
    """Return int32 numbers of any shape, as if drawn from all 2^32, from a state (2,): a seed and a count.

    A place is hashed by two multiplications with shifts between them (Wellons' `lowbias32`, 2018), and the state comes
    in before each, so that the draws of two states are no permutations of each other.
    """
    seed, count = (ops.cast(state[i], "int32") for i in range(2))
    before, between = (
        _hash(ops.bitwise_xor(count, _hash(ops.bitwise_xor(seed, _signed(salt))))) for salt in (0x9E3779B9, 0x85EBCA6B)
    )
    places = ops.reshape(ops.arange(math.prod(shape), dtype="int32"), shape)
    return _hash(places + before, between)


def _hash(numbers, between=0):
    numbers = _folded(numbers, 16) * _signed(0x7FEB352D)
    numbers = ops.bitwise_xor(numbers, between)
    numbers = _folded(numbers, 15) * _signed(0x846CA68B)
    return _folded(numbers, 16)


def _folded(numbers, places):
    """Return int32 numbers exclusive-or themselves shifted right, as if unsigned, which few backends can multiply."""
    shifted = ops.bitwise_and(ops.right_shift(numbers, places), 2 ** (32 - places) - 1)
    return ops.bitwise_xor(numbers, shifted)


def _signed(number):
    """Return what 32 bits are as a signed number."""
    return (number + 2**31) % 2**32 - 2**31
