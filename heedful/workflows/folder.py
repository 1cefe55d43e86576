"""The folder of a new run: which files a training writes there, and whether it may."""

from pathlib import Path

from heedful.core.errors import InputError
from heedful.runs.adapters import FILE as ADAPTER
from heedful.runs.run import CONFIG, HEADS, ORIGINS, WEIGHTS, refuse_links
from heedful.runs.training_log import JSON_LOGS, SAMPLES

EXAMINATION = "examination.txt"
# Files that a training, or an inspection of its result, writes to a run folder. A new training may delete them.
RUN_FILES = (
    CONFIG, WEIGHTS, ADAPTER, ORIGINS, EXAMINATION, "tokenizer.json", "*.tokenizer.json", *JSON_LOGS, SAMPLES,
    "scores.json", "calibration.json", "alignment.json", HEADS, "outputs/[0-9]*.safetensors", "outputs/[0-9]*.txt",
    "loggers.json", "snapshots/[0-9]*.safetensors", "curves.png", "state/*.safetensors", "state/*.damaged",
    "tensorboard/events.*", "figures/confusion.png",
)  # fmt: skip
# Files of a run before its config, which is the last one to be written.
BEGUN = {ORIGINS, WEIGHTS, "tokenizer.json", "source.tokenizer.json", "target.tokenizer.json"}


def written(folder: Path) -> list[Path]:
    """Return the files of a run in a folder, the config first: a folder without it is no run."""
    return [path for pattern in RUN_FILES for path in folder.glob(pattern) if path.is_file()]


def require_free(path: Path, force: bool = False) -> None:
    """Refuse a folder for a new run that holds a run, or files that it would overwrite, unless `force` is set.

    Links that lead out of the folder are refused even then.
    """
    there = [] if force else written(path)
    refuse_links(path)
    if path / ORIGINS in there and {file.name for file in there} <= BEGUN:
        return  # the run was killed before its config was written
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
