"""Export to Marian: `model.npz`, a SentencePiece vocabulary, and `decoder.yml`.

Marian computes transformers with norms after each sublayer, its own wavelengths of the positions, and zeros where a
text starts; see `engines.MARIAN`.
"""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.core.errors import InputWarning
from heedful.interop.engines import MARIAN
from heedful.interop.export.folders import ORIGIN, PARITY, write_origin
from heedful.interop.export.formats import Format, OpenedExport
from heedful.interop.export.marian_model import END_ID, MarianModel
from heedful.interop.export.sentencepiece_vocabulary import (
    MULTIPLE,
    Vocabulary,
    sentencepiece_library,
    sentencepiece_vocabulary,
)
from heedful.interop.pretrained.layout import with_full_heads
from heedful.layers.embeddings import NEVER_WRITTEN
from heedful.runs.weights import weights_by_name

if TYPE_CHECKING:
    from heedful.config import ModelConfig
    from heedful.runs.run import Run

Arrays = dict[str, np.ndarray]
OPTIONS = "special:model.yml"  # the parameter that holds the options, as bytes
ACTIVATIONS = {"relu": "relu", "silu": "swish"}  # our names and Marian's
MODEL, CONFIG = "model.npz", "decoder.yml"
FIXED = {
    "type": "transformer", "version": "v1.9.0", "transformer-preprocess": "", "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d", "transformer-postprocess-top": "", "transformer-no-projection": False,
    "transformer-ffn-depth": 2, "transformer-decoder-autoreg": "self-attention", "transformer-tied-layers": [],
    "transformer-guided-alignment-layer": "last", "transformer-train-positions": False,
    "transformer-pool": False, "transformer-aan-depth": 2, "transformer-aan-activation": "swish",
    "transformer-aan-nogate": False, "transformer-dim-aan": 2048, "dec-cell": "gru", "dec-cell-base-depth": 2,
    "dec-cell-high-depth": 1, "enc-cell": "gru", "enc-cell-depth": 1, "enc-type": "bidirectional", "dim-rnn": 1024,
    "bert-train-type-embeddings": True, "bert-type-vocab-size": 2, "factors-combine": "sum", "factors-dim-emb": 0,
    "lemma-dim-emb": 0, "input-types": [], "layer-normalization": False, "output-omit-bias": False,
    "right-left": False, "skip": False, "ulr": False, "ulr-dim-emb": 0, "ulr-trainable-transformation": False,
}  # fmt: skip


def vocabularies(run: "Run") -> list[Vocabulary]:
    """Return the SentencePiece models of source and target; errors as in `sentencepiece_vocabulary`."""
    source = sentencepiece_vocabulary(run.source_tokenizer)
    same = run.fingerprints()[0] == run.fingerprints()[1]
    return [source, source if same else sentencepiece_vocabulary(run.target_tokenizer)]


def marian_arrays(run: "Run", sides: Sequence[Vocabulary]) -> Arrays:
    """Return the weights of a run by the names of Marian's parameters.

    Raises:
        InputError: Marian has no such model.
    """
    config = run.config.model
    MARIAN.require(config)
    weights = with_full_heads(config, weights_by_name(run.load_model()))
    arrays = _tables(config, weights, sides)
    for side in ("encoder", "decoder"):
        for index in range(config.depths[side]):
            arrays |= _block(weights, f"{side}/block_{index}", f"{side}_l{index + 1}", config.d_model)
    return {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}


def _tables(config: "ModelConfig", weights: Mapping[str, np.ndarray], sides: Sequence[Vocabulary]) -> Arrays:
    """Return the embeddings and the output layer, in the order of the pieces."""
    source, target = sides
    written = weights["target_embedding/embeddings"][target.ids]
    untied = config.tie in ("none", "inputs")
    bias = weights.get(f"{'output_projection' if untied else 'target_embedding'}/bias", np.zeros(max(target.ids) + 1))
    arrays = {"decoder_ff_logit_out_b": np.where(target.written, bias[target.ids], NEVER_WRITTEN)[None]}
    if config.tie in ("all", "inputs"):
        arrays["Wemb"] = written
    else:
        arrays |= {
            "encoder_Wemb": weights["source_embedding/embeddings"][source.ids], "decoder_Wemb": written,
        }  # fmt: skip
    if untied:
        arrays["decoder_ff_logit_out_W"] = weights["output_projection/embeddings"][target.ids].T
    return arrays


def _block(weights: Mapping[str, np.ndarray], ours: str, theirs: str, width: int) -> Arrays:
    """Return the weights of a block; one of a decoder has cross-attention."""
    arrays: Arrays = {}

    def add(name: str, parts: str, layer: str) -> None:
        kernel = weights[f"{ours}/{layer}/kernel"]
        bias = weights.get(f"{ours}/{layer}/bias", np.zeros(kernel.shape[1]))
        for part, columns, entries in zip(
            parts, np.split(kernel, len(parts), axis=1), np.split(bias, len(parts)), strict=True
        ):
            arrays[f"{theirs}_{name}_W{part}"], arrays[f"{theirs}_{name}_b{part}"] = columns, entries[None]

    def add_norm(name: str, layer: str) -> None:
        gamma = weights[f"{ours}/{layer}/norm/gamma"]
        beta = weights.get(f"{ours}/{layer}/norm/beta", np.zeros(width))
        arrays[f"{theirs}_{name}_ln_scale"], arrays[f"{theirs}_{name}_ln_bias"] = gamma[None], beta[None]

    add("self", "qkv", "self_attention/query_key_value")
    add("self", "o", "self_attention/output")
    add_norm("self_Wo", "self_attention_residual")
    if ours.startswith("decoder/"):
        add("context", "q", "cross_attention/query")
        add("context", "kv", "cross_attention/key_value")
        add("context", "o", "cross_attention/output")
        add_norm("context_Wo", "cross_attention_residual")
    add("ffn", "1", "feed_forward/inner")
    add("ffn", "2", "feed_forward/outer")
    add_norm("ffn_ffn", "feed_forward_residual")
    return arrays


