"""heedful explain: explain a setting, and show where the value in a run came from."""

import argparse
import difflib
from pathlib import Path

from heedful.commands.terminal import print_line
from heedful.config import Config, settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("setting", help="SECTION.KEY, or a section for all of its settings")
    parser.add_argument("where", nargs="?", help="a run folder or a recipe, whose value is shown too")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from heedful.core.errors import InputError

    known = settings.meanings()
    chosen = [name for name in known if name == options.setting or name.startswith(f"{options.setting}.")]
    if not chosen:
        near = difflib.get_close_matches(options.setting, known, 3, 0.5)
        advice = f"did you mean {' or '.join(near)}?" if near else "heedful train --help lists them all."
        raise InputError(f"There is no setting {options.setting!r}: {advice}")
    values, origins = _values(options.where) if options.where else ({}, {})
    for name in chosen:
        kind, default, text = known[name]
        print_line(f"{name}: {kind}, by default {default!r}")
        if text:
            print_line(f"    {text}")
        if options.where:
            came = origins.get(name) or ("the default" if values[name] == default else _origin_unknown(options.where))
            print_line(f"    in {options.where}: {values[name]!r}, {came}")
    return 0


def _origin_unknown(where):
    """Return where a setting of a run or a recipe comes from that neither a user nor the recipe has set."""
    return "set by the run itself" if Path(where).is_dir() else "derived from other settings"


def _values(where):
    """Return the settings of a run or a recipe, and where they came from, by their full names."""
    from heedful.config.recipes import find_recipe
    from heedful.runs.run import CONFIG, Run

    values = settings.flat(read_config(where))
    if (Path(where) / CONFIG).is_file():
        return values, Run.open(where).origins()
    return values, settings.origins(find_recipe(where), [])


def read_config(name: str) -> Config:
    """Return the config of a run folder, a recipe file, or a recipe that comes with the package.

    Raises:
        InputError: there is none of that name.
    """
    from heedful.config.recipes import find_recipe
    from heedful.runs.run import CONFIG

    path = Path(name) / CONFIG
    return Config.from_json(path) if path.is_file() else Config.from_toml(find_recipe(name))
