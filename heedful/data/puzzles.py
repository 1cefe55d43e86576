"""Built-in toy tasks: sequences whose correct output is easy to check by hand."""

import random
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

from heedful.core.errors import InputError

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def reverse(tokens: Sequence[str], counted_in: str = "input") -> list[str]:
    """Replace every even occurrence of a token with X, and reverse the sequence.

    Args:
        tokens: the sequence, without X.
        counted_in: the order in which occurrences are counted: that of the `input`, as in the annotated Transformer
            tutorial, or that of the reversed `output`, as in heedful 0.1.0.

    >>> reverse("0 1 5 9 0 3 5 2 5".split())
    ['5', '2', 'X', '3', 'X', '9', '5', '1', '0']
    >>> reverse("0 1 5 9 0 3 5 2 5".split(), counted_in="output")
    ['5', '2', 'X', '3', '0', '9', '5', '1', 'X']
    """
    if counted_in == "output":
        return _hide_even_occurrences(reversed(tokens))
    return _hide_even_occurrences(tokens)[::-1]


def _hide_even_occurrences(tokens):
    seen: Counter[str] = Counter()
    hidden = []
    for token in tokens:
        seen[token] += 1
        hidden.append("X" if seen[token] % 2 == 0 else token)
    return hidden


def reverse_pairs(
    part: str, count: int, length: int = 10, vocabulary: int = 10, seed: int = 0, counted_in: str = "input"
) -> list[tuple[str, str]]:
    """Return `count` distinct pairs of a part (`train`, `valid` or `test`), tokens separated by spaces.

    Args:
        length: number of tokens in a sequence.
        vocabulary: number of distinct tokens: the digits, then letters and pairs of letters.
        counted_in: as in `reverse`.

    Raises:
        InputError: there are not enough distinct sequences of that length in the part.
    """
    if vocabulary != len(_tokens(vocabulary)) or 100 * count > vocabulary**length:
        raise InputError(f"There are too few sequences of {length} out of {vocabulary} tokens for {count} of them.")
    pairs: dict[str, str] = {}
    for source, target in draw_reverse_pairs(random.Random(f"{seed}/{part}"), part, length, vocabulary, counted_in):
        pairs.setdefault(source, target)
        if len(pairs) == count:
            break
    return list(pairs.items())


def draw_reverse_pairs(
    chance: random.Random, part: str, length: int = 10, vocabulary: int = 10, counted_in: str = "input"
) -> Iterator[tuple[str, str]]:
    """Yield random pairs of a part without end; for the arguments see `reverse_pairs`."""
    parts = {"train": range(90), "valid": range(90, 95), "test": range(95, 100)}[part]
    tokens = _tokens(vocabulary)
    while True:
        words = [tokens[i] for i in chance.choices(range(len(tokens)), k=length)]
        source = " ".join(words)
        if zlib.crc32(source.encode()) % 100 in parts:
            yield source, " ".join(reverse(words, counted_in))


def _tokens(vocabulary):
    return [*map(str, range(10)), *LETTERS.replace("X", ""), *(a + b for a in LETTERS for b in LETTERS)][:vocabulary]
