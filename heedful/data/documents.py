"""Documents for language models: read from files and encoded once."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heedful.core.errors import InputError
from heedful.data.corpus import Corpus, fingerprint_files, resolve_all
from heedful.data.encoded import CHUNK
from heedful.data.labels import read_labelled
from heedful.data.ragged import Ragged, RaggedWriter
from heedful.data.text_cache import kept_in_cache
from heedful.data.text_files import read_lines
from heedful.data.tokenizer import Tokenizer


def read_documents(paths: Sequence[str | Path], split: str = "whole", origin: str = "") -> Corpus:
    """Open text files as a `Corpus` of documents.

    Args:
        paths: text files, plain or .gz, .bz2, .xz.
        split: what counts as a document: the `whole` file, each of its `lines`, each of its `paragraphs` (separated by
            blank lines), or the text on each line of a `labelled` file.
        origin: where the text comes from, for the error message about a missing file.

    Raises:
        InputError: a file is missing.
    """
    files = resolve_all(paths, origin)
    if split == "labelled":
        labelled = read_labelled(paths, origin)
        return Corpus(lambda: (text for _, text in labelled), f"labelled {labelled.fingerprint}", labelled.name)

    def documents():
        for path in files:
            lines = read_lines(path)
            if split == "lines":
                yield from lines
            elif split == "paragraphs":
                for blank, group in itertools.groupby(lines, lambda line: not line.strip()):
                    if not blank:
                        yield "\n".join(group)
            else:
                yield "".join(f"{line}\n" for line in lines)

    return Corpus(documents, f"{split} {fingerprint_files(files)}", " + ".join(map(str, files)))


CHARACTERS = 500_000  # encoded at a time, to limit the memory of the tokenizer
LINE_END = re.compile(r"(?<=\S)\n(?=\S)")  # longer white space could be a single token


@dataclass(frozen=True)
class EncodedTexts:
    """The ids of texts, their size in bytes, and the number of empty texts left out."""

    ids: Ragged
    text_bytes: int
    empty: int

    def __str__(self) -> str:
        dropped = f" ({self.empty:,} empty ones left out)" if self.empty else ""
        documents = f"{len(self.ids):,} document" + "s" * (len(self.ids) != 1)
        return f"{documents}{dropped}, {len(self.ids.flat):,} tokens, {self.text_bytes:,} bytes"


def encode_texts(corpus: Corpus, tokenizer: Tokenizer, cache: Path | None = None) -> "EncodedTexts":
    """Encode every text of a corpus; empty ones are left out.

    Args:
        corpus: a `Corpus` of texts; read as a stream.
        tokenizer: a `Tokenizer`.
        cache: folder for encoded text; reused for the same text and tokenizer.

    Raises:
        InputError: all texts are empty.
    """

    cut = _slices if _can_be_cut(tokenizer) else lambda text: [text]

    def write(folder):
        kept = text_bytes = empty = 0
        with RaggedWriter(folder, "ids") as written:
            for chunk in _chunks(corpus):
                pieces = [list(cut(text)) for text in chunk]
                encoded = iter(tokenizer.encode_batch(itertools.chain.from_iterable(pieces)))
                whole = [list(itertools.chain.from_iterable(itertools.islice(encoded, len(parts)))) for parts in pieces]
                written.add(filter(None, whole))
                kept += sum(map(bool, whole))
                empty += len(whole) - sum(map(bool, whole))
                text_bytes += sum(len(text.encode()) for text, ids in zip(chunk, whole, strict=True) if ids)
        if not kept:
            raise InputError(f"{corpus.name} is empty.")
        np.save(folder / "counts.npy", np.array([text_bytes, empty]))

    def read(folder, mapped):
        return EncodedTexts(Ragged.read(folder, "ids", mapped), *np.load(folder / "counts.npy").tolist())

    return kept_in_cache(("texts", corpus.fingerprint, tokenizer.to_json()), cache, write, read)


def _chunks(texts):
    """Yield lists of texts of about `CHARACTERS`: they fit into memory and keep the tokenizer's threads busy."""
    chunk, size = [], 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if size >= CHARACTERS or len(chunk) == CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _can_be_cut(tokenizer):
    """Return whether the ids of a text are those of its parts; not if spaces at the ends, or a prefix, are special."""
    return tokenizer.encode("a b\nc d") == tokenizer.encode("a b\n") + tokenizer.encode("c d")


def _slices(text):
    """Cut a long text where no token can span the cut: after a single line feed."""
    start = 0
    while len(text) - start > CHARACTERS:
        cut = LINE_END.search(text, start + CHARACTERS)
        if cut is None:
            break
        yield text[start : cut.end()]
        start = cut.end()
    yield text[start:]
