"""Incremental decoding of tokens to text."""

import re
from collections.abc import Iterable, Iterator, Sequence

from heedful.data.tokenizer import Tokenizer

HALF_A_CHARACTER = "\N{REPLACEMENT CHARACTER}"
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # a token of byte fallback


class GrowingText:
    """The text of a growing list of ids.

    Args:
        tokenizer: the tokenizer of the ids.
        before: ids of the preceding text.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()):
        self._tokenizer, self._shown = tokenizer, tokenizer.decode(before)

    def added(self, ids: Sequence[int]) -> str:
        """Return what all ids so far add to the text; a character of several tokens is added with the last one.

        Bytes of byte fallback are added with the token after them, since they are decoded together.
        """
        text = self._tokenizer.decode(ids)
        if text.endswith(HALF_A_CHARACTER) or (ids and _BYTE.fullmatch(self._tokenizer.lookup(ids[-1]) or "")):
            return ""
        return self._new(text)

    def rest(self, ids: Sequence[int]) -> str:
        """Return what is not added yet when no more ids come, such as bytes that are no character."""
        return self._new(self._tokenizer.decode(ids))

    def _new(self, text: str) -> str:
        if len(text) <= len(self._shown):
            return ""
        new, self._shown = text[len(self._shown) :], text
        return new


def new_text(tokenizer: Tokenizer, ids: Iterable[int], before: Sequence[int] = ()) -> Iterator[str]:
    """Yield the text that each id adds; a character that spans several tokens is yielded with the last one.

    Args:
        tokenizer: the tokenizer of the ids.
        ids: the ids, as they arrive.
        before: ids of the preceding text, which is not yielded.
    """
    whole, growing = list(before), GrowingText(tokenizer, before)
    for token in ids:
        whole.append(token)
        if new := growing.added(whole):
            yield new
    if rest := growing.rest(whole):
        yield rest
