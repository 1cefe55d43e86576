"""What all jobs have in common: a run folder is made, a model trained, its states kept, its test text scored."""

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from heedful import backend, settings
from heedful.cache import keep_compilations
from heedful.config import PARTS, Config
from heedful.data.corpus import hold_out
from heedful.doctor.examination import examine
from heedful.doctor.rows import Rows
from heedful.errors import InputError
from heedful.inspection import plot_curves
from heedful.jobs.time_plan import fit_into_minutes
from heedful.run import CONFIG, ORIGINS, WEIGHTS, Run, load_matching, load_weights, refuse_links
from heedful.selfcheck.check import require
from heedful.storage import locked, read_sealed, write_text
from heedful.training.rehearsal import FIRST, Trial, largest_batch, rehearse
from heedful.training.signals import Interrupted
from heedful.training.trainer import Trainer

SCORED_TOKENS = 4096  # most of a batch that is scored: the last one of each shape is filled up with padding
PLANNED = "planned, to fit into train.minutes"  # the origin of a setting
EXAMINATION, EXAMINED = "examination.txt", 200_000  # rows: about a minute
# What a training leaves in its run folder, and may delete there.
WRITTEN = (
    CONFIG, WEIGHTS, ORIGINS, EXAMINATION, "tokenizer.json", "*.tokenizer.json", "log.jsonl", "samples.txt",
    "scores.json", "outputs/[0-9]*.safetensors", "outputs/[0-9]*.txt", "curves.png", "state/*.safetensors",
    "state/*.damaged", "tensorboard/events.*",
)  # fmt: skip


def _written(folder):
    """Return the files in a folder that a training leaves there, the config first: without it there is no run."""
    return [path for pattern in WRITTEN for path in folder.glob(pattern) if path.is_file()]


