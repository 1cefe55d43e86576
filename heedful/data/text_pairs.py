"""Sentence pairs in memory, from a built-in or a named text."""

import itertools
from collections.abc import Callable

from heedful.config.named_texts import find
from heedful.core.errors import InputError
from heedful.data.corpus import read_pairs, resolve_all
from heedful.data.phrasebook import phrasebook
from heedful.data.puzzles import reverse_pairs

BUILT_IN: dict[str, Callable[..., list[tuple[str, str]]]] = {"phrasebook": phrasebook, "reverse": reverse_pairs}
DEFAULT = 10_000  # pairs of a built-in text, which has no end


def text_pairs(name: str = "phrasebook", part: str = "train", count: int | None = None) -> list[tuple[str, str]]:
    """Return (source, target) pairs of a text as a list.

    Args:
        name: `phrasebook` or `reverse`, which are built in, or a name that `heedful data list` shows.
        part: `train`, `valid` or `test`; the phrasebook also has `unseen`.
        count: the first so many pairs; None: all, of a built-in text 10,000.

    Raises:
        InputError: there is no such text or part, it is not downloaded, or it does not consist of pairs.
    """
    if name in BUILT_IN:
        parts = ("train", "valid", "test", *(["unseen"] if name == "phrasebook" else []))
        if part not in parts:
            raise InputError(f"{name} has no part {part!r}: choose one of {', '.join(parts)}.")
        return list(BUILT_IN[name](part, DEFAULT if count is None else count))
    text = find(name)
    if text.layout != "pairs":
        raise InputError(f"{name} consists of {text.layout}, not of pairs.")
    files = text.paths(part) if part in ("train", "valid", "test") else ()
    if not files:
        raise InputError(f"{name} has no part {part!r}.")
    if not text.is_prepared:
        raise InputError(f"{name} is not downloaded yet: heedful data get {name}")
    return list(itertools.islice(read_pairs(resolve_all(files)), count))
