"""A training from start to end: create the run folder, train, keep checkpoints, score the test text."""

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful import backend, settings
from heedful.cache import keep_compilations
from heedful.config import Config
from heedful.doctor.examination import examine
from heedful.doctor.rows import Rows
from heedful.errors import InputError
from heedful.freezing import freeze, matching_weights
from heedful.inspection.figures import draw_curves
from heedful.plugins import find_task
from heedful.run import CONFIG, ORIGINS, WEIGHTS, Run, refuse_links
from heedful.selfcheck.check import require
from heedful.storage import locked, read_checked, write_text
from heedful.tasks.task import Validator
from heedful.training.cost_estimate import FIRST, CostEstimate, Trial, estimate_cost, largest_batch
from heedful.training.signals import Interrupted
from heedful.training.trainer import Trainer
from heedful.training_log import JSON_LOGS, SAMPLES
from heedful.weights import load_matching, load_weights
from heedful.workflows.time_plan import fit_into_minutes

if TYPE_CHECKING:
    import keras

PLANNED = "planned, to fit into train.minutes"  # the origin of a setting
EXAMINATION, EXAMINED = "examination.txt", 200_000  # rows that are examined at most
# Files that a training writes to its run folder, and may delete there.
WRITTEN = (
    CONFIG, WEIGHTS, ORIGINS, EXAMINATION, "tokenizer.json", "*.tokenizer.json", *JSON_LOGS, SAMPLES, "scores.json",
    "outputs/[0-9]*.safetensors", "outputs/[0-9]*.txt", "snapshots/[0-9]*.safetensors", "curves.png",
    "state/*.safetensors", "state/*.damaged", "tensorboard/events.*",
)  # fmt: skip


def _written(folder):
    """Return the files in a folder that a training writes, the config first: a folder without it is no run."""
    return [path for pattern in WRITTEN for path in folder.glob(pattern) if path.is_file()]


def require_free(path: Path, force: bool = False) -> None:
    """Refuse a folder for a new run that holds a run, or files that it would overwrite, unless `force` is set.

    Links that lead out of the folder are refused even then.
    """
    refuse_links(path)
    there = [] if force else _written(path)
    if path / CONFIG in there:
        raise InputError(
            f"{path} already holds a run. Continue it with --resume {path}, choose another folder with --run, "
            "or overwrite it with --force."
        )
    if there:
        raise InputError(
            f"{path} holds no run, but {there[0].relative_to(path)}, which a training would overwrite. Choose "
            "another folder with --run, or overwrite it with --force."
        )


