"""A run folder: config, tokenizers, weights, exact training state. Legible, complete, and written atomically."""

import contextlib
import hashlib
import json
import math
import re
from pathlib import Path

import numpy as np

from heedful.checked import parse_json, read_json
from heedful.config import Config
from heedful.data.tokenizer import Tokenizer
from heedful.errors import InputError
from heedful.plugins import find_task
from heedful.storage import (
    inside,
    name_in_model,
    own_file,
    read_seal,
    read_sealed,
    read_with_seal,
    sealed,
    shapes,
    write_atomically,
    write_text,
)

CONFIG, WEIGHTS, ORIGINS = "config.json", "model.safetensors", "origins.json"
LOG = "log.jsonl"
SAMPLES, _SAMPLES_OF = "samples.txt", re.compile(r"^update (\d+)$", re.MULTILINE)
SOURCE, TARGET, ONE = "source.tokenizer.json", "target.tokenizer.json", "tokenizer.json"
LOADED = (CONFIG, WEIGHTS, SOURCE, TARGET, ONE)  # what every later verb loads
FOLDERS = ("state", "outputs", "figures", "tensorboard", "ctranslate2")
PROGRESS = {"update", "seconds", "best", "best_update", "waited", "data"}  # what a training state tells at least


class Run:
    """A run folder on disk.

    Args:
        path: the folder.
        config: its `Config`.
        source_tokenizer: of what is read; of all text where the task is not translation.
        target_tokenizer: of what is written; None: the same.
    """

    def __init__(self, path, config, source_tokenizer, target_tokenizer=None):
        if config.data.batch_tokens == "auto":
            raise InputError("data.batch_tokens = 'auto' is for a new training; a run has the number that came of it.")
        self.path, self.config = Path(path), config
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer or source_tokenizer
        self._read_weights = None  # the fingerprint of those that were read last

    @property
    def task(self):
        """The `Task` that the run is for."""
        return find_task(self.config.task)

    @property
    def tokenizer(self):
        """The only tokenizer of a run that does not translate."""
        return self.source_tokenizer

    @classmethod
    def create(cls, path, config, source_tokenizer, target_tokenizer=None, origins=None, weights=None):
        """Write a new folder; return its `Run`.

        Args:
            path, config, source_tokenizer, target_tokenizer: as of `Run`.
            origins: by full name, where a setting came from.
            weights: arrays by name, where the model is trained already.
        """
        run = cls(path, config, source_tokenizer, target_tokenizer)
        refuse_links(run.path)
        (run.path / "state").mkdir(parents=True, exist_ok=True)
        for name, tokenizer in zip(
            _tokenizer_files(config), (run.source_tokenizer, run.target_tokenizer), strict=False
        ):
            write_text(run.path / name, tokenizer.to_json())
        run.add_origins(origins or {})
        if weights is not None:
            run.save_model(weights)
        write_text(run.path / CONFIG, config.to_json())  # last: it makes the folder a run
        return run

    @classmethod
    def open(cls, path):
        """Read config and tokenizers of a run folder.

        Raises:
            InputError: it is missing, incomplete or of a newer format, or something in it leads out of it.
        """
        path = Path(path)
        if not path.is_dir():
            raise InputError(f"There is no run folder {path}.")
        if not (path / CONFIG).is_file():
            raise InputError(f"{path} is not a complete run folder: {CONFIG} missing.")
        refuse_links(path)
        config = Config.from_json(own_file(path, CONFIG))
        names = _tokenizer_files(config)
        if missing := [name for name in names if not (path / name).is_file()]:
            raise InputError(f"{path} is not a complete run folder: {', '.join(missing)} missing.")
        source = Tokenizer.load(own_file(path, names[0]))
        target = source
        if not config.tokenizer.joint and len(names) > 1:
            target = Tokenizer.load(own_file(path, names[1]))
        return cls(path, config, source, target)

    def of_task(self, *tasks):
        """Return the run if it was trained for one of `tasks`; `InputError` says what it is for."""
        task = self.config.task
        if task not in tasks:
            raise InputError(f"{self.path} is a run of task {task!r}; this needs one of task {' or '.join(tasks)}.")
        return self

    def tokenizers(self):
        """Return the tokenizers, one for each side."""
        return [self.source_tokenizer, self.target_tokenizer][: len(_tokenizer_files(self.config))]

    def fingerprints(self):
        """Return SHA-256 fingerprints of the source and the target tokenizer."""
        return [
            hashlib.sha256(t.to_json().encode()).hexdigest()[:16]
            for t in (self.source_tokenizer, self.target_tokenizer)
        ]

    def weights_fingerprint(self):
        """Return the SHA-256 fingerprint of the trained weights, of those that `load_model` has read if it was called.

        A training may have saved better ones since; `InputError` where there are none yet.
        """
        return self._read_weights or read_seal(self.weights_path())[:16]

    def weights_path(self):
        """Return the path of `model.safetensors`; `InputError` where there is none yet."""
        path = self.path / WEIGHTS
        if not path.is_file():
            raise InputError(f"{self.path} has no {WEIGHTS} yet: train it first, or resume with --resume {self.path}.")
        return own_file(self.path, WEIGHTS)

    def build_model(self):
        """Return the run's model with fresh weights, in the precision of its config."""
        options = self.config.model.keywords() | {"name": "transformer", "dtype": self.config.train.policy}
        return self.task.build_model(self, **options)

    def load_model(self):
        """Return the trained model.

        Raises:
            InputError: there are no weights yet, they are damaged, or they do not fit config and tokenizers.
        """
        path = self.weights_path()
        self.refuse_more_than_in(path)
        model = self.build_model()
        arrays, _, seal = read_with_seal(path)
        load_weights(model, arrays, path)
        self._read_weights = seal[:16]
        return model

    def refuse_more_than_in(self, path):
        """Refuse a config whose model would need far more memory than its weights fill, before it is built."""
        self._refuse_more_than(_numbers_in(path), path)

    def refuse_more_than_kept(self):
        """As `refuse_more_than_in` of the fullest of its training states; `InputError` too where there is none."""
        found = []
        for path in self.states():
            with contextlib.suppress(InputError):  # a damaged one, of which `last_state` tells
                found.append((_numbers_in(own_file(self.path, path.relative_to(self.path))), path))
        if not found:
            raise InputError(f"{self.path} holds no training state to resume from.")
        self._refuse_more_than(*max(found))

    def _refuse_more_than(self, there, path):
        model, vocabulary = self.config.model, max(len(self.source_tokenizer), len(self.target_tokenizer))
        places = model.max_length if model.positions == "learned" else 0
        least = model.num_layers * 2 * model.d_model * (model.d_model + model.d_ff)
        least += (vocabulary + places) * model.d_model
        if least > there:
            raise InputError(
                f"{path} does not fit the run's config or tokenizer: it holds {there:,} numbers, such a model has "
                f"more than {least:,}."
            )

    def save_model(self, values=None, model=None):
        """Write `model.safetensors`, what every later verb loads, from arrays by name or from a model."""
        if values is None:
            values = weights_by_name(model)
        write_atomically(self.path / WEIGHTS, sealed(values, {"format": "1"}))
        self._read_weights = None

    def save_state(self, arrays, progress, keep, every=1):
        """Write the exact training state after `progress["update"]` updates, and forget old ones.

        What stays is this one and the last `keep` whose update is a multiple of `every`: a state that only a signal
        has brought about must not count when the last ones are averaged.
        """
        path = self.path / "state" / f"{progress['update']:08d}.safetensors"
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, sealed(arrays, {"progress": json.dumps(progress)}))
        regular = [state for state in self.states() if int(state.stem) % every == 0]
        for old in {*self.states()} - {path, *regular[-keep:]}:
            old.unlink()
        return path

    def states(self):
        """Return the files of the training states kept, oldest first."""
        return saved_states(self.path)

    def read_state(self, path):
        """Return (arrays, progress) of one of `states`; `InputError` where it is damaged or no training state."""
        arrays, metadata = read_sealed(own_file(self.path, path.relative_to(self.path)))
        try:
            progress = json.loads(metadata["progress"])
        except (KeyError, ValueError, RecursionError):
            progress = None
        if not isinstance(progress, dict) or not progress.keys() >= PROGRESS:
            raise InputError(f"{path} is no training state: it tells no progress.")
        return arrays, progress

    def last_state(self, report=print):
        """Return (arrays, progress) of the newest whole state; damaged ones are reported and passed over.

        Raises:
            InputError: there is none.
        """
        for path in reversed(self.states()):
            try:
                return self.read_state(path)
            except InputError as error:
                report(f"{path} cannot be used ({error}); falling back to the state before it.")
                path.rename(path.with_suffix(".damaged"))  # or it would count as one of those kept
        raise InputError(f"{self.path} holds no training state to resume from.")

    def origins(self):
        """Return where the settings came from that are no defaults, by their full names, as far as it is known."""
        if not (self.path / ORIGINS).exists():
            return {}
        found = read_json(own_file(self.path, ORIGINS))
        if not isinstance(found, dict) or not all(isinstance(origin, str) for origin in found.values()):
            raise InputError(f"{self.path / ORIGINS} is no table of texts.")
        return found

    def add_origins(self, origins):
        """Keep where settings came from."""
        content = json.dumps(self.origins() | origins, indent=2, ensure_ascii=False) + "\n"
        write_text(self.path / ORIGINS, content)

    def never_saved(self):
        """Whether the run was made, but stopped before its first state: nothing is lost if it begins anew."""
        return not any((self.path / "state").glob("*")) and not (self.path / WEIGHTS).exists()

    def append_log(self, entry):
        """Add a line to log.jsonl, without numbers that are not finite: JSON has none."""
        entry = {name: value for name, value in entry.items() if not isinstance(value, float) or math.isfinite(value)}
        with _appending(self.path, LOG) as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def read_log(self):
        """Return the entries of log.jsonl."""
        path = self.path / LOG
        if not path.exists():
            return []
        lines = own_file(self.path, LOG).read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        entries = [parse_json(line, path) for line in lines]  # but the last one, which a full disk may have cut
        if not all(isinstance(entry, dict) and isinstance(entry.get("update"), int) for entry in entries):
            raise InputError(f"{path} is no log of a training: a line names no update.")
        return entries

    def append_samples(self, update, samples):
        """Add the texts of a validation to samples.txt."""
        with _appending(self.path, SAMPLES) as file:
            file.write("\n".join([f"update {update}", *samples, "", ""]))

    def forget_after(self, update):
        """Take out of log.jsonl and samples.txt what came after an update: it will be lived through again."""
        entries = [entry for entry in self.read_log() if entry["update"] <= update]
        lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
        write_text(self.path / LOG, lines)
        path = self.path / SAMPLES
        if path.exists():  # a full disk may have cut it inside a letter
            text = own_file(self.path, SAMPLES).read_text(encoding="utf-8", errors="replace")
            later = (head.start() for head in _SAMPLES_OF.finditer(text) if int(head[1]) > update)
            write_text(path, text[: next(later, len(text))])


