"""A training from start to end: create the run folder, train, keep checkpoints, score the test text."""

import dataclasses
import hashlib
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful import backend
from heedful.config import Config, settings
from heedful.core.errors import InputError, counted
from heedful.core.plugins import find_logger, find_task
from heedful.core.storage import locked, name_in_model, read_checked, write_text
from heedful.data.doctor.examination import examine
from heedful.data.doctor.rows import Rows
from heedful.inspection.figures import draw_curves
from heedful.runs.run import CONFIG, WEIGHTS, Run
from heedful.runs.weights import load_weights
from heedful.tasks.start import initialise
from heedful.tasks.task import Validator
from heedful.training.cost_estimate import CostEstimate, estimate_cost
from heedful.training.freezing import matching_weights, prepare_weights, rate_factors
from heedful.training.signals import Interrupted
from heedful.training.trainer import Beginning, Trainer
from heedful.training.updates import require_rows
from heedful.workflows.agreement import begin_together
from heedful.workflows.folder import EXAMINATION, require_free, written
from heedful.workflows.general_text import GeneralText
from heedful.workflows.outcome import require_success
from heedful.workflows.preparation import complete, origins_of_prepared
from heedful.workflows.selfcheck.check import require
from heedful.workflows.time_plan import fit_into_minutes
from heedful.workflows.weighted_text import weighted_examples

if TYPE_CHECKING:
    import keras

EXAMINED = 200_000  # rows that are examined at most
PLANNED = "planned, to fit into train.minutes"  # the origin of a setting


