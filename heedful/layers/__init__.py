"""The parts of the paper, one idea a file; each works alone in anybody's Keras model."""

from heedful.layers.attention import KeyValues, MultiHeadAttention, Trace, attention_weights
from heedful.layers.blocks import DecoderBlock, DecoderCache, EncoderBlock, Residual, Stack
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.feed_forward import FeedForward
from heedful.layers.positions import LearnedPositions, SinusoidalPositions, rotate, sinusoid
from heedful.layers.projection import Projection

__all__ = [
    "DecoderBlock",
    "DecoderCache",
    "EncoderBlock",
    "FeedForward",
    "KeyValues",
    "LearnedPositions",
    "MultiHeadAttention",
    "Projection",
    "Residual",
    "SinusoidalPositions",
    "Stack",
    "TokenEmbedding",
    "Trace",
    "attention_weights",
    "rotate",
    "sinusoid",
]
