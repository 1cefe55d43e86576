"""What all families of model have in common: parts whose sizes are known beforehand, and what they were told.

Axes: D d_model.
"""

import dataclasses

import keras

from heedful.models.options import Options


class Base(keras.Model):
    """A model that its constructor builds; it can be made anew from `arguments`.

    Args:
        sizes: keyword arguments of the family, such as the sizes of its vocabularies.
        options: keyword arguments, see `Options`.
    """

    def __init__(self, sizes, *, name=None, dtype=None, trainable=True, **options):
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        self.sizes, self.options = sizes, Options(**options)
        self.d_model, self.num_layers = self.options.d_model, self.options.num_layers
        self.max_length = self.options.max_length

    @property
    def parts(self):
        """All that has weights, in the order in which they are created."""
        raise NotImplementedError

    def build(self, input_shape=None):
        """Create every weight, which the constructor has done already."""
        for part in self.parts:
            if not part.built:
                part.build((None, None, self.d_model))
        self.built = True

    @property
    def arguments(self):
        """What the model was made with, but for its name and type."""
        return self.sizes | dataclasses.asdict(self.options)

    def get_config(self):
        return super().get_config() | self.arguments

    def build_from_config(self, config):
        """Nothing to do: the constructor has built everything."""