class Training:
    """A run with everything that its training needs: task, corpora and examples.

    Args:
        run: a `Run`.
        report: called with each line for the user.
    """

    def __init__(self, run: Run, report: Callable[[str], Any] = print):
        self.run, self.report, self.task = run, report, run.task
        self.origins: dict[str, str] = {}  # where settings came from, by their full names
        self.seconds_spent = 0.0  # of train.minutes, used before the first update
        self.max_updates: int | None = None  # train.updates before it was planned; None: it was not
        for name in self.config.train.loggers:
            find_logger(name)  # an unknown one is refused before anything is written
        self.corpora = self.task.find_corpora(self.config)
        self.examples = weighted_examples(run, self.corpora, report)
        self.scored = {
            part: self.task.scored_examples(run, self.corpora, part) for part in self.corpora if part != "train"
        }
        for part, examples in self.scored.items():  # report a text without tokens before the training
            if not any(batch["weights"].any() for batch in examples.one_pass()):
                raise InputError(f"{self.corpora[part].name} has no token that counts: there is nothing to score.")
        self.general = GeneralText.of(run, report) if self.config.data.general_valid else None
        if self.general:
            self.examples = self.general.mixed_into(self.examples)
        report(str(self.examples))
        if self.config.train.epochs:
            self._count_epochs()

    @property
    def config(self) -> Config:
        """The config of the run."""
        return self.run.config

    def _count_epochs(self):
        """Set `train.updates` to the number of updates in `train.epochs`."""
        train = self.config.train
        updates = max(1, round(train.epochs * self.examples.batches_per_epoch / train.accumulate_batches))
        self.report(f"{train.epochs:g} epochs are {counted(updates, 'update')}")
        config = dataclasses.replace(self.config, train=dataclasses.replace(train, updates=updates))
        # A resumed run must plan the same batches.
        self.run.config = self.task.completed_from(config, self.config)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Names of the frozen weights, or prefixes of their names."""
        if self.config.train.lora_rank:
            return tuple(name_in_model(weight) for weight in self.fresh_model().non_trainable_weights)
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
            config: of the run.
            path: its folder.
            report: called with each line for the user.
            force: whether a run in the folder may be replaced.
            origins: where settings came from, by their full names.
            plan_minutes: whether to set `train.updates` to what fits into `train.minutes`, if the schedule has an end.

        Raises:
            InputError: the folder holds a run already and `force` is not set, or the text cannot be used.
        """
        path = Path(path)
        if config.train.init_from and path.resolve() == Path(config.train.init_from).resolve():
            raise InputError(f"{path} is the run to start from: choose another folder with --run.")
        require_free(path, force)
        # This reads all text, before anything is written or deleted.
        training = cls.prepared(config, path, report, origins)
        config, origins = training.config, training.origins
        if config.train.epochs:
            origins |= {"train.updates": "counted, from train.epochs"}
        timed = config.train.is_paced
        if config.train.could_be_paced:
            report(
                f"train.schedule = {config.train.schedule} does not depend on train.minutes, nor does its warm-up of "
                f"{counted(config.train.warmup_updates, 'update')}: with cosine, both are planned to fit"
            )
        if timed and backend.process_count() > 1:
            report("with several processes train.updates is planned for train.minutes at the first validation")
        elif plan_minutes and timed:
            with (
                backend.at_most_devices(config.train.devices),
                backend.using_devices(config.train.devices, shard=config.train.shard),
            ):
                training.fit_into_minutes()
            origins |= dict.fromkeys(settings.changed(config, training.config), PLANNED)
        path.mkdir(parents=True, exist_ok=True)
        with locked(path):
            require_free(path, force)  # another process may have begun a run there since
            for old in written(path):  # only with `force`
                old.unlink()
            Run.create(path, training.config, *training.run.tokenizers(), origins=origins)
        return training

    @classmethod
    def plan(
        cls, config: Config, report: Callable[[str], Any] = print, origins: Mapping[str, str] | None = None
    ) -> None:
        """Report vocabulary, batches, time and memory of a training, without writing anything but caches."""
        training = cls.prepared(config, Path(), report, origins)
        with backend.using_devices(config.train.devices, shard=config.train.shard):
            report(backend.device_summary(config.train.devices))
            report(str(training.estimate_cost()))

    @classmethod
    def prepared(
        cls,
        config: Config,
        path: str | Path,
        report: Callable[[str], Any] = print,
        origins: Mapping[str, str] | None = None,
    ) -> "Training":
        """Return the training of a config, with tokenizers trained on its text; write nothing.

        Args:
            origins: where settings came from, by their full names.
        """
        task = find_task(config.task)
        asked = task.checked(config)
        config, tokenizers = complete(task, asked, report)
        origins = origins_of_prepared(asked, config, origins or {})
        training = cls(Run(path, config, *tokenizers), report)
        training.origins = origins
        if config.train.freeze_weights or config.train.lora_rank or config.train.rate_factors:
            training.fresh_model()  # a pattern that matches nothing is refused before anything is written
        require_rows(training.examples, training.config.train)
        return training

    def estimate_cost(self) -> CostEstimate:
        """Return the `CostEstimate` of the training, measured with a fresh model."""
        return estimate_cost(self.run, self.fresh_model(), self.examples)

    def fresh_model(self) -> "keras.Model":
        """Return an untrained model, frozen as the config says."""
        model = self.run.build_model()
        prepare_weights(model, self.config)
        rate_factors(model, self.config.train)  # refuses a pattern that matches no weight
        return model

    def fit_into_minutes(self) -> None:
        """Set `train.updates` to what fits into `train.minutes`; the time for planning counts towards it."""
        began, self.max_updates = time.monotonic(), self.config.train.updates
        self.run.config = self.task.completed_from(fit_into_minutes(self), self.config)
        self.seconds_spent = time.monotonic() - began

    def validator(self, model: "keras.Model") -> Validator:
        """Return the `Validator` of a model on the validation text, and on general text if there is any."""
        validator = self.task.validator(self.run, model, self.corpora, self.scored)
        return self.general.validated_with(validator, model) if self.general else validator

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the training text."""
        fingerprint = self.corpora["train"].fingerprint
        if not self.general:
            return fingerprint
        return hashlib.sha256(f"{fingerprint} {self.general.fingerprint}".encode()).hexdigest()

    @property
    def valid_fingerprint(self) -> str:
        """Fingerprint of the validation text."""
        fingerprint = self.corpora["valid"].fingerprint
        return f"{fingerprint} {self.general.corpora['valid'].fingerprint}" if self.general else fingerprint

    def train(self, resume: bool = False, verify: bool = False, origins: Mapping[str, str] | None = None) -> Run:
        """Train, then draw the curves and score the test text, or the validation text where there is none.

        Args:
            resume: continue from the last state; a run without one starts from the beginning.
            verify: first repeat the updates that led to that state, and compare.
            origins: where new settings came from, by their full names.

        Raises:
            InputError: another process trains in the same folder; the self-check or the training failed; or the model
                has learned nothing, see `require_success`.
        """
        with locked(self.run.path), backend.at_most_devices(self.config.train.devices):
            return self._train(resume and not self.run.never_saved(), verify, origins or {})

    def _train(self, resume, verify, origins):
        backend.keep_compilations()
        if self.config.train.examine and not resume:
            self._examine()
        if self.config.train.check and not resume:
            with backend.using_devices(self.config.train.devices, shard=self.config.train.shard):
                require(self.run, self.examples.batch(0), self.frozen, self.report)
        if resume:
            self.run.refuse_larger_than()
        begin_together(self.run, self.fingerprint)
        backend.set_seed(self.config.train.seed)
        model = self.fresh_model()
        base = ""
        if self.config.train.init_from and not resume:
            base = initialise(model, self.config, self.report)
        trained = sum(math.prod(weight.shape) for weight in model.trainable_weights)
        part = "" if trained == model.count_params() else f", {trained:,} of them trained"
        self.report(f"model: {model.count_params():,} parameters{part}")
        self.report(backend.device_summary(self.config.train.devices))
        validator = self.validator(model)
        beginning = Beginning(self.fingerprint, self.valid_fingerprint, base, self.seconds_spent)
        trainer = Trainer(self.run, model, self.examples, validator, self.report, beginning, self.max_updates)
        if verify:
            trainer.verify()
        if resume:
            trainer.restore()
        if Config.from_json(self.run.path / CONFIG) != self.config:  # new settings; the state, if any, fits them
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
        self._finish(model, validator, trainer)
        return self.run

    def _finish(self, model: "keras.Model", validator: Validator, trainer: Trainer) -> None:
        """Complete and score the best checkpoint; raise `InputError` if nothing was learned."""

        def load_best():
            load_weights(model, read_checked(self.run.path / WEIGHTS)[0], self.run.path / WEIGHTS)
            validator.refresh()

        load_best()
        if self.task.finish_training(self.run, self.corpora, validator.predictor, self.report):
            load_best()
        if trainer.progress.get("start"):
            change = trainer.selection.describe_change(validator(), trainer.progress)
            self.report(f"change by this training: {change}")
        if self.config.train.score:
            self._score(validator.predictor)
        require_success(self.run, self.examples, self.scored.get("valid"), self.report, trainer.ended)

    def _score(self, predictor):
        """Score the test text, or the validation text where there is none."""
        for part in [part for part in self.corpora if part not in ("train", "valid")] or ["valid"]:
            scores = self.task.evaluate(self.run, self.corpora[part], predictor)
            signature = next(iter(scores.get("signatures", {}).values()), "")
            self.report(f"{part}: {self.task.describe(scores)}" + (f"  ({signature})" if signature else ""))

    def _examine(self):
        """Report what is wrong with the training text; keep the details in the run folder."""
        parts = Rows.of_config(self.config.data, self.task.text_layout(self.config.data))
        if "train" not in parts:
            return  # a built-in corpus is right by construction
        examination = examine(parts.pop("train").first(EXAMINED), parts, self.run.tokenizers())
        self.report(f"training text: {examination.summary()}")
        lines = "".join(f"{line}\n" for line in examination.lines())
        write_text(self.run.path / EXAMINATION, lines)

    def _draw_curves(self):
        log = self.run.log.read()
        if not log:
            return
        try:
            draw_curves(self.run.path / "curves.png", log)
        except OSError as error:  # a failed plot must not fail the training
            self.report(f"The curves could not be drawn: {error}.")
