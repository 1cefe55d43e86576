"""The weights that a training starts from, if they come from another run."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from heedful.config import Config
from heedful.new_tokens import former_ids, grown_tables
from heedful.plugins import find_task
from heedful.run import Run
from heedful.storage import name_in_model, read_checked
from heedful.weights import load_matching, load_weights

if TYPE_CHECKING:
    import keras


def initialise(model: "keras.Model", config: Config, report: Callable[[str], Any]) -> str:
    """Load the weights of the run in `train.init_from` into a fresh model: all of them, or those of its encoder.

    Tables get rows for the new tokens of the config.

    Returns:
        The fingerprint of the run's weights, or an empty text if only an encoder comes from there.
    """
    before, task = Run.open(config.train.init_from), find_task(config.task)
    path = before.weights_path()
    arrays, shapes = read_checked(path)[0], {name_in_model(one): tuple(one.shape) for one in model.weights}
    whole = before.config.task == config.task
    if not whole:
        arrays = {
            name.replace(theirs, own, 1): array
            for name, array in arrays.items()
            for theirs, own in task.starts_from
            if name.startswith(theirs) and name != "embedding/bias"  # which belongs to the output
        }
    if tokens := config.tokenizer.new_tokens:
        spelled = [former_ids(tokenizer, tokens) for tokenizer in before.tokenizers()]
        arrays = grown_tables(arrays, shapes, {"source": spelled[0], "target": spelled[-1]})
        report(f"{len(tokens)} new tokens")
    if whole:
        load_weights(model, arrays, path)
        report(f"all weights initialised from {before.path}")
        return before.weights_fingerprint()
    count = load_matching(model, arrays, path, tuple(own for _, own in task.starts_from))
    report(f"{count} weights initialised from {before.path}" + (", frozen" if config.train.freeze else ""))
    return ""
