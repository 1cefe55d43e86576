"""A run folder: config, tokenizers and weights. `CheckpointFiles` and `TrainingLog` handle its other files."""

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heedful.config import Config
from heedful.core.errors import InputError
from heedful.core.plugins import find_task
from heedful.core.storage import (
    inside,
    plain_file,
    read_checksum,
    read_with_checksum,
    with_checksum,
    write_atomically,
    write_text,
)
from heedful.core.validation import read_json
from heedful.data.corpus import Corpus
from heedful.data.tokenizer import Tokenizer
from heedful.runs.adapters import merged, read_adapter_of
from heedful.runs.checkpoint_files import CheckpointFiles
from heedful.runs.snapshots import Snapshots
from heedful.runs.training_log import TrainingLog
from heedful.runs.weights import count_elements, load_weights, refuse_larger_model, weights_by_name

CONFIG, WEIGHTS, ORIGINS = "config.json", "model.safetensors", "origins.json"
SOURCE, TARGET, ONE = "source.tokenizer.json", "target.tokenizer.json", "tokenizer.json"
HEADS = "heads.json"  # the importance of each head
LOADED = (CONFIG, WEIGHTS, SOURCE, TARGET, ONE)  # the files that a predictor needs
FOLDERS = ("state", "snapshots", "outputs", "figures", "tensorboard", "ctranslate2")


