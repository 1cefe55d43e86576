"""Reading requests: size and time limits, types of fields, and answers that say what is wrong."""

import asyncio
import concurrent.futures
import dataclasses
import difflib
import itertools
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request

from heedful.core.errors import counted
from heedful.data.sentences import Pieces

BODY_SECONDS = 10.0  # time limit for a whole body to arrive
FORM, JSON = "application/x-www-form-urlencoded", "application/json"
RETRY_AFTER = "1"  # seconds


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a request may ask for."""

    body_bytes: int = 1 << 20
    document_bytes: int = 10 << 20
    """Of a document."""
    lines: int = 256
    """Texts, or lines of texts, in a request."""
    characters: int = 20_000
    """Characters of a text."""
    tokens: int = 1024
    """Tokens that an OpenAI request may ask for."""
    alternatives: int = 8
    seconds: float = 60.0
    """Within which a request is answered."""


class Refused(Exception):
    """A request that is answered with an error.

    Args:
        status: HTTP status code.
        message: for the client.
        headers: of the answer.
    """

    def __init__(self, status: int, message: str, **headers: str):
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a request: its type, its default, and its bounds if it is a number."""

    kind: Any
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    ignored: bool = False
    """Accepted for the sake of clients that send it; it has no effect."""
    noted: bool = False
    """Whether a `Warning` header reports that it was ignored, since the client may rely on it."""


IGNORED, CUT, KEY_CHECK = "heedful.ignored", "heedful.cut", "heedful.key_check"  # keys of the state of a scope
MAX_WARNINGS, MAX_NAME_LENGTH = 12, 40  # ignored names or warnings per answer; characters per name
MAX_NAMES = 200  # fields of a request that are compared with the known ones
MISSPELT = 0.75  # similarity from which an unknown field is a misspelt one
NUMBER, TEXT, TEXTS, FLAG, WHOLE, ANY = "number", "text", "texts", "flag", "whole", "any"


async def read_body(request: Request, limits: Limits, size: int = 0) -> bytes:
    """Return the body of a request; `Refused` if it is larger than `size` or the limit (413), or too slow (408)."""
    size = size or limits.body_bytes
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > size:
        raise Refused(413, f"The body exceeds {size:,} bytes.")
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                content += part
                if len(content) > size:
                    raise Refused(413, f"The body exceeds {size:,} bytes.")
    except ClientDisconnect:
        raise Refused(499, "The client has left.") from None
    except TimeoutError:
        raise Refused(408, f"The body did not arrive within {BODY_SECONDS:.0f} seconds.") from None
    return bytes(content)


