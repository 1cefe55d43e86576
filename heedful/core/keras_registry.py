"""Makes the classes that Keras may save known to Keras by their names, without importing them.

Keras looks up a saved class among those that were registered, and never imports a module to find it. heedful imports
its classes on first use, so each name stands in Keras' registry for a class that is imported when Keras asks for it.
"""

import importlib
import sys
from typing import Any

MODULES = {
    "heedful.layers.attention": ("MultiHeadAttention",),
    "heedful.layers.blocks": ("DecoderBlock", "EncoderBlock", "Stack"),
    "heedful.layers.convolution": ("Convolutions",),
    "heedful.layers.dropout": ("Dropout", "TextDropout", "TokenDropout"),
    "heedful.layers.embeddings": ("TokenEmbedding",),
    "heedful.layers.feed_forward": ("FeedForward",),
    "heedful.layers.input_embedding": ("InputEmbedding",),
    "heedful.layers.mask_layers": ("CausalMask", "PaddingMask"),
    "heedful.layers.norms": ("LayerNorm", "RMSNorm"),
    "heedful.layers.positions": ("LearnedPositions", "SinusoidalPositions"),
    "heedful.layers.projection": ("Projection",),
    "heedful.layers.residual": ("CausalSelfAttention", "CrossAttention", "Residual", "SelfAttention"),
    "heedful.layers.rounding": ("RoundingPolicy",),
    "heedful.models": ("CausalLM", "Classifier", "MaskedLM", "Transformer"),
    "heedful.training.loss": ("TokenCrossentropy",),
    "heedful.training.metrics": ("Perplexity", "TokenAccuracy"),
    "heedful.training.objective": ("Objective",),
    "heedful.training.optimizer": ("FactoredAdamW", "MatrixDecayAdamW", "Muon", "ScheduleFreeAdamW"),
    "heedful.training.schedule": ("Schedule",),
}


class Awaited:
    """Stands for a registered class until its module is imported, whose decorator then replaces it."""

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(self.module), self.name)(*arguments, **options)

    def from_config(self, config: Any) -> Any:
        """Return an instance of the class, as Keras calls it."""
        return getattr(importlib.import_module(self.module), self.name).from_config(config)


class _UntilKeras:
    """Finds Keras as the other finders do, and registers the names when it has been imported."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "keras":
            return None
        specs = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module):
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _register()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def register() -> None:
    """Register the names now if Keras has been imported, otherwise as soon as it is."""
    if "keras" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _UntilKeras())


def _register():
    registered = importlib.import_module("keras.saving").get_custom_objects()
    for module, names in MODULES.items():
        for name in names:
            registered.setdefault(f"heedful>{name}", Awaited(module, name))
