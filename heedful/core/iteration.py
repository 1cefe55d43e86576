"""What `itertools` lacks before Python 3.12."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def batched(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the values in lists of `size`; the last one may be shorter."""
    remaining = iter(values)
    while batch := list(itertools.islice(remaining, size)):
        yield batch
