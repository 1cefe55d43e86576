"""What processes that train together must have in common."""

import platform
from importlib.metadata import version
from typing import Any

from heedful import __version__, backend
from heedful.core.errors import InputError
from heedful.core.validation import flat_table
from heedful.runs.run import Run


def require_agreement(asked: dict[str, Any]) -> None:
    """Compare this process with process 0, once all have joined.

    Args:
        asked: what this process was asked for, by name.

    Raises:
        InputError: in every process, if one was asked for something else than process 0, or runs other versions.
    """
    answers = backend.exchange({"version": _versions()} | asked)
    first = flat_table(answers[0])
    for index, answer in enumerate(answers):
        other = flat_table(answer)
        for name in sorted(first.keys() | other.keys()):
            if first.get(name) != other.get(name):
                raise InputError(
                    f"{name} is {other.get(name)!r} in process {index}, and {first.get(name)!r} in process 0."
                )


def _versions():
    versions = {name: version(name) for name in ("jax", "jaxlib", "keras", "numpy", "tokenizers")}
    return {"heedful": __version__, "python": platform.python_version()} | versions


def begin_together(run: Run, fingerprint: str) -> None:
    """Let the other processes prepare the training of a run, before its first update.

    Args:
        run: the run, with its tokenizers.
        fingerprint: of the training text.

    Raises:
        InputError: one of them cannot, or reads other text.
    """
    if backend.process_count() == 1:
        return
    tokenizers = [tokenizer.to_json() for tokenizer in run.tokenizers()]
    begin = {"config": run.config.to_json(), "tokenizers": tokenizers, "path": str(run.path), "text": fingerprint}
    backend.exchange({"begin": begin})
    for index, problem in enumerate(backend.exchange("")):
        if problem:
            raise InputError(f"Process {index}: {problem}")
