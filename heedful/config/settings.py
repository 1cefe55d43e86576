"""Settings on the command line (`--section.key value`), checked like the keys of a recipe, and their description."""

import argparse
import ast
import dataclasses
import difflib
import functools
import inspect
import json
import tomllib
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful.config import SET_BY_SIZE, Config, read_recipe
from heedful.config.format_1 import RENAMED
from heedful.config.languages import languages_of
from heedful.core.errors import InputError
from heedful.core.validation import flat_table, from_dict

COMMAND_LINE = "command line"  # the origin of a setting
# Settings of a recipe that are dropped when the command line has the key: they belong to the value that it replaces.
REPLACED = {
    "model.size": tuple(f"model.{name}" for name in SET_BY_SIZE),
    "data.corpus": tuple(f"data.{name}" for name in ("train", "valid", "test", "origin", "general", "general_valid")),
    "data.batch_tokens": ("data.batch_sentences",),  # it would take precedence
}


def override(config: Config, arguments: Sequence[str]) -> Config:
    """Return a config with `--section.key value` arguments applied, checked like the keys of a recipe.

    Raises:
        InputError: an unknown key, a value of the wrong type or out of range, or a flag without a value.
    """
    return of_table(_lists(dataclasses.asdict(config)), arguments)


def of_recipe(path: str | Path, arguments: Sequence[str]) -> Config:
    """Return the config of a recipe with arguments applied as in `override`, before dependent settings are derived.

    Raises:
        InputError: as in `override`, or the recipe itself is invalid.
    """
    recipe = Config.from_toml(path)  # so that an error in the recipe itself names the recipe
    if not arguments:
        return recipe
    config = of_table(read_recipe(path), arguments)
    before, after = languages_of(recipe), languages_of(config)
    if config.data.corpus != recipe.data.corpus and all(after) and after == before[::-1] != before:
        raise InputError(
            f"The recipe {recipe.name} is for {' to '.join(before)}, but {config.data.corpus} is {' to '.join(after)}."
        )
    return config


def of_table(table: dict[str, Any], arguments: Sequence[str] = ()) -> Config:
    """Return the config of a table like that of a recipe, to which arguments are applied as in `override`, in place."""
    given = list(_pairs(arguments))
    for name in _replaced(table, given):
        section, _, key = name.partition(".")
        del table[section][key]
    for name, text in given:
        *path, key = name.split(".")
        kind: Any = Config
        section_table = table
        for section in path:
            kind = typing.get_type_hints(kind).get(section)
            if not dataclasses.is_dataclass(kind):
                near = difflib.get_close_matches(name, meanings(), 1)
                advice = f"did you mean --{near[0]}?" if near else f"the sections are {', '.join(sections())}."
                raise InputError(f"Unknown setting --{name}; {advice}")
            section_table = section_table.setdefault(section, {})
        if name in RENAMED:
            raise InputError(f"--{name} is now called --{RENAMED[name]}.")
        section_table[key] = _value(text, typing.get_type_hints(kind).get(key))
    return Config.from_table(table, COMMAND_LINE)


def _replaced(table: Mapping[str, Any], given: Iterable[tuple[str, str]]) -> list[str]:
    """Return the full names of the settings in a recipe's table that given pairs of name and text replace."""
    names = dict(given)
    corpus = names.get("data.corpus")
    if corpus is not None and _value(corpus, str) == table.get("data", {}).get("corpus", "files"):
        del names["data.corpus"]  # it is that of the recipe
    written = {f"{section}.{key}" for section, keys in table.items() if isinstance(keys, dict) for key in keys}
    return [name for given_name in names for name in REPLACED.get(given_name, ()) if name in written - names.keys()]


def as_arguments(values: Mapping[str, Any]) -> list[str]:
    """Return settings by their full names as arguments, as `override` takes them; None is left out."""
    return [f"--{name}={toml(value)}" for name, value in values.items() if value is not None]


def given_names(arguments: Sequence[str]) -> list[str]:
    """Return the full names of the settings in arguments as in `override`."""
    return [name for name, _ in _pairs(arguments)]


