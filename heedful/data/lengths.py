"""Processing texts of different lengths in few shapes, because each shape must be compiled."""

import itertools
from collections.abc import Callable, Iterable, Sequence

from heedful import backend


def round_up(number: float, step: int, maximum: int | None = None) -> int:
    """Return `number` rounded up to a multiple of `step`, limited to `maximum` but never less than `number`."""
    rounded = int(-(-number // step)) * step
    return rounded if maximum is None else max(int(number), min(rounded, maximum))


def next_power_of_two(number: int, maximum: int) -> int:
    """Return the next power of two, or `maximum` if that is smaller."""
    return min(maximum, 1 << (number - 1).bit_length())


def cut(order: list[int], size: int) -> Iterable[list[int]]:
    """Cut a list into parts of `size`."""
    return (order[start : start + size] for start in range(0, len(order), size))


def run_by_length(
    lengths: Sequence, cut: Callable[[list[int]], Iterable[list[int]]], run: Callable[[list[int]], Iterable],
    workers: int | None = None,
) -> list:  # fmt: skip
    """Process items of similar length together; return their results in the order of the items.

    Args:
        lengths: lengths of the items.
        cut: function that cuts a list of indices, longest item first, into parts.
        run: function from a part to one result for each of its items.
        workers: number of parts processed in parallel; None: one on each device.
    """
    order = sorted(range(len(lengths)), key=lambda index: lengths[index], reverse=True)
    parts = list(cut(order))
    computed: list[Iterable] = list(backend.spread(run, parts, workers))
    results = [None] * len(lengths)
    for index, result in zip(
        itertools.chain.from_iterable(parts), itertools.chain.from_iterable(computed), strict=True
    ):
        results[index] = result
    return results
