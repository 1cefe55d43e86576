"""Conversion of format 1 configs, written by heedful 0.1.0, to the current format."""

import warnings
from typing import Any

from heedful.config.architecture import FORMAT_1 as MODEL
from heedful.config.architecture import from_format_1 as model_from_format_1
from heedful.core.errors import InputWarning

TRAIN = {"start_from": "init_from", "best_by": "select_by", "accumulate": "accumulate_batches"}
RENAMED = {f"train.{old}": f"train.{new}" for old, new in TRAIN.items()}
RENAMED |= {f"model.{old}": f"model.{new}" for old, new in MODEL.items() if old != "norm"}  # now the kind of norm


def config_from_format_1(table: dict[str, Any], origin: object, trained: bool = False) -> dict[str, Any]:
    """Convert the table of a format 1 config to the current format; return a table of another format as is.

    Args:
        table: without `format`, it may already use the current names.
        origin: for a warning.
        trained: whether it is the config of a run; heedful 0.1.0 trained the `reverse` puzzle with another rule.
    """
    if table.get("format", 1) != 1:
        return table
    table = {name: dict(values) if isinstance(values, dict) else values for name, values in table.items()}
    for section, values in table.items():
        if isinstance(values, dict) and section == "train":
            table[section] = {TRAIN.get(name, name): value for name, value in values.items()}
        elif isinstance(values, dict) and section == "model":
            table[section] = model_from_format_1(values)
    table.pop("format", None)
    if trained:
        _name_old_rule(table.get("data"), origin)
    return table


def progress_from_format_1(progress: dict[str, Any]) -> dict[str, Any]:
    """Return the progress of a training state with current names."""
    return {TRAIN.get(name, name): value for name, value in progress.items()}


def _name_old_rule(data: Any, origin: object) -> None:
    """Record the rule that a `reverse` run has learned in its section [data], and warn."""
    if not isinstance(data, dict) or data.get("corpus") != "reverse" or "repeats_counted_in" in data:
        return
    data["repeats_counted_in"] = "output"
    warnings.warn(
        f"{origin}: this run learned the puzzle of heedful 0.1.0, which counts repeats in the order of the output "
        "(data.repeats_counted_in = 'output'); the tutorial counts them in the order of the input.",
        InputWarning,
        stacklevel=4,
    )
