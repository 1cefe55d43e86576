"""heedful align: word alignments of translated text, in Pharaoh format."""

import argparse
import sys
from typing import Any

from heedful.commands.arguments import add_run

WINDOW = 1024  # pairs aligned at a time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_run(parser)
    parser.add_argument(
        "files", nargs="*", default=[], metavar="FILE",
        help="source file and target file, or one .tsv file (default: source, tab, target on standard input)",
    )  # fmt: skip
    parser.add_argument(
        "--punctuation", action="store_true",
        help="count punctuation marks as words of their own; by default white space alone separates words",
    )  # fmt: skip
    parser.add_argument(
        "--choose",
        action="store_true",
        help="choose the attention heads anew, on the validation text of the run; without FILE or a pipe, that is all",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    import itertools

    from heedful import backend
    from heedful.commands import terminal
    from heedful.core.errors import InputError, counted
    from heedful.core.progress import note, progress_bar
    from heedful.inference.aligner import Aligner, choose_heads, links_of
    from heedful.runs.run import Run

    run = Run.open(options.run).of_task("translate")
    backend.keep_compilations()
    terminal.note_idle_devices()
    model = run.load_model()
    if options.choose:
        aligner = Aligner(model, run.source_tokenizer, run.target_tokenizer)
        aligner.heads = choose_heads(run, aligner)
        if not aligner.heads.pairs:
            raise InputError(f"The training and validation text of {run.path} cannot be read, so no heads are chosen.")
    else:
        aligner = Aligner.of_run(run, model)
    note(f"aligned by {aligner.heads.signature()}")
    if options.choose and not options.files and (sys.stdin is None or sys.stdin.isatty()):
        return 0
    aligner.cut = 0  # texts by which the heads were chosen do not count
    pairs = iter(_pairs(options.files))
    with progress_bar() as bar:
        shown = bar.add_task("lines", total=None)
        while window := list(itertools.islice(pairs, WINDOW)):
            texts = [tuple(_words(text, options.punctuation) for text in pair[:2]) for pair in window]
            for matrix in aligner(texts):
                sys.stdout.write(" ".join(f"{source}-{target}" for source, target in sorted(links_of(matrix))) + "\n")
            sys.stdout.flush()
            bar.advance(shown, len(window))
    if aligner.cut:
        note(
            f"{counted(aligner.cut, 'text')} had more than the {aligner.max_length - 1:,} tokens that the model reads: "
            "the words beyond these have no links."
        )
    return 0


def _words(text: str, punctuation: bool) -> Any:
    """Return a text with its words."""
    import re

    from heedful.data.markup.aligned_text import AlignedText
    from heedful.data.markup.words import Word

    if punctuation:
        return AlignedText.of(text)
    return AlignedText(text, [Word(*match.span()) for match in re.finditer(r"\S+", text)])


def _pairs(files: Any) -> Any:
    """Yield the pairs of lines to align."""
    from heedful.commands import terminal
    from heedful.core.errors import InputError
    from heedful.data.corpus import Corpus, split_pair

    if files:
        yield from Corpus.from_files(files)
        return
    for number, line in enumerate(terminal.read([]), start=1):
        pair = split_pair(line)
        if pair is None:
            raise InputError(f"line {number}: expected source, tab, target.")
        yield pair
