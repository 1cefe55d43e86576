"""Export to ONNX: a folder in the Hugging Face layout whose models run in onnxruntime and in browsers.

The graphs are built from the weights, operator by operator, so no other framework is needed. File names, inputs and
outputs are those of the Optimum library, which transformers.js reads too.
"""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful import backend
from heedful.engines import ONNX
from heedful.errors import InputError, counted
from heedful.export import onnx_models
from heedful.export.folders import replacing
from heedful.export.greedy import WRITTEN, never_written_ids, plain_greedy, require_some
from heedful.export.huggingface import OWN_FILES, write_description
from heedful.export.model_card import onnx_card
from heedful.export.onnx_session import Session, onnxruntime
from heedful.export.parity import MOST_DIFFERENT, PARITY
from heedful.special_tokens import END_ID, PAD_ID, START_ID
from heedful.weights import weights_by_name

if TYPE_CHECKING:
    from heedful.run import Run

FOLDER, ROUNDED = "onnx", "_quantized"
MOST_DIFFERENCE = 1e-3  # between outputs of an encoder, in their unit
Report = Callable[[str], Any]


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


def reader_settings(run: "Run") -> dict[str, Any]:
    """Return a config.json from which transformers.js and Optimum know how to call the graphs.

    It names a class that is called in the same way, whatever the options of the model, and describes the shapes of the
    caches. What the class computes in other libraries does not matter here.
    """
    model, labels = run.config.model, run.config.data.labels
    size, heads = model.head_dim or model.d_model // model.num_heads, model.num_kv_heads or model.num_heads
    shared = {
        "vocab_size": len(run.target_tokenizer), "pad_token_id": PAD_ID, "bos_token_id": START_ID,
        "eos_token_id": END_ID, "max_position_embeddings": model.max_length,
    }  # fmt: skip
    if run.task.translates:
        sides = {f"{side}_layers": model.num_layers for side in ("encoder", "decoder")}
        sides |= {f"{side}_attention_heads": heads for side in ("encoder", "decoder")}
        return shared | sides | {
            "model_type": "marian", "architectures": ["MarianMTModel"], "is_encoder_decoder": True,
            "d_model": heads * size, "decoder_start_token_id": START_ID,
        }  # fmt: skip
    shared |= {
        "num_hidden_layers": model.num_layers, "hidden_size": model.d_model, "num_attention_heads": model.num_heads,
    }  # fmt: skip
    if run.task.writes:
        caches = {"num_key_value_heads": heads, "head_dim": size}
        return shared | caches | {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    if not labels:
        name = "BertModel" if model.untrained_head else "BertForMaskedLM"
        return shared | {"model_type": "bert", "architectures": [name]}
    several = "multi_label" if run.config.data.several_labels else "single_label"
    return shared | {
        "model_type": "bert", "architectures": ["BertForSequenceClassification"],
        "problem_type": f"{several}_classification", "id2label": dict(enumerate(labels)),
        "label2id": {name: number for number, name in enumerate(labels)},
    }  # fmt: skip


def export(run: "Run", folder: Path, quantize: bool = False) -> None:
    """Write a `Run` to an empty folder: settings and tokenizers, and its models in `onnx/`.

    Args:
        run: a `Run`.
        folder: the folder.
        quantize: whether to write copies of the models with int8 products too.
    """
    import onnx

    write_description(run, folder, reader_settings(run), onnx_card(run))
    target = folder / FOLDER
    target.mkdir()
    for name, graph in graphs(run).items():
        onnx.save(graph, target / f"{name}.onnx")
        if quantize:
            _quantize(target, name)


def _quantize(folder, name):
    """Write a copy of a model whose products of weights are in int8."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as aside:
        prepared = Path(aside) / "model.onnx"
        onnx.save(_with_turned_tables(onnx.load(folder / f"{name}.onnx")), prepared)
        quantize_dynamic(
            prepared, folder / f"{name}{ROUNDED}.onnx", op_types_to_quantize=["MatMul"], per_channel=True,
            weight_type=QuantType.QInt8,
        )  # fmt: skip


def _with_turned_tables(model):
    """Store the transposed tables of a model: only products with stored matrices are quantized."""
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


def export_checked(
    run: "Run", folder: str | Path, texts: Sequence[str], quantize: bool = False, report: Report = print
) -> list[dict[str, Any]]:
    """Export a run, and keep the export only if onnxruntime computes the same with it; parity.json has the result.

    Args:
        run: a `Run`.
        folder: the new folder.
        texts: sources, prompts, or texts to read.
        quantize: whether to write int8 copies too; how far they differ is only reported.
        report: called with lines about the progress.

    Raises:
        InputError: the results differ by more than rounding, or onnx or onnxruntime are not installed.
    """
    onnxruntime()
    began = time.monotonic()
    with replacing(Path(folder), (*OWN_FILES, FOLDER), "part") as aside:
        export(run, aside, quantize)
        report(f"exported in {time.monotonic() - began:.1f} s; comparing on {counted(len(texts), 'text')} ...")
        results = []
        for ending in ("", ROUNDED) if quantize else ("",):
            result = compare(run, Session(aside / FOLDER, ending, never_written_ids(run)), texts)
            result |= {"type": "int8" if ending else "float32", "bytes": _bytes(aside / FOLDER, ending)}
            report(describe(result))
            if not ending and (
                result.get("identical", 1.0) < 1 - MOST_DIFFERENT or result.get("difference", 0.0) > MOST_DIFFERENCE
            ):
                raise InputError("onnxruntime does not compute what heedful does: the export was not kept.")
            results.append(result)
        (aside / PARITY).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    report(f"parity checked in {time.monotonic() - began:.0f} s; models in {folder}")
    return results


def _bytes(folder, ending):
    names = [path for path in folder.glob("*.onnx") if path.stem.endswith(ROUNDED) == bool(ending)]
    return sum(path.stat().st_size for path in names)


def describe(result: dict[str, Any]) -> str:
    """Return a comparison in words."""
    size = f"{result['type']}, {result['bytes'] / 1e6:.1f} MB: "
    if "identical" in result:
        rate = f", {result['tokens_per_second']:,.0f} tokens/s" if result.get("tokens_per_second") else ""
        return f"{size}{result['identical']:.2%} of {result['texts']:,} texts by greedy search are identical{rate}"
    return f"{size}largest difference of the outputs on {result['texts']:,} texts: {result['difference']:.1e}"


def compare(run: "Run", session: Session, texts: Sequence[str]) -> dict[str, Any]:
    """Return the share of identical texts (`identical`), or for encoders the largest difference of outputs."""
    require_some(texts)
    most = run.config.model.max_length
    if run.task.translates:
        translator: Any = run.task.predictor([run], plain_greedy(run))
        sources = [ids[: most - 1] for ids in run.source_tokenizer.encode_batch(texts)]
        written = session.translate([[*ids, END_ID] for ids in sources], most, run.target_tokenizer.prefix_ids)
        wanted = translator.translate(list(texts))
        found = [run.target_tokenizer.decode(ids) for ids in written]
        return _identical(wanted, found) | {"tokens_per_second": session.tokens / session.seconds}
    if run.task.writes:
        most = min(WRITTEN, most // 2)
        start = [START_ID] if run.task.starts_texts(run.config) else []
        prompts = {text: [*start, *run.tokenizer.encode(text)] for text in texts}
        chosen = require_some(
            [text for text, ids in prompts.items() if 0 < len(ids) <= run.config.model.max_length - most]
        )
        wanted = run.task.predictor([run], plain_greedy(run)).generate(chosen, max_length=most)
        found = [
            run.tokenizer.decode([*prompts[text][len(start) :], *session.continue_text(prompts[text], most)])
            for text in chosen
        ]
        return _identical(wanted, found)
    return {"texts": len(texts), "difference": _difference(run, session, texts)}


def _difference(run, session, texts):
    """Return the largest difference of the logits of both, or of the vectors of models without a head."""
    own, most, largest = run.load_model(), run.config.model.max_length, 0.0
    compute = own.encode if run.config.model.untrained_head else own
    for text in texts:
        ids = run.tokenizer([text], max_length=most, truncation=True)["ids"]
        expected = np.asarray(backend.to_numpy(compute(np.asarray(ids, np.int32))), np.float32)
        largest = max(largest, float(np.abs(expected - session.logits(ids[0])).max()))
    return largest


def _identical(wanted, found):
    same = [one == other for one, other in zip(wanted, found, strict=True)]
    return {"texts": len(same), "identical": sum(same) / len(same)}
