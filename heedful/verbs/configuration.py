"""The verbs that say what a run is: explain a setting, compare two configurations."""

import difflib
from pathlib import Path

from heedful import settings
from heedful.config import Config
from heedful.errors import InputError
from heedful.recipes import find_recipe
from heedful.run import CONFIG, Run
from heedful.verbs.lines import say


def explain(options):
    """Say what a setting, or every setting of a section, means."""
    known = settings.meanings()
    chosen = [name for name in known if name == options.setting or name.startswith(f"{options.setting}.")]
    if not chosen:
        near = difflib.get_close_matches(options.setting, known, 3, 0.5)
        advice = f"did you mean {' or '.join(near)}?" if near else "heedful train --help lists them all."
        raise InputError(f"There is no setting {options.setting!r}: {advice}")
    values, origins = _values(options.where) if options.where else ({}, {})
    for name in chosen:
        kind, default, text = known[name]
        say(f"{name}: {kind}, by default {default!r}")
        if text:
            say(f"    {text}")
        if options.where:
            came = origins.get(name) or ("the default" if values[name] == default else "set by the run itself")
            say(f"    in {options.where}: {values[name]!r}, {came}")
    return 0


def _values(where):
    """Return the settings of a run or a recipe, and where they came from, by their full names."""
    values = settings.flat(read_config(where))
    if (Path(where) / CONFIG).is_file():
        return values, Run.open(where).origins()
    return values, settings.origins(find_recipe(where), [])


def diff(options):
    """Say in which settings two configurations differ."""
    configs = map(read_config, (options.first, options.second))
    first, second = (settings.flat(config.planned_as(config)) for config in configs)
    names = [name for name in first if first[name] != second[name]]
    width = max((len(name) for name in names), default=0)
    for name in names:
        say(f"{name:{width}s}  {first[name]!r}  ->  {second[name]!r}")
    if not names:
        say("no difference")
    return 0


def read_config(name):
    """Return the config of a run folder, a recipe file, or a recipe that comes with the package.

    Raises:
        InputError: there is none of that name.
    """
    path = Path(name) / CONFIG
    return Config.from_json(path) if path.is_file() else Config.from_toml(find_recipe(name))
