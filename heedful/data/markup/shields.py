"""Spans of a text replaced by private-use characters, so that reading its tags does not look into them."""

from collections.abc import Iterable, Iterator

PRIVATE = range(0xF0000, 0xFFFFE)  # code points without a meaning; those that a text has are not used


class Shields:
    """A text with one character for each of some spans.

    Args:
        text: the text.
        spans: start, end and kind of each span; where some overlap, the first and longest counts.

    Attributes:
        text: the text with the characters.
    """

    def __init__(self, text: str, spans: Iterable[tuple[int, int, str]]):
        present = set(text)
        unused = (code for code in PRIVATE if chr(code) not in present)
        self._originals: dict[int, str] = {}
        self._kinds: dict[str, str] = {}
        parts, end = [], 0
        for start, stop, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
            if start < end or (code := next(unused, None)) is None:
                continue
            parts += [text[end:start], chr(code)]
            self._originals[code], self._kinds[chr(code)] = text[start:stop], kind
            end = stop
        self.text = "".join([*parts, text[end:]])

    def restored(self, text: str) -> str:
        """Return a part of the text with its spans."""
        return text.translate(self._originals)

    def split(self, text: str) -> Iterator[tuple[str, str | None]]:
        """Yield a part of the text in pieces: each span with its kind, and what stands between with None."""
        begin = 0
        for place, character in enumerate(text):
            if character in self._kinds:
                if place > begin:
                    yield text[begin:place], None
                yield self._originals[ord(character)], self._kinds[character]
                begin = place + 1
        if begin < len(text):
            yield text[begin:], None
