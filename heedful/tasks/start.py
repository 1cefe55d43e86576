"""Trainings that start from another run: from all weights of one of the same task, or from an encoder."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from heedful.config import Config, TokenizerConfig
from heedful.config.architecture import DROPOUTS
from heedful.config.train import FINE_TUNING_RATE, TrainConfig
from heedful.core.errors import InputError
from heedful.core.plugins import find_task
from heedful.core.storage import name_in_model, read_checked
from heedful.data.tokenizer import Tokenizer
from heedful.runs.weights import load_matching, load_weights
from heedful.tasks.new_tokens import former_ids, grown_tables

if TYPE_CHECKING:
    import keras

    from heedful.runs.run import Run

# A training that starts from all weights of a trained model keeps these settings of its own ...
OWN = (*DROPOUTS, "untrained_head")
# ... and one that starts from an encoder these.
OWN_AROUND_ENCODER = (
    *DROPOUTS,
    "pooling",
    "pooler_activation",
    "convolutions",
    "tie",
    "output_bias",
    "untrained_head",
)
# Instead of the paper's schedule.
GENTLE: dict[str, Any] = {"schedule": "constant", "learning_rate": FINE_TUNING_RATE, "warmup_updates": 100}


class Start(NamedTuple):
    """The run that a training starts from.

    Args:
        run: the run.
        config: that of the training, with the model of the run.
        whole: whether all weights are taken over, since the run has the same task.
    """

    run: "Run"
    config: Config
    whole: bool

    def tokenizers(self) -> list[Tokenizer]:
        """Return the tokenizers of the run, with the new tokens of the config."""
        tokens = self.config.tokenizer.new_tokens
        return [tokenizer.with_tokens(tokens) if tokens else tokenizer for tokenizer in self.run.tokenizers()]


def starting_point(config: Config) -> Start:
    """Return the run that `train.init_from` names, and the config with that run's model settings.

    With all weights, the paper's learning rates are replaced by low constant ones: they would undo the training.

    Raises:
        InputError: there is no such run, or it is of another task, which is not `fill` or gives this one no encoder.
    """
    from heedful.runs.run import Run

    before = Run.open(config.train.init_from)
    whole = before.config.task == config.task
    if not whole:  # the encoder of a task that has a place for it
        before = before.of_task("fill" if find_task(config.task).starts_from else config.task)
    before.refuse_larger_than(before.weights_path())  # report missing weights before the new run begins
    kept = {name: getattr(config.model, name) for name in (OWN if whole else OWN_AROUND_ENCODER)}
    model = dataclasses.replace(before.config.model, **kept)
    if not whole:
        if config.train.lora_rank and not find_task(config.task).all_frozen:
            raise InputError(
                f"train.lora_rank adapts a trained model of task {config.task!r}; {before.path} has only an encoder."
            )
        return Start(before, dataclasses.replace(config, model=model), whole)
    if config.train.freeze:
        raise InputError(
            f"train.freeze would freeze all weights, which come from {before.path}: name some in train.freeze_weights."
        )
    train = config.train
    if train.schedule == "paper":
        default_rate = dataclasses.replace(train, learning_rate=None).rate(config.model.d_model)
        usual = {"learning_rate": default_rate, "warmup_updates": TrainConfig.warmup_updates}
        if changed := [name for name, value in usual.items() if getattr(train, name) != value]:
            raise InputError(
                f"train.{changed[0]} would not be used: a training that continues from {before.path} has a constant "
                'learning rate unless train.schedule is set. Set it, such as train.schedule = "constant".'
            )
        train = dataclasses.replace(train, **GENTLE)
    config = dataclasses.replace(config, train=train, model=model, tokenizer=tokenizer_config(before, config))
    return Start(before, config, whole)


def tokenizer_config(before: "Run", config: Config) -> TokenizerConfig:
    """Return the config of the tokenizers of a run, with the new tokens of another config."""
    return dataclasses.replace(before.config.tokenizer, new_tokens=config.tokenizer.new_tokens)


def require_known_labels(start: Start, seen: Sequence[str]) -> Config:
    """Return the config of a classifier that starts from another one, with the classes of that one.

    Raises:
        InputError: the text has a class that the other one does not know; or only one of them gives several labels.
    """
    known, several = start.run.config.data.labels, start.run.config.data.several_labels
    if start.config.data.several_labels != several:
        raise InputError(
            f"{start.run.path} gives a text {'several labels' if several else 'one label'}: set data.several_labels = "
            f"{str(several).lower()}."
        )
    if new := sorted(set(seen) - set(known)):
        raise InputError(
            f"{start.run.path} has no class {new[0]!r}, which the training text has; it knows {', '.join(known)}."
        )
    return dataclasses.replace(start.config, data=dataclasses.replace(start.config.data, labels=known))


def initialise(model: "keras.Model", config: Config, report: Callable[[str], Any]) -> str:
    """Load the weights of the run in `train.init_from` into a fresh model: all of them, or those of its encoder.

    Tables get rows for the new tokens of the config.

    Returns:
        The fingerprint of the run's weights, or an empty text if only an encoder comes from there.
    """
    from heedful.runs.run import Run

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
