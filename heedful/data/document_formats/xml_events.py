"""XML read by Expat, with the place of each tag; nothing outside of the file is ever read."""

from collections.abc import Iterator
from typing import NamedTuple
from xml.parsers import expat

from heedful.core.errors import InputError


class Event(NamedTuple):
    """A tag of an XML file.

    Args:
        opens: whether it is an opening one.
        prefix: that of its name, such as "w" in "w:t".
        name: without the prefix.
        attributes: those of an opening tag.
        start, end: its bytes.
    """

    opens: bool
    prefix: str
    name: str
    attributes: dict[str, str]
    start: int
    end: int


def xml_events(content: bytes, name: str) -> Iterator[Event]:
    """Yield the tags of an XML file in UTF-8; an empty element has two events with the same place.

    Raises:
        InputError: it is not well-formed, not UTF-8, or declares entities.
    """
    parser = expat.ParserCreate("utf-8")
    events: list[tuple[bool, str, dict[str, str], int]] = []

    def refuse(*_):
        raise InputError(f"{name} declares entities, which are not read.")

    def opened(tag, attributes):
        events.append((True, tag, attributes, parser.CurrentByteIndex))

    def closed(tag):
        events.append((False, tag, {}, parser.CurrentByteIndex))

    parser.EntityDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = opened, closed
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise InputError(f"{name} is not well-formed XML: {error}.") from error
    before = Event(False, "", "", {}, 0, 0)
    for opens, tag, attributes, start in events:
        if not opens and before.opens and content[before.end - 2 : before.end] == b"/>":
            event = before._replace(opens=False, attributes=attributes)
        else:
            prefix, _, local = tag.rpartition(":")
            event = Event(opens, prefix, local, attributes, start, _end_of_tag(content, start))
        yield event
        before = event


def _end_of_tag(content, start):
    """Return the end of the tag that begins at `start`."""
    quote = b""
    for place in range(start, len(content)):
        letter = content[place : place + 1]
        if quote:
            quote = b"" if letter == quote else quote
        elif letter in (b'"', b"'"):
            quote = letter
        elif letter == b">":
            return place + 1
    return len(content)
