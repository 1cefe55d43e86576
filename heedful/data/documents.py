"""Documents for language models: read from files, encoded once, cut into windows or packed into rows.

Axes: B rows of a batch, T length of a row.
"""

import functools
import itertools
import re
from dataclasses import dataclass

import numpy as np

from heedful.data.corpus import Corpus, fingerprint_files, read_lines, resolve_all
from heedful.data.encoded import CHUNK, Ragged, kept_in_cache
from heedful.data.labels import read_labelled
from heedful.data.packing import pack
from heedful.data.tokenizer import END_ID, START_ID
from heedful.errors import InputError


def read_documents(paths, split="whole", origin=""):
    """Open text files as a `Corpus` of documents.

    Args:
        paths: text files, plain or .gz.
        split: a document is the `whole` file, each of its `lines`, `paragraphs`, which blank lines part, or the text on
            each line of a `labelled` file.
        origin: where such text comes from, for the message about a missing file.

    Raises:
        InputError: a file is missing.
    """
    found = resolve_all(paths, origin)
    if split == "labelled":
        labelled = read_labelled(paths, origin)
        return Corpus(lambda: (text for _, text in labelled), f"labelled {labelled.fingerprint}", labelled.name)

    def documents():
        for path in found:
            lines = read_lines(path)
            if split == "lines":
                yield from lines
            elif split == "paragraphs":
                for blank, group in itertools.groupby(lines, lambda line: not line.strip()):
                    if not blank:
                        yield "\n".join(group)
            else:
                yield "".join(f"{line}\n" for line in lines)

    return Corpus(documents, f"{split} {fingerprint_files(found)}", " + ".join(map(str, found)))


CHARACTERS = 500_000  # encoded at a time; a tokenizer takes some 300 bytes for each
LINE_END = re.compile(r"(?<=\S)\n(?=\S)")  # more white space around it could be one token


@dataclass(frozen=True)
class EncodedTexts:
    """The ids of texts, and what they were."""

    ids: Ragged
    text_bytes: int
    empty: int

    def __str__(self):
        dropped = f" ({self.empty:,} empty ones left out)" if self.empty else ""
        return f"{len(self.ids):,} documents{dropped}, {len(self.ids.flat):,} tokens, {self.text_bytes:,} bytes"


def encode_texts(corpus, tokenizer, cache=None):
    """Encode every text of a corpus; empty ones are left out.

    Args:
        corpus: a `Corpus` of texts; read as a stream.
        tokenizer: a `Tokenizer`.
        cache: folder for encoded text; the same text and tokenizer are encoded only once.

    Raises:
        InputError: nothing is left.
    """

    def write(folder):
        offsets, text_bytes, empty = [0], 0, 0
        with (folder / "ids.bin").open("wb") as file:
            for chunk in _chunks(corpus):
                pieces = [list(_slices(text)) for text in chunk]
                encoded = iter(tokenizer.encode_batch(itertools.chain.from_iterable(pieces)))
                for text, parts in zip(chunk, pieces, strict=True):
                    count = 0
                    for ids in itertools.islice(encoded, len(parts)):
                        file.write(np.asarray(ids, np.int32).tobytes())
                        count += len(ids)
                    if not count:
                        empty += 1
                        continue
                    offsets.append(offsets[-1] + count)
                    text_bytes += len(text.encode())
        if len(offsets) == 1:
            raise InputError(f"{corpus.name} is empty.")
        np.save(folder / "ids_offsets.npy", np.asarray(offsets, np.int64))
        np.save(folder / "counts.npy", np.array([text_bytes, empty]))

    def read(folder, mapped):
        return EncodedTexts(Ragged.read(folder, "ids", mapped), *np.load(folder / "counts.npy").tolist())

    return kept_in_cache(("texts", corpus.fingerprint, tokenizer.to_json()), cache, write, read)


def _chunks(texts):
    """Yield lists of texts of some `CHARACTERS`: few enough for the memory, enough for the tokenizer's threads."""
    chunk, size = [], 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if size >= CHARACTERS or len(chunk) == CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _slices(text):
    """Cut a long text where no tokenizer of ours has a token: behind a line feed that stands alone."""
    start = 0
    while len(text) - start > CHARACTERS:
        cut = LINE_END.search(text, start + CHARACTERS)
        if cut is None:
            break
        yield text[start : cut.end()]
        start = cut.end()
    yield text[start:]


def as_stream(texts):
    """Return all ids of `EncodedTexts` one after the other, an end token behind each document if there are several."""
    flat, offsets = np.asarray(texts.ids.flat), texts.ids.offsets
    return np.insert(flat, offsets[1:], END_ID) if len(texts.ids) > 1 else flat


