"""What each engine can compute of heedful's models, declared once: exports and pages refuse a model by it.

Keras computes all. The other engines are ONNX graphs, CTranslate2, the page's own engine in JavaScript, and the
classes of transformers (see `pretrained.layout`). An engine that says nothing of an option computes its default only.
So every engine refuses a new option, or a new value, until it is declared here and tested by tests/test_engines.py.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from heedful.config import ModelConfig
from heedful.config.architecture import DROPOUTS
from heedful.config.model import DEPTHS
from heedful.core.errors import InputError

# Options that say how a model is trained, or that change the sizes and values of arrays only.
ANY_VALUE = frozenset({
    "size", "num_layers", *DEPTHS, "d_model", "num_heads", "d_ff", "head_dim", "num_kv_heads", "max_length",
    "norm_epsilon", "residual_init", "bias", "rotary_base", "embedding_norm", "embedding_scale", "embedding_std", "tie",
    "output_bias", "start_vector", "untrained_head", "vector_pooling", "unit_vectors", *DROPOUTS,
})  # fmt: skip
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "geglu", "swiglu")
POSITIONS = ("sinusoidal", "sinusoidal_concatenated", "sinusoidal_marian", "learned", "rotary", "none")
EVERY_HEAD: dict[str, Collection[Any]] = {"pooling": ("mean", "first", "max"), "pooler_activation": ("tanh", "relu")}


@dataclasses.dataclass(frozen=True)
class Engine:
    """The options of a model that an engine computes.

    Args:
        name: of the engine, for messages.
        values: by option, the values that it computes.
        any_value: options of which it computes every value, in addition to `ANY_VALUE`.
        conditions: further conditions by the setting that they are about: whether the engine computes a model.
    """

    name: str
    values: Mapping[str, Collection[Any]]
    any_value: Collection[str] = ()
    conditions: Mapping[str, Callable[[ModelConfig], bool]] = dataclasses.field(default_factory=dict)

    def misfits(self, model: ModelConfig) -> dict[str, str]:
        """Return the settings of a model that the engine cannot compute, and why."""
        reasons = {}
        for field in dataclasses.fields(model):
            value, known = getattr(model, field.name), self.values.get(field.name)
            if known is None and (field.name in ANY_VALUE or field.name in self.any_value):
                continue
            if value not in ((field.default,) if known is None else known):
                allowed = ", ".join(map(_written, [field.default] if known is None else known))
                reasons[f"model.{field.name} = {_written(value)}"] = f"{self.name} computes only {allowed}"
        for setting, fits in self.conditions.items():
            if not fits(model):
                reasons[setting] = f"{self.name} has no such shape"
        return reasons

    def require(self, model: ModelConfig) -> None:
        """Raise `InputError` if the engine cannot compute a model; the message names its settings."""
        if misfits := self.misfits(model):
            raise InputError(f"{self.name} cannot compute this model: it has no {', no '.join(misfits)}.")


def has_full_heads(model: ModelConfig) -> bool:
    """Return whether the heads together are as wide as the model."""
    return model.head_size * model.num_heads == model.d_model


def _written(value: Any) -> str:
    """Return a value as in a recipe."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


_OF_OUR_OWN: dict[str, Collection[Any]] = {
    "activation": ACTIVATIONS, "positions": POSITIONS, "norm": ("layer", "rms"), "norm_position": ("post", "pre"),
    "attention_projections": ("all", "input", "output", "none"),
}  # fmt: skip
ONNX = Engine("ONNX", _OF_OUR_OWN | EVERY_HEAD, any_value=("convolutions", "qk_norm"))
PAGE = Engine("The page", _OF_OUR_OWN | EVERY_HEAD, any_value=("convolutions", "causal_mask", "qk_norm"))
CTRANSLATE2 = Engine(
    "CTranslate2",
    {
        "activation": ACTIVATIONS, "positions": POSITIONS[:-1], "norm": ("layer", "rms"),
        "norm_position": ("post", "pre"),
    },
    any_value=EVERY_HEAD,
    conditions={"model.head_dim other than d_model / num_heads": has_full_heads},
)  # fmt: skip
MARIAN = Engine(
    "Marian",
    {
        "activation": ("relu", "silu"), "positions": ("sinusoidal_marian",), "norm_position": ("post",),
        "start_vector": ("zero",), "embedding_scale": (True,), "embedding_norm": (False,),
    },
    any_value=EVERY_HEAD,
    conditions={
        "model.head_dim other than d_model / num_heads": has_full_heads,
        "model.norm_epsilon above 1e-5": lambda model: model.norm_epsilon <= 1e-5,
    },
)  # fmt: skip
