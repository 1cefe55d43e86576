"""Untrained tokenizers of each kind, and the trainers of their vocabularies, on the `tokenizers` library."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from heedful.core.special_tokens import MASK, SPECIAL, UNKNOWN
from heedful.data.normalization import prepend_normalizer

OF_BERT = {"[START]": "[CLS]", "[END]": "[SEP]"}


class SplitLines:
    """Lines of text, split at new tokens and without them, as a tokenizer reads text that has such tokens.

    Args:
        lines: an iterable of lines.
        tokens: the new tokens.
    """

    def __init__(self, lines: Iterable[str], tokens: Iterable[str]):
        self._lines = lines
        self._tokens = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            yield from self._tokens.split(line)


def untrained(
    kind: str, lowercase: bool, options: Any, lines: Iterable[str], clean_up_spaces: bool, normalize: str
) -> Any:
    """Return a tokenizer of a kind, and its trainer.

    Args:
        kind: `bpe`, `wordpiece`, `unigram`, `word` or `char`.
        lowercase: lower-case first.
        options: keyword arguments of the trainer.
        lines: the text; only `wordpiece` reads it here, to collect its letters.
        clean_up_spaces: only for `wordpiece`, see `Tokenizer.train`.
        normalize: how Unicode forms and spaces are folded, see `normalization`.
    """
    if kind == "wordpiece":
        inner = wordpiece(lowercase, clean_up_spaces)
        prepend_normalizer(inner, normalize)
        return inner, _wordpiece_trainer(inner, lines, options)
    inner, trainer = {"bpe": _bpe, "unigram": _unigram, "word": _word, "char": _char}[kind](lowercase, options)
    prepend_normalizer(inner, normalize)
    return inner, trainer


def _bpe(lowercase, options):
    inner = _byte_level(tokenizers.Tokenizer(models.BPE()), lowercase)
    return inner, trainers.BpeTrainer(initial_alphabet=_alphabet(), **options)


def _unigram(lowercase, options):
    # The byte-level alphabet covers every text, so nothing is unknown and the round trip is exact.
    inner = _byte_level(tokenizers.Tokenizer(models.Unigram()), lowercase)
    return inner, trainers.UnigramTrainer(unk_token=UNKNOWN, initial_alphabet=_alphabet(), **options)


def wordpiece(lowercase: bool, clean_up_spaces: bool = True) -> Any:
    inner = tokenizers.Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    inner.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=lowercase)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece(cleanup=clean_up_spaces)
    return inner


def _wordpiece_trainer(inner, lines, options):
    """Return a trainer that learns the same vocabulary from the same lines each time.

    The library numbers word-internal letters in hash table order, which differs between runs, and its merges depend on
    these numbers. Registering the letters as special tokens fixes their numbers.
    """
    letters: Counter[str] = Counter()
    within = set()
    for line in lines:
        for word, _ in inner.pre_tokenizer.pre_tokenize_str(inner.normalizer.normalize_str(line)):
            letters.update(word)
            within.update(word[1:])
    # Each letter takes two entries, word-initial and word-internal; the rarest letters are dropped.
    room = (options["vocab_size"] - len(options["special_tokens"])) // 2
    kept = {letter for letter, _ in letters.most_common(room)}
    special = [*options["special_tokens"], *(f"##{letter}" for letter in sorted(within & kept))]
    alphabet = {"initial_alphabet": sorted(kept), "limit_alphabet": len(kept)}
    return trainers.WordPieceTrainer(**options | alphabet | {"special_tokens": special})


def with_special(inner: Any, special: Sequence[str]) -> Any:
    """Return a tokenizer in which only these tokens are special."""
    data = json.loads(inner.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in special]
    return tokenizers.Tokenizer.from_str(json.dumps(data))


def _word(lowercase, options):
    inner = tokenizers.Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    if lowercase:
        inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Whitespace()  # words and punctuation
    return inner, trainers.WordLevelTrainer(**options)


def _char(lowercase, options):
    inner = tokenizers.Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    if lowercase:
        inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    return inner, trainers.WordLevelTrainer(**options)


def _byte_level(inner, lowercase):
    if lowercase:
        inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return inner


def read_with_space(inner: Any) -> None:
    """Make a byte-level tokenizer add a space before each text, and remove it from decoded text."""
    before = [inner.normalizer] if inner.normalizer else []
    inner.normalizer = normalizers.Sequence([*before, normalizers.Prepend(" ")])
    inner.decoder = decoders.Sequence([inner.decoder, decoders.Strip(" ", left=1, right=0)])


def _alphabet():
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def in_our_order(tokens: list[str]) -> tuple[list[str], list[int] | None]:
    """Return the tokens of a vocab.txt with our special tokens first, and the ids that they had; None: they stay."""
    if set(SPECIAL) <= set(tokens) or not {"[CLS]", "[SEP]"} <= set(tokens):
        return tokens, None
    names = [OF_BERT.get(token, token) for token in (*SPECIAL, MASK)]
    original = [tokens.index(name) for name in names if name in tokens]
    original += [index for index, token in enumerate(tokens) if token not in names]
    ours = {theirs: own for own, theirs in OF_BERT.items()}
    return [ours.get(tokens[index], tokens[index]) for index in original], original
