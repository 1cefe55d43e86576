"""heedful diff: list the settings in which two runs or recipes differ."""

import argparse

from heedful.commands.explain import read_config
from heedful.commands.terminal import print_line
from heedful.config import settings
from heedful.core.plugins import find_task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("first", help="a run folder or a recipe")
    parser.add_argument("second", help="another one")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    configs = map(read_config, (options.first, options.second))
    first, second = (settings.flat(find_task(config.task).completed_from(config, config)) for config in configs)
    names = [name for name in first if first[name] != second[name]]
    width = max((len(name) for name in names), default=0)
    for name in names:
        print_line(f"{name:{width}s}  {first[name]!r}  ->  {second[name]!r}")
    if not names:
        print_line("no difference")
    return 0
