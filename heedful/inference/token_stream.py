"""Incremental decoding of tokens to text."""

from collections.abc import Iterable, Iterator, Sequence

from heedful.data.tokenizer import Tokenizer

HALF_A_CHARACTER = "\N{REPLACEMENT CHARACTER}"


def new_text(tokenizer: Tokenizer, ids: Iterable[int], before: Sequence[int] = ()) -> Iterator[str]:
    """Yield the text that each id adds; a character that spans several tokens is yielded with the last one.

    Args:
        tokenizer: the tokenizer of the ids.
        ids: the ids, as they arrive.
        before: ids of the preceding text, which is not yielded.
    """
    whole, shown = list(before), tokenizer.decode(before)
    for token in ids:
        whole.append(token)
        text = tokenizer.decode(whole)
        if not text.endswith(HALF_A_CHARACTER) and len(text) > len(shown):
            yield text[len(shown) :]
            shown = text
