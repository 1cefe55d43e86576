"""XLIFF 1.2 and 2: segments without a translation get one; tags within them go where the words go."""

import codecs
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from heedful.config.protected import Protection
from heedful.core.errors import InputError
from heedful.data.document_formats import decoded
from heedful.data.document_formats.document import Document, TextCollector, ends_of
from heedful.data.document_formats.xml_events import xml_events
from heedful.data.markup.html_tokens import CDATA, UNTRANSLATED, with_characters, without_cdata
from heedful.data.markup.marked_text import marked

_TAG = re.compile(r"<[^<>]*>")
UNITS = ("trans-unit", "segment")
CODES = ("bpt", "ept", "it", "ph", "sub", "ut")  # elements whose content is code
UNFINISHED = ("new", "needs-translation", "initial")  # states of a target that is replaced


class Segment(NamedTuple):
    """A segment of an XLIFF file: the bytes of its source, and those of its target, if it has one.

    Args:
        source: start and end of the content of the source.
        target: start and end of the target's element.
        content: start and end of the content of the target; both are 0 if there is none yet.
        opening: the opening tag of the target, or of one that is new.
        closing: its closing tag.
        finished: whether it has a translation.
        after: where the source ends, with its tags.
    """

    source: tuple[int, int]
    target: tuple[int, int] | None
    content: tuple[int, int]
    opening: str
    closing: str
    finished: bool
    after: int


def segments(content: bytes, name: str) -> Iterator[Segment]:
    """Yield the segments of an XLIFF file that may be translated."""
    depth_hidden: list[bool] = []
    source = target = None
    begun: list[tuple[str, int, int, Mapping[str, str]]] = []
    for event in xml_events(content, name):
        if event.opens:
            hidden = (depth_hidden[-1] if depth_hidden else False) or UNTRANSLATED in event.attributes.items()
            depth_hidden.append(hidden)
            begun.append((event.name, event.start, event.end, event.attributes))
            if event.name in UNITS:
                source = target = None
            continue
        tag, start, end, attributes = begun.pop()
        hidden = depth_hidden.pop()
        parent = begun[-1][0] if begun else ""
        if parent in UNITS and tag == "source":
            source = (end, event.start) if event.start >= end else (end, end), event.end, hidden
        elif parent in UNITS and tag == "target":
            target = start, event.end, end, max(event.start, end), attributes
        elif parent in UNITS and tag == "seg-source" and source:
            source = (end, max(end, event.start)), event.end, source[2]  # which has the borders of its segments
        elif tag in UNITS and source and not source[2]:
            state = target[4].get("state") or attributes.get("state", "") if target else ""  # of 1.2, or of 2
            written = content[target[2] : target[3]].decode() if target else ""
            translation = CDATA in written or _TAG.sub("", written).strip()
            finished = bool(translation and state not in UNFINISHED)
            name_of_target = f"{event.prefix}:target" if event.prefix else "target"
            yield Segment(
                source[0], target[:2] if target else None, target[2:4] if target else (0, 0),
                content[target[0] : target[2]].decode().replace("/>", ">") if target else f"<{name_of_target}>",
                f"</{name_of_target}>", finished, source[1],
            )  # fmt: skip


def _is_utf_8(content: bytes, name: str) -> bool:
    """Return whether a file declares UTF-8, or nothing; `InputError` if there is no encoding of the name."""
    declared = re.match(rb"(?:\xef\xbb\xbf)?<\?xml[^>]*?encoding\s*=\s*[\"']([\w.-]+)", content)
    try:
        return not declared or codecs.lookup(declared[1].decode()).name == "utf-8"
    except LookupError as error:
        raise InputError(f"{name} declares an encoding that does not exist: {error}.") from error


def read(content: bytes, name: str, protection: Protection) -> Document:
    """Read an XLIFF file in UTF-8; raise `InputError` if it is not well-formed or declares entities."""
    decoded(content, name)
    # What is read is UTF-8, so under another encoding it is ASCII, and stays so.
    codec = ("utf-8", "strict") if _is_utf_8(content, name) else ("ascii", "xmlcharrefreplace")
    texts = TextCollector(lambda raw: marked(raw, "xml", protection, codes=CODES))
    chosen: list[tuple[Segment, Callable[[Sequence[str]], str]]] = []
    for segment in segments(content, name):
        _, raw, _ = ends_of(with_characters(without_cdata(content[slice(*segment.source)].decode())))
        if not segment.finished and (written_target := texts.add(raw)):
            chosen.append((segment, written_target))

    def written(results) -> bytes:
        parts, position = [], 0
        for segment, written_target in chosen:
            start, end = segment.target or (segment.after, segment.after)
            lead, _, trail = ends_of(without_cdata(content[slice(*segment.source)].decode()))
            parts += [
                content[position:start],
                f"{segment.opening}{lead}{written_target(results)}{trail}{segment.closing}".encode(*codec),
            ]
            position = end
        return b"".join([*parts, content[position:]])

    notes = [f"{name}: {note}" for one in texts.texts for note in one.notes]
    return Document(texts.texts, written, notes)
