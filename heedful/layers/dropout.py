"""Dropout whose every draw belongs to the training state."""

import random

import keras


def dropout(rate, name, dtype=None):
    """Return a Dropout layer with a seed of its own, drawn from the seed of the process (`set_random_seed`).

    Without an explicit seed Keras takes torch's global generator there, which no state of the model contains; a
    resumed training would drop other units.
    """
    return keras.layers.Dropout(rate, seed=random.randrange(2**31), name=name, dtype=dtype)