def require_free(path, force=False):
    """Refuse a folder for a new run that holds one, or files that it would write over, unless that is meant.

    Links in it that lead out of it are refused even then.
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
            f"{path} holds no run, but {there[0].relative_to(path)}, which a training would write over. Choose "
            "another folder with --run, or overwrite it with --force."
        )


def open_parts(config, corpora):
    """Return corpora by part with a validation text among them, held out of the training text if it has no own.

    Raises:
        InputError: there is no training text, or none to validate on.
    """
    if "train" not in corpora:
        raise InputError("data.train must name text files.")
    if "valid" in corpora:
        return corpora
    if not config.data.held_out:
        raise InputError("data.valid must name text files, or data.held_out a share of the training text.")
    train, valid = hold_out(corpora["train"], config.data.held_out)
    return {**corpora, "train": train, "valid": valid}


def starting_point(config):
    """Return the run that `train.start_from` names, and the config with its sizes in place of its own.

    Dropout, tied tables, the bias of the output and pooling stay the config's.
    """
    before = Run.open(config.train.start_from).of_task("fill")
    before.refuse_more_than_in(before.weights_path())  # or what is missing would be missed when the new run has begun
    kept = ("dropout", "attention_dropout", "pooling", "tie", "output_bias", "untrained_head")
    own = {name: getattr(config.model, name) for name in kept}
    return before, dataclasses.replace(config, model=dataclasses.replace(before.config.model, **own))


class Job:
    """A run with everything that its training needs. Each task has a subclass that says what that is.

    Args:
        run: a `Run`.
        report: called with each line for the user.
    """

    # Where the parts of a masked language model go in this task's model.
    TAKEN_OVER = {"embedding/": "embedding/", "text_input/": "text_input/", "encoder/": "encoder/"}

    def __init__(self, run, report=print):
        self.run, self.report, self.config = run, report, run.config
        self.engine = None  # what `evaluate` scores with, made by `start`
        self.seconds_spent = 0.0  # of train.minutes, before the first update
        self.corpora = self.find_corpora(self.config)
        self.examples = self.read_examples()
        self.scored = {part: self.scored_examples(part) for part in self.corpora if part != "train"}
        for part, examples in self.scored.items():  # or it would be told when all the work is done
            if not any(batch["weights"].any() for batch in examples.finite()):
                raise InputError(f"{self.corpora[part].name} has no token that counts: there is nothing to score.")
        report(str(self.examples))

    @property
    def frozen(self):
        """Beginnings of the names of weights that do not learn."""
        return tuple(self.TAKEN_OVER.values()) if self.config.train.freeze else ()

    @staticmethod
    def open_text(config, files, origin=""):
        """Return the text in `files` as a corpus, read as the task reads it.

        Raises:
            InputError: files are missing; names them, and their `origin`, where such text comes from.
        """
        raise NotImplementedError

    @classmethod
    def find_corpora(cls, config):
        """Return the corpora of a run by part: train, valid, and test where there is one.

        Raises:
            InputError: files are missing, or named for no part that has to be there.
        """
        data = config.data
        files = {part: getattr(data, part) for part in PARTS}
        return open_parts(
            config, {part: cls.open_text(config, names, data.origin) for part, names in files.items() if names}
        )

    @staticmethod
    def prepare(config, corpora):
        """Return the config with what only the text can tell, and the tokenizers made of it: one, or two sides'."""
        raise NotImplementedError

    def read_examples(self):
        """Return what to train on; report what of the text was left out."""
        raise NotImplementedError

    def scored_examples(self, part):
        """Return what a held-out part of the text is scored by, token by token; `InputError` if it is unfit."""
        raise NotImplementedError

    def start(self, model):
        """Get ready to validate `model`, and make the engine that scores it; called once, before training."""
        raise NotImplementedError

    def validate(self):
        """Return the scores of the model now, and under `samples` texts to show."""
        raise NotImplementedError

    @staticmethod
    def evaluate(run, corpus, engine=None):
        """Score a run on a text; keep the result in its scores.json, and return it.

        `engine` has the model: a `Translator`, a `Labeller` or the model itself; without one it is read from the run.
        """
        raise NotImplementedError

    @staticmethod
    def describe(scores):
        """Return scores as a line."""
        raise NotImplementedError

    def score_test(self, part, corpus):
        """Score the trained model on a part of the text and report it."""
        self.report(f"{part}: {self.describe(self.evaluate(self.run, corpus, self.engine))}")

    @classmethod
    def create(cls, config, path, report=print, force=False, origins=None, plan_minutes=True):
        """Make a new run folder; learn its tokenizers.

        Args:
            origins: where settings came from, by their full names.
            plan_minutes: whether `train.updates` becomes what fits into `train.minutes`, if the schedule has an end.

        Raises:
            InputError: the folder holds a run already and `force` is not set; bad text.
        """
        path = Path(path)
        if config.train.start_from and path.resolve() == Path(config.train.start_from).resolve():
            raise InputError(f"{path} is the run to start from: choose another folder with --run.")
        require_free(path, force)
        config, tokenizers = cls._prepare(config, report)
        job = cls(Run(path, config, *tokenizers), report)  # before anything is written or deleted: it reads all text
        if plan_minutes and config.train.minutes and config.train.schedule_ends:
            job._plan_minutes()
            origins = (origins or {}) | dict.fromkeys(settings.changed(config, job.config), PLANNED)
        path.mkdir(parents=True, exist_ok=True)
        with locked(path):
            for old in _written(path):  # only with `force` are there any
                old.unlink()
            Run.create(path, job.config, *tokenizers, origins=origins)
        return job

    @classmethod
    def plan(cls, config, report=print):
        """Report vocabulary, batches, time and memory of a training, and leave nothing behind but caches."""
        config, tokenizers = cls._prepare(config, report)
        job = cls(Run(Path(), config, *tokenizers), report)
        report(backend.device_summary())
        report(str(job.rehearse()))

    @classmethod
    def _prepare(cls, config, report):
        keep_compilations()
        config, tokenizers = cls.prepare(config, cls.find_corpora(config))
        report("vocabulary: " + " and ".join(f"{len(t):,}" for t in dict.fromkeys(tokenizers)))
        if config.data.batch_tokens == "auto":
            config = cls._with_largest_batch(config, tokenizers)
            report(f"largest batch: {config.data.batch_tokens:,} tokens")
        return config, tokenizers

    @classmethod
    def _with_largest_batch(cls, config, tokenizers):
        def sized(**sizes):
            return dataclasses.replace(config, data=dataclasses.replace(config.data, **sizes))

        def attempt(tokens):
            with tempfile.TemporaryDirectory() as folder:
                Run.create(folder, sized(batch_tokens=tokens, max_shapes=1), *dict.fromkeys(tokenizers))
                command = [sys.executable, "-m", "heedful.jobs.trial", folder]
                made = subprocess.run(command, capture_output=True, text=True)
            if made.returncode == 1 and tokens == FIRST:
                raise InputError(f"The memory could not be tried out: {' '.join(made.stderr.splitlines()[-1:])}")
            return None if made.returncode else Trial(**json.loads(made.stdout.splitlines()[-1]))

        return sized(batch_tokens=largest_batch(attempt))

    def rehearse(self):
        """Return the `Rehearsal` of the training, done with a fresh model."""
        return rehearse(self.run, self.fresh_model(), self.examples)

    def fresh_model(self):
        """Return a model that has learned nothing, with the parts frozen that the config freezes."""
        model = self.run.build_model()
        if self.config.train.freeze:
            model.freeze()
        return model

    def _plan_minutes(self):
        """Replace the number of updates by what fits into `train.minutes`; that is part of the time."""
        began = time.monotonic()
        self.config = self.run.config = fit_into_minutes(self)
        self.seconds_spent = time.monotonic() - began

    def train(self, resume=False, verify=False, origins=None):
        """Train, then draw the curves and score the test text, or the validation text where there is none.

        Args:
            resume: go on from the last state; a run that never had one begins.
            verify: before that, live through the updates before that state again, and compare.
            origins: where settings came from that are new, by their full names.

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
            self.run.refuse_more_than_kept()
        backend.set_seed(self.config.train.seed)
        model = self.fresh_model()
        if self.config.train.start_from and not resume:
            self._take_over(model, self.config.train.start_from)
        self.report(f"model: {model.count_params():,} parameters")
        self.report(backend.device_summary())
        self.start(model)
        fingerprint = self.corpora["train"].fingerprint
        trainer = Trainer(self.run, model, self.examples, self.validate, self.report, fingerprint, self.seconds_spent)
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
        load_weights(model, read_sealed(self.run.path / WEIGHTS)[0], self.run.path / WEIGHTS)
        for part in [part for part in self.corpora if part not in ("train", "valid")] or ["valid"]:
            self.score_test(part, self.corpora[part])
        return self.run

    def _examine(self):
        """Say what the training text suffers from; keep the whole story in the run folder."""
        parts = Rows.of_config(self.config.data, self.config.task)
        if "train" not in parts:
            return  # a built-in corpus is right by construction
        examination = examine(parts.pop("train").first(EXAMINED), parts, self.run.tokenizers())
        self.report(f"training text: {examination.summary()}")
        lines = "".join(f"{line}\n" for line in examination.lines())
        write_text(self.run.path / EXAMINATION, lines)

    def _take_over(self, model, start):
        """Put the encoder of a run `start` of task fill into a fresh model."""
        path = Run.open(start).weights_path()
        arrays = {}
        for name, array in read_sealed(path)[0].items():
            theirs = next((beginning for beginning in self.TAKEN_OVER if name.startswith(beginning)), None)
            if theirs is not None and name != "embedding/bias":  # which belongs to the output
                arrays[name.replace(theirs, self.TAKEN_OVER[theirs], 1)] = array
        count = load_matching(model, arrays, path, tuple(self.TAKEN_OVER.values()))
        self.report(f"{count} weights taken over from {start}" + (", frozen" if self.config.train.freeze else ""))

    def _draw_curves(self):
        log = self.run.read_log()
        if not log:
            return
        try:
            plot_curves(self.run.path / "curves.png", log)
        except OSError as error:  # a picture must not cost a training
            self.report(f"The curves could not be drawn: {error}.")
