"""heedful trains, looks into and ships Transformers with Keras 3; JAX is the default backend."""

import importlib
import os

os.environ["KERAS_BACKEND"] = os.environ.get("KERAS_BACKEND") or "jax"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # Keras may load TensorFlow, which talks

__version__ = "0.1.0"

# Public name -> module. Loaded when first used, so that `heedful --help` does not wait for Keras.
_HOMES = {
    "Transformer": "heedful.models",
    "CausalLM": "heedful.models",
    "MaskedLM": "heedful.models",
    "Classifier": "heedful.models",
    "MultiHeadAttention": "heedful.layers",
    "EncoderBlock": "heedful.layers",
    "DecoderBlock": "heedful.layers",
    "Trace": "heedful.layers",
    "Tokenizer": "heedful.data.tokenizer",
    "Config": "heedful.config",
    "TokenCrossentropy": "heedful.training.loss",
    "TokenAccuracy": "heedful.training.metrics",
    "Perplexity": "heedful.training.metrics",
    "Translator": "heedful.generation.translator",
    "Generator": "heedful.generation.generator",
    "Filler": "heedful.reading.filler",
    "Labeller": "heedful.reading.labeller",
    "load": "heedful.loading",
    "train": "heedful.workflows",
    "resume": "heedful.workflows",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name):
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'heedful' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
