"""Settings on the command line: `--section.key value`, checked as a recipe's keys are, and their description."""

import argparse
import ast
import dataclasses
import functools
import inspect
import tomllib
import typing
from pathlib import Path

from heedful.checked import from_dict
from heedful.config import SIZED, Config, read_recipe
from heedful.errors import InputError


def override(config, arguments):
    """Return a config with `--section.key value` arguments applied, checked as a recipe's keys are.

    Raises:
        InputError: an unknown key, a value of the wrong kind or out of range, a flag without a value.
    """
    return _overridden(_lists(dataclasses.asdict(config)), arguments)


def of_recipe(path, arguments):
    """Return the config of a recipe with arguments applied as in `override`; settings that depend on them follow.

    Raises:
        InputError: as `override`, or the recipe itself is wrong.
    """
    config = Config.from_toml(path)  # which names the recipe where that is wrong by itself
    return _overridden(read_recipe(path), arguments) if arguments else config


def _overridden(table, arguments):
    given = list(_pairs(arguments))
    if "--model.size" in dict(given):
        for name in SIZED:
            table.get("model", {}).pop(name, None)  # a new size brings its own
    for flag, text in given:
        *sections, key = flag.removeprefix("--").split(".")
        kind, place = Config, table
        for section in sections:
            kind = typing.get_type_hints(kind).get(section)
            if not dataclasses.is_dataclass(kind):
                raise InputError(f"Unknown setting {flag}; the sections are {', '.join(_sections())}.")
            place = place.setdefault(section, {})
        place[key] = _value(text, typing.get_type_hints(kind).get(key))
    return from_dict(Config, table, "command line")


def flat(config):
    """Return every setting of a config by its full name."""
    found = {}
    for section, values in dataclasses.asdict(config).items():
        if isinstance(values, dict):
            found |= {f"{section}.{name}": value for name, value in values.items()}
        else:
            found[section] = values
    return found


def changed(old, new):
    """Return the full names of the settings in which two configs differ."""
    before = flat(old)
    return [name for name, value in flat(new).items() if before[name] != value]


def origins(recipe, arguments):
    """Return where settings come from, by their full names: those of a recipe's path, and overrides as in `override`.

    Sizes that neither names come from `model.size`; settings without an origin have their default.
    """
    found = {}
    for section, values in (read_recipe(recipe) if recipe else {}).items():
        names = [f"{section}.{key}" for key in values] if isinstance(values, dict) else [section]
        found |= dict.fromkeys(names, f"recipe {Path(recipe).name}")
    given = {flag.removeprefix("--"): "command line" for flag, _ in _pairs(arguments)}
    sizes = [f"model.{name}" for name in SIZED]
    if "model.size" in given:  # brings its own
        found = {name: origin for name, origin in found.items() if name not in sizes}
    found |= given
    if recipe or "model.size" in given:
        came = f"model.size, {found.get('model.size', 'the default')}"
        found = dict.fromkeys(sizes, came) | found
    return found


def take(arguments):
    """Split the arguments of `train` into its own and the settings, `--section.key value` and `--name value`."""
    own, overrides, wants_value = [], [], False
    for argument in arguments:
        flag, together, _ = argument.partition("=")
        if flag.startswith("--"):  # never the value of the flag before, which then lacks one
            is_setting = "." in flag or flag == "--name"
            (overrides if is_setting else own).append(argument)
            wants_value = is_setting and not together
        else:
            (overrides if wants_value else own).append(argument)
            wants_value = False
    return own, overrides


def _pairs(arguments):
    """Yield flags and their values; `InputError` where one lacks the other."""
    words = iter(arguments)
    for word in words:
        flag, together, value = word.partition("=")
        if not flag.startswith("--"):
            raise InputError(f"Unexpected argument {word!r}.")
        if not together:
            value = next(words, "--")
            if value.startswith("--"):
                raise InputError(f"{flag} needs a value; one that begins with two dashes goes as {flag}=VALUE.")
        yield flag, value


def _value(text, kind):
    """Read a value as TOML does; what is no TOML value is a text, and so is any number where `kind` asks for texts."""
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):  # no TOML, or more digits or brackets than Python reads
        return text
    wants_text = kind is str or typing.get_origin(kind) is tuple
    return text if wants_text and not isinstance(value, (str, list)) else value


def _lists(table):
    return {
        key: _lists(value) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else value
        for key, value in table.items()
    }


def _sections():
    return [item.name for item in dataclasses.fields(Config) if dataclasses.is_dataclass(item.type)]


def describe():
    """Yield a line for each setting: name, kind, default, meaning."""
    for name, (kind, default, text) in meanings().items():
        if name == "task":
            continue  # only a recipe sets it: other settings depend on it
        yield f"  --{name:30s} {kind} (default {default!r})" + (f"  {text}" if text else "")


def meanings():
    """Return kind, default and meaning of every setting by its full name: `task`, `train.learning_rate`, ..."""
    whole = {name: rest for name, *rest in _fields_of(Config, Config) if name in ("task", "name")}
    return whole | {f"{section}.{name}": rest for section in _sections() for name, *rest in _fields(section)}


def add_options(parser, section, without=()):
    """Give a verb's parser an option for each setting of a section but some: `beam_size` becomes `--beam-size`."""
    group = parser.add_argument_group(f"settings of the run's section [{section}] for this call")
    for name, kind, _, text in _fields(section):
        if name in without:
            continue
        # As `--sample` and `--no-sample`, for a run may have the other.
        options = {"action": argparse.BooleanOptionalAction} if kind == "bool" else {"metavar": "VALUE"}
        flag = f"--{name.replace('_', '-')}"
        group.add_argument(flag, dest=f"{section}.{name}", help=(text or kind).replace("%", "%%"), **options)


def given_options(config, section, options):
    """Return the section of a config with the options of `add_options` that were given, checked.

    Raises:
        InputError: a value of the wrong kind or out of range, or values that contradict each other.
    """
    old = getattr(config, section)
    kinds = typing.get_type_hints(type(old))
    given = {
        name: value if isinstance(value, bool) else _value(value, kinds[name])
        for name in kinds
        if (value := getattr(options, f"{section}.{name}", None)) is not None
    }
    made = from_dict(type(old), _lists(dataclasses.asdict(old) | given), "command line")
    if section == "decode":
        made.refuse_idle(given)
    return made


def _fields(section):
    kind = typing.get_type_hints(Config)[section]
    return _fields_of(kind, kind())


def _fields_of(kind_of_section, defaults):
    """Yield name, kind, default and meaning (the text under the field in config.py) of a section's settings."""
    meanings = _texts_of(kind_of_section)
    for item in dataclasses.fields(kind_of_section):
        annotation, text = meanings[item.name]
        yield item.name, annotation.replace("Literal", ""), getattr(defaults, item.name, None), text


def _texts_of(kind_of_section):
    """Return annotation and docstring of each field of a dataclass, those that it inherits included."""
    found = {}
    for kind in reversed(kind_of_section.__mro__[:-1]):
        body = _classes_in(inspect.getsourcefile(kind))[kind.__name__].body
        for node, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign):
                text = found.get(node.target.id, ("", ""))[1]  # a field that is declared again keeps its docstring
                if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                    text = " ".join(following.value.value.split())
                found[node.target.id] = ast.unparse(node.annotation), text
    return found


@functools.cache
def _classes_in(path):
    source = Path(path).read_text(encoding="utf-8")
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