class Run:
    """A run folder on disk.

    Args:
        path: the folder.
        config: its config.
        source_tokenizer: tokenizer of the input; the only one unless the task is translation.
        target_tokenizer: tokenizer of the output; None: the same. With a joint vocabulary, they may differ in their
            `prefix_ids` only.
    """

    def __init__(
        self, path: str | Path, config: Config, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer | None = None
    ):
        if config.data.batch_tokens == "auto":
            raise InputError("data.batch_tokens = 'auto' is for a new training; the config of a run needs a number.")
        self.path, self.task = Path(path), find_task(config.task)
        self.config = self.task.checked(config)
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer or source_tokenizer
        self.checkpoints, self.log = CheckpointFiles(self.path), TrainingLog(self.path)
        self.snapshots = Snapshots(self.path)
        self.adapter: Path | None = None  # of an adapter that `load_model` merges into the weights
        self.named_text: tuple[Path, ...] = ()  # files and folders whose lines may be shown, see `with_text`
        self._loaded: str | None = None  # the fingerprint of the weights that were loaded last

    @property
    def tokenizer(self) -> Tokenizer:
        """The only tokenizer of a run that does not translate."""
        return self.source_tokenizer

    @classmethod
    def create(
        cls, path: str | Path, config: Config, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer | None = None,
        *, origins: Mapping[str, str] | None = None, weights: Mapping[str, np.ndarray] | None = None,
    ) -> "Run":  # fmt: skip
        """Create a run folder; return its `Run`.

        Args:
            path, config, source_tokenizer, target_tokenizer: see `Run`.
            origins: where the values of settings came from, by full setting name.
            weights: weights of a trained model, arrays by name.
        """
        run = cls(path, config, source_tokenizer, target_tokenizer)
        refuse_links(run.path)
        (run.path / "state").mkdir(parents=True, exist_ok=True)
        run.add_origins(origins or {})  # first: it marks a folder that was begun here
        tokenizers = run.source_tokenizer, run.target_tokenizer
        for name, tokenizer in zip(run.task.tokenizer_files, tokenizers, strict=False):
            write_text(run.path / name, tokenizer.to_json())
        if weights is not None:
            run.save_weights(weights)
        write_text(run.path / CONFIG, config.to_json())  # last: it marks the folder as a run
        return run

    @classmethod
    def open(cls, path: str | Path) -> "Run":
        """Read config and tokenizers of a run folder.

        Raises:
            InputError: it is missing, incomplete or of a newer format, or a link in it leads out of it.
        """
        path = Path(path)
        if not path.is_dir():
            raise InputError(f"There is no run folder {path}.{_similar_run(path)}")
        if not (path / CONFIG).is_file():
            raise InputError(f"{path} is not a complete run folder: {CONFIG} missing.")
        refuse_links(path)
        config = Config.from_json(plain_file(path, CONFIG))
        names = find_task(config.task).tokenizer_files
        if missing := [name for name in names if not (path / name).is_file()]:
            raise InputError(f"{path} is not a complete run folder: {', '.join(missing)} missing.")
        source = Tokenizer.load(plain_file(path, names[0]))
        target = source
        if len(names) > 1:
            files = [plain_file(path, name) for name in names]
            if not config.tokenizer.joint or len({file.read_bytes() for file in files}) > 1:
                target = Tokenizer.load(files[1])
        return cls(path, config, source, target)

    def with_adapter(self, path: str | Path | None) -> "Run":
        """Let `load_model` merge an adapter, a file or the run folder that trained it; None: no adapter."""
        self.adapter = None if path is None else Path(path)
        return self

    def with_text(self, paths: Iterable[str | Path]) -> "Run":
        """Let a page, or a server, show lines of the run's texts in these files and folders, wherever they lie."""
        self.named_text = tuple(map(Path, paths))
        if missing := [str(path) for path in self.named_text if not path.exists()]:
            raise InputError(f"There is no text {missing[0]}.")
        return self

    def of_task(self, *tasks: str) -> "Run":
        """Return the run if its task is one of `tasks`; raise `InputError` if not."""
        task = self.config.task
        if task not in tasks:
            raise InputError(f"{self.path} is a run of task {task!r}; this needs one of task {' or '.join(tasks)}.")
        return self

    def tokenizers(self) -> list[Tokenizer]:
        """Return the tokenizers, one for each side."""
        return [self.source_tokenizer, self.target_tokenizer][: len(self.task.tokenizer_files)]

    def scored_corpus(self, files: Sequence[str] = ()) -> Corpus:
        """Return the text in `files`, as the task reads it, or the test text of the run (the validation text if none).

        Raises:
            InputError: there are no files, and the run names no text.
        """
        if files:
            return self.task.open_scored_text(self.config, files)
        if self.config.data.corpus == "files" and not self.config.data.train:
            raise InputError(f"{self.path} names no text: give the files to score it on.")
        return self.task.text_to_score(self.task.find_corpora(self.config))

    def fingerprints(self) -> list[str]:
        """Return SHA-256 fingerprints of the source and the target tokenizer."""
        return [
            hashlib.sha256(t.to_json().encode()).hexdigest()[:16]
            for t in (self.source_tokenizer, self.target_tokenizer)
        ]

    def weights_fingerprint(self) -> str:
        """Return the SHA-256 fingerprint of the trained weights: those that `load_model` read, if it was called.

        Training may have saved better weights since. Raises `InputError` if there are none yet.
        """
        return self._loaded or read_checksum(self.weights_path())[:16]

    def weights_path(self) -> Path:
        """Return the path of `model.safetensors`; raise `InputError` if it does not exist yet."""
        path = self.path / WEIGHTS
        if not path.is_file():
            raise InputError(f"{self.path} has no {WEIGHTS} yet: train it first, or resume with --resume {self.path}.")
        return plain_file(self.path, WEIGHTS)

    def build_model(self) -> Any:
        """Return the run's model with fresh weights, in the precision of its config."""
        options = self.config.model.keywords() | {"name": "transformer", "dtype": self.config.train.dtype_policy}
        return self.task.build_model(self, **options)

    def load_model(self) -> Any:
        """Return the trained model.

        Raises:
            InputError: there are no weights yet, they are damaged, or they do not fit config, tokenizers or adapter.
        """
        from heedful.layers.initial_values import (
            without_initial_values,  # this loads Keras, which some commands do not need
        )

        path = self.weights_path()
        self.refuse_larger_than(path)
        with without_initial_values():
            model = self.build_model()
        arrays, _, checksum = read_with_checksum(path)
        if self.adapter:
            adapter = read_adapter_of(self.adapter, checksum[:16], self.path)
            arrays = merged(arrays, adapter, self.adapter)
        load_weights(model, arrays, path)
        self._loaded = checksum[:16]
        return model

    def refuse_larger_than(self, path: Path | None = None) -> None:
        """Raise `InputError` if the model would be far larger than its file: `path`, or the largest checkpoint."""
        numbers, path = self.checkpoints.largest() if path is None else (count_elements(path), path)
        refuse_larger_model(self.config.model, max(map(len, self.tokenizers())), numbers, path)

    def save_weights(self, values: Mapping[str, np.ndarray]) -> None:
        """Write `model.safetensors`, which every predictor loads, from arrays by name."""
        write_atomically(self.path / WEIGHTS, with_checksum(values, {"format": "1"}))
        self._loaded = None

    def save_model(self, model: Any) -> None:
        """Write the weights of a model to `model.safetensors`."""
        self.save_weights(weights_by_name(model))

    def origins(self) -> dict[str, str]:
        """Return where the values of settings came from, by full setting name; unknown origins are omitted."""
        if not (self.path / ORIGINS).exists():
            return {}
        content = read_json(plain_file(self.path, ORIGINS))
        if not isinstance(content, dict) or not all(isinstance(origin, str) for origin in content.values()):
            raise InputError(f"{self.path / ORIGINS} is not a JSON object of strings.")
        return content

    def add_origins(self, origins: Mapping[str, str]) -> None:
        """Record where values of settings came from."""
        content = json.dumps(self.origins() | dict(origins), indent=2, ensure_ascii=False) + "\n"
        write_text(self.path / ORIGINS, content)

    def head_importance(self) -> dict[str, Any] | None:
        """Return what `heedful inspect --heads` measured last, or None."""
        if not (self.path / HEADS).exists():
            return None
        content = read_json(plain_file(self.path, HEADS))
        if not isinstance(content, dict) or not content.keys() >= {"loss", "heads", "text", "tokens"}:
            raise InputError(f"{self.path / HEADS} is not what heedful inspect --heads wrote.")
        return content

    def never_saved(self) -> bool:
        """Return whether the run stopped before its first checkpoint, so that it can start again."""
        return not self.checkpoints.any_written() and not (self.path / WEIGHTS).exists()


def by_name(runs: Iterable[Run]) -> dict[str, Run]:
    """Return runs by the names of their folders; `InputError` if two have the same."""
    found: dict[str, Run] = {}
    for run in runs:
        name = run.path.resolve().name
        if name in found:
            raise InputError("Two runs have the same folder name, by which clients ask for them: rename one.")
        found[name] = run
    return found


def refuse_links(folder: Path) -> None:
    """Raise `InputError` if a subfolder of a run is a link out of it: files there would be overwritten or renamed."""
    for name in FOLDERS:
        inside(folder, name)


def _similar_run(path):
    """Return a question about the run folder beside `path` whose name is similar, or nothing."""
    runs = [config.parent.name for config in path.parent.glob(f"*/{CONFIG}")]
    near = difflib.get_close_matches(path.name, runs, 1)
    return f" Did you mean {path.parent / near[0]}?" if near else ""
