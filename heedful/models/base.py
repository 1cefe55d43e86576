"""The base class of all models: their architecture, and the layers that are built from it.

Axes: B batch, K hypotheses, S source length, D d_model, V vocabulary.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple, Self

import h5py
import keras
import numpy as np
from keras import ops

from heedful import backend
from heedful.backend import Shape, Tensor
from heedful.config.architecture import Architecture, from_format_1
from heedful.layers import masks
from heedful.layers.checks import check_ids, check_labels
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.input_embedding import InputEmbedding
from heedful.layers.norms import Norm
from heedful.layers.same_shape import SameShape


class DecodeStep(NamedTuple):
    """The result of one decode step for K hypotheses of each of B texts."""

    logits: Any  # (B, K, V), of the next token
    past: Any  # updated caches
    attention: Any = None  # (B, K, S), attention to the source, if requested


class Base(SameShape, keras.Model):
    """A model whose constructor creates all weights, and which `arguments` describes completely.

    Args:
        sizes: keyword arguments of the model class, such as vocabulary sizes.
        architecture: keyword arguments, see `Architecture`.
    """

    def __init__(
        self,
        sizes: dict[str, Any],
        *,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
        **architecture: Any,
    ):
        super().__init__(name=name, dtype=dtype, trainable=trainable)
        self.sizes, self.architecture = sizes, Architecture(**architecture)
        self.d_model, self.num_layers = self.architecture.d_model, self.architecture.num_layers
        self.max_length = self.architecture.max_length

    @property
    def only_depth(self) -> int:
        """The number of blocks of a model that has either an encoder or a decoder."""
        if set(self.architecture.depths.values()) != {self.architecture.num_layers}:
            raise ValueError("encoder_layers and decoder_layers are for an encoder-decoder: set num_layers.")
        return self.architecture.num_layers

    @property
    def parts(self) -> list[keras.Layer]:
        """All layers with weights, in order of creation."""
        raise NotImplementedError

    def build(self, input_shape: Shape | None = None) -> None:
        """Create all weights; called by the constructor."""
        for part in self.parts:
            if not part.built:
                reads_ids = isinstance(part, (TokenEmbedding, InputEmbedding))
                part.build((None, None) if reads_ids else (None, None, self.d_model))
        self.built = True

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of the constructor, without name and dtype."""
        return self.sizes | dataclasses.asdict(self.architecture)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | self.arguments

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Create a model from what `get_config` returned, in this version or in heedful 0.1.0."""
        return cls(**from_format_1(config))

    def build_from_config(self, config: dict[str, Any]) -> None:
        """Do nothing: the constructor has built everything."""

    def named(self, inputs: Any) -> dict[str, Tensor]:
        """Return the inputs of a call by their names: ids alone are `{"ids": ids}`."""
        return inputs if isinstance(inputs, dict) else {"ids": inputs}

    def read_ids(self, inputs: Any) -> Tensor | None:
        """Return the input ids (B, T) that the logits belong to; None if the logits belong to whole texts."""
        return None

    def check(self, inputs: Any) -> None:
        """Raise `ValueError` if concrete inputs contain ids that the model cannot read, see `check_ids`."""
        check_ids(self.named(inputs).get("ids"), self.sizes["vocab_size"])

    def compute_output_shape(self, input_shape: Any, *others: Shape) -> Shape:
        shape: Any = self.read_ids(input_shape)
        return (*shape, self.output_projection.vocab_size)

    def __call__(self, inputs: Any, *arguments: Any, **options: Any) -> Any:
        self.check(inputs)
        return super().__call__(inputs, *arguments, **options)

    def fit(self, x: Any = None, y: Any = None, *arguments: Any, **options: Any) -> keras.callbacks.History:
        """Train as `keras.Model.fit` does, after a check of ids in arrays, or in the first batch of a `PyDataset`.

        Raises:
            ValueError: see `check`; or a label is not in the vocabulary; or `class_weight` is given, with which Keras
                would weight whole texts, not tokens.
        """
        if options.get("class_weight") is not None and self._labels_tokens:
            raise ValueError(
                "class_weight does not work with labels (B, T): Keras would weight each text by the index of its "
                "largest label. Pass a sample_weight (B, T)."
            )
        first, labels, weighted = x, y, options.get("sample_weight") is not None
        if isinstance(x, keras.utils.PyDataset):
            first, labels, _ = keras.utils.unpack_x_y_sample_weight(x[0])
        self._check_arrays(first, None if weighted else labels)
        return super().fit(_with_int32(x), _with_int32(y), *arguments, **options)

    def evaluate(self, x: Any = None, y: Any = None, *arguments: Any, **options: Any) -> Any:
        self._check_arrays(x, y if options.get("sample_weight") is None else None)
        return super().evaluate(_with_int32(x), _with_int32(y), *arguments, **options)

    def predict(self, x: Any, *arguments: Any, **options: Any) -> Any:
        self._check_arrays(x)
        return super().predict(x, *arguments, **options)

    def _check_arrays(self, x: Any, y: Any = None) -> None:
        if isinstance(x, (dict, list, tuple)) or hasattr(x, "shape"):
            self.check(x)
        if self._labels_tokens and isinstance(y, np.ndarray) and hasattr(self.loss, "ignored_label"):
            check_labels(y, self.output_projection.vocab_size, self.loss.ignored_label)

    @property
    def _labels_tokens(self) -> bool:
        """Whether labels are those of tokens (B, T), not of texts (B,)."""
        return type(self).read_ids is not Base.read_ids

    def export(
        self,
        filepath: Any,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Any = None,
        **options: Any,
    ) -> Any:
        """Export the model as `keras.Model.export` does, by default with int32 inputs of any batch size and length."""
        signature = self.input_signature if input_signature is None else input_signature
        return super().export(filepath, format, verbose, signature, **options)

    @property
    def input_signature(self) -> list[keras.InputSpec]:
        """The inputs that `export` declares: ids (B, T)."""
        return [keras.InputSpec(shape=(None, None), dtype="int32", name="ids")]

    def save(self, filepath: str | Path, *arguments: Any, **options: Any) -> None:
        """Save as `keras.Model.save` does; a whole `.h5` file gets the registered class name, so Keras can load it."""
        super().save(filepath, *arguments, **options)
        if str(filepath).endswith((".h5", ".hdf5")):
            with h5py.File(filepath, "r+") as file:
                named = json.loads(file.attrs["model_config"]) | {
                    "class_name": keras.saving.get_registered_name(type(self))
                }
                file.attrs["model_config"] = json.dumps(named).encode()

    def compute_metrics(self, x: Any, y: Any, y_pred: Tensor, sample_weight: Tensor | None = None) -> dict[str, Any]:
        """Compute the compiled metrics without padding: on JAX, differentiation drops the Keras mask."""
        ids = self.read_ids(x)
        masked = y_pred if ids is None else self.attach_mask((y_pred, ids))
        return super().compute_metrics(x, y, masked, sample_weight)

    def causal_mask(self, ids: Tensor) -> Tensor:
        """Return a mask (1, 1, T, T) that hides later tokens; without a causal mask, all tokens are visible."""
        length = ops.shape(ids)[1]
        positions = ops.cumsum(ops.ones_like(ids[0])) if length is None else ops.arange(length)  # None: symbolic
        visible = masks.causal(positions, positions)
        return visible if self.architecture.causal_mask else ops.ones_like(visible)

    @property
    def new_norm(self) -> Norm:
        """The `Norm` that creates every norm of the model."""
        return Norm(self.architecture.norm, self.architecture.norm_epsilon, self.architecture.bias)

    def new_tables(self, vocab_size: int) -> tuple[TokenEmbedding, TokenEmbedding]:
        """Return the embedding of one vocabulary and its output projection: one `TokenEmbedding` if tied, or two."""
        chosen = self.architecture
        options = {"scale": chosen.embedding_scale, "std": chosen.embedding_std, "dtype": self.dtype_policy}
        output_options = {"bias": chosen.output_bias, **options}
        if chosen.tie in ("target", "all"):
            tied = TokenEmbedding(vocab_size, self.d_model, name="embedding", **output_options)
            return tied, tied
        projection = TokenEmbedding(vocab_size, self.d_model, name="output_projection", **output_options)
        return TokenEmbedding(vocab_size, self.d_model, name="embedding", **options), projection

    def input_options(self) -> dict[str, Any]:
        """Return the keyword arguments of each `InputEmbedding`."""
        chosen = self.architecture
        return {
            "positions": chosen.positions, "max_length": chosen.max_length, "dropout": chosen.dropout,
            "token_dropout": chosen.token_dropout,
            "new_norm": self.new_norm if chosen.embedding_norm else None, "dtype": self.dtype_policy,
        }  # fmt: skip


def _with_int32(data: Any) -> Any:
    """Return arrays, or structures of them, with int32 instead of int64 on JAX, which has no int64 and warns of it."""
    if backend.NAME != "jax" or not (isinstance(data, (dict, list, tuple)) or hasattr(data, "dtype")):
        return data
    return keras.tree.map_structure(
        lambda one: one.astype(np.int32) if isinstance(one, np.ndarray) and one.dtype == np.int64 else one, data
    )
