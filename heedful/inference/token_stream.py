"""The text of tokens that arrive one by one."""

from collections.abc import Iterable, Iterator, Sequence

HALF_A_CHARACTER = "\N{REPLACEMENT CHARACTER}"


def new_text(tokenizer, ids: Iterable[int], before: Sequence[int] = ()) -> Iterator[str]:
    """Yield the text that each id adds; a character of several tokens comes with the last of them.

    Args:
        tokenizer: of the ids.
        ids: as they arrive.
        before: ids of the text before them, which is not repeated.
    """
    whole, shown = list(before), tokenizer.decode(before)
    for token in ids:
        whole.append(token)
        text = tokenizer.decode(whole)
        if not text.endswith(HALF_A_CHARACTER) and len(text) > len(shown):
            yield text[len(shown) :]
            shown = text
