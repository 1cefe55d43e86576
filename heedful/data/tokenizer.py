"""Text to ids and back, built on the `tokenizers` library."""

import functools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models

from heedful.core.errors import InputError, library_errors_reported
from heedful.core.special_tokens import END_ID, MASK, PAD_ID, SPECIAL, START_ID, UNKNOWN, UNKNOWN_ID
from heedful.core.validation import parse_json
from heedful.data.normalization import WHITE_SPACE, normalization_of, normalized, without_strip
from heedful.data.padding import Padding, padded_batch
from heedful.data.vocabulary_training import (
    SplitLines,
    in_our_order,
    read_with_space,
    untrained,
    with_special,
    wordpiece,
)  # fmt: skip

TOKENIZER_KINDS, BYTE_LEVEL = ("bpe", "wordpiece", "unigram", "word", "char"), ("bpe", "unigram")
SHORT = 1000  # characters of a text for which it does not pay to release Python's lock, as `encode_batch_fast` does
SPACE, _SPACES = "\u0120", "\u0120\u2581"  # how byte-level tokens spell a space; and SentencePiece too


def vocab_lines(path: str | Path) -> list[str]:
    """Return the tokens of a `vocab.txt`, one per line; `splitlines` would also split at some of the tokens."""
    return Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")


class Tokenizer:
    """A trained vocabulary and the rules that split text into its tokens.

    `pad_id`, `unknown_id`, `start_id` and `end_id` are always 0 to 3; `mask_id` is None without a [MASK] token.
    `encode` adds no special tokens; a call, `tokenizer(texts)`, does. Every text that is not empty begins with the
    `prefix_ids`, none except for imported models such as BART. `original_ids` has the id of each token in the vocab.txt
    of a BERT that `from_vocab` read; otherwise it is None.

    Args:
        inner: a tokenizer of the `tokenizers` library.

    Raises:
        InputError: a special token is missing or has another id.
    """

    def __init__(self, inner: Any):
        self._inner = inner
        self._inner.no_padding()
        self._inner.no_truncation()
        self._inner.encode_special_tokens = True  # "[END]" in a text is five characters, not the end token
        for expected, token in enumerate(SPECIAL):  # models, masks and search rely on these ids
            index = inner.token_to_id(token)
            if index != expected:
                raise InputError(
                    f"This tokenizer {'has no' if index is None else f'gives the id {index} to'} {token}: the special "
                    f"tokens {', '.join(SPECIAL)} must have the ids 0 to {len(SPECIAL) - 1}, in this order."
                )
        self.pad_id, self.unknown_id, self.start_id, self.end_id = PAD_ID, UNKNOWN_ID, START_ID, END_ID
        self.mask_id = inner.token_to_id(MASK)
        self.original_ids: list[int] | None = None
        framed, bare = (inner.encode("a", add_special_tokens=framed).ids for framed in (True, False))
        starts = (start for start in range(len(framed)) if framed[start : start + len(bare)] == bare)
        self.prefix_ids: list[int] = framed[: next(starts, 0)] if bare else []

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        kind: str = "bpe",
        vocab_size: int = 8000,
        lowercase: bool = False,
        mask: bool = False,
        prefix_space: bool = False,
        clean_up_spaces: bool = True,
        normalize: str = "none",
        new_tokens: Sequence[str] = (),
    ) -> "Tokenizer":
        """Learn a vocabulary from an iterable of lines.

        Args:
            lines: text, read as a stream; WordPiece reads it twice, so an iterator is kept in memory.
            kind: `bpe` (byte-level, cased, reversible), `wordpiece` (BERT's splitting), `unigram` (reversible for
                characters it has seen; falls back to bytes), `word` (the most frequent words and punctuation marks),
                `char` (characters).
            vocab_size: maximum number of entries, special tokens included.
            lowercase: lower-case first; WordPiece strips accents too.
            mask: add a [MASK] token.
            prefix_space: encode each text as if it began with a space, so that its first word gets the same token as
                elsewhere. Only for `bpe` and `unigram`, whose tokens include the preceding space.
            clean_up_spaces: only for WordPiece, which does not keep spaces: whether `decode` removes the spaces before
                punctuation marks (`yes , sir .` becomes `yes, sir.`). Turn it off for text that contains such spaces,
                such as the TED talks.
            normalize: `nfc`, `nfkc` or `none`: how Unicode forms and spaces are folded, see `data.normalization`.
            new_tokens: tokens that are in the vocabulary whatever the text has, such as `<2en>`; they take the last
                ids. Text is split at them first.

        Raises:
            InputError: the kind is unknown or does not support `prefix_space`, the vocabulary is too small for the
                kind, a new token is blank, given twice or learned anyway, or the text is empty.
        """
        special = [*SPECIAL, MASK] if mask else list(SPECIAL)
        _require_possible(kind, vocab_size, len(special) + len(new_tokens), prefix_space)
        options = {"vocab_size": vocab_size - len(new_tokens), "special_tokens": special, "show_progress": False}
        if kind == "wordpiece":
            lines = list(lines) if iter(lines) is lines else lines
        lines = SplitLines(lines, new_tokens) if new_tokens else lines
        inner, trainer = untrained(kind, lowercase, options, lines, clean_up_spaces, normalize)
        if prefix_space:
            read_with_space(inner)
        seen = 0

        def counted():
            nonlocal seen
            for line in lines:
                seen += bool(line.strip()) or (kind == "char" and bool(line))
                yield line

        inner.train_from_iterator(counted(), trainer)
        if not seen:
            raise InputError("There is no text to learn a vocabulary from.")
        trained = cls(with_special(inner, special))
        return trained.with_tokens(new_tokens) if new_tokens else trained

    @classmethod
    def from_vocab(cls, path: str | Path, lowercase: bool = True) -> "Tokenizer":
        """Read a WordPiece `vocab.txt`: one token per line, in the order of their ids.

        The vocabulary of a BERT may have its special tokens anywhere. They become the first ones, with the ids 0 to 4,
        and [CLS] and [SEP] are [START] and [END]; `original_ids` has the ids in the file.
        """
        tokens, original = in_our_order(vocab_lines(path))
        inner = wordpiece(lowercase)
        inner.model = models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token=UNKNOWN)
        inner.add_special_tokens([token for token in (*SPECIAL, MASK) if token in tokens])
        tokenizer = cls(inner)
        tokenizer.original_ids = original
        return tokenizer

    def with_tokens(self, tokens: Iterable[str]) -> "Tokenizer":
        """Return a copy with more tokens, which take the next ids; text is split at them first.

        Raises:
            InputError: a token is blank, given twice, or in the vocabulary.
        """
        tokens = list(tokens)
        for number, token in enumerate(tokens):
            if not token.strip() or token in tokens[:number]:
                raise InputError(f"tokenizer.new_tokens: {token!r} is blank or given twice.")
            if self.lookup(token) is not None:
                raise InputError(f"tokenizer.new_tokens: {token!r} is in the vocabulary already.")
        copy = type(self).from_json(json.dumps(without_strip(json.loads(self.to_json()))))
        copy._inner.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in tokens])
        return copy

    def save_vocab(self, path: str | Path) -> None:
        """Write the tokens, one per line, in the order of their ids."""
        Path(path).write_text("\n".join(map(self.lookup, range(len(self)))) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read what `save` wrote.

        Raises:
            InputError: the file is missing or is not a tokenizer.
        """
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise InputError(f"{path} does not exist.") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8.") from error

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """Create a tokenizer from its JSON text; raise `InputError` if the text is not a tokenizer."""
        try:
            parse_json(text, "a tokenizer")
            with library_errors_reported("not a tokenizer"):
                return cls(tokenizers.Tokenizer.from_str(text))
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"not a tokenizer: {error}.") from error

    def to_json(self) -> str:
        """Return the whole tokenizer as JSON text."""
        return self._inner.to_str(pretty=True)

    def save(self, path: str | Path) -> None:
        """Write a JSON file that `load` and the `tokenizers` library can read."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; see `encode_batch`."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Encode many texts in parallel; return the ids of each.

        Raises:
            InputError: a text was not UTF-8: Python keeps such bytes as lone surrogates; or the rules of the tokenizer,
                which may come from elsewhere, fail on a text.
        """
        texts = [text.strip(WHITE_SPACE) for text in texts] if self.normalization != "none" else list(texts)
        try:
            with library_errors_reported("The tokenizer fails on a text"):
                if len(texts) == 1 and len(texts[0]) < SHORT:
                    encodings = [self._inner.encode(texts[0], add_special_tokens=False)]
                else:
                    encodings = self._inner.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError as error:  # how the library reports lone surrogates
            if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
                raise InputError("A text is not UTF-8.") from error
            raise
        if self.prefix_ids:
            return [[*self.prefix_ids, *encoding.ids] if encoding.ids else [] for encoding in encodings]
        return [encoding.ids for encoding in encodings]

    def words_of_batch(self, texts: Iterable[str]) -> list[list[tuple[str, list[int]]]]:
        """Return the words of each text as the vocabulary spells them, with their ids; an added token has none."""
        texts = [text.strip(WHITE_SPACE) for text in texts] if self.normalization != "none" else list(texts)
        added = self._inner.get_added_tokens_decoder().keys()
        rows = []
        for encoding in self._inner.encode_batch(texts, add_special_tokens=False):
            words: list[tuple[str, list[int]]] = (
                [("", list(self.prefix_ids))] if self.prefix_ids and encoding.ids else []
            )
            last = None
            for token, number, word in zip(encoding.tokens, encoding.ids, encoding.word_ids, strict=True):
                if number in added or word is None:
                    words.append(("", [number]))
                    last = None
                elif word == last:
                    words[-1] = (words[-1][0] + token, [*words[-1][1], number])
                else:
                    words.append((token, [number]))
                    last = word
            rows.append(words)
        return rows

    def ids_and_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text, and which characters of it, from start to end, each of them stands for."""
        removed = len(text) - len(text.lstrip(WHITE_SPACE)) if self.normalization != "none" else 0
        [ids] = self.encode_batch([text])
        shown = text.strip(WHITE_SPACE) if removed or self.normalization != "none" else text
        spans = [
            (start + removed, end + removed)
            for start, end in self._inner.encode(shown, add_special_tokens=False).offsets
        ]
        return ids, [(0, 0)] * (len(ids) - len(spans)) + spans

    def __call__(
        self,
        texts: str | Iterable[str],
        max_length: int | None = None,
        padding: Padding = "longest",
        truncation: bool = False,
        special_tokens: bool = True,
        original_ids: bool = False,
    ) -> dict[str, np.ndarray]:
        """Return one or several texts as arrays `ids` and `attention_mask`, int32 (texts, length), padded with 0.

        Args:
            max_length: largest length, special tokens included; None: no limit.
            padding: pad to the `longest` text, or to `max_length`.
            truncation: cut longer texts, which are an error otherwise. The end token is kept.
            special_tokens: enclose each text in [START] and [END].
            original_ids: return the ids of the file that the vocabulary was read from, see `from_vocab`.

        Raises:
            InputError: a text is too long or not UTF-8; or there are no original ids.
        """
        if original_ids and self.original_ids is None:
            raise InputError("This tokenizer has no original ids: only that of a BERT's vocab.txt has.")
        rows = self.encode_batch([texts] if isinstance(texts, str) else texts)
        if special_tokens:
            rows = [[START_ID, *row, END_ID] for row in rows]
        batch = padded_batch(rows, max_length, padding, truncation, ends=int(special_tokens))
        if original_ids:
            batch["ids"] = np.array(self.original_ids, np.int32)[batch["ids"]]
        return batch

    def decode(self, ids: Iterable[int], clean_up_spaces: bool | None = None, *, keep_unknown: bool = False) -> str:
        """Return the text of `ids` without special tokens and the prefix.

        Args:
            clean_up_spaces: for WordPiece, whether to remove spaces as in `train`; None: as in training.
            keep_unknown: whether an unknown token is written as [UNK] instead of being left out.
        """
        ids = list(ids)
        if self.prefix_ids and ids[: len(self.prefix_ids)] == self.prefix_ids:
            ids = ids[len(self.prefix_ids) :]
        if keep_unknown:
            tokens = [self.lookup(i) for i in ids if i == UNKNOWN_ID or self.lookup(i) not in (*SPECIAL, MASK)]
            decoder = self._inner.decoder
            if clean_up_spaces is not None and self.within:
                decoder = decoders.WordPiece(cleanup=clean_up_spaces)
            return decoder.decode(tokens) if decoder else " ".join(tokens)
        if clean_up_spaces is None or not isinstance(self._inner.model, models.WordPiece):
            with library_errors_reported("The tokenizer cannot decode ids"):
                return self._inner.decode([int(i) for i in ids], skip_special_tokens=True)
        kept = [token for token in map(self.lookup, ids) if token not in (*SPECIAL, MASK)]
        return decoders.WordPiece(cleanup=clean_up_spaces).decode(kept)

    @property
    def lowercase(self) -> bool:
        """Whether text is lower-cased first, so that decoded text has no capital letters."""
        return self._normalized("A").strip() == "a"

    @functools.cached_property
    def normalization(self) -> str:
        """How Unicode forms and spaces of a text are folded: `nfc`, `nfkc` or `none`, see `data.normalization`."""
        return normalization_of(self._inner)

    def normalized(self, text: str) -> str:
        """Return a text with its Unicode forms and spaces folded as in encoding."""
        return normalized(text, self.normalization)

    @property
    def prefix_space(self) -> bool:
        """Whether a text is encoded as if it began with a space, see `train`."""
        return self._normalized("a").startswith(" ")

    @functools.cached_property
    def carries_spaces(self) -> bool:
        """Whether tokens include the space before a word, so that text to be continued must not end with a space."""
        return any(len(token) > 1 and token[0] in _SPACES for token in self._inner.get_vocab())

    @property
    def within(self) -> str | None:
        """The prefix of tokens that continue a word (`##` for WordPiece), or None where tokens have no such prefix."""
        return "##" if isinstance(self._inner.model, models.WordPiece) else None

    @property
    def lossless(self) -> bool:
        """Whether decoding restores every text exactly: bpe and unigram, without lower case and normalisation.

        The others lose text: word and wordpiece what separates words, and words they cannot spell; char characters that
        the training text lacks.
        """
        return self.keeps_text and any(token in self._inner.get_vocab() for token in (SPACE, SPACE + "a"))

    @property
    def keeps_text(self) -> bool:
        """Whether decoding restores a text of known tokens exactly; word tokens do not record what separates them."""
        kept = isinstance(self._inner.decoder, (decoders.ByteLevel, decoders.Fuse))
        return kept and self._inner.normalizer is None

    def lookup(self, token: str | int) -> Any:
        """Return the id of a token (None if unknown), or the token of an id."""
        return self._inner.token_to_id(token) if isinstance(token, str) else self._inner.id_to_token(int(token))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return a short readable string for each id."""
        shown = []
        for i in ids:
            token = self.lookup(i)
            spaced = " " if self.prefix_space and token.startswith(SPACE) else ""  # decoding removes the first space
            shown.append(token if token in SPECIAL else spaced + self._inner.decode([int(i)]) or token)
        return shown

    def begins_word(self) -> list[bool]:
        """Return, for each id, whether it begins a word or is a punctuation mark."""
        tokens = [self._inner.id_to_token(i) for i in range(len(self))]
        if self.within:
            return [not token.startswith(self.within) for token in tokens]
        if isinstance(self._inner.model, models.WordLevel):
            return [True] * len(tokens)
        # Byte-level: the white space before a word is part of its token, spelled as a letter. Other bytes beyond ASCII
        # are parts of characters.
        return [t[0] in f"{SPACE}\u010a\u0109" or (t[0].isascii() and not t[0].isalnum()) for t in tokens]

    def __len__(self) -> int:
        return self._inner.get_vocab_size()

    def _normalized(self, text):
        return self._inner.normalizer.normalize_str(text) if self._inner.normalizer else text


def _require_possible(kind, vocab_size, special, prefix_space):
    """Raise `InputError` for a vocabulary that cannot be learned; `special` counts the tokens that are not learned."""
    if kind not in TOKENIZER_KINDS:
        raise InputError(f"Unknown tokenizer {kind!r}: choose one of {', '.join(TOKENIZER_KINDS)}.")
    if prefix_space and kind not in BYTE_LEVEL:
        raise InputError(f"prefix_space is for {' and '.join(BYTE_LEVEL)}: {kind} tokens contain no spaces.")
    fewest = special + (256 if kind in BYTE_LEVEL else 0)
    if vocab_size <= fewest:
        raise InputError(f"A {kind} vocabulary needs more than {fewest} entries.")
