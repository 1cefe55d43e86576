"""Whole models: layers put together, with one forward path each."""

from heedful.models.transformer import Transformer

__all__ = ["Transformer"]
