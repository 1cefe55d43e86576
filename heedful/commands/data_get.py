"""heedful data get: download a named text."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("name", help="see `heedful data list`; also opus:..., hf:... and sacrebleu:...")
    parser.add_argument("--accept-licence", action="store_true", help="consent to a licence that asks for it")
    parser.epilog = (
        "The text goes to the folder texts/ in HEEDFUL_CACHE. An interrupted download continues. With HEEDFUL_MIRROR, "
        "http://host/path is read from HEEDFUL_MIRROR/host/path."
    )


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful.commands.terminal import print_line
    from heedful.core.progress import note, progress_bar
    from heedful.data.texts.preparation import get

    with progress_bar() as bar:
        shown = bar.add_task("bytes", total=None)
        folder = get(
            options.name, note, lambda done, size: bar.update(shown, completed=done, total=size), options.accept_licence
        )
    print_line(str(folder))
