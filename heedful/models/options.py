"""What all three families of model can be told, with one default for each."""

from dataclasses import dataclass

from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.norms import EPSILON, Norm

TIES = ("none", "target", "all")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Keyword arguments of `Transformer`, `CausalLM`, `MaskedLM` and `Classifier`.

    Args:
        num_layers: blocks of the model (encoder-decoder: of each side); the paper's base model has 6.
        d_model: width of every vector.
        num_heads: attention heads; must divide `d_model`.
        d_ff: inner width of the feed-forward networks.
        num_kv_heads: key and value heads; must divide `num_heads` (default: as many).
        activation: `relu`, `gelu`, `gelu_tanh`, `silu`, `geglu` or `swiglu`.
        norm: `post` as in the paper, or `pre`.
        norm_kind: `layer` or `rms`.
        norm_epsilon: added to the variance.
        bias: whether projections and layer norms have one; what stands on top of an encoder always has.
        positions: `sinusoidal` (interleaved, as in the paper), `sinusoidal_concatenated` (TensorFlow tutorial),
            `learned` or `rotary`.
        embedding_norm: normalise the embeddings before the first block.
        embedding_scale: multiply embeddings by sqrt(d_model), as in the paper.
        tie: `none`; `target`: (target) embedding = output projection; `all`: the source embedding too (one vocabulary).
        output_bias: whether logits get a learned summand, one a word.
        dropout: on embeddings and on each sublayer's output.
        attention_dropout: on attention weights.
        max_length: longest text; a limit for learned positions and for generation only.
    """

    num_layers: int = 6
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    num_kv_heads: int | None = None
    activation: str = "relu"
    norm: str = "post"
    norm_kind: str = "layer"
    norm_epsilon: float = EPSILON
    bias: bool = True
    positions: str = "sinusoidal"
    embedding_norm: bool = False
    embedding_scale: bool = True
    tie: str = "target"
    output_bias: bool = False
    dropout: float = 0.1
    attention_dropout: float = 0.0
    max_length: int = 256

    def __post_init__(self):
        if self.tie not in TIES:
            raise ValueError(f"Unknown tie {self.tie!r}: choose one of {', '.join(TIES)}.")

    @property
    def new_norm(self):
        """The `Norm` that makes every norm."""
        return Norm(self.norm_kind, self.norm_epsilon, self.bias)

    def new_tables(self, vocab_size, dtype):
        """Return the embedding of one vocabulary and its output projection: one `TokenEmbedding` when tied, or two."""
        options = {"scale": self.embedding_scale, "dtype": dtype}
        if self.tie != "none":
            both = TokenEmbedding(vocab_size, self.d_model, bias=self.output_bias, name="embedding", **options)
            return both, both
        projection = TokenEmbedding(
            vocab_size, self.d_model, bias=self.output_bias, name="output_projection", **options
        )
        return TokenEmbedding(vocab_size, self.d_model, name="embedding", **options), projection

    def block(self):
        """Return the keyword arguments of each block."""
        return {
            "d_model": self.d_model, "num_heads": self.num_heads, "d_ff": self.d_ff, "num_kv_heads": self.num_kv_heads,
            "activation": self.activation, "norm": self.norm, "norm_kind": self.norm_kind,
            "norm_epsilon": self.norm_epsilon, "bias": self.bias, "dropout": self.dropout,
            "attention_dropout": self.attention_dropout, "rotary": self.positions == "rotary",
        }  # fmt: skip

    def text_input(self):
        """Return the keyword arguments of each `TextInput`."""
        return {
            "positions": self.positions, "max_length": self.max_length, "dropout": self.dropout,
            "new_norm": self.new_norm if self.embedding_norm else None,
        }  # fmt: skip
