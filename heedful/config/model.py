"""The section [model] of a config."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from heedful.config.architecture import DROPOUTS, SIDES, Architecture
from heedful.core.errors import InputError
from heedful.core.validation import at_most, fraction, positive

SET_BY_SIZE = ("num_layers", "d_model", "num_heads", "d_ff")  # the settings that a named size sets
DEPTHS = ("encoder_layers", "decoder_layers")  # and these, if the two sides differ
MAX_CONVOLUTION_WIDTH = 99
SIZES = {
    "toy": (2, 128, 8, 256),
    "tiny": (4, 128, 4, 256),
    "tutorial": (4, 128, 8, 512),
    "iwslt": (6, 512, 4, 1024),  # as in fairseq, for text of the size of IWSLT14
    "base": (6, 512, 8, 2048),
    "big": (6, 1024, 16, 4096),
    "deep": (6, 512, 8, 2048),  # Kasai et al. 2021
    "student": (6, 256, 8, 1536),  # OPUS-MT, Bergamot
}
DEPTHS_OF_SIZE = {"deep": (12, 1), "student": (6, 2)}


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Architecture):
    """The architecture of a run's model. Sizes that are not given come from `size`."""

    size: Literal["toy", "tiny", "tutorial", "iwslt", "base", "big", "deep", "student"] = "tutorial"
    """Name of a set of sizes: num_layers, d_model, num_heads and d_ff; `deep` (12 and 1 blocks) and `student` (6 and 2)
    also set encoder_layers and decoder_layers."""
    # None until __post_init__ sets the value from `size`
    num_layers: int = None  # type: ignore[assignment]
    d_model: int = None  # type: ignore[assignment]
    num_heads: int = None  # type: ignore[assignment]
    d_ff: int = None  # type: ignore[assignment]
    pooling: Literal["mean", "first", "max"] = "mean"
    """classify: classify the mean of all token vectors, the first one, or the largest value of each component (Kim
    2014)."""
    pooler_activation: Literal["tanh", "relu"] = "tanh"
    """classify with pooling = first: activation of the projection of the first vector, tanh (BERT) or relu
    (DistilBERT)."""
    convolutions: tuple[int, ...] = ()
    """classify: odd widths, in tokens, of convolutions with GELU whose sum is added to the input of the first block, so
    that it sees short phrases (Kim 2014). Empty: none."""
    vector_pooling: Literal["mean", "first", "max"] = "mean"
    """embed: the vector of a text is the mean of all token vectors, the first one, or the largest value of each
    component."""
    unit_vectors: bool = False
    """embed: whether vectors of texts are scaled to length 1, as some sentence encoders are trained for."""
    untrained_head: bool = False
    """fill: whether the head for masked tokens is untrained, as in an encoder imported without one. Such a model can
    embed texts and initialise other runs, but not fill gaps."""

    def __post_init__(self) -> None:
        depths = zip(DEPTHS, DEPTHS_OF_SIZE.get(self.size, ()), strict=False) if self.num_layers is None else ()
        for name, value in (*depths, *zip(SET_BY_SIZE, SIZES[self.size], strict=True)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        positive(
            self, "num_layers", "d_model", "num_heads", "d_ff", "max_length", "norm_epsilon", "residual_init",
            "rotary_base",
        )  # fmt: skip
        at_most(self, **{f"{side}_layers": 10**4 for side in ("num", *SIDES) if getattr(self, f"{side}_layers")})
        at_most(self, d_model=10**5, num_heads=10**5, d_ff=10**6, max_length=10**7)
        fraction(self, *DROPOUTS)
        for name in DEPTHS:
            if getattr(self, name) is not None:
                positive(self, name)
        if self.embedding_std is not None:
            positive(self, "embedding_std")
        if any(width < 1 or width % 2 == 0 or width > MAX_CONVOLUTION_WIDTH for width in self.convolutions):
            raise InputError(f"convolutions must be odd widths from 1 to {MAX_CONVOLUTION_WIDTH}.")
        if self.head_dim is not None:
            positive(self, "head_dim")
            at_most(self, head_dim=10**5)
        if self.head_dim is None and self.d_model % self.num_heads:
            below = self.d_model // self.num_heads * self.num_heads
            choices = [str(size) for size in (below, below + self.num_heads) if size]
            raise InputError(
                f"d_model ({self.d_model}) must be a multiple of num_heads ({self.num_heads}): "
                f"try {' or '.join(choices)}, or set head_dim."
            )
        if self.num_kv_heads is not None and (self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads):
            raise InputError(f"num_heads ({self.num_heads}) must be a multiple of num_kv_heads ({self.num_kv_heads}).")
        if self.positions.startswith("sinusoidal") and self.d_model % 2:
            raise InputError(f"d_model ({self.d_model}) must be even for sinusoidal positions.")
        size = self.head_size
        if self.positions == "rotary" and size % 2:
            raise InputError(f"head_dim or d_model / num_heads ({size}) must be even for rotary positions.")
        if self.attention_projections != "all" and size * self.num_heads != self.d_model:
            raise InputError(
                f"attention_projections = {self.attention_projections!r} needs num_heads * head_dim "
                f"({size * self.num_heads}) to be d_model ({self.d_model})."
            )
        if self.attention_projections in ("output", "none") and self.num_kv_heads not in (None, self.num_heads):
            raise InputError(
                f"attention_projections = {self.attention_projections!r} needs as many num_kv_heads as num_heads."
            )

    @property
    def head_size(self) -> int:
        """The width of an attention head: `head_dim`, or its default."""
        return self.head_dim or self.d_model // self.num_heads

    @property
    def kv_heads(self) -> int:
        """The number of heads of keys and values: `num_kv_heads`, or its default."""
        return self.num_kv_heads or self.num_heads

    def keywords(self) -> dict[str, Any]:
        """Return the fields of the `Architecture`, as keyword arguments of a model."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(Architecture)}
