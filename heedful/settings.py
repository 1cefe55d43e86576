"""Settings on the command line: `--section.key value`, checked as a recipe's keys are, and their description."""

import ast
import dataclasses
import itertools
import tomllib
import typing
from pathlib import Path

from heedful.config import Config, from_dict
from heedful.errors import InputError


def override(config, arguments):
    """Return a config with `--section.key value` arguments applied, checked as a recipe's keys are.

    Raises:
        InputError: an unknown key, a value of the wrong kind or out of range, a flag without a value.
    """
    table = dataclasses.asdict(config)
    if any(argument.startswith("--model.size") for argument in arguments):
        for name in ("num_layers", "d_model", "num_heads", "d_ff"):
            table["model"][name] = None  # a new size brings its own
    words = [word for argument in arguments for word in _split_flag(argument)]
    for flag, value in zip(words[::2], [*words[1::2], None], strict=False):
        if not flag.startswith("--"):
            raise InputError(f"Unexpected argument {flag!r}.")
        if value is None:
            raise InputError(f"{flag} needs a value.")
        *sections, key = flag.removeprefix("--").split(".")
        place = table
        for section in sections:
            if not isinstance(place.get(section), dict):
                raise InputError(f"Unknown setting {flag}; the sections are {', '.join(_sections())}.")
            place = place[section]
        place[key] = _value(value)
    return from_dict(Config, _lists(table), "command line")


def take(arguments):
    """Split the arguments of `train` into its own and the settings, `--section.key value` and `--name value`."""
    own, overrides = [], []
    waiting = iter(arguments)
    for argument in waiting:
        flag = argument.split("=", 1)[0]
        if flag.startswith("--") and ("." in flag or flag == "--name"):
            overrides.append(argument)
            if "=" not in argument:
                overrides.extend(itertools.islice(waiting, 1))
        else:
            own.append(argument)
    return own, overrides


def _split_flag(argument):
    return argument.split("=", 1) if argument.startswith("--") and "=" in argument else [argument]


def _value(text):
    """Read a value as TOML does; what is no TOML value is a text."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _lists(table):
    return {
        key: _lists(value) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else value
        for key, value in table.items()
    }


def _sections():
    return [item.name for item in dataclasses.fields(Config) if dataclasses.is_dataclass(item.type)]


def describe():
    """Yield a line for each setting: name, default, meaning (the text under the field in config.py)."""
    source = (Path(__file__).parent / "config.py").read_text(encoding="utf-8")
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    hints = typing.get_type_hints(Config)
    for section in _sections():
        body = classes[hints[section].__name__].body
        defaults = hints[section]()
        for node, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign):
                name = node.target.id
                text = ""
                if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                    text = " ".join(following.value.value.split())
                default = getattr(defaults, name)
                kind = ast.unparse(node.annotation).replace("Literal", "")
                yield f"  --{section}.{name:22s} {kind} (default {default!r})" + (f"  {text}" if text else "")