class Training:
    """A run with everything that its training needs: task, corpora and examples.

    Args:
        run: a `Run`.
        report: called with each line for the user.
    """

    def __init__(self, run: Run, report: Callable[[str], Any] = print):
        self.run, self.report, self.config, self.task = run, report, run.config, run.task
        self.seconds_spent = 0.0  # of train.minutes, before the first update
        self.corpora = self.task.find_corpora(self.config)
        self.examples = self.task.training_examples(run, self.corpora, report)
        self.scored = {
            part: self.task.scored_examples(run, self.corpora, part) for part in self.corpora if part != "train"
        }
        for part, examples in self.scored.items():  # report a text without tokens before the training
            if not any(batch["weights"].any() for batch in examples.one_pass()):
                raise InputError(f"{self.corpora[part].name} has no token that counts: there is nothing to score.")
        report(str(self.examples))
        if self.config.train.epochs:
            self._count_epochs()

    def _count_epochs(self):
        """Set `train.updates` to the number of updates in `train.epochs`."""
        train = self.config.train
        updates = max(1, round(train.epochs * self.examples.batches_per_epoch / train.accumulate_batches))
        self.report(f"{train.epochs:g} epochs are {updates:,} updates")
        counted = dataclasses.replace(self.config, train=dataclasses.replace(train, updates=updates))
        self.config = self.run.config = counted.planned_as(self.config)  # a resumed run must plan the same batches

    @property
    def frozen(self):
        """Name prefixes of the frozen weights."""
        parts = tuple(own for _, own in self.task.starts_from) if self.config.train.freeze else ()
        patterns = self.config.train.freeze_weights
        return parts + tuple(matching_weights(self.run.build_model(), patterns) if patterns else ())

    @classmethod
    def create(
        cls,
        config: Config,
        path: str | Path,
        report: Callable[[str], Any] = print,
        force: bool = False,
        origins: Mapping[str, str] | None = None,
        plan_minutes: bool = True,
    ) -> "Training":
        """Create a run folder, and train its tokenizers.

        Args:
            origins: where settings came from, by their full names.
            plan_minutes: whether to set `train.updates` to what fits into `train.minutes`, if the schedule has an end.

        Raises:
            InputError: the folder holds a run already and `force` is not set; bad text.
        """
        path = Path(path)
        if config.train.init_from and path.resolve() == Path(config.train.init_from).resolve():
            raise InputError(f"{path} is the run to start from: choose another folder with --run.")
        require_free(path, force)
        training = cls.prepared(config, path, report)  # reads all text, before anything is written or deleted
        if config.train.epochs:
            origins = dict(origins or {}) | {"train.updates": "counted, from train.epochs"}
        config = training.config
        if plan_minutes and config.train.minutes and config.train.schedule_ends:
            training.plan_minutes()
            origins = dict(origins or {}) | dict.fromkeys(settings.changed(config, training.config), PLANNED)
        path.mkdir(parents=True, exist_ok=True)
        with locked(path):
            for old in _written(path):  # only with `force`
                old.unlink()
            Run.create(path, training.config, *training.run.tokenizers(), origins=origins)
        return training

    @classmethod
    def plan(cls, config: Config, report: Callable[[str], Any] = print) -> None:
        """Report vocabulary, batches, time and memory of a training, without writing anything but caches."""
        training = cls.prepared(config, Path(), report)
        report(backend.device_summary())
        report(str(training.estimate_cost()))

    @classmethod
    def prepared(cls, config: Config, path: str | Path, report: Callable[[str], Any] = print) -> "Training":
        """Return the training of a config, with tokenizers trained on its text; write nothing."""
        config, tokenizers = _prepare(config, report)
        training = cls(Run(path, config, *tokenizers), report)
        if config.train.freeze_weights:
            training.fresh_model()  # a pattern that matches nothing is refused before anything is written
        return training

    def estimate_cost(self) -> CostEstimate:
        """Return the `CostEstimate` of the training, measured with a fresh model."""
        return estimate_cost(self.run, self.fresh_model(), self.examples)

    def fresh_model(self) -> "keras.Model":
        """Return an untrained model, frozen as the config says."""
        model = self.run.build_model()
        freeze(model, self.config)
        return model

    def plan_minutes(self) -> None:
        """Set `train.updates` to what fits into `train.minutes`; the time for planning counts towards it."""
        began = time.monotonic()
        self.config = self.run.config = fit_into_minutes(self).planned_as(self.config)
        self.seconds_spent = time.monotonic() - began

    def validator(self, model: "keras.Model") -> Validator:
        """Return the `Validator` of a model on the validation text."""
        return self.task.validator(self.run, model, self.corpora, self.scored)

    def train(self, resume: bool = False, verify: bool = False, origins: Mapping[str, str] | None = None) -> Run:
        """Train, then draw the curves and score the test text, or the validation text where there is none.

        Args:
            resume: continue from the last state; a run without one starts from the beginning.
            verify: first repeat the updates that led to that state, and compare.
            origins: where new settings came from, by their full names.

        Raises:
            InputError: another process trains in the same folder; the self-check or the training failed.
        """
        with locked(self.run.path):
            return self._train(resume and not self.run.never_saved(), verify, origins or {})

    def _train(self, resume, verify, origins):
        keep_compilations()
        if self.config.train.examine and not resume:
            self._examine()
        if self.config.train.check and not resume:
            require(self.run, self.examples.batch(0), self.frozen, self.report)
        if resume:
            self.run.refuse_larger_than()
        backend.set_seed(self.config.train.seed)
        model = self.fresh_model()
        if self.config.train.init_from and not resume:
            self._start_from(model, self.config.train.init_from)
        self.report(f"model: {model.count_params():,} parameters")
        self.report(backend.device_summary())
        validator, fingerprint = self.validator(model), self.corpora["train"].fingerprint
        trainer = Trainer(self.run, model, self.examples, validator, self.report, fingerprint, self.seconds_spent)
        if verify:
            trainer.verify()
        if resume:
            trainer.restore()
        if Config.from_json(self.run.path / CONFIG) != self.config:  # overridden, and the state, if any, fits
            self.run.add_origins(origins)
            write_text(self.run.path / CONFIG, self.config.to_json())
        if resume:
            self.report(f"resuming at update {trainer.update}")
        try:
            trainer.train()
        except Interrupted:
            self._draw_curves()
            raise
        self._draw_curves()
        load_weights(model, read_checked(self.run.path / WEIGHTS)[0], self.run.path / WEIGHTS)
        validator.refresh()
        for part in [part for part in self.corpora if part not in ("train", "valid")] or ["valid"]:
            scores = self.task.evaluate(self.run, self.corpora[part], validator.predictor)
            signature = next(iter(scores.get("signatures", {}).values()), "")
            self.report(f"{part}: {self.task.describe(scores)}" + (f"  ({signature})" if signature else ""))
        return self.run

    def _examine(self):
        """Report what is wrong with the training text; keep the details in the run folder."""
        parts = Rows.of_config(self.config.data, self.task.text_layout(self.config.data))
        if "train" not in parts:
            return  # a built-in corpus is right by construction
        examination = examine(parts.pop("train").first(EXAMINED), parts, self.run.tokenizers())
        self.report(f"training text: {examination.summary()}")
        lines = "".join(f"{line}\n" for line in examination.lines())
        write_text(self.run.path / EXAMINATION, lines)

    def _start_from(self, model, start):
        """Load all weights of a run of the same task, or the encoder of one of task fill, into a fresh model."""
        before = Run.open(start)
        path = before.weights_path()
        if before.config.task == self.config.task:
            load_weights(model, read_checked(path)[0], path)
            self.report(f"all {len(model.weights)} weights initialised from {start}")
            return
        arrays = {}
        for name, array in read_checked(path)[0].items():
            for theirs, own in self.task.starts_from:
                if name.startswith(theirs) and name != "embedding/bias":  # which belongs to the output
                    arrays[name.replace(theirs, own, 1)] = array
        count = load_matching(model, arrays, path, tuple(own for _, own in self.task.starts_from))
        self.report(f"{count} weights initialised from {start}" + (", frozen" if self.config.train.freeze else ""))

    def _draw_curves(self):
        log = self.run.log.read()
        if not log:
            return
        try:
            draw_curves(self.run.path / "curves.png", log)
        except OSError as error:  # a failed plot must not fail the training
            self.report(f"The curves could not be drawn: {error}.")


