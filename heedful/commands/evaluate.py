"""heedful evaluate: score a run of any task."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from heedful.commands.arguments import add_glossary, add_json, add_run
from heedful.config import settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_run(parser)
    parser.add_argument(
        "files", nargs="*", default=[], metavar="FILE",
        help="text in the form of the training text (default: the test text of the run); translate: source, reference, "
        "and files with further references",
    )  # fmt: skip
    parser.add_argument(
        "--tokenize", metavar="NAME",
        help="translate: how sacreBLEU splits text into words for BLEU, see data.bleu_tokenizer (default: as the run)",
    )  # fmt: skip
    parser.add_argument(
        "--metric", action="append", default=[], metavar="NAME", help="translate: a further metric: ter or chrf++"
    )
    parser.add_argument(
        "--metric-command", action="append", default=[], metavar="NAME=COMMAND",
        help="translate: a program that reads source, translation and references, separated by tabs, on each line, and "
        "writes a number for each, such as COMET in an environment of its own; `compare --metric external.NAME` "
        "compares it",
    )  # fmt: skip
    parser.add_argument(
        "--sentences", type=Path, metavar="FILE", help="translate: write the scores of each sentence, as TSV"
    )
    add_glossary(parser)
    add_json(parser)
    settings.add_options(parser, "decode", without=("n_best",))


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful import backend
    from heedful.commands import terminal
    from heedful.core.errors import InputError
    from heedful.core.plugins import find_metric
    from heedful.runs.run import Run

    run = Run.open(options.run)
    if options.tokenize:
        run.of_task("translate")
        run.config = settings.override(run.config, ["--data.bleu_tokenizer", options.tokenize])
    corpus, task, decode = run.scored_corpus(options.files), run.task, None
    backend.keep_compilations()
    terminal.note_idle_devices()
    if task.decodes_to_score:
        decode = settings.given_options(run.config, "decode", options, scored=False, clients_sample=False)
    elif any(name.startswith("decode.") and value is not None for name, value in vars(options).items()):
        raise InputError(f"Nothing is decoded to score a run of task {task.name!r}: leave the settings out.")
    predictor: Any = task.predictor([run], decode)
    if options.glossary:
        from heedful.data.glossary import Glossary

        run.of_task("translate")
        predictor.glossary = Glossary.read(options.glossary)
    commands = _named_commands(options.metric_command)
    scores_further = bool(options.metric or commands or options.sentences)
    if scores_further:
        run.of_task("translate")
    for name in options.metric:
        find_metric(name)  # an unknown one is reported before anything is translated
    scores = task.evaluate(run, corpus, predictor)
    if scores_further:
        scores = _score_further(run, corpus, scores, options, commands)
    if options.json:
        print(json.dumps(scores, ensure_ascii=False))
        return
    for name, score in scores.items():
        if isinstance(score, (int, float)):
            print(f"{name:26s}{score:.4f}" if isinstance(score, float) else f"{name:26s}{score:,}")
    for name, signature in scores.get("signatures", {}).items():
        print(f"{name + ' signature':26s}{signature}")
    for line in task.details(scores):
        print(line)
    print(task.describe(scores))


def _named_commands(given):
    """Return the commands of further metrics by name."""
    from heedful.core.errors import InputError

    commands = dict(each.partition("=")[::2] for each in given)
    if not all(re.fullmatch(r"\w+", name) and command.strip() for name, command in commands.items()):
        raise InputError("--metric-command is NAME=COMMAND, such as comet='python score.py'.")
    return commands


def _score_further(run, corpus, scores, options, commands):
    """Return scores with those of further metrics; write the scores of each sentence."""
    from heedful.runs.scores.further import add_further, further_counts, translations_of, write_sentences
    from heedful.runs.scores.provenance import counts_of

    form = run.target_tokenizer.normalized
    rows = [(row[0], *map(form, row[1:])) for row in corpus]
    translations = translations_of(run, scores)
    counts, signatures = further_counts(rows, translations, options.metric, commands, run.target_tokenizer.lowercase)
    if counts:
        scores = add_further(run, scores, counts, signatures)
    if options.sentences:
        write_sentences(options.sentences, rows, translations, counts_of(run, scores))
    return scores
