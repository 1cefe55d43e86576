"""How much the rounding of a page's weights changes what the model says."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from heedful import backend
from heedful.core.special_tokens import END_ID, MASK, START_ID
from heedful.data.padding import padded_batch
from heedful.inspection.page.packing import WeightType, rounded
from heedful.runs.run import Run
from heedful.runs.training_log import SAMPLE_DATA
from heedful.runs.weights import load_weights

RANDOM_ROWS, RANDOM_LENGTH = 4, 12  # the texts that are compared where there are no others


def largest_difference(run: Run, weights: Mapping[str, np.ndarray], kind: WeightType, texts: Sequence[str]) -> float:
    """Return by how much a probability of any token (or class) changes most, over all positions of some texts.

    Translations are those that the run's validations showed. Without any text, random tokens are compared.
    """
    if kind == "float32":
        return 0.0
    inputs = _inputs(run, texts)
    read = next(iter(inputs.values())) if "target" not in inputs else inputs["target"]
    model = run.build_model()
    program = backend.compiled(lambda batch: model(batch), model, brief=True)
    probabilities = []
    for arrays in (weights, rounded(weights, kind)):
        load_weights(model, arrays, run.path)
        probabilities.append(_probabilities(np.asarray(backend.to_numpy(program(inputs)), np.float32)))
    difference = np.abs(probabilities[0] - probabilities[1]).max(axis=-1)
    return float(difference.max() if difference.ndim == 1 else difference[read != 0].max())


def _inputs(run, texts) -> dict[str, np.ndarray]:
    if run.task.read_side != run.task.text_side:
        entries = run.log.read(SAMPLE_DATA)
        samples: list[dict[str, Any]] = entries[-1]["samples"] if entries else []
        if samples:
            return {
                "source": _batch([[*sample["source"], END_ID] for sample in samples]),
                "target": _batch([[START_ID, *sample["target"]] for sample in samples]),
            }
    elif texts:
        max_length = run.config.model.max_length
        ids = [_with_masks(run, text)[: max_length - 2] for text in texts]
        return {"ids": _batch([[START_ID, *row, END_ID] for row in ids])}
    length = min(RANDOM_LENGTH, run.config.model.max_length - 2)
    batch = run.task.random_batch(run, np.random.default_rng(0), RANDOM_ROWS, length)
    return {name: array for name, array in batch.items() if name in ("source", "target", "ids")}


def _with_masks(run, text):
    parts = run.tokenizer.encode_batch(text.split(MASK)) if run.tokenizer.mask_id else [run.tokenizer.encode(text)]
    ids = list(parts[0])
    for part in parts[1:]:
        ids += [run.tokenizer.mask_id, *part]
    return ids


def _batch(rows):
    return padded_batch(rows, None, "longest", truncation=False)["ids"]


def _probabilities(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