def _prepare(config, report):
    """Return the config, completed with what depends on text and memory, and the tokenizers."""
    keep_compilations()
    task = find_task(config.task)
    asked = config.train.schedule
    config, tokenizers = task.prepare(config, task.find_corpora(config))
    if (train := config.train).schedule != asked:
        report(f"train.schedule = {train.schedule!r} at {train.learning_rate:g}, since all weights are trained already")
    report("vocabulary: " + " and ".join(f"{len(t):,}" for t in dict.fromkeys(tokenizers)))
    if config.data.batch_tokens == "auto":
        config = _with_largest_batch(config, tokenizers)
        report(f"largest batch: {config.data.batch_tokens:,} tokens")
    return config, tokenizers


def _with_largest_batch(config, tokenizers):
    def sized(**sizes):
        return dataclasses.replace(config, data=dataclasses.replace(config.data, **sizes))

    def attempt(tokens):
        with tempfile.TemporaryDirectory() as folder:
            Run.create(folder, sized(batch_tokens=tokens, max_shapes=1), *dict.fromkeys(tokenizers))
            command = [sys.executable, "-m", "heedful.workflows.memory_trial", folder]
            made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode == 1 and tokens == FIRST:
            raise InputError(f"The memory trial failed: {' '.join(made.stderr.splitlines()[-1:])}")
        return None if made.returncode else Trial(**json.loads(made.stdout.splitlines()[-1]))

    return sized(batch_tokens=largest_batch(attempt))
