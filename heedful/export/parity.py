"""The parity check of exports: both engines translate the same text, and may differ only by rounding."""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import InputError
from heedful.evaluation import score_text
from heedful.export.ctranslate2 import OWN_FILES, PARITY, export, require_quantization
from heedful.export.ctranslate2_search import ctranslate2_translator
from heedful.export.folders import replacing
from heedful.inference.translator import Translator
from heedful.scores.bleu_tokenizer import bleu_tokenizer
from heedful.storage import write_text

if TYPE_CHECKING:
    from heedful.run import Run

MOST_DIFFERENT = 0.01  # maximum fraction of translations that differ, from tokens equally likely up to rounding
MOST_SCORE_DIFFERENCE = 1e-3  # nats, between the scores of equal translations
Report = Callable[[str], Any]


def check_parity(
    run: "Run", folder: Path, pairs: Sequence[tuple[str, str]], report: Report = print
) -> list[dict[str, Any]]:
    """Translate `pairs` with both engines, greedily and with a beam of 4, and compare.

    Args:
        run: the exported `Run`.
        folder: its CTranslate2 model.
        pairs: (source, reference) texts.
        report: called with a line for each search.

    Returns:
        A list of dicts: search, identical (share of equal translations), score_difference (largest, in nats, between
        equal translations), bleu and bleu_ctranslate2.
    """
    config, lowercase = run.config.decode, run.target_tokenizer.lowercase
    lines, references = [source for source, _ in pairs], [reference for _, reference in pairs]
    tokenize = bleu_tokenizer(references, run.config.data.bleu_tokenizer, run.config.data.target_language)

    def bleu(translations):
        written = [candidates[0][0] for candidates in translations]
        return score_text(written, references, lowercase, tokenize=tokenize)["bleu"]

    results = []
    for beam_size in (1, 4):
        # Plain log-probabilities and one limit for all, which both engines define the same way.
        decode = dataclasses.replace(
            config, beam_size=beam_size, n_best=1, length_penalty=0.0, coverage_penalty=0.0, stop="attainable",
            sample=False, min_ratio=0.0, min_p=0.0, precision="float32", max_ratio=1e6,
            max_length=run.config.model.max_length,
        )  # fmt: skip
        own = Translator.from_run(run, decode)
        other = ctranslate2_translator(run, decode, folder)
        ours, theirs = own.n_best(lines), other.n_best(lines)
        same = [one[0][0] == two[0][0] for one, two in zip(ours, theirs, strict=True)]
        differences = [abs(one[0][1] - two[0][1]) for one, two, equal in zip(ours, theirs, same, strict=True) if equal]
        result = {
            "search": "greedy" if beam_size == 1 else f"beam {beam_size}",
            "sentences": len(lines),
            "identical": sum(same) / len(same),
            "score_difference": max(differences, default=0.0),
            "bleu": bleu(ours),
            "bleu_ctranslate2": bleu(theirs),
        }
        report(
            f"{result['search']}: {result['identical']:.2%} of {len(lines)} translations identical, largest difference "
            f"of their scores {result['score_difference']:.1e}, BLEU {result['bleu']:.2f} and "
            f"{result['bleu_ctranslate2']:.2f} on CTranslate2"
        )
        results.append(result)
    return results


def export_checked(
    run: "Run",
    folder: str | Path,
    pairs: Sequence[tuple[str, str]],
    quantization: str = "float32",
    report: Report = print,
) -> list[dict[str, Any]]:
    """Export a run, and keep the export only if both engines agree; parity.json has the comparison.

    Quantization changes the weights: the float32 export must pass first, and the comparison of the quantized one
    is only reported.

    Raises:
        InputError: the two engines differ by more than rounding; or as `export`.
    """
    began = time.monotonic()
    require_quantization(quantization)
    with replacing(Path(folder), OWN_FILES) as tried:  # an earlier export stays until this one has passed
        export(run, tried)
        results = check_parity(run, tried, pairs, report)
        failed = [
            result for result in results
            if result["identical"] < 1 - MOST_DIFFERENT or result["score_difference"] > MOST_SCORE_DIFFERENCE
        ]  # fmt: skip
        if failed:
            raise InputError(
                f"CTranslate2 does not translate as heedful does ({failed[0]['search']}: "
                f"{failed[0]['identical']:.2%} identical, scores differ by {failed[0]['score_difference']:.1e}); "
                "the export was not kept."
            )
        if quantization != "float32":
            export(run, tried, quantization)
            report(f"{quantization}, which changes the weights:")
            results += [result | {"quantization": quantization} for result in check_parity(run, tried, pairs, report)]
        write_text(tried / PARITY, json.dumps(results, indent=2) + "\n")
    report(f"parity checked in {time.monotonic() - began:.0f} s; model in {folder}")
    report(
        "identical translations: "
        + ", ".join(f"{result['search']} {result['identical']:.2%}" for result in results)
        + f" of {len(pairs):,}"
    )
    return results
