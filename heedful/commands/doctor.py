"""heedful doctor: examine text."""

import argparse
import functools
import json
from pathlib import Path

from heedful.commands.arguments import add_json
from heedful.core.errors import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "text", nargs="+",
        help="a recipe or a run folder, or files: two parallel ones, a .tsv, or files with a text on each line",
    )  # fmt: skip
    parser.add_argument("--valid", nargs="+", default=[], metavar="FILE", help="validation text, in the same form")
    parser.add_argument("--test", nargs="+", default=[], metavar="FILE", help="test text, in the same form")
    parser.add_argument("--labelled", action="store_true", help="each line is a label, a tab or a space, and a text")
    parser.add_argument("--ignore", nargs="+", default=[], metavar="KIND", help="kinds of findings to leave out")
    parser.add_argument("--fix", type=Path, metavar="FOLDER", help="write a cleaned copy, and a report of the changes")
    add_json(parser)
    parser.epilog = "Exit code 1 if training would refuse the text. Training runs the same examination (train.examine)."


def run(options: argparse.Namespace) -> int:
    """Run the command; return 1 if training would refuse the text."""
    from heedful.commands.terminal import print_line, report_progress, warn
    from heedful.core.errors import InputError
    from heedful.core.progress import progress_bar
    from heedful.data.doctor.cleaning import REPORT, clean
    from heedful.data.doctor.examination import examine
    from heedful.data.doctor.findings import REFUSED

    parts, tokenizers = _texts(options)
    if "train" not in parts:
        raise InputError(f"{options.text[0]} names no text of its own.")
    text = parts.pop("train")
    with progress_bar() as bar:
        shown = bar.add_task("rows", total=None)
        advance = functools.partial(bar.update, shown)
        examination = examine(text, parts, tokenizers, lambda done, total: advance(completed=done, total=total))
    examination.findings = [finding for finding in examination.findings if finding.kind not in options.ignore]
    if options.json:
        print(json.dumps(examination.as_dict(), indent=2))
    else:
        for line in examination.lines():
            (report_progress if options.fix else print_line)(line)
    if options.fix:
        kept, repaired, removed = clean(text, examination, options.fix)
        report = warn if options.json else report_progress
        report(
            f"{counted(kept, 'row')} as they were, {repaired:,} repaired, {removed:,} removed: "
            f"see {options.fix / REPORT}"
        )
    return int(not examination.rows or any(finding.kind in REFUSED for finding in examination.findings))


def _texts(options):
    """Return the texts by part, from a recipe, a run or files, and the tokenizers of a run."""
    from heedful.commands.explain import read_config
    from heedful.config import DataConfig
    from heedful.core.errors import InputError
    from heedful.core.plugins import find_task
    from heedful.data.bilingual_files import has_both_sides
    from heedful.data.doctor.findings import FAULTS
    from heedful.data.doctor.rows import Rows
    from heedful.runs.run import CONFIG, Run

    if unknown := [kind for kind in options.ignore if kind not in FAULTS]:
        raise InputError(f"{unknown[0]!r} is not one of the kinds {', '.join(map(repr, FAULTS))}.")
    first = Path(options.text[0])
    if len(options.text) == 1 and (first.is_dir() or (first.suffix in ("", ".toml") and not _is_text(first))):
        if options.valid or options.test or options.labelled:
            raise InputError("A recipe or run names its own texts: no --valid, --test or --labelled.")
        config = read_config(options.text[0])
        tokenizers = Run.open(first).tokenizers() if (first / CONFIG).is_file() else ()
        return Rows.of_config(config.data, find_task(config.task).text_layout(config.data)), tokenizers
    data = DataConfig(
        train=tuple(options.text), valid=tuple(options.valid), test=tuple(options.test), documents="lines"
    )
    tables = list(filter(has_both_sides, options.text))
    if len(tables) > 1 and not options.labelled:
        raise InputError(f"{tables[0]} has both sides of a text: examine one at a time.")
    pairs = len(options.text) == 2 or bool(tables)
    return Rows.of_config(data, "labelled" if options.labelled else "pairs" if pairs else "lines"), ()


def _is_text(path):
    return path.suffix != ".toml" and path.is_file()
