"""Lines of text files, plain or compressed, and of standard input."""

import bz2
import codecs
import contextlib
import gzip
import itertools
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from heedful.core.errors import InputError

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
# First bytes of files that are no text, with their names and what helps.
OTHER_FORMATS = {
    b"\x1f\x8b": "compressed with gzip: its name has to end in .gz",
    b"BZh": "compressed with bzip2: its name has to end in .bz2",
    b"\xfd7zXZ\0": "compressed with xz: its name has to end in .xz",
    b"\x28\xb5\x2f\xfd": "compressed with Zstandard, which heedful does not read: decompress it with zstd -d",
    b"PK\x03\x04": "a zip archive or an office document: extract its text",
    b"%PDF": "a PDF: extract its text",
    codecs.BOM_UTF16_LE: "UTF-16: convert it with iconv -f UTF-16 -t UTF-8",
    codecs.BOM_UTF16_BE: "UTF-16: convert it with iconv -f UTF-16 -t UTF-8",
}

LINE_ENDS = re.compile("\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


def uncompressed_name(path: str | Path) -> str:
    """Return the name of a file without the ending of its compression.

    >>> uncompressed_name("text/train.tsv.xz"), uncompressed_name("train.txt")
    ('train.tsv', 'train.txt')
    """
    name = Path(path).name
    return name.removesuffix(Path(name).suffix) if Path(name).suffix.lower() in OPENERS else name


def _opener(path: Path) -> Callable[..., Any]:
    """Return what opens a file, by the end of its name."""
    return OPENERS.get(path.suffix.lower(), open)


def open_for_writing(path: Path) -> TextIO:
    """Open a text file for writing, compressed by the end of its name; non-UTF-8 bytes are written as they were."""
    return _opener(path)(path, "wt", encoding="utf-8", errors="surrogateescape", newline="\n")


def raw_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the lines of a text file, plain, .gz, .bz2 or .xz, as bytes without line endings.

    Only a line feed ends a line (a carriage return before it is removed too), so the two sides of a corpus stay
    parallel whatever other separators they contain.

    Raises:
        InputError: the file is missing or a folder, a compressed file is damaged, or lines end in carriage returns
            alone.
    """
    path = Path(path)
    with _reported(path), _opener(path)(path, "rb") as file:
        yield from without_ends(file, path)


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, plain, .gz, .bz2 or .xz.

    Raises:
        InputError: the file is missing or a folder, or a compressed file is damaged.
    """
    with _reported(path), _opener(path)(path, "rb") as file:
        content: bytes = file.read()
    return content


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Report as `InputError` why a file cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder, not a text file.") from error
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{path} is not a whole {path.suffix} file: {error}.") from error
    except OSError as error:
        if path.suffix.lower() != ".bz2" or error.errno:
            raise
        raise InputError(f"{path} is not a whole .bz2 file: {error}.") from error


def without_ends(lines: Iterable[bytes], name: str | Path) -> Iterator[bytes]:
    """Yield lines of bytes without line endings, and the first line without a byte order mark.

    Raises:
        InputError: `name` has carriage returns, but no line feed.
    """
    for number, raw in enumerate(lines):
        line = raw.rstrip(b"\n").removesuffix(b"\r")
        if not number:
            line = line.removeprefix(codecs.BOM_UTF8)
            if line and not raw.endswith(b"\n") and b"\r" in raw.rstrip(b"\r"):
                raise InputError(f"{name} ends its lines with carriage returns alone: convert it with tr '\\r' '\\n'.")
        yield line


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file, split as in `raw_lines`.

    Raises:
        InputError: as in `raw_lines`; or a line is not UTF-8 (the message names it).
    """
    return decoded(raw_lines(path), path)


def decoded(lines: Iterable[bytes], name: str | Path) -> Iterator[str]:
    """Yield lines as text; raise `InputError` for one that is not UTF-8, `name` being where they come from."""
    for number, raw in enumerate(lines, start=1):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            for start, problem in OTHER_FORMATS.items():
                if number == 1 and raw.startswith(start):
                    raise InputError(f"{name} is {problem}.") from error
            raise InputError(
                f"{name} is not UTF-8: line {number}, byte {error.start} (0x{raw[error.start]:02x})."
            ) from error


def first_lines(path: str | Path, count: int) -> list[str]:
    """Return the first lines of a text file, with bytes that are not UTF-8 as lone surrogates."""
    return [raw.decode("utf-8", "surrogateescape") for raw in itertools.islice(raw_lines(path), count)]


def one_line(text: str) -> str:
    """Return a text with everything that ends a line for some reader, such as U+2028, replaced by a space."""
    return LINE_ENDS.sub(" ", text)
