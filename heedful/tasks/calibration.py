"""Calibration of a trained classifier: the temperature becomes part of its weights."""

import json
from typing import TYPE_CHECKING

import numpy as np

from heedful.core.progress import Report
from heedful.core.storage import read_checked, read_checksum, write_text
from heedful.core.validation import read_json
from heedful.runs.adapters import FILE as ADAPTER
from heedful.runs.adapters import read_adapter, write_adapter
from heedful.runs.scores.calibration import best_temperature

if TYPE_CHECKING:
    from heedful.runs.run import Run

FILE = "calibration.json"  # in a run folder
OUTPUT = "output_projection/"  # prefix of the weights that compute the logits


def calibrate(run: "Run", logits: np.ndarray, labels: np.ndarray, report: Report) -> bool:
    """Divide the output weights in a run folder by the temperature that fits best; return whether they have changed.

    Every export and every predictor then gives calibrated probabilities. Weights that are calibrated stay as they are.

    Args:
        run: a `Run` of task classify.
        logits: of the validation texts (N, C).
        labels: their classes (N,), or which classes they have (N, C).
        report: called with a line for the user.
    """
    path = run.weights_path()
    if (run.path / FILE).is_file() and read_json(run.path / FILE).get("weights") == read_checksum(path):
        return False
    temperature = best_temperature(logits.astype(np.float64), labels)
    weights = _divided(read_checked(path)[0], temperature)
    if (run.path / ADAPTER).is_file():  # first: a calibration that is killed in between is repeated
        adapter = read_adapter(run.path / ADAPTER)
        output = {name: array for name, array in weights.items() if name.startswith(OUTPUT)}
        write_adapter(run.path / ADAPTER, adapter._replace(replaced=adapter.replaced | output))
    run.save_weights(weights)
    record = {"temperature": temperature, "texts": len(labels), "weights": read_checksum(path)}
    write_text(run.path / FILE, json.dumps(record, indent=2) + "\n")
    report(f"calibrated on {len(labels):,} validation texts: logits divided by {temperature:.3f}")
    return True


def _divided(arrays, temperature):
    """Return weights by name, those of the output divided by a temperature."""
    return {
        name: (array / np.float32(temperature) if name.startswith(OUTPUT) else array) for name, array in arrays.items()
    }
