"""Text from files: read as a stream, checked line by line, and fingerprinted."""

import contextlib
import glob
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from heedful.config.named_texts import located
from heedful.core.errors import InputError, counted
from heedful.core.storage import known_file_hash
from heedful.data.bilingual_files import has_both_sides, is_bilingual, read_bilingual
from heedful.data.header import refuse_header
from heedful.data.text_files import read_lines


def resolve(path: str | Path) -> Path:
    """Return `path`, or the file of that name under the folder HEEDFUL_DATA (default `./data`).

    NAME/FILE is also a file of a named text that has been downloaded, see `config.named_texts`.
    """
    path = Path(path)
    with contextlib.suppress(RuntimeError):  # the name begins with ~ but names no user
        path = path.expanduser()
    if path.is_absolute() or path.exists():
        return path
    own = Path(os.environ.get("HEEDFUL_DATA", "data")) / path
    return own if own.exists() else located(path) or own


def matching(path: str | Path) -> list[Path]:
    """Return the files, by name, that a pattern such as `part-*.de` matches; any other path is `resolve`d.

    Patterns are looked up where `resolve` looks. One that matches nothing is returned as it is.
    """
    if not any(character in str(path) for character in "*?[") or resolve(path).exists():
        return [resolve(path)]
    for folder in (Path(), Path(os.environ.get("HEEDFUL_DATA", "data"))):
        if files := sorted(glob.glob(str(folder / os.path.expanduser(path)))):
            return [Path(one) for one in files]
    return [Path(path)]


def resolve_all(paths: Sequence[str | Path], origin: str = "") -> list[Path]:
    """Return the files of paths and patterns; raise `InputError` if some are missing (with `origin`) or no files."""
    files = list(itertools.chain.from_iterable(map(matching, paths)))
    for path in files:
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not a file, but a folder or a pipe: text is read more than once.")
    if missing := [str(path) for path in files if not path.exists()]:
        advice = f" {origin}" if origin else ""
        raise InputError(
            f"Missing text: {', '.join(missing)}.{advice} Relative paths are looked up here and in HEEDFUL_DATA."
        )
    return files


def _wild(path, pattern):
    """Return what the wildcards of a pattern match in a path; empty if it has none."""
    parts = re.split(r"(\*|\?|\[[^\]]*\])", str(pattern))
    known = {"*": "(.*)", "?": "(.)"}
    expression = "".join(
        known.get(part, f"({part})") if number % 2 else re.escape(part) for number, part in enumerate(parts)
    )
    match = re.search(rf"{expression}\Z", str(path))
    return match.groups() if match else ()


def resolve_pairs(paths: Sequence[str | Path], origin: str = "") -> list[tuple[Path, ...]]:
    """Return the files of a parallel text: pairs of them, or single .tsv files; several if the paths are patterns.

    Raises:
        InputError: as in `resolve_all`; there are more than two paths, or two patterns that match different numbers.
    """
    if len(paths) > 2:
        raise InputError(f"A parallel text is two files or one .tsv file, not {len(paths)}.")
    resolve_all(paths, origin)  # all missing files in one message
    sides = [resolve_all([path]) for path in paths]
    if len({len(side) for side in sides}) > 1:
        raise InputError(f"{paths[0]} matches {counted(len(sides[0]), 'file')}, and {paths[1]} {len(sides[1])}.")
    for group in zip(*sides, strict=True):
        if len(group) > 1 and (tables := list(filter(has_both_sides, group))):
            raise InputError(f"{tables[0]} has both sides of a text: give it alone.")
        wild = [_wild(path, pattern) for path, pattern in zip(group, paths, strict=True)]
        if all(wild) and len(set(wild)) > 1:
            raise InputError(
                f"Files are paired in the order of their names, and {' and '.join(map(str, group))} differ."
            )
    return list(zip(*sides, strict=True))


def read_pairs(paths: Sequence[str | Path]) -> Iterator[tuple[str, str]]:
    """Yield (source, target) from two parallel files, or from one .tsv, PO, XLIFF or TMX file.

    Raises:
        InputError: as in `read_lines`; the sides differ in length; a line does not have exactly one tab; or the first
            line of a table names the columns.
    """
    if len(paths) == 1:
        yield from read_bilingual(Path(paths[0])) if is_bilingual(paths[0]) else _read_tsv(paths[0])
        return
    sides = [read_lines(path) for path in paths]
    missing = object()
    for number, pair in enumerate(itertools.zip_longest(*sides, fillvalue=missing)):
        if missing in pair:
            counts = [
                number + (line is not missing) + sum(1 for _ in side) for line, side in zip(pair, sides, strict=True)
            ]
            raise InputError(
                f"The two sides differ in length: {paths[0]} has {counted(counts[0], 'line')}, {paths[1]} has "
                f"{counts[1]:,}."
            )
        source, target = pair
        yield str(source), str(target)


