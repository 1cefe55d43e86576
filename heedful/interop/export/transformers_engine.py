"""An export to the Hugging Face layout, computed by `transformers`."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.core.errors import extra_needed
from heedful.interop.export.formats import OpenedExport

if TYPE_CHECKING:
    from heedful.runs.run import Run

BATCH = 32


def require_transformers() -> Any:
    """Import transformers; raise `InputError` if it or torch is not installed."""
    with extra_needed("huggingface", "The check of this export needs transformers and torch"):
        import torch  # noqa: F401
        import transformers
    return transformers


class TransformersExport(OpenedExport):
    """An export to the Hugging Face layout, opened for a comparison."""

    def __init__(self, run: "Run", folder: Path, quantization: str = "float32"):
        self.run, self.size = run, (folder / "model.safetensors").stat().st_size
        transformers = require_transformers()
        with _quiet(transformers):
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            separate = folder / "target"  # where the sides have different vocabularies
            self.target = transformers.AutoTokenizer.from_pretrained(separate) if separate.exists() else self.tokenizer
            name = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"][0]
            self.model = getattr(transformers, name).from_pretrained(folder).eval()

    def write(self, texts: Sequence[str], max_tokens: int, beam_size: int) -> list[tuple[str, float | None]]:
        """Return greedy translations of texts, or continuations."""
        batch = BATCH if self.run.task.translates else 1  # positions of a language model would count padding
        written = []
        for start in range(0, len(texts), batch):
            part = list(texts[start : start + batch])
            inputs = self.tokenizer(part, return_tensors="pt", padding=batch > 1, truncation=True)
            written += self._generate(inputs, max_tokens)
        return [(text, None) for text in written]

    def _generate(self, inputs, max_tokens):
        import torch

        with torch.no_grad(), _quiet(require_transformers()):
            options = {"num_beams": 1, "do_sample": False, "max_new_tokens": max_tokens, "max_length": None}
            ids = self.model.generate(**inputs, **options)
        return self.target.batch_decode(ids, skip_special_tokens=True)

    def outputs(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of a text, and the model's logits or vectors."""
        import torch

        inputs = self.tokenizer(text, return_tensors="pt", truncation=True)
        with torch.no_grad(), _quiet(require_transformers()):
            return inputs["input_ids"].numpy(), self.model(**inputs)[0].numpy()


@contextlib.contextmanager
def _quiet(transformers) -> Iterator[None]:
    """Keep `transformers` from writing warnings and progress to the terminal."""
    log = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
