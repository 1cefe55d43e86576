"""The architecture of a Transformer: every option of a model, declared once, without Keras."""

import typing
from dataclasses import dataclass
from typing import Literal

FORMAT_1 = {"norm": "norm_position", "norm_kind": "norm"}  # arguments of heedful 0.1.0, and their names today


def from_format_1(arguments):
    """Return the arguments of a model with those of heedful 0.1.0 under their names of today."""
    if "norm_kind" not in arguments and arguments.get("norm") not in ("post", "pre"):
        return arguments
    return {FORMAT_1.get(name, name): value for name, value in arguments.items()}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Keyword arguments of `Transformer`, `CausalLM`, `MaskedLM` and `Classifier`; keys of a recipe's section [model].

    Sections are those of "Attention Is All You Need" (Vaswani et al. 2017) unless another paper is named.
    """

    num_layers: int = 6
    """Blocks of the model, of each side in an encoder-decoder (section 3.1)."""
    d_model: int = 512
    """Width of every vector between the blocks (section 3.1)."""
    num_heads: int = 8
    """Attention heads; must divide d_model (section 3.2.2)."""
    d_ff: int = 2048
    """Inner width of the feed-forward networks (section 3.3)."""
    num_kv_heads: int | None = None
    """Key and value heads; must divide num_heads. Fewer heads make the key/value cache smaller (Ainslie et al. 2023).
    None: as many as num_heads."""
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "geglu", "swiglu"] = "relu"
    """Nonlinearity of the feed-forward networks: relu (section 3.3), gelu (BERT), gelu_tanh (GPT-2), silu (Marian), or
    a gated form, geglu or swiglu (Shazeer 2020)."""
    norm_position: Literal["post", "pre"] = "post"
    """Where a block normalises: the sum after a residual connection (post, section 3.1), or the input of each sublayer
    (pre, Xiong et al. 2020), which trains without a long warm-up."""
    norm: Literal["layer", "rms"] = "layer"
    """Kind of norm: layer (Ba et al. 2016), or rms, which does not centre and has no bias (Zhang and Sennrich 2019)."""
    norm_epsilon: float = 1e-6
    """Added to the variance before a norm divides by its root."""
    bias: bool = True
    """Whether projections and layer norms have a bias; the head on top of an encoder always has one."""
    positions: Literal["sinusoidal", "sinusoidal_concatenated", "learned", "rotary"] = "sinusoidal"
    """How the model knows positions: sinusoidal, sines and cosines interleaved (section 3.5) or concatenated
    (TensorFlow tutorial); learned (Gehring et al. 2017); rotary (Su et al. 2021)."""
    embedding_norm: bool = False
    """Whether embeddings are normalised before the first block, as in BERT (Devlin et al. 2019)."""
    embedding_scale: bool = True
    """Whether embeddings are multiplied by sqrt(d_model) (section 3.4)."""
    tie: Literal["none", "target", "all"] = "target"
    """Shared tables (section 3.4): target, the (target) embedding is the output projection too; all, it is the source
    embedding too, which takes one vocabulary."""
    output_bias: bool = False
    """Whether logits have a learned bias for each word of the vocabulary, as in BERT and Marian."""
    dropout: float = 0.1
    """Share of the embeddings, and of each sublayer's output, that is dropped in training (section 5.4)."""
    attention_dropout: float = 0.0
    """Share of the attention weights that is dropped in training."""
    max_length: int = 256
    """Longest text in tokens that the model reads or writes; a limit of learned positions and of generation."""

    def __post_init__(self):
        for name, hint in typing.get_type_hints(type(self)).items():
            choices = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
            if choices and getattr(self, name) not in choices:
                raise ValueError(f"Unknown {name} {getattr(self, name)!r}: choose one of {', '.join(choices)}.")