def _read_tsv(path):
    for number, line in enumerate(read_lines(path), start=1):
        pair = split_pair(line)
        if pair is None:
            columns = line.count("\t") + 1
            raise InputError(
                f"{path}, line {number}: expected source, tab, target; found {counted(columns, 'column')}."
            )
        if number == 1:
            refuse_header(path, line, pair)
        yield pair


def split_pair(line: str) -> tuple[str, str] | None:
    """Return source and target of a line with one tab between them; None for any other line."""
    source, tab, target = line.partition("\t")
    return (source, target) if tab and "\t" not in target else None


class Corpus:
    """A text (sentence pairs, documents) that can be read repeatedly, and the fingerprint of its content.

    Args:
        read: a function that returns a new iterator of (source, target) pairs or other items.
        fingerprint: a string that changes when the content does.
        name: name used in messages.
    """

    def __init__(self, read: Callable[[], Iterable[Any]], fingerprint: str, name: str):
        self._read, self.fingerprint, self.name = read, fingerprint, name

    def __iter__(self) -> Iterator[Any]:
        return iter(self._read())

    @classmethod
    def from_files(cls, paths: Sequence[str | Path], origin: str = "") -> "Corpus":
        """Open two parallel files or one .tsv, or as many of them as patterns such as `part-*.de` match.

        Raises:
            InputError: there are more than two paths, or files are missing; the message names these and `origin`,
                where the text comes from.
        """
        groups = resolve_pairs(paths, origin)
        files = list(itertools.chain.from_iterable(groups))
        name = " + ".join(map(str, files if len(groups) == 1 else paths))
        return cls(lambda: itertools.chain.from_iterable(map(read_pairs, groups)), fingerprint_files(files), name)

    @classmethod
    def joined(cls, corpora: Sequence["Corpus"]) -> "Corpus":
        """Return one corpus with the items of several."""
        if len(corpora) == 1:
            return corpora[0]
        fingerprint = hashlib.sha256(" ".join(corpus.fingerprint for corpus in corpora).encode()).hexdigest()
        name = f"{corpora[0].name} and {len(corpora) - 1} more"
        return cls(lambda: itertools.chain.from_iterable(corpora), fingerprint, name)

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str]], name: str) -> "Corpus":
        """Create a corpus from pairs in memory."""
        pairs = list(pairs)
        digest = hashlib.sha256()
        for source, target in pairs:
            digest.update(f"{source}\t{target}\n".encode())
        return cls(lambda: pairs, digest.hexdigest(), name)


def with_references(corpus: Corpus, paths: Sequence[str | Path]) -> Corpus:
    """Return a corpus of (source, target, further references) from one of pairs, and a file for each reference.

    Raises:
        InputError: a file is missing; while reading, the files differ in length.
    """
    files = resolve_all(paths)
    if not files:
        return corpus

    def rows():
        sides = [corpus, *map(read_lines, files)]
        for number, row in enumerate(itertools.zip_longest(*sides), start=1):
            if any(part is None for part in row):
                raise InputError(
                    f"{corpus.name} and {' and '.join(map(str, files))} differ in length, at line {number}."
                )
            pair, *more = row
            yield (*pair, *more)

    fingerprint = hashlib.sha256(f"{corpus.fingerprint} {fingerprint_files(files)}".encode()).hexdigest()
    return Corpus(rows, fingerprint, " + ".join([corpus.name, *map(str, files)]))


def hold_out(corpus: "Corpus", share: float) -> "tuple[Corpus, ...]":
    """Split the last `share` off a corpus; return (the rest, the part split off), both as corpora.

    The share is counted in documents. It is counted in characters instead if the last documents hold less than half or
    more than twice that share of the characters, or if no document would be left for the rest.
    """
    documents = list(corpus)
    cut = int(len(documents) * (1 - share))
    parts = documents[:cut], documents[cut:]
    sizes = [len(document) for document in documents if isinstance(document, str)]
    if any(sizes) and (not cut or not share / 2 <= sum(sizes[cut:]) / sum(sizes) <= 2 * share):
        parts = _cut_text(documents, int(sum(sizes) * (1 - share)))
    names = f"the first {1 - share:.0%} of {corpus.name}", f"the last {share:.0%} of {corpus.name}"
    return tuple(
        Corpus(part.__iter__, f"{corpus.fingerprint} {which} {share!r}", name)
        for part, which, name in zip(parts, ("all but", "last"), names, strict=True)
    )


def _cut_text(documents, size):
    """Split documents after `size` characters in total; return both parts."""
    before, after, room = [], [], size
    for document in documents:
        before += [document[:room]] if room else []
        after += [document[room:]] if room < len(document) else []
        room = max(0, room - len(document))
    return before, after


def fingerprint_files(paths: Sequence[str | Path]) -> str:
    """Return a SHA-256 fingerprint of the files' bytes, in order."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(bytes.fromhex(known_file_hash(path)))
    return digest.hexdigest()