async def read_fields(
    request: Request, fields: Mapping[str, Field], limits: Limits, forms: bool = False
) -> dict[str, Any]:
    """Return the checked fields of a request; fields that are not given have their default.

    Args:
        request: with a body in JSON or, with `forms`, of an HTML form.
        fields: by name.
        limits: of the body.
        forms: whether a form is accepted.

    Raises:
        Refused: the body is too large, has another type, or is not a JSON object; a field is misspelt or has a wrong
            type. Other unknown fields are ignored, and a `Warning` header says so, since clients may be newer than the
            server.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON and not (forms and kind == FORM):
        raise Refused(415, f"The content type must be {JSON}{f' or {FORM}' if forms else ''}.")
    body = await read_body(request, limits)
    given = _from_form(body, fields) if kind == FORM else _from_json(body)
    require_key(request, given)
    for name in itertools.islice(given, MAX_NAMES):
        if name not in fields:
            if near := difflib.get_close_matches(name[:MAX_NAME_LENGTH], fields, 1, MISSPELT):
                raise Refused(422, f"There is no field {name!r}: did you mean {near[0]!r}?")
            note_ignored(request, name)
        elif fields[name].noted:
            note_ignored(request, name)
    return {name: _checked(name, field, given.get(name)) for name, field in fields.items()}


def require_key(request: Request, given: Mapping[str, Any]) -> None:
    """Refuse (403) a request whose key was to be in a field, as that of LibreTranslate, and is not."""
    is_key = request.scope.get("state", {}).get(KEY_CHECK)
    if is_key and not (isinstance(given.get("api_key"), str) and is_key(given["api_key"])):
        raise Refused(403, "An API key is needed, in the field api_key or as a bearer token.")


def note_ignored(request: Request, what: str) -> None:
    """Let the `Warning` header of the answer say that a field, or its value, was ignored."""
    ignored = request.scope.setdefault("state", {}).setdefault(IGNORED, [])
    if len(ignored) < MAX_WARNINGS:
        ignored.append(re.sub(r"[^\w.=-]", "?", what[:MAX_NAME_LENGTH], flags=re.ASCII))


def note_cut(request: Request, pieces: Sequence[Pieces]) -> None:
    """Let `Warning` headers of the answer say which sentences were cut."""
    notes = [note for each in pieces for note in each.notes]
    request.scope.setdefault("state", {})[CUT] = notes[:MAX_WARNINGS]


def note_truncated(request: Request, texts: Sequence[list[int]], max_tokens: int) -> None:
    """Let `Warning` headers of the answer say which texts, given by their ids, are read in part."""
    notes = [
        f"Input {number} has {len(ids)} tokens; only the first {max_tokens} are read."
        for number, ids in enumerate(texts, start=1)
        if len(ids) > max_tokens
    ]
    request.scope.setdefault("state", {})[CUT] = notes[:MAX_WARNINGS]


def warnings_of(scope: Mapping[str, Any]) -> list[str]:
    """Return what was noted of a request, by its ASGI scope: one text for each `Warning` header."""
    state = scope.get("state", {})
    ignored = ", ".join(state.get(IGNORED, []))
    return [*([f"ignored: {ignored}"] if ignored else []), *state.get(CUT, [])]


def _from_json(body):
    try:
        given = json.loads(body, parse_constant=_refuse_nan_or_infinity)
    except (ValueError, RecursionError):
        raise Refused(400, "The body is not JSON.") from None
    if not isinstance(given, dict):
        raise Refused(422, "The body must be a JSON object.")
    return given


def _refuse_nan_or_infinity(text):
    raise ValueError(text)


def _from_form(body, fields):
    """Return the fields of a form, converted to their types."""
    try:
        given = parse_qs(body.decode("utf-8"), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=10_000)
    except ValueError:
        raise Refused(400, "The body is not a form in UTF-8.") from None
    return {name: _from_text(fields[name].kind, values) if name in fields else values for name, values in given.items()}


def _from_text(kind, values):
    if kind == TEXTS:
        return values if len(values) > 1 else values[0]
    if kind == FLAG:
        return values[-1].lower() in ("1", "true", "on")
    try:
        number = {WHOLE: int, NUMBER: float}.get(kind, str)(values[-1])
        return values[-1] if isinstance(number, float) and not math.isfinite(number) else number
    except ValueError:
        return values[-1]


def _checked(name, field, value):
    """Return the value of a field; `Refused` if it is of a wrong type or out of bounds."""
    if value is None:
        if field.default is ...:
            raise Refused(422, f"The field {name!r} is missing.")
        return field.default
    if field.ignored:
        return value
    wrong = {
        TEXT: not isinstance(value, str),
        TEXTS: not (isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value))),
        FLAG: not isinstance(value, bool),
        WHOLE: not isinstance(value, int) or isinstance(value, bool),
        NUMBER: not isinstance(value, (int, float)) or isinstance(value, bool),
        ANY: False,
    }
    names = {TEXT: "a text", TEXTS: "a text or a list of texts", FLAG: "true or false", WHOLE: "a whole number",
             NUMBER: "a number"}  # fmt: skip
    if wrong[field.kind]:
        raise Refused(422, f"The field {name!r} must be {names[field.kind]}.")
    if field.kind in (WHOLE, NUMBER):
        if field.minimum is not None and value < field.minimum:
            raise Refused(422, f"The field {name!r} must be at least {field.minimum}.")
        if field.maximum is not None and value > field.maximum:
            raise Refused(422, f"The field {name!r} must be at most {field.maximum}.")
    if field.kind in (TEXT, TEXTS):
        require_encodable(name, [value] if isinstance(value, str) else value)
    return value


def require_encodable(name: str, texts: Sequence[str]) -> None:
    """Refuse texts with lone surrogates, which JSON can spell and UTF-8 cannot."""
    for text in texts:
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise Refused(422, f"The field {name!r} has a text with half a character (a lone surrogate).")


def require_texts(name: str, texts: Sequence[str], limits: Limits) -> None:
    """Refuse more or longer texts than the limits allow."""
    lines = sum(1 + text.count("\n") for text in texts)
    if lines > limits.lines:
        raise Refused(413, f"The field {name!r} has {counted(lines, 'line')}; a request may have {limits.lines:,}.")
    for text in texts:
        if len(text) > limits.characters:
            raise Refused(
                413, f"A text of the field {name!r} has {len(text):,} characters; {limits.characters:,} are allowed."
            )


async def answers(request: Request, futures: Sequence[concurrent.futures.Future], limits: Limits) -> list[Any]:
    """Return the results of futures; if the client leaves or time is up, cancel them, which frees their slots.

    Raises:
        Refused: time is up (504), or the client has left (499: no one reads it).
    """
    waiting = [asyncio.wrap_future(future) for future in futures]
    results = asyncio.gather(*waiting, return_exceptions=True)
    left = asyncio.ensure_future(has_left(request.receive))
    try:
        done, _ = await asyncio.wait({results, left}, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        if results not in done:
            results.cancel()
            raise (
                Refused(499, "The client has left.")
                if left in done
                else Refused(504, f"No answer within {limits.seconds:g} seconds.", Retry_After=RETRY_AFTER)
            )
        answered = await results
    finally:  # also if the server stops
        left.cancel()
        for future in futures:
            future.cancel()
    for result in answered:
        if isinstance(result, BaseException):
            raise result
    return answered


async def has_left(receive: Callable[[], Awaitable[Any]]) -> Any:
    """Wait until the client of a request leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
