"""Export of a trained run to CTranslate2, with CTranslate2's own specification classes.

Axes: S positions, D d_model, V vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from heedful import backend
from heedful.core.errors import InputError
from heedful.interop.engines import CTRANSLATE2
from heedful.interop.export.ctranslate2_search import SHORTLIST, ctranslate2, ctranslate2_translator
from heedful.interop.export.folders import ORIGIN, PARITY, replacing, write_origin
from heedful.interop.export.formats import Format, OpenedExport
from heedful.interop.export.plain_search import plain_search
from heedful.layers.feed_forward import is_gated

if TYPE_CHECKING:
    from heedful.interop.export.shortlist import Shortlist
    from heedful.runs.run import Run

# Our activations by the names of CTranslate2, which has a gate of its own.
ACTIVATIONS = {
    "relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH", "geglu": "GELU", "swiglu": "SWISH",
}  # fmt: skip


def export(run: "Run", folder: str | Path, quantization: str = "float32") -> Path:
    """Write a `Run` as a CTranslate2 model into `folder`.

    Raises:
        InputError: CTranslate2 is not installed, cannot express an option of the model, or does not know the
            quantization; or the folder holds something else.
    """
    FORMAT.require_quantization(quantization)
    with replacing(Path(folder), FORMAT.files) as aside:
        write(run, aside, quantization)
    return Path(folder)


def write(run: "Run", folder: Path, quantization: str) -> None:
    """Write a `Run` as a CTranslate2 model into a folder, see `export`."""
    specification = specify(run, ctranslate2())
    specification.validate()
    specification.optimize(quantization=None if quantization == "float32" else quantization)
    specification.save(str(folder))
    write_origin(folder, run)


def add_shortlist(run: "Run", folder: Path, shortlist: "Shortlist") -> None:
    """Write a shortlist as a vocabulary map of CTranslate2.

    Each line is a source token, a tab, and target tokens, separated by spaces; those of the empty source token are
    considered for every text.

    Raises:
        InputError: a token of the vocabulary has white space.
    """
    source, target = run.source_tokenizer.lookup, run.target_tokenizer.lookup
    spaced = [token for token in map(target, range(len(run.target_tokenizer))) if not token or token.split() != [token]]
    if spaced:
        raise InputError(f"A shortlist of CTranslate2 cannot have a token with white space, such as {spaced[0]!r}.")
    entries = [("", shortlist.always)]
    entries += [(source(token), targets) for token, targets in enumerate(shortlist.translations) if targets]
    lines = [f"{token}\t{' '.join(map(target, targets))}\n" for token, targets in entries]
    (folder / SHORTLIST).write_text("".join(lines), encoding="utf-8")


def specify(run: "Run", engine: Any) -> Any:
    """Return the `TransformerSpec` of a run's trained model, vocabularies included."""
    specs = engine.specs
    config = run.config.model
    CTRANSLATE2.require(config)
    model = run.load_model()
    options = {
        "pre_norm": config.norm_position == "pre",
        "activation": getattr(specs.common_spec.Activation, ACTIVATIONS[config.activation]),
        "ffn_glu": is_gated(config.activation),
        "rms_norm": config.norm == "rms",
        "layernorm_embedding": config.embedding_norm,
        "num_heads_kv": config.num_kv_heads if config.num_kv_heads not in (None, config.num_heads) else None,
    }
    if config.positions == "rotary":
        options |= {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": config.rotary_base}
    specification = specs.TransformerSpec(
        specs.transformer_spec.TransformerEncoderSpec(config.depths["encoder"], config.num_heads, **options),
        specs.transformer_spec.TransformerDecoderSpec(config.depths["decoder"], config.num_heads, **options),
    )
    _fill_side(specification.encoder, model, "source")
    _fill_side(specification.decoder, model, "target")
    specification.encoder.embeddings[0].weight = _array(model.source_embedding.embeddings)
    specification.decoder.embeddings.weight = _array(model.target_embedding.embeddings)
    specification.decoder.projection.weight = _array(model.output_projection.embeddings)
    if model.output_projection.bias is not None:
        specification.decoder.projection.bias = _array(model.output_projection.bias)
    specification.encoder.scale_embeddings = specification.decoder.scale_embeddings = config.embedding_scale
    for spec, block in zip(specification.encoder.layer, model.encoder.blocks, strict=True):
        _fill_block(spec, block)
    for spec, block in zip(specification.decoder.layer, model.decoder.blocks, strict=True):
        _fill_block(spec, block)
        attention = block.cross_attention
        projections = attention.query_projection, attention.key_value_projection, attention.output_projection
        for linear, projection in zip(spec.attention.linear, projections, strict=True):
            _fill_linear(linear, projection)
        _fill_norm(spec.attention.layer_norm, block.cross_residual.norm)
    for tokenizer, register in (
        (run.source_tokenizer, specification.register_source_vocabulary),
        (run.target_tokenizer, specification.register_target_vocabulary),
    ):
        register([tokenizer.lookup(i) for i in range(len(tokenizer))])
    tokens = {"unk_token": "[UNK]", "bos_token": "[START]", "eos_token": "[END]", "decoder_start_token": "[START]"}
    for name, value in (tokens | {"add_source_eos": True, "layer_norm_epsilon": config.norm_epsilon}).items():
        setattr(specification.config, name, value)
    return specification


def _fill_side(spec, model, side):
    text_input = getattr(model, f"{side}_input")
    if (positions := text_input.positions) is not None:
        length = model.max_length + 1
        learned = getattr(positions, "embeddings", None)
        if learned is not None:
            table = _array(learned)
        else:
            table = np.asarray(backend.to_numpy(positions.table(np.arange(length))))
        spec.position_encodings.encodings = table
    if text_input.norm is not None:
        _fill_norm(spec.layernorm_embedding, text_input.norm)
    stack = model.encoder if side == "source" else model.decoder
    if stack.final_norm is not None:
        _fill_norm(spec.layer_norm, stack.final_norm)


def _fill_block(spec, block):
    attention = block.attention
    projections = attention.joint_projection, attention.output_projection
    for linear, projection in zip(spec.self_attention.linear, projections, strict=True):
        _fill_linear(linear, projection)
    _fill_norm(spec.self_attention.layer_norm, block.attention_residual.norm)
    _fill_linear(spec.ffn.linear_0, block.feed_forward.inner)
    _fill_linear(spec.ffn.linear_1, block.feed_forward.outer)
    if block.feed_forward.gate:
        _fill_linear(spec.ffn.linear_0_noact, block.feed_forward.gate)
    _fill_norm(spec.ffn.layer_norm, block.feed_forward_residual.norm)


def _fill_linear(spec, projection):
    spec.weight = np.ascontiguousarray(_array(projection.kernel).T)
    if projection.use_bias:
        spec.bias = _array(projection.bias)


def _fill_norm(spec, norm):
    if isinstance(norm, keras.layers.RMSNormalization):
        spec.gamma = _array(norm.scale)
        return
    spec.gamma = _array(norm.gamma)
    spec.beta = _array(norm.beta) if norm.center else np.zeros_like(spec.gamma)


def _array(variable):
    return np.asarray(backend.to_numpy(variable), np.float32)


class CTranslate2Export(OpenedExport):
    """An export to CTranslate2, opened for a comparison."""

    beam_sizes = (1, 4)

    def __init__(self, run: "Run", folder: Path, quantization: str = "float32"):
        self.run, self.folder = run, folder
        self.size = sum(path.stat().st_size for path in map(folder.joinpath, ("model.bin", SHORTLIST)) if path.exists())

    def write(self, texts: Sequence[str], max_tokens: int, beam_size: int) -> list[tuple[str, float | None]]:
        """Return translations of texts with their scores."""
        translator = ctranslate2_translator(self.run, plain_search(self.run, beam_size), self.folder)
        return [(best.text, best.score) for best, *_ in translator.n_best(texts)]


FORMAT = Format(
    library="CTranslate2",
    require=ctranslate2,
    files=("model.bin", "config.json", SHORTLIST, ORIGIN, PARITY, "*_vocabulary.json"),
    quantizations=("float32", "int8", "int8_float32", "int16", "float16", "bfloat16"),
    write=write,
    open=CTranslate2Export,
    task="translate",
    computes=CTRANSLATE2,
    add_shortlist=add_shortlist,
)
