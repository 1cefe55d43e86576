"""The architecture of a Transformer: every option of a model, declared once, without Keras."""

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any, Literal

SIDES = ("encoder", "decoder")
SIZES = (
    "d_model", "num_heads", "head_dim", "d_ff", "num_kv_heads", "num_layers", "encoder_layers", "decoder_layers",
    "max_length",
)  # fmt: skip
# Arguments of `layers.sinusoid` by the name of the encoding: whether concatenated, and whether with the endpoint.
SINUSOIDS = {
    "sinusoidal": (False, False), "sinusoidal_concatenated": (True, False), "sinusoidal_marian": (True, True),
}  # fmt: skip
FORMAT_1 = {"norm": "norm_position", "norm_kind": "norm"}  # arguments of heedful 0.1.0, and their current names


def from_format_1(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a model, with names from heedful 0.1.0 replaced by the current ones."""
    if "norm_kind" not in arguments and arguments.get("norm") not in ("post", "pre"):
        return arguments
    return {FORMAT_1.get(name, name): value for name, value in arguments.items()}


@dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """The options of a block: keyword arguments of `EncoderBlock` and `DecoderBlock`.

    Sections are those of "Attention Is All You Need" (Vaswani et al. 2017) unless another paper is named.
    """

    d_model: int = 512
    """Width of every vector between the blocks (section 3.1)."""
    num_heads: int = 8
    """Attention heads; must divide d_model unless head_dim is set (section 3.2.2)."""
    head_dim: int | None = None
    """Size of each attention head, key_dim in Keras (section 3.2.2). None: d_model / num_heads."""
    d_ff: int = 2048
    """Inner width of the feed-forward networks (section 3.3)."""
    num_kv_heads: int | None = None
    """Key and value heads; must divide num_heads. Fewer heads make the key/value cache smaller (Ainslie et al. 2023).
    None: as many as num_heads."""
    attention_projections: Literal["all", "input", "output", "none"] = "all"
    """Linear projections of attention: all (section 3.2.2); for comparison, input, only those of query, key and value;
    output, only the one of the result; or none."""
    qk_norm: bool = False
    """Whether each head of queries and keys is normalised, with a learned scale, before it is rotated and compared
    (Dehghani et al. 2023, section 2.2; RMS norm as in Qwen3). It bounds the attention scores, so that higher learning
    rates are stable."""
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "geglu", "swiglu"] = "relu"
    """Nonlinearity of the feed-forward networks, and of the head that predicts masked tokens: relu (section 3.3), gelu
    (BERT), gelu_tanh (GPT-2), silu (Marian), or a gated form, geglu or swiglu (Shazeer 2020)."""
    norm_position: Literal["post", "pre"] = "post"
    """Where norms are applied: to the sum after each residual connection (post, section 3.1), or to the input of each
    sublayer (pre, Xiong et al. 2020), which trains without a long warm-up."""
    norm: Literal["layer", "rms"] = "layer"
    """Kind of norm: layer (Ba et al. 2016), or rms, which does not centre and has no bias (Zhang and Sennrich 2019)."""
    norm_epsilon: float = 1e-6
    """Constant added to the variance in a norm, before its square root."""
    residual_init: float = 1.0
    """Factor of the initial weights with which attention and feed-forward networks write to the residual connection. A
    small one, such as 0.2, lets models with norm_position = post train much faster (compare Liu et al. 2020)."""
    bias: bool = True
    """Whether projections and layer norms have a bias; the head on top of an encoder always has one."""
    rotary_base: float = 10000.0
    """Base of the wavelengths of rotary positions (Su et al. 2021, section 3.2.2); models for long texts have a larger
    one."""
    dropout: float = 0.1
    """Dropout rate of the embeddings and of each sublayer's output (section 5.4)."""
    attention_dropout: float = 0.0
    """Dropout rate of the attention weights."""
    feed_forward_dropout: float = 0.0
    """Dropout rate inside the feed-forward networks, after their nonlinearity."""
    layer_dropout: float = 0.0
    """Rate at which training skips a sublayer for a text (stochastic depth, Huang et al. 2016)."""

    def __post_init__(self) -> None:
        for name in typing.get_type_hints(type(self)):
            allowed = choices(name, type(self))
            if allowed and getattr(self, name) not in allowed:
                raise ValueError(f"Unknown {name} {getattr(self, name)!r}: choose one of {', '.join(allowed)}.")
        for name in SIZES:
            if (size := getattr(self, name, None)) is not None and size < 1:
                raise ValueError(f"{name} ({size}) must be at least 1.")


@dataclass(frozen=True, kw_only=True)
class Architecture(BlockOptions):
    """The options of a model: keyword arguments of `Transformer`, `CausalLM`, `MaskedLM` and `Classifier`.

    They are the keys of a recipe's section [model].
    """

    num_layers: int = 6
    """Number of blocks, per side in an encoder-decoder (section 3.1)."""
    encoder_layers: int | None = None
    """translate: number of blocks of the encoder. None: num_layers."""
    decoder_layers: int | None = None
    """translate: number of blocks of the decoder, which runs once for every token that is written: a deep encoder and a
    shallow decoder translate faster than two equal ones (Kasai et al. 2021). None: num_layers."""
    causal_mask: bool = True
    """Whether training hides the tokens after each position of a decoder (section 3.2.3). Without it a model learns to
    copy the answer, and then writes nonsense; for comparison only."""
    positions: Literal[
        "sinusoidal", "sinusoidal_concatenated", "sinusoidal_marian", "learned", "rotary", "none"
    ] = "sinusoidal"  # fmt: skip
    """Position encoding: sinusoidal, sines and cosines interleaved (section 3.5) or concatenated
    (TensorFlow tutorial); sinusoidal_marian, concatenated with the wavelengths of Marian; learned (Gehring et al.
    2017); rotary (Su et al. 2021); none, which leaves an encoder a bag of words."""
    embedding_norm: bool = False
    """Whether embeddings are normalised before the first block, as in BERT (Devlin et al. 2019)."""
    embedding_scale: bool = True
    """Whether embeddings are multiplied by sqrt(d_model) (section 3.4)."""
    embedding_std: float | None = None
    """Standard deviation of the entries of a new embedding table. A small one (0.02 in BERT) keeps words that the
    training text has only once or twice from adding noise. None: 1 / sqrt(d_model)."""
    tie: Literal["none", "inputs", "target", "all"] = "target"
    """Weight tying (section 3.4). target: the (target) embedding is also the output projection. inputs: it is also the
    source embedding, and the output projection has its own table. all: one table for all three. The last two require
    one joint vocabulary."""
    output_bias: bool = False
    """Whether logits have a learned bias per vocabulary entry, as in BERT and Marian."""
    token_dropout: float = 0.0
    """Rate at which training replaces the embedding of a token by zeros (token cut-off, Shen et al. 2020)."""
    start_vector: Literal["learned", "zero"] = "learned"
    """translate: what the decoder reads where a text starts: the learned vector of [START], or zeros, as in Marian."""
    max_length: int = 256
    """Maximum text length in tokens; limits learned positions and generation."""

    @property
    def depths(self) -> dict[str, int]:
        """The number of blocks of each of the `SIDES` of an encoder-decoder."""
        layers = {side: getattr(self, f"{side}_layers") for side in SIDES}
        return {side: self.num_layers if number is None else number for side, number in layers.items()}

    def block_options(self) -> dict[str, Any]:
        """Return the keyword arguments of each block."""
        options = {one.name: getattr(self, one.name) for one in dataclasses.fields(BlockOptions)}
        return options | {"rotary": self.positions == "rotary"}


DROPOUTS = tuple(one.name for one in dataclasses.fields(Architecture) if one.name.endswith("dropout"))


def choices(name: str, kind: type = Architecture) -> tuple[str, ...]:
    """Return the allowed values of an option; none if it is not one of several words."""
    hint = typing.get_type_hints(kind)[name]
    return typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
