"""The parity check of an export to the Hugging Face layout: `transformers` must give what heedful gives."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful import backend
from heedful.errors import InputError, counted
from heedful.export.folders import replacing
from heedful.export.greedy import WRITTEN, plain_greedy, require_some
from heedful.export.huggingface import OWN_FILES, write_folder
from heedful.export.parity import MOST_DIFFERENT, PARITY

if TYPE_CHECKING:
    from heedful.run import Run

MOST_DIFFERENCE = 1e-3  # between outputs of an encoder, in their unit
BATCH = 32
Report = Callable[[str], Any]


def export_checked(run: "Run", folder: str | Path, texts: Sequence[str], report: Report = print) -> dict[str, Any]:
    """Export a run, and keep the export only if `transformers` computes the same with it; parity.json has the result.

    Args:
        run: a `Run`.
        folder: the new folder.
        texts: sources, prompts, or texts to read.
        report: called with lines about the progress.

    Raises:
        InputError: the results differ by more than rounding, transformers or torch are not installed, or no class of
            transformers has the options of the model.
    """
    transformers, began = _transformers(), time.monotonic()
    with replacing(Path(folder), OWN_FILES) as aside:
        write_folder(run, aside)
        report(f"comparing on {counted(len(texts), 'text')} ...")
        result = compare(run, aside, texts, transformers)
        report(describe(result))
        if result.get("identical", 1.0) < 1 - MOST_DIFFERENT or result.get("difference", 0.0) > MOST_DIFFERENCE:
            raise InputError("transformers does not compute what heedful does: the export was not kept.")
        (aside / PARITY).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    report(f"parity checked in {time.monotonic() - began:.0f} s; model in {folder}")
    return result


def describe(result: dict[str, Any]) -> str:
    """Return a comparison in words."""
    if "identical" in result:
        return f"{result['identical']:.2%} of {result['texts']:,} texts by greedy search are identical"
    return f"largest difference of the outputs on {result['texts']:,} texts: {result['difference']:.1e}"


def compare(run: "Run", folder: Path, texts: Sequence[str], transformers) -> dict[str, Any]:
    """Return the share of identical texts (`identical`), or for encoders the largest difference of outputs."""
    texts = require_some(texts)
    with _quiet(transformers):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        name = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"][0]
        model = getattr(transformers, name).from_pretrained(folder).eval()
        if run.task.translates:
            other = folder / "target"
            target = transformers.AutoTokenizer.from_pretrained(other) if other.exists() else tokenizer
            return _identical(_translations(run, texts), _their_translations(model, tokenizer, target, texts))
        if run.task.writes:
            most = min(WRITTEN, run.config.model.max_length // 2)  # tokens to write
            fitting = run.config.model.max_length - most
            texts = require_some([text for text in texts if 0 < len(tokenizer(text)["input_ids"]) <= fitting])
            return _identical(_continuations(run, texts, most), _their_continuations(model, tokenizer, texts, most))
        return {"texts": len(texts), "difference": _difference(run, model, tokenizer, texts)}


def _identical(ours, theirs):
    same = [one == other for one, other in zip(ours, theirs, strict=True)]
    return {"texts": len(same), "identical": sum(same) / len(same)}


def _translations(run, texts):
    return run.task.predictor([run], plain_greedy(run)).translate(list(texts))


def _their_translations(model, tokenizer, target, texts):
    import torch

    found = []
    for start in range(0, len(texts), BATCH):
        part = list(texts[start : start + BATCH])
        inputs = tokenizer(part, return_tensors="pt", padding=True)
        most = model.config.max_position_embeddings
        with torch.no_grad():
            ids = model.generate(**inputs, num_beams=1, do_sample=False, max_new_tokens=most, max_length=None)
        found += target.batch_decode(ids, skip_special_tokens=True)
    return found


def _continuations(run, texts, most):
    return run.task.predictor([run], plain_greedy(run)).generate(list(texts), max_length=most)


def _their_continuations(model, tokenizer, texts, most):
    import torch

    found = []
    for text in texts:  # one by one: positions would count padding
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            ids = model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=most)[0]
        found.append(tokenizer.decode(ids, skip_special_tokens=True))
    return found


def _difference(run, model, tokenizer, texts):
    """Return the largest difference of the logits of both, or of the vectors of models without a head."""
    import torch

    own, largest = run.load_model(), 0.0
    compute = own.encode if run.config.model.untrained_head else own
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt", truncation=True)
        with torch.no_grad():
            theirs = model(**inputs)[0].numpy()
        ids = np.asarray(inputs["input_ids"], np.int32)
        expected = run.tokenizer([text], max_length=run.config.model.max_length, truncation=True)["ids"]
        if not np.array_equal(ids, expected):
            raise InputError(f"transformers splits the text {text[:60]!r} in another way: the export was not kept.")
        largest = max(largest, float(np.abs(np.asarray(backend.to_numpy(compute(ids)), np.float32) - theirs).max()))
    return largest


def _transformers():
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise InputError(
            "The check of this export needs transformers and torch: pip install 'heedful[huggingface]'."
        ) from error
    return transformers


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
