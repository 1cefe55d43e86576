"""Transformer layers, one concept per file. Each layer works in any Keras model."""

from heedful.layers.attention import MultiHeadAttention, attention_weights
from heedful.layers.blocks import DecoderBlock, DecoderCache, EncoderBlock, Stack
from heedful.layers.cache import KeyValueCache
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.feed_forward import FeedForward
from heedful.layers.mask_layers import CausalMask, PaddingMask
from heedful.layers.positions import LearnedPositions, SinusoidalPositions, rotate, sinusoid
from heedful.layers.projection import Projection
from heedful.layers.residual import CausalSelfAttention, CrossAttention, Residual, SelfAttention
from heedful.layers.trace import Trace

__all__ = [
    "CausalMask",
    "CausalSelfAttention",
    "CrossAttention",
    "DecoderBlock",
    "DecoderCache",
    "EncoderBlock",
    "FeedForward",
    "KeyValueCache",
    "LearnedPositions",
    "MultiHeadAttention",
    "PaddingMask",
    "Projection",
    "Residual",
    "SelfAttention",
    "SinusoidalPositions",
    "Stack",
    "TokenEmbedding",
    "Trace",
    "attention_weights",
    "rotate",
    "sinusoid",
]