class Windows:
    """Next-token examples from one long stream: every epoch cuts it anew, at a random phase, and shuffles the windows.

    So each token is learned from once an epoch, with other neighbours before it each time. Batch n is a pure function
    of (seed, n).

    Args:
        stream: ids (N,).
        length: T, what the model reads at once.
        rows: B.
        seed: of phases and order.
    """

    def __init__(self, stream, length, rows, seed=0):
        self.stream, self.length, self.rows, self.seed = stream, length, rows, seed
        self.windows = (len(stream) - 1) // length  # whole ones; the token behind the last must exist too
        if self.windows > 1:
            self.windows -= 1  # so that every phase leaves as many

    def batch(self, number):
        """Return batch `number`: ids, labels and float32 weights, each (B, T)."""
        places = number * self.rows + np.arange(self.rows)
        starts = np.empty(self.rows, np.int64)
        epochs = places // self.windows
        for epoch in range(epochs[0], epochs[-1] + 1):
            here = epochs == epoch
            starts[here] = self._starts(epoch)[places[here] % self.windows]
        return self._read(starts)

    def finite(self):
        """Yield batches in which every token but the first is predicted exactly once, from whole windows of context."""
        starts = np.arange(0, len(self.stream) - 1, self.length)
        for first in range(0, len(starts), self.rows):
            rows = np.full(self.rows, len(self.stream))  # rows behind the end are empty
            chosen = starts[first : first + self.rows]
            rows[: len(chosen)] = chosen
            yield self._read(rows)

    def tokens(self, number):
        """Return how many tokens batch `number` has."""
        return self.rows * self.length

    def shape(self, number):
        """Return the shape of batch `number`."""
        return self.rows, self.length

    @property
    def batches_per_epoch(self):
        """Number of batches in which every token is seen once."""
        return self.windows / self.rows

    def __str__(self):
        return (
            f"windows of {self.length:,} tokens, {self.rows:,} a batch, {self.batches_per_epoch:,.1f} batches an epoch"
        )

    def _read(self, starts):
        places = starts[:, None] + np.arange(self.length)
        real = places + 1 < len(self.stream)
        inside = np.minimum(places, len(self.stream) - 2)
        ids, labels = self.stream[inside], self.stream[inside + 1]
        return {
            "ids": np.where(real, ids, 0).astype(np.int32),
            "labels": np.where(real, labels, 0).astype(np.int32),
            "weights": real.astype(np.float32),
        }

    @functools.lru_cache(maxsize=4)  # noqa: B019 - a training has one of these
    def _starts(self, epoch):
        random = np.random.default_rng((self.seed, 2, epoch))
        spare = len(self.stream) - 1 - self.windows * self.length
        phase = random.integers(min(spare, self.length - 1) + 1)
        return phase + random.permutation(self.windows) * self.length


class PackedDocuments:
    """Next-token examples from documents that share rows and cannot see each other.

    A document is read from a start token on, and its end token is learned; one that is longer than a row is cut into
    pieces. Rows are filled longest piece first, each into the fullest row that still has room. Batch n is a pure
    function of (seed, n).

    Args:
        texts: `EncodedTexts`.
        length: T.
        rows: B.
        seed: of the order.
    """

    def __init__(self, texts, length, rows, seed=0):
        self.ids, self.length, self.rows, self.seed = texts.ids, length, rows, seed
        self.pieces = [
            (index, start, min(size - start, length))
            for index, size in enumerate((texts.ids.lengths + 1).tolist())  # the end token counts
            for start in range(0, size, length)
        ]
        sizes = [size for _, _, size in self.pieces]
        self.packed = pack(sizes, length)
        self.filled = sum(sizes) / (len(self.packed) * length)

    def batch(self, number):
        """Return batch `number`: ids, labels, weights, segments and positions, each (B, T)."""
        places = number * self.rows + np.arange(self.rows)
        return self._read([self._order(place // len(self.packed))[place % len(self.packed)] for place in places])

    def finite(self):
        """Yield batches in which every piece comes exactly once."""
        for first in range(0, len(self.packed), self.rows):
            chosen = list(range(first, min(first + self.rows, len(self.packed))))
            yield self._read(chosen + [None] * (self.rows - len(chosen)))

    def tokens(self, number):
        """Return how many real tokens batch `number` has."""
        places = number * self.rows + np.arange(self.rows)
        rows = (self._order(place // len(self.packed))[place % len(self.packed)] for place in places)
        return sum(self.pieces[piece][2] for row in rows for piece in self.packed[row])

    def shape(self, number):
        """Return the shape of batch `number`."""
        return self.rows, self.length

    @property
    def batches_per_epoch(self):
        """Number of batches in which every row is seen once."""
        return len(self.packed) / self.rows

    def __str__(self):
        return (
            f"{len(self.pieces):,} pieces packed into rows of {self.length:,} tokens, {1 - self.filled:.1%} padding, "
            f"{self.rows:,} rows a batch, {self.batches_per_epoch:,.1f} batches an epoch"
        )

    def _read(self, rows):
        names = ("ids", "labels", "segments", "positions")
        batch = {name: np.zeros((self.rows, self.length), np.int32) for name in names}
        for row, number in enumerate(rows):
            place = 0
            for segment, piece in enumerate(self.packed[number] if number is not None else (), start=1):
                index, start, size = self.pieces[piece]
                document, here = self.ids[index], slice(place, place + size)
                before = document[start - 1] if start else START_ID
                labels = np.append(document[start : start + size], END_ID)[:size]
                batch["ids"][row, here] = np.append(before, labels[:-1])
                batch["labels"][row, here] = labels
                batch["segments"][row, here] = segment
                batch["positions"][row, here] = np.arange(size)
                place += size
        return batch | {"weights": (batch["segments"] > 0).astype(np.float32)}

    @functools.lru_cache(maxsize=4)  # noqa: B019 - a training has one of these
    def _order(self, epoch):
        return np.random.default_rng((self.seed, 3, epoch)).permutation(len(self.packed))
