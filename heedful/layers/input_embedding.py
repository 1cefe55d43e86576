"""The input of the first block, computed from token ids.

Axes: B batch, T length, D d_model.
"""

import dataclasses
from typing import Any, Self

import keras

from heedful.backend import Shape, Tensor
from heedful.config.architecture import SINUSOIDS, choices
from heedful.layers.dropout import Dropout, TokenDropout
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.norms import Norm
from heedful.layers.positions import LearnedPositions, SinusoidalPositions

POSITIONS = choices("positions")


@keras.saving.register_keras_serializable("heedful")
class InputEmbedding(keras.layers.Layer):
    """Embed ids, add positions, and apply the optional norm and dropout.

    Args:
        embedding: a `TokenEmbedding`, which other layers may share.
        positions: `sinusoidal` (interleaved, as in the paper), `sinusoidal_concatenated` (TensorFlow tutorial),
            `sinusoidal_marian` (with Marian's wavelengths), `learned`, `rotary`, which attention applies, or `none`.
        max_length: number of learned positions.
        dropout: fraction of the result dropped in training.
        new_norm: the `Norm` that creates the norm layer; None: no norm.
        token_dropout: fraction of the tokens without an embedding in training, see `TokenDropout`.
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        positions: str = "sinusoidal",
        max_length: int = 256,
        dropout: float = 0.0,
        new_norm: Norm | None = None,
        token_dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if positions not in POSITIONS:
            raise ValueError(f"Unknown positions {positions!r}: choose one of {', '.join(POSITIONS)}.")
        self.arguments = {"positions": positions, "max_length": max_length, "dropout": dropout}
        self.arguments["token_dropout"] = token_dropout
        policy = self.dtype_policy
        self.embedding, self.supports_masking = embedding, True
        self.positions = None
        if positions == "learned":
            self.positions = LearnedPositions(embedding.d_model, max_length, name="positions", dtype=policy)
        elif positions in SINUSOIDS:
            kind = SINUSOIDS[positions]
            self.positions = SinusoidalPositions(embedding.d_model, *kind, name="positions", dtype=policy)
        self.new_norm = new_norm
        self.norm = new_norm("norm", policy) if new_norm else None
        self.token_dropout = TokenDropout(token_dropout, name="token_dropout", dtype=policy) if token_dropout else None
        self.dropout = Dropout(dropout, name="dropout", dtype=policy)

    def build(self, input_shape: Shape | None = None) -> None:
        if not self.embedding.built:
            self.embedding.build((None, None))
        for part in (self.positions, self.norm):
            if part is not None and not part.built:
                part.build((None, None, self.embedding.d_model))

    def call(self, ids: Tensor, positions: Tensor | None = None, training: bool | None = None) -> Tensor:
        """Map ids (B, T) at `positions`, (T,) or (B, T), to (B, T, D); the positions are 0 to T - 1 if not given."""
        x = self.embedding(ids)
        if self.token_dropout is not None:
            x = self.token_dropout(x, training=training)
        if self.positions is not None:
            x = self.positions(x, positions=positions)
        return self.dropout(self.norm(x) if self.norm else x, training=training)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.embedding.d_model)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; layers created from them do not share their embedding tables."""
        return super().get_config() | self.arguments | {
            "embedding": keras.saving.serialize_keras_object(self.embedding),
            "new_norm": dataclasses.asdict(self.new_norm) if self.new_norm else None,
        }  # fmt: skip

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        embedding = keras.saving.deserialize_keras_object(config["embedding"])
        norm = config["new_norm"] and Norm(**config["new_norm"])
        return cls(**config | {"embedding": embedding, "new_norm": norm})