def model_options(config: "ModelConfig", sides: Sequence[Vocabulary]) -> dict[str, Any]:
    """Return the options of a model as Marian names them."""
    return FIXED | {
        "enc-depth": config.depths["encoder"], "dec-depth": config.depths["decoder"], "dim-emb": config.d_model,
        "transformer-dim-ffn": config.d_ff, "transformer-heads": config.num_heads,
        "transformer-ffn-activation": ACTIVATIONS[config.activation],
        "dim-vocabs": [len(side.ids) for side in sides], "tied-embeddings": config.tie == "target",
        "tied-embeddings-all": config.tie == "all", "tied-embeddings-src": config.tie == "inputs",
    }  # fmt: skip


def yaml(table: Mapping[str, Any]) -> str:
    """Return a flat table as YAML, of which JSON values are a part."""
    return "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in table.items())


def options_bytes(config: "ModelConfig", sides: Sequence[Vocabulary]) -> np.ndarray:
    """Return the options of a model as the parameter that Marian reads them from: bytes, 0 at the end (int8)."""
    return np.frombuffer(yaml(model_options(config, sides)).encode() + b"\0", np.int8)


def write_vocabularies(sides: Sequence[Vocabulary], folder: Path) -> list[str]:
    """Write the SentencePiece models; return the names of the files of source and target."""
    if sides[0] is sides[1]:
        (folder / "vocab.spm").write_bytes(sides[0].content)
        return ["vocab.spm"] * 2
    for name, side in zip(("source.spm", "target.spm"), sides, strict=True):
        (folder / name).write_bytes(side.content)
    return ["source.spm", "target.spm"]


def decoder_options(run: "Run") -> dict[str, Any]:
    """Return the settings of a search, as Marian names them, nearest to those of a run; warn of those that it lacks."""
    decode = run.config.decode
    if lost := [f"decode.{name} = {value!r}" for name, value in decode.lacking("marian").items()]:
        warnings.warn(f"Marian ignores {', '.join(lost)}: it has no such setting.", InputWarning, stacklevel=2)
    return {"normalize": decode.length_penalty, "word-penalty": 0.0} | decode.called_in("marian")


def write(run: "Run", folder: Path, quantization: str) -> None:
    """Write a `Run` as a model of Marian into a folder."""
    sides = vocabularies(run)
    arrays = marian_arrays(run, sides)
    content: dict[str, Any] = {**arrays, OPTIONS: options_bytes(run.config.model, sides)}
    np.savez(folder / MODEL, **content)
    names = write_vocabularies(sides, folder)
    options = {"relative-paths": True, "models": [MODEL], "vocabs": names} | decoder_options(run)
    (folder / CONFIG).write_text(yaml(options), encoding="utf-8")
    write_origin(folder, run)


def read_npz(folder: Path) -> Arrays:
    """Return the arrays of a `model.npz`."""
    with np.load(folder / MODEL) as file:
        return dict(file)


class MarianExport(OpenedExport):
    """An export to Marian, computed by `MarianModel`.

    Args:
        run: the run that was exported.
        folder: of the export.
        read: reads its arrays.
        size: bytes of the weights.
        shortlists: for each source piece, the target pieces that are considered in a text with it; None: all.
    """

    def __init__(
        self,
        run: "Run",
        folder: Path,
        read: Callable[[Path], Arrays],
        size: int,
        shortlists: list[np.ndarray] | None = None,
    ):
        self.size, self.shortlists = size, shortlists
        arrays = read(folder)
        text = arrays.pop(OPTIONS).tobytes().rstrip(b"\0").decode()
        lines = (line.split(": ", 1) for line in text.splitlines())
        self.model = MarianModel(arrays, {name: json.loads(value) for name, value in lines})
        names = ["vocab.spm"] * 2 if (folder / "vocab.spm").is_file() else ["source.spm", "target.spm"]
        self.joint = names[0] == names[1]
        library, _ = sentencepiece_library()
        self.source, self.target = (library.SentencePieceProcessor(model_file=str(folder / name)) for name in names)

    def write(self, texts: Sequence[str], max_tokens: int, beam_size: int) -> list[tuple[str, float | None]]:
        """Return greedy translations of texts."""
        return [(self.target.decode(self._greedy([*self.source.encode(text), END_ID], max_tokens)), None)
                for text in texts]  # fmt: skip

    def _greedy(self, ids: list[int], max_tokens: int) -> list[int]:
        considered = None
        if self.shortlists is not None:
            considered = np.unique(np.concatenate([self.shortlists[one] for one in set(ids)]))
            if self.joint:
                considered = np.union1d(considered, ids)
            others = np.setdiff1d(np.arange(len(self.model.tables["decoder"])), considered)
            considered = np.union1d(considered, others[: -len(considered) % MULTIPLE])  # as Marian fills it up
        return self.model.greedy(ids, max_tokens, considered)


FORMAT = Format(
    library="Marian",
    require=sentencepiece_library,
    files=(MODEL, CONFIG, "*.spm", ORIGIN, PARITY),
    quantizations=("float32",),
    write=write,
    open=lambda run, folder, quantization: MarianExport(run, folder, read_npz, (folder / MODEL).stat().st_size),
    task="translate",
    computes=MARIAN,
)
