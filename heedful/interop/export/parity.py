"""The check of an export: the library that computes it must give what heedful gives, up to rounding."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful import backend
from heedful.core.errors import InputError, counted
from heedful.core.progress import Report
from heedful.core.storage import write_text
from heedful.data.corpus import Corpus
from heedful.interop.export.folders import PARITY, replacing
from heedful.interop.export.formats import Format, OpenedExport
from heedful.interop.export.plain_search import WRITTEN_TOKENS, plain_search, read_tokens
from heedful.interop.export.shortlist import Shortlist, learn_shortlist
from heedful.runs.scores.bleu_tokenizer import bleu_tokenizer
from heedful.training.evaluation import score_text

if TYPE_CHECKING:
    from heedful.runs.run import Run

MAX_DIFFERENT = 0.01  # fraction of texts that differ, from tokens equally likely up to rounding
# Maximum differences: `score`, of equal translations, in nats; `output`, of an encoder, in its unit.
TOLERANCES = {"score_difference": 1e-3, "output_difference": 1e-3}


def export_checked(
    run: "Run", form: Format, folder: str | Path, texts: Sequence[str], references: Sequence[str] | None = None,
    quantization: str = "float32", report: Report = print,
    shortlist_text: Corpus | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Export a run, and keep the export only if both engines agree; `PARITY` has the comparisons.

    A quantization changes the weights, and a shortlist leaves out tokens: the export in float32 must pass first, and
    the comparisons of the others are only reported.

    Args:
        run: a `Run`.
        form: the `Format`.
        folder: the new folder; an earlier export there stays until this one has passed.
        texts: sources, texts whose beginnings are prompts, or texts to read.
        references: their translations, for BLEU.
        quantization: one of the format.
        report: called with lines about the progress.
        shortlist_text: parallel text that a `Shortlist` is learned from; None: the export gets none.

    Returns:
        One dict for each comparison, see `compare`.

    Raises:
        InputError: the results differ by more than rounding; the library is not installed, cannot compute the model, or
            does not know the quantization; or the folder holds something else.
    """
    form.require_quantization(quantization)
    form.require_run(run)
    stages: list[tuple[str, Shortlist | None]] = [(one, None) for one in dict.fromkeys(("float32", quantization))]
    if shortlist_text is not None:
        form.require_shortlist()
        stages.append((quantization, learn_shortlist(run, shortlist_text, report)))
    form.require()
    began, results = time.monotonic(), []
    with replacing(Path(folder), form.files) as aside:
        for one, shortlist in stages:
            started = time.monotonic()
            if shortlist:
                form.require_shortlist()(run, aside, shortlist)
            else:
                form.write(run, aside, one)
            report(f"exported in {time.monotonic() - started:.1f} s; comparing on {counted(len(texts), 'text')} ...")
            engine = form.open(run, aside, one)
            for result in compare(run, engine, texts, references):
                result = {"quantization": one, "shortlist": shortlist is not None, "bytes": engine.size} | result
                results.append(result)
                report(f"{one}{', shortlist' if shortlist else ''}, {_described(result)}")
            if one == "float32" and not shortlist and not all(map(passes, results)):
                raise InputError(f"{form.library} does not compute what heedful does: the export was not kept.")
        write_text(aside / PARITY, json.dumps(results, indent=2) + "\n")
    report(f"parity checked in {time.monotonic() - began:.0f} s; model in {folder}")
    return results


def passes(result: dict[str, Any]) -> bool:
    """Return whether a comparison shows no more than rounding."""
    within = all(result.get(name, 0.0) <= tolerance for name, tolerance in TOLERANCES.items())
    return result.get("identical", 1.0) >= 1 - MAX_DIFFERENT and within


def _described(result: dict[str, Any]) -> str:
    """Return the comparison of an export in words, with its size and search."""
    search = f", {result['search']}" if "search" in result else ""
    search += " with length_penalty 0" if "beam" in search else ""
    return f"{result['bytes'] / 1e6:.1f} MB{search}: {describe(result)}"


def describe(result: dict[str, Any]) -> str:
    """Return a comparison in words."""
    if "identical" not in result:
        return f"largest difference of the outputs on {result['texts']:,} texts: {result['output_difference']:.1e}"
    parts = [f"{result['identical']:.2%} of {result['texts']:,} texts are identical"]
    parts += [f"{result['tokens_per_second']:,.0f} tokens/s"]
    if "score_difference" in result:
        parts.append(f"scores differ by at most {result['score_difference']:.1e}")
    if "bleu" in result:
        parts.append(f"BLEU {result['bleu_exported']:.2f} instead of {result['bleu']:.2f}")
    return ", ".join(parts)


