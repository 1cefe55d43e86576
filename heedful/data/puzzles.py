"""The built-in toy tasks: sequences whose right answer a person can check."""

import random
import zlib

from heedful.errors import InputError

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def reverse(digits):
    """Reverse a sequence and put X in the place of every even repetition of a token.

    The second, fourth, ... time that a token appears, counted in the order of the reversed sequence, it is hidden.

    >>> reverse(["1", "2", "1", "3", "1"])
    ['1', '3', 'X', '2', '1']
    """
    seen = {}
    answer = []
    for digit in reversed(digits):
        seen[digit] = seen.get(digit, 0) + 1
        answer.append("X" if seen[digit] % 2 == 0 else digit)
    return answer


def reverse_pairs(part, count, length=10, vocabulary=10, seed=0):
    """Return `count` distinct pairs of a part (`train`, `valid` or `test`), tokens separated by spaces.

    Args:
        length: tokens of a sequence.
        vocabulary: different tokens: the digits, then letters and pairs of letters.

    Raises:
        InputError: there are not enough distinct sequences of that length in the part.
    """
    tokens = [*map(str, range(10)), *LETTERS.replace("X", ""), *(a + b for a in LETTERS for b in LETTERS)][:vocabulary]
    if vocabulary != len(tokens) or 100 * count > len(tokens) ** length:
        raise InputError(f"There are too few sequences of {length} out of {vocabulary} tokens for {count} of them.")
    parts = {"train": range(90), "valid": range(90, 95), "test": range(95, 100)}[part]
    chance = random.Random(f"{seed}/{part}")
    pairs = {}
    while len(pairs) < count:
        digits = chance.choices(range(len(tokens)), k=length)
        words = [tokens[i] for i in digits]
        if zlib.crc32(" ".join(words).encode()) % 100 in parts:
            pairs.setdefault(" ".join(words), " ".join(reverse(words)))
    return list(pairs.items())