def given_values(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the values in arguments as in `override`, by full name; those of unknown settings are parsed as TOML."""
    kinds = {f"{section}.{name}": kind for section in sections() for name, kind in _kinds(section).items()}
    return {name: _value(text, kinds.get(name)) for name, text in _pairs(arguments)}


def flat(config: Config) -> dict[str, Any]:
    """Return all settings of a config by their full names."""
    return flat_table(dataclasses.asdict(config))


def changed(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two configs differ: by full name, the old and the new value."""
    before = flat(old)
    return {name: (before[name], value) for name, value in flat(new).items() if before[name] != value}


def origins(recipe: str | Path | None, arguments: Sequence[str]) -> dict[str, str]:
    """Return where settings come from, by full name: the recipe at a path, or arguments as in `override`.

    Sizes that neither sets come from `model.size`. Settings that are not in the result have their defaults.
    """
    came_from: dict[str, str] = {}
    pairs = list(_pairs(arguments))
    if recipe:
        table = read_recipe(recipe)
        for section, values in table.items():
            names = [f"{section}.{key}" for key in values] if isinstance(values, dict) else [section]
            came_from |= dict.fromkeys(names, f"recipe {Path(recipe).name}")
        for name in _replaced(table, pairs):
            del came_from[name]
    given = dict.fromkeys((name for name, _ in pairs), COMMAND_LINE)
    came_from |= given
    if recipe or "model.size" in given:
        origin_of_sizes = f"model.size, {came_from.get('model.size', 'the default')}"
        came_from = dict.fromkeys(REPLACED["model.size"], origin_of_sizes) | came_from
    return came_from


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of a command into its options and its settings (`--section.key value`, `--name value`)."""
    options: list[str] = []
    overrides: list[str] = []
    wants_value = False
    for argument in arguments:
        flag, equals, _ = argument.partition("=")
        if flag.startswith("--"):  # never the value of the previous flag
            is_setting = "." in flag or flag == "--name"
            (overrides if is_setting else options).append(argument)
            wants_value = is_setting and not equals
        else:
            (overrides if wants_value else options).append(argument)
            wants_value = False
    return options, overrides


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of name and text; raise `InputError` if either is missing."""
    words = iter(arguments)
    for word in words:
        flag, equals, value = word.partition("=")
        if not flag.startswith("--"):
            raise InputError(f"Unexpected argument {word!r}.")
        if not equals:
            following = next(words, None)
            if following is None or following.startswith("--"):
                raise InputError(f"{flag} needs a value; write one that begins with two dashes as {flag}=VALUE.")
            value = following
        yield flag.removeprefix("--"), value


def _value(text: str, kind: Any) -> Any:
    """Parse a TOML value. Text that is not TOML is a string; so is any single value where `kind` expects strings."""
    try:
        value = tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):  # not TOML, or too many digits or brackets for Python
        return text
    wants_text = kind is str or (typing.get_origin(kind) is tuple and typing.get_args(kind)[0] is str)
    return text if wants_text and not isinstance(value, (str, list)) else value


def _lists(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _lists(value) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else value
        for key, value in table.items()
    }


def names_in(table: Mapping[str, Any]) -> list[str]:
    """Return the full names of the settings in the sections of a recipe's table."""
    return [f"{section}.{key}" for section, each in table.items() if isinstance(each, Mapping) for key in each]


def recipe_toml(values: Mapping[str, Any], comments: Mapping[str, str] | None = None, head: Sequence[str] = ()) -> str:
    """Return settings as a recipe.

    Args:
        values: by full name, in the order to write within each section. None in a section is left out.
        comments: of settings. A comment equal to that of the preceding setting is not repeated.
        head: lines of a comment at the top.
    """
    comments = comments or {}
    lines = [f"# {line}" for line in head]
    lines += [f"{name} = {toml(value)}" for name, value in values.items() if "." not in name]
    for section in sections():
        members = [name for name in values if name.startswith(f"{section}.") and values[name] is not None]
        lines += ["", f"[{section}]"] if members else []
        before = ""
        for name in members:
            comment = comments.get(name, "")
            lines += [f"# {comment}"] if comment not in ("", before) else []
            before = comment
            lines.append(f"{name.partition('.')[2]} = {toml(values[name])}")
    return "\n".join(lines) + "\n"