def compare(
    run: "Run", engine: OpenedExport, texts: Sequence[str], references: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return how an engine's results on texts compare with those of a run.

    Returns:
        For a model that writes, a dict for each search: `search`, `texts`, `identical` (share of equal texts),
        `tokens_per_second` (of the engine), `score_difference` (the largest, in nats, between equal texts) if the
        engine has scores, `bleu` and `bleu_exported` if there are references. For an encoder one with `texts` and
        `output_difference`, the largest.
    """
    if not (run.task.translates or run.task.writes):
        require_some(texts)
        return [{"texts": len(texts), "output_difference": float(np.max(list(_differences(run, engine, texts))))}]
    texts, max_tokens = _written_from(run, texts)
    require_some(texts)
    results = []
    for beam_size in engine.beam_sizes:
        predictor = run.task.predictor([run], plain_search(run, beam_size))
        if run.task.translates:
            ours = [(best.text, best.score) for best, *_ in predictor.n_best(texts)]
        else:
            ours = [(text, None) for text in predictor.generate(list(texts), max_length=max_tokens)]
        began = time.monotonic()
        theirs = engine.write(texts, max_tokens, beam_size)
        seconds = time.monotonic() - began
        tokens = sum(map(len, run.target_tokenizer.encode_batch([text for text, _ in theirs])))
        result = _compared(ours, theirs) | {"tokens_per_second": tokens / seconds}
        if references is not None and run.task.translates:
            result |= _bleu(run, references, ours, theirs)
        results.append({"search": "greedy" if beam_size == 1 else f"beam {beam_size}"} | result)
    return results


def require_some(texts: Sequence[str]) -> None:
    """Raise `InputError` if there are no texts, on which any two models agree."""
    if not texts:
        raise InputError("There is no text to check the export with: name some with --files.")


def _written_from(run, texts):
    """Return the texts from which a run writes, and how many tokens at most."""
    limit = run.config.model.max_length
    if run.task.translates:
        return texts, limit
    max_tokens = min(WRITTEN_TOKENS, limit // 2)
    starts = run.task.starts_texts(run.config)
    prompts = [_beginning(run.tokenizer, text, limit - max_tokens - starts) for text in texts]
    return [prompt for prompt in prompts if starts or run.tokenizer.encode(prompt)], max_tokens


def _beginning(tokenizer, text, max_tokens):
    """Return the beginning of a text that has at most so many tokens, if possible at the end of a word."""
    while (length := len(tokenizer.encode(text))) > max_tokens:
        text = text[: len(text) * max_tokens // length]
        text = " ".join(text.split(" ")[:-1]) or text
    return text


def _compared(ours, theirs):
    """Return how many of two lists of texts and scores are equal, and how far their scores differ."""
    equal = [one == other for (one, _), (other, _) in zip(ours, theirs, strict=True)]
    scores = [
        abs(one - other) for same, (_, one), (_, other) in zip(equal, ours, theirs, strict=True)
        if same and one is not None and other is not None
    ]  # fmt: skip
    return {"texts": len(equal), "identical": sum(equal) / len(equal)} | (
        {"score_difference": float(np.max(scores))} if scores else {}
    )


def _bleu(run, references, ours, theirs):
    tokenize = bleu_tokenizer(references, run.config.data.bleu_tokenizer, run.config.data.target_language)
    lowercase = run.target_tokenizer.lowercase
    scores = [
        score_text([text for text, _ in side], references, lowercase, tokenize=tokenize)["bleu"]
        for side in (ours, theirs)
    ]
    return dict(zip(("bleu", "bleu_exported"), scores, strict=True))


def _differences(run, engine, texts):
    """Yield the largest difference of the outputs of both for each text."""
    model, max_length = run.load_model(), read_tokens(run.config)
    compute = model.encode if run.config.model.untrained_head else model
    for text in texts:
        ids, theirs = engine.outputs(text)
        if not np.array_equal(ids, run.tokenizer([text], max_length=max_length, truncation=True)["ids"]):
            raise InputError(f"The export splits the text {text[:60]!r} in another way: it was not kept.")
        ours = np.asarray(backend.to_numpy(compute(np.asarray(ids, np.int32))), np.float32)
        yield float(np.abs(ours - theirs).max())
