"""Export to ONNX: a folder in the Hugging Face layout whose models run in onnxruntime and in browsers.

The graphs are built from the weights, operator by operator, so no other framework is needed. File names, inputs and
outputs are those of the Optimum library, which transformers.js reads too.
"""

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.core.special_tokens import END_ID, PAD_ID, START_ID
from heedful.interop.engines import ONNX
from heedful.interop.export import onnx_models
from heedful.interop.export.formats import Format, OpenedExport
from heedful.interop.export.huggingface import FORMAT as HUGGINGFACE
from heedful.interop.export.huggingface import write_description
from heedful.interop.export.model_card import onnx_card
from heedful.interop.export.onnx_session import Session, onnxruntime
from heedful.interop.export.plain_search import never_written_ids, read_tokens
from heedful.runs.weights import weights_by_name

if TYPE_CHECKING:
    from heedful.runs.run import Run

FOLDER, INT8_SUFFIX = "onnx", "_quantized"  # folder of the graphs; suffix of int8 file names


def graphs(run: "Run") -> dict[str, Any]:
    """Return the ONNX models of a `Run` by file name, in float32."""
    config = run.config.model
    ONNX.require(config)
    weights = weights_by_name(run.load_model())
    if run.task.translates:
        return onnx_models.translator(weights, config)
    if run.task.writes:
        return onnx_models.language_model(weights, config)
    return onnx_models.encoder(weights, config, classes=bool(run.config.data.labels))


def runtime_config(run: "Run") -> dict[str, Any]:
    """Return the config.json that tells transformers.js and Optimum how to call the graphs.

    It names a class that is called in the same way, whatever the options of the model, and describes the shapes of the
    caches. What the class computes in other libraries does not matter here.
    """
    model, labels = run.config.model, run.config.data.labels
    head_dim, kv_heads = model.head_size, model.kv_heads
    shared = {
        "vocab_size": len(run.target_tokenizer), "pad_token_id": PAD_ID, "bos_token_id": START_ID,
        "eos_token_id": END_ID, "max_position_embeddings": model.max_length,
    }  # fmt: skip
    if run.task.translates:
        sides = {f"{side}_layers": depth for side, depth in model.depths.items()}
        sides |= {f"{side}_attention_heads": kv_heads for side in model.depths}
        return shared | sides | {
            "model_type": "marian", "architectures": ["MarianMTModel"], "is_encoder_decoder": True,
            "d_model": kv_heads * head_dim, "decoder_start_token_id": START_ID,
        }  # fmt: skip
    shared |= {
        "num_hidden_layers": model.num_layers, "hidden_size": model.d_model, "num_attention_heads": model.num_heads,
    }  # fmt: skip
    if run.task.writes:
        caches = {"num_key_value_heads": kv_heads, "head_dim": head_dim}
        return shared | caches | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    if not labels:
        name = "BertModel" if model.untrained_head else "BertForMaskedLM"
        return shared | {"model_type": "bert", "architectures": [name]}
    problem = "multi_label" if run.config.data.several_labels else "single_label"
    return shared | {
        "model_type": "bert", "architectures": ["BertForSequenceClassification"],
        "problem_type": f"{problem}_classification", "id2label": dict(enumerate(labels)),
        "label2id": {name: number for number, name in enumerate(labels)},
    }  # fmt: skip


def write(run: "Run", folder: Path, quantization: str = "float32") -> None:
    """Write a `Run` to an empty folder: settings and tokenizers, and its models in `onnx/`.

    With int8, add quantized copies of the float32 models that the folder already holds.
    """
    import onnx

    target = folder / FOLDER
    if quantization == "int8":
        for path in sorted(target.glob("*.onnx")):
            _quantize(target, path.stem)
        return
    write_description(run, folder, runtime_config(run), onnx_card(run))
    target.mkdir()
    for name, graph in graphs(run).items():
        onnx.save(graph, target / f"{name}.onnx")


def _quantize(folder, name):
    """Write a copy of a model whose products of weights are in int8."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as aside:
        prepared = Path(aside) / "model.onnx"
        onnx.save(_with_transposed_weights(onnx.load(folder / f"{name}.onnx")), prepared)
        logging.disable(logging.WARNING)  # it recommends fusing operators first, which makes no difference here
        try:
            quantize_dynamic(
                prepared, folder / f"{name}{INT8_SUFFIX}.onnx", op_types_to_quantize=["MatMul"], per_channel=True,
                weight_type=QuantType.QInt8,
            )  # fmt: skip
        finally:
            logging.disable(logging.NOTSET)


def _with_transposed_weights(model):
    """Replace each transposition of a stored matrix by a stored copy: only stored matrices can be quantized."""
    from onnx import numpy_helper

    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in list(model.graph.node):
        if node.op_type == "Transpose" and node.input[0] in stored:
            table = numpy_helper.to_array(stored[node.input[0]]).T
            model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(table), node.output[0]))
            model.graph.node.remove(node)
    used = {name for node in model.graph.node for name in node.input}
    used |= {name for node in model.graph.node for a in node.attribute for inner in a.g.node for name in inner.input}
    for tensor in list(model.graph.initializer):
        if tensor.name not in used:
            model.graph.initializer.remove(tensor)
    return model


class OnnxExport(OpenedExport):
    """An ONNX export, opened for a comparison."""

    def __init__(self, run: "Run", folder: Path, quantization: str = "float32"):
        self.run, ending = run, INT8_SUFFIX if quantization == "int8" else ""
        self.session = Session(folder / FOLDER, ending, never_written_ids(run))
        models = (path for path in (folder / FOLDER).glob("*.onnx") if path.stem.endswith(INT8_SUFFIX) == bool(ending))
        self.size = sum(path.stat().st_size for path in models)

    def write(self, texts: Sequence[str], max_tokens: int, beam_size: int) -> list[tuple[str, float | None]]:
        """Return greedy translations or continuations of texts; `beam_size` is ignored, see `beam_sizes`."""
        tokenizer = self.run.target_tokenizer
        if self.run.task.translates:
            limit = self.run.config.model.max_length - 1
            sources = [[*ids[:limit], END_ID] for ids in self.run.source_tokenizer.encode_batch(list(texts))]
            written = self.session.translate(sources, max_tokens, tokenizer.prefix_ids)
        else:
            start = [START_ID] if self.run.task.starts_texts(self.run.config) else []
            prompts = tokenizer.encode_batch(list(texts))
            written = [[*ids, *self.session.continue_text([*start, *ids], max_tokens)] for ids in prompts]
        return [(tokenizer.decode(ids), None) for ids in written]

    def outputs(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of a text, and the model's logits or vectors."""
        ids = self.run.tokenizer([text], max_length=read_tokens(self.run.config), truncation=True)["ids"]
        return ids, self.session.logits(ids[0])


FORMAT = Format(
    library="onnxruntime",
    require=onnxruntime,
    files=(*HUGGINGFACE.files, FOLDER),
    quantizations=("float32", "int8"),
    write=write,
    open=OnnxExport,
    computes=ONNX,
)