def toml(value: Any) -> str:
    """Return a value of a setting in TOML, whose numbers, truth values and texts look as in JSON."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _kinds(section: str) -> dict[str, Any]:
    """Return the types of the settings of a section."""
    return typing.get_type_hints(typing.get_type_hints(Config)[section])


def sections() -> list[str]:
    """Return the names of the sections of a recipe."""
    return [item.name for item in dataclasses.fields(Config) if dataclasses.is_dataclass(item.type)]


def describe() -> Iterator[str]:
    """Yield a line for each setting: name, type, default, meaning."""
    for name, (kind, default, text) in meanings().items():
        if name == "task":
            continue  # only a recipe sets it: other settings depend on it
        yield f"  --{name:30s} {kind} (default {default!r})" + (f"  {text}" if text else "")


@functools.cache
def meanings() -> dict[str, list[Any]]:
    """Return type, default and meaning of every setting by its full name: `task`, `train.learning_rate`, ..."""
    whole = {name: rest for name, *rest in _fields_of(Config, Config) if name in ("task", "name")}
    return whole | {f"{section}.{name}": rest for section in sections() for name, *rest in _fields(section)}


def add_options(parser: argparse.ArgumentParser, section: str, without: Sequence[str] = ()) -> None:
    """Add an option to a parser for each setting of a section, except `without`: `beam_size` becomes `--beam-size`."""
    group = parser.add_argument_group(f"override the run's [{section}] settings for this call")
    for name, kind, _, text in _fields(section):
        if name in without:
            continue
        # `--sample` and `--no-sample`, since the run may have set either.
        options = {"action": argparse.BooleanOptionalAction} if kind == "bool" else {"metavar": "VALUE"}
        flag = f"--{name.replace('_', '-')}"
        group.add_argument(flag, dest=f"{section}.{name}", help=(text or kind).replace("%", "%%"), **options)


def given_options(config: Config, section: str, options: argparse.Namespace, **search_facts: bool) -> Any:
    """Return a section of a config, updated with the given options of `add_options` and checked.

    `search_facts` are further arguments of `DecodeConfig.refuse_idle`.

    Raises:
        InputError: a value of the wrong type or out of range, or values that contradict each other.
    """
    given = option_values(section, options)
    updated = with_values(getattr(config, section), given)
    if section == "decode":
        updated.refuse_idle(given, **search_facts)
    return updated


def option_values(section: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the given options of `add_options` by the names of their settings."""
    kinds = _kinds(section)
    return {
        name: value if isinstance(value, bool) else _value(value, kinds[name])
        for name in kinds
        if (value := getattr(options, f"{section}.{name}", None)) is not None
    }


def with_values(section: Any, values: Mapping[str, Any]) -> Any:
    """Return a section of a config with other values of some settings, checked like the keys of a recipe."""
    return from_dict(type(section), _lists({**dataclasses.asdict(section), **values}), COMMAND_LINE)


def _fields(section: str) -> Iterator[tuple[str, str, Any, str]]:
    kind = typing.get_type_hints(Config)[section]
    return _fields_of(kind, kind())


def _fields_of(kind_of_section: type, defaults: Any) -> Iterator[tuple[str, str, Any, str]]:
    """Yield name, type, default and meaning (the docstring under the field) of a section's settings."""
    texts = _texts_of(kind_of_section)
    for item in dataclasses.fields(kind_of_section):
        annotation, text = texts[item.name]  # Literal['a', 'b'] is shown as ['a', 'b']
        yield item.name, annotation.replace("Literal", ""), getattr(defaults, item.name, None), text


def _texts_of(kind_of_section: type) -> dict[str, tuple[str, str]]:
    """Return annotation and docstring of each field of a dataclass, including inherited ones."""
    texts: dict[str, tuple[str, str]] = {}
    for kind in reversed(kind_of_section.__mro__[:-1]):
        body = _classes_in(inspect.getsourcefile(kind))[kind.__name__].body
        for node, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                text = texts.get(node.target.id, ("", ""))[1]  # a redeclared field keeps its docstring
                if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                    text = " ".join(str(following.value.value).split())
                texts[node.target.id] = ast.unparse(node.annotation), text
    return texts


@functools.cache
def _classes_in(path: str) -> dict[str, ast.ClassDef]:
    source = Path(path).read_text(encoding="utf-8")
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