def _numbers_in(path):
    """Return how many numbers the arrays of a safetensors file have, by its header."""
    return sum(math.prod(shape) for shape in shapes(path).values())


def refuse_links(folder):
    """Refuse a run folder in which a folder leads elsewhere: files there would be written over, or renamed."""
    for name in FOLDERS:
        inside(folder, name)


def _appending(folder, name):
    """Open a file of a folder to add to it; one that leads out of the folder is refused."""
    if (folder / name).is_symlink():
        own_file(folder, name)
    return (folder / name).open("a", encoding="utf-8")


def _tokenizer_files(config):
    return find_task(config.task).tokenizer_files


def saved_states(folder):
    """Return the files of the training states in a run folder, oldest first; none if there is no such folder."""
    return sorted((Path(folder) / "state").glob("[0-9]" * 8 + ".safetensors"))


def weights_by_name(model):
    """Return the model's weights as float32 arrays by path inside the model."""
    from heedful import backend

    return {
        name: np.asarray(backend.to_numpy(variable), np.float32) for name, variable in _variables_by_name(model).items()
    }


def load_weights(model, arrays, origin):
    """Put arrays by name into a model.

    Raises:
        InputError: names or shapes differ from the model's; says which.
    """
    own = _variables_by_name(model)
    for title, names in (("lacks", own.keys() - arrays.keys()), ("has unknown", arrays.keys() - own.keys())):
        if names:
            raise InputError(
                f"{origin} does not fit the run's config: it {title} {len(names)} weights, {min(names)!r}."
            )
    _assign(own, arrays, origin)


def load_matching(model, arrays, origin, beginnings):
    """Put the arrays whose names begin with one of `beginnings` into a model; return how many there are.

    Raises:
        InputError: the model has weights of such names that the arrays lack, or of other shapes.
    """
    own = {name: variable for name, variable in _variables_by_name(model).items() if name.startswith(beginnings)}
    if missing := own.keys() - arrays.keys():
        raise InputError(f"{origin} does not fit: it lacks {len(missing)} weights, {min(missing)!r}.")
    _assign(own, arrays, origin)
    return len(own)


def _variables_by_name(model):
    return {name_in_model(variable): variable for variable in model.weights}


def _assign(own, arrays, origin):
    for name, variable in own.items():
        if tuple(variable.shape) != arrays[name].shape:
            raise InputError(
                f"{origin} does not fit the run's config or tokenizer: "
                f"{name} is {arrays[name].shape}, expected {tuple(variable.shape)}."
            )
        if not np.isfinite(arrays[name]).all():
            raise InputError(f"{origin} cannot be used: {name} holds values that are not numbers (NaN or infinity).")
    for name, variable in own.items():
        variable.assign(arrays[name])
