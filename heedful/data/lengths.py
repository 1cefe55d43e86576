"""Texts of different lengths in few shapes: each shape is compiled once."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor


def round_up(number: float, step: int, most: int | None = None) -> int:
    """Return the next multiple of `step`; one above `most` becomes `most`, or `number` if that is larger still."""
    rounded = int(-(-number // step)) * step
    return rounded if most is None else max(int(number), min(rounded, most))


def next_power_of_two(number: int, most: int) -> int:
    """Return the next power of two, or `most` if that is smaller."""
    return min(most, 1 << (number - 1).bit_length())


def cut(order: list[int], size: int) -> Iterable[list[int]]:
    """Cut a list into parts of `size`."""
    return (order[start : start + size] for start in range(0, len(order), size))


def run_by_length(
    lengths: Sequence, cut: Callable[[list[int]], Iterable[list[int]]], run: Callable[[list[int]], Iterable],
    workers: int = 1,
) -> list:  # fmt: skip
    """Process items of like length together; return their results in the order of the items.

    Args:
        lengths: of the items.
        cut: cuts a list of indices, longest item first, into parts.
        run: from a part to one result for each of its items.
        workers: how many parts are processed at the same time.
    """
    order = sorted(range(len(lengths)), key=lambda index: lengths[index], reverse=True)
    parts = list(cut(order))
    if workers > 1 and len(parts) > 1:
        with ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(run, parts))
    else:
        found = list(map(run, parts))
    results = [None] * len(lengths)
    for index, result in zip(itertools.chain.from_iterable(parts), itertools.chain.from_iterable(found), strict=True):
        results[index] = result
    return results
