"""Validation of input: strict JSON, and dataclasses with checked keys, types and bounds."""

import dataclasses
import difflib
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from heedful.core.errors import InputError


def read_json(path: str | Path) -> Any:
    """Return the content of a JSON file, parsed with `parse_json`; raise `InputError` if it is invalid."""
    try:
        return parse_json(Path(path).read_text(encoding="utf-8"), path)
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: byte {error.start}.") from error


def parse_json(text: str, origin: object) -> Any:
    """Return the content of a JSON text. Repeated keys, NaN and infinities are refused.

    Raises:
        InputError: it is not JSON, is ambiguous, or is nested too deeply; the message names `origin`.
    """

    def unique(pairs):
        table = dict(pairs)
        if len(table) < len(pairs):
            keys = [key for key, _ in pairs]
            raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is repeated")
        return table

    def no_number(name):
        raise ValueError(f"{name} is not allowed")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=no_number)
    except RecursionError as error:
        raise InputError(f"{origin} is not valid JSON: it is nested too deeply.") from error
    except ValueError as error:
        raise InputError(f"{origin} is not valid JSON: {error}.") from error


def from_dict(cls: type, table: Any, origin: str, section: str = "") -> Any:
    """Create a dataclass from a dict, checking every key and type; messages name `origin` and `section`."""
    where = f"{origin}, section [{section}]" if section else origin
    if not isinstance(table, dict):
        raise InputError(f"{where}: expected a table of settings, found {table!r}.")
    fields = {item.name: item for item in dataclasses.fields(cls)}
    hints = typing.get_type_hints(cls)
    values = {}
    for key, value in table.items():
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1, cutoff=0)[0]
            raise InputError(f"{where}: unknown key {key!r}; did you mean {near!r}?")
        if dataclasses.is_dataclass(hints[key]):
            values[key] = from_dict(hints[key], value, origin, f"{section}.{key}" if section else key)
        else:
            values[key] = _typed(value, hints[key], f"{where}: {key}")
    try:
        return cls(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _typed(value, hint, where):
    """Return `value` as the type `hint`; raise `InputError` if its type does not match."""
    kind = typing.get_origin(hint)
    if kind is Literal:
        if value in typing.get_args(hint):
            return value
        raise InputError(f"{where} = {value!r} is not one of {', '.join(map(repr, typing.get_args(hint)))}.")
    if kind is tuple:
        item_type = typing.get_args(hint)[0]
        values = [value] if type(value) is item_type else value
        if isinstance(values, list) and all(type(item) is item_type for item in values):
            return tuple(values)
        raise InputError(f"{where} = {value!r} is not a list of {'texts' if item_type is str else 'whole numbers'}.")
    if kind in (typing.Union, types.UnionType):
        if value is None and type(None) in typing.get_args(hint):
            return None
        first, *others = (item for item in typing.get_args(hint) if item is not type(None))
        words = [word for other in others for word in typing.get_args(other)]  # literals allowed instead of a value
        if value in words:
            return value
        if words and type(value) is not first:
            raise InputError(f"{where} = {value!r} is not {_TYPE_NAMES[first]}, nor {' or '.join(map(repr, words))}.")
        return _typed(value, first, where)
    if hint is float and type(value) is int and abs(value) < 1e300:
        value = float(value)
    if type(value) is not hint:
        raise InputError(f"{where} = {value!r} is not {_TYPE_NAMES[hint]}.")
    if hint is float and not math.isfinite(value):
        raise InputError(f"{where} = {value!r} is not a finite number.")
    return value


_TYPE_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
}


def require_texts(texts: Iterable[str]) -> Iterable[str]:
    """Return an iterable of strings; refuse a single string, which is an iterable of its characters.

    Raises:
        InputError: it is a string.
    """
    if isinstance(texts, str):
        raise InputError("This takes a list of texts; put a single text into brackets: [text].")
    return texts


def require_text(text: str) -> str:
    """Return a string; refuse anything else, such as a list of strings.

    Raises:
        InputError: it is not a string.
    """
    if not isinstance(text, str):
        raise InputError(f"This takes a single text, not {type(text).__name__}.")
    return text


def flat_table(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested dicts by their names, joined by full stops: `train.seed`."""
    values: dict[str, Any] = {}
    for name, value in table.items():
        values |= flat_table(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return values


def positive(config: Any, *names: str) -> None:
    """Refuse a config unless each of its settings `names` is above 0."""
    for name in names:
        if not getattr(config, name) > 0:
            raise InputError(f"{name} ({getattr(config, name)}) must be greater than 0.")


def at_least(config: Any, bound: float, *names: str) -> None:
    """Refuse a config unless each of its settings `names` is `bound` or more."""
    for name in names:
        if not getattr(config, name) >= bound:
            raise InputError(f"{name} ({getattr(config, name)}) must be at least {bound}.")


def at_most(config: Any, **bounds: float) -> None:
    """Refuse a config if a setting is above its bound, which no machine could handle. None is allowed."""
    for name, bound in bounds.items():
        value = getattr(config, name)
        if value is not None and value > bound:
            raise InputError(f"{name} ({value}) must be at most {bound}.")


def fraction(config: Any, *names: str) -> None:
    """Refuse a config unless each of its settings `names` is at least 0 and less than 1."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise InputError(f"{name} ({getattr(config, name)}) must be at least 0 and less than 1.")


def named_number(text: str, setting: str) -> tuple[str, float]:
    """Return name and number of a text NAME=NUMBER; raise `InputError` if it is none, or if the number is negative."""
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not name.strip() or not 0 <= value < math.inf:
        raise InputError(f"{setting}: {text!r} is not NAME=NUMBER with a number from 0 on.")
    return name.strip(), value
