"""The forms in which runs are exported."""

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.core.errors import InputError
from heedful.interop import engines

if TYPE_CHECKING:
    import numpy as np

    from heedful.interop.export.shortlist import Shortlist
    from heedful.runs.run import Run

FORMATS = ("ctranslate2", "huggingface", "onnx", "marian", "bergamot")  # modules of this package with a `FORMAT`


class OpenedExport:
    """An export, opened by the library that computes it. Translators and language models write, encoders have outputs.

    Attributes:
        beam_sizes: of the searches that are compared; 1 is greedy search.
        size: bytes of the weights.
    """

    beam_sizes: Sequence[int] = (1,)
    size: int

    def write(self, texts: Sequence[str], max_tokens: int, beam_size: int) -> Sequence[tuple[str, float | None]]:
        """Return translations of sources or continuations of prompts, with their scores if the engine has any."""
        raise NotImplementedError

    def outputs(self, text: str) -> "tuple[np.ndarray, np.ndarray]":
        """Return the ids (1, T) of a text, and what the model computes from them: logits, or vectors without a head."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Format:
    """A form in which runs are exported.

    Attributes:
        library: the name of what computes an export, for messages.
        require: imports the library; raises `InputError` if it is not installed.
        files: shell patterns of the names that an export has.
        quantizations: the types that weights may have, `float32` first.
        write: writes a run into a folder, with a quantization; an export in float32 there is replaced or completed.
        open: opens such an export for a comparison.
        task: the only task of which it exports runs, if there is only one.
        computes: the models that it computes, if it is one declared set.
        add_shortlist: adds the `Shortlist` of a run to its export in a folder; None: it has none.
    """

    library: str
    require: Callable[[], Any]
    files: tuple[str, ...]
    quantizations: tuple[str, ...]
    write: "Callable[[Run, Path, str], Any]"
    open: "Callable[[Run, Path, str], OpenedExport]"
    task: str | None = None
    computes: engines.Engine | None = None
    add_shortlist: "Callable[[Run, Path, Shortlist], Any] | None" = None

    def require_run(self, run: "Run") -> None:
        """Raise `InputError` for a run of another task, or of a model that the library does not compute."""
        if self.task:
            run.of_task(self.task)
        if self.computes:
            self.computes.require(run.config.model)

    def require_quantization(self, quantization: str) -> None:
        """Raise `InputError` for a quantization that this format does not have."""
        if quantization not in self.quantizations:
            *others, last = self.quantizations
            known = f"{', '.join(others)} or {last}" if others else last
            raise InputError(f"Exports for {self.library} have --quantization {known}, not {quantization!r}.")

    def require_shortlist(self) -> "Callable[[Run, Path, Shortlist], Any]":
        """Return `add_shortlist`; raise `InputError` if there is none."""
        if self.add_shortlist is None:
            raise InputError(f"Exports for {self.library} have no shortlist: leave out --shortlist.")
        return self.add_shortlist


def format_named(name: str) -> Format:
    """Return one of `FORMATS`."""
    return importlib.import_module(f"heedful.interop.export.{name}").FORMAT
