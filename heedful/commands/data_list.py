"""heedful data list: list the texts that can be downloaded by name."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = (
        "Set data.corpus in a recipe to one of these names, after `heedful data get NAME`. Also accepted: every "
        "corpus of OPUS (opus:Books/v1/de-en), data sets of the Hugging Face hub in Parquet (hf:OWNER/NAME@REVISION, "
        "with /CONFIG where there are several), and the test sets of sacrebleu (sacrebleu:wmt24/en-de)."
    )


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from heedful.commands.terminal import print_line
    from heedful.config.named_texts import registry

    for text in registry().values():
        state = "downloaded" if text.is_prepared else ""
        print_line(f"{text.name:18s} {text.layout:10s} {text.title:42s} {state}".rstrip())
