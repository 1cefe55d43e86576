"""heedful trains, inspects and ships Transformers with Keras 3; JAX is the default backend."""

import importlib
import os
from typing import TYPE_CHECKING, Any

from heedful.core import keras_registry

os.environ["KERAS_BACKEND"] = os.environ.get("KERAS_BACKEND") or "jax"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # Keras may load TensorFlow, which prints messages

__version__ = "0.2.0"

if TYPE_CHECKING:  # for editors and type checkers; at run time see `_MODULES`
    from heedful.config import Config
    from heedful.data.text_pairs import text_pairs
    from heedful.data.tokenizer import Tokenizer
    from heedful.inference.generator import Generator
    from heedful.inference.mask_filler import MaskFiller
    from heedful.inference.text_classifier import TextClassifier
    from heedful.inference.text_embedder import TextEmbedder
    from heedful.inference.text_generator import TextGenerator
    from heedful.inference.translator import Translator
    from heedful.inspection.page.writing import show
    from heedful.layers import DecoderBlock, EncoderBlock, MultiHeadAttention, Trace
    from heedful.models import CausalLM, Classifier, MaskedLM, Transformer
    from heedful.runs.loading import load
    from heedful.runs.run import Run
    from heedful.training.fit_batches import pair_batches
    from heedful.training.loss import TokenCrossentropy
    from heedful.training.metrics import Perplexity, TokenAccuracy
    from heedful.workflows import resume, train
    from heedful.workflows.distillation.steps import distil

# Public name -> module. They are imported on first use, so that `heedful --help` does not wait for Keras.
_MODULES = {
    "CausalLM": "heedful.models",
    "Classifier": "heedful.models",
    "Config": "heedful.config",
    "DecoderBlock": "heedful.layers",
    "EncoderBlock": "heedful.layers",
    "Generator": "heedful.inference.generator",
    "MaskFiller": "heedful.inference.mask_filler",
    "MaskedLM": "heedful.models",
    "MultiHeadAttention": "heedful.layers",
    "Perplexity": "heedful.training.metrics",
    "Run": "heedful.runs.run",
    "TextClassifier": "heedful.inference.text_classifier",
    "TextEmbedder": "heedful.inference.text_embedder",
    "TextGenerator": "heedful.inference.text_generator",
    "TokenAccuracy": "heedful.training.metrics",
    "TokenCrossentropy": "heedful.training.loss",
    "Tokenizer": "heedful.data.tokenizer",
    "Trace": "heedful.layers",
    "Transformer": "heedful.models",
    "Translator": "heedful.inference.translator",
    "distil": "heedful.workflows.distillation.steps",
    "load": "heedful.runs.loading",
    "pair_batches": "heedful.training.fit_batches",
    "resume": "heedful.workflows",
    "show": "heedful.inspection.page.writing",
    "text_pairs": "heedful.data.text_pairs",
    "train": "heedful.workflows",
}

# Packages and modules that are imported on first use too: `heedful.layers.TokenEmbedding` after `import heedful`.
_PACKAGES = ("data", "decoding", "inspection", "layers", "models", "training")

keras_registry.register()

__all__ = [
    "CausalLM", "Classifier", "Config", "DecoderBlock", "EncoderBlock", "Generator", "MaskFiller", "MaskedLM",
    "MultiHeadAttention", "Perplexity", "Run", "TextClassifier", "TextEmbedder", "TextGenerator", "TokenAccuracy",
    "TokenCrossentropy", "Tokenizer", "Trace", "Transformer", "Translator", "__version__", "distil", "load",
    "pair_batches", "resume", "show", "text_pairs", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"heedful.{name}")
    raise AttributeError(f"module 'heedful' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
