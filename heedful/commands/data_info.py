"""heedful data info: show what a named text is."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("name", help="see `heedful data list`")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful.commands.terminal import print_line
    from heedful.config.named_texts import find

    text = find(options.name)
    size = f"{text.bytes:,} bytes" if text.bytes else "unknown"
    facts = {
        "title": text.title, "layout": text.layout, "licence": text.licence, "citation": text.citation, "url": text.url,
        "size": size, "sha256": text.sha256 or "recorded at the first download",
        "folder": text.folder if text.is_prepared else "not downloaded",
    }  # fmt: skip
    for name, fact in facts.items():
        print_line(f"{name:9s} {fact}")
