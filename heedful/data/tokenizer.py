"""Text to ids and back, on the `tokenizers` library; special ids by name."""

import functools
import json
from collections import Counter
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from heedful.checked import parse_json
from heedful.errors import InputError
from heedful.special_tokens import END_ID, MASK, PAD_ID, SPECIAL, START_ID, UNKNOWN, UNKNOWN_ID

KINDS = ("bpe", "wordpiece", "unigram", "word", "char")
BYTE_LEVEL = ("bpe", "unigram")
_SPACE = "\u0120"  # as byte-level tokens write it
_SPACES = f"{_SPACE}\u2581"  # ... and as SentencePiece does


def vocab_lines(path):
    """Return the tokens of a `vocab.txt`, one a line; some are characters at which `splitlines` would cut."""
    return Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")


class Tokenizer:
    """A trained vocabulary with its way of splitting text.

    `pad_id`, `unknown_id`, `start_id` and `end_id` are always 0 to 3; `mask_id` is None without a [MASK] token.
    `encode` adds no special tokens.

    Args:
        inner: a tokenizer of the `tokenizers` library.

    Raises:
        InputError: a special token is missing or has another id.
    """

    def __init__(self, inner):
        self._inner = inner
        self._inner.no_padding()
        self._inner.no_truncation()
        self._inner.encode_special_tokens = True  # "[END]" in a text is five characters, not the end
        for expected, token in enumerate(SPECIAL):  # models, masks and search rely on these ids
            found = inner.token_to_id(token)
            if found != expected:
                raise InputError(
                    f"This tokenizer {'has no' if found is None else f'gives the id {found} to'} {token}: the special "
                    f"tokens {', '.join(SPECIAL)} must have the ids 0 to {len(SPECIAL) - 1}, in this order."
                )
        self.pad_id, self.unknown_id, self.start_id, self.end_id = PAD_ID, UNKNOWN_ID, START_ID, END_ID
        self.mask_id = inner.token_to_id(MASK)

    @classmethod
    def train(
        cls, lines, kind="bpe", vocab_size=8000, lowercase=False, mask=False, prefix_space=False, clean_up_spaces=True
    ):
        """Learn a vocabulary from an iterable of lines.

        Args:
            lines: text; read as a stream, for WordPiece twice (what can be read once only is then kept in memory).
            kind: `bpe` (byte-level, cased, reversible), `wordpiece` (BERT's splitting), `unigram` (reversible for
                characters it has seen; falls back to bytes), `word` (the most frequent words and punctuation marks),
                `char` (characters).
            vocab_size: most entries, special tokens included.
            lowercase: lower-case first; WordPiece strips accents too.
            mask: have a [MASK] token too.
            prefix_space: read each text as if a space stood before it, so that its first word is the token that it is
                within a text; for the kinds `bpe` and `unigram`, where the space belongs to the word.
            clean_up_spaces: for WordPiece, which does not keep spaces: whether `decode` removes the spaces before
                punctuation marks and within English contractions (`it ' s .` becomes `it's.`). Leave it off where the
                text itself has such spaces, as that of the TED talks has.

        Raises:
            InputError: the kind is unknown or has no such spaces, the vocabulary too small for the kind, or there is
                no text.
        """
        if kind not in KINDS:
            raise InputError(f"Unknown tokenizer {kind!r}: choose one of {', '.join(KINDS)}.")
        if prefix_space and kind not in BYTE_LEVEL:
            raise InputError(f"prefix_space is for {' and '.join(BYTE_LEVEL)}: in {kind} tokens there are no spaces.")
        bytes_needed = 256 if kind in BYTE_LEVEL else 0
        special = [*SPECIAL, MASK] if mask else list(SPECIAL)
        if vocab_size <= bytes_needed + len(special):
            raise InputError(f"A {kind} vocabulary needs more than {bytes_needed + len(special)} entries.")
        options = {"vocab_size": vocab_size, "special_tokens": special, "show_progress": False}
        if kind == "wordpiece":
            lines = list(lines) if iter(lines) is lines else lines
            inner = _wordpiece(lowercase, clean_up_spaces)
            trainer = _wordpiece_trainer(inner, lines, options)
        else:
            inner, trainer = _KIND[kind](lowercase, options)
        if prefix_space:
            _read_with_space(inner)
        seen = 0

        def counted():
            nonlocal seen
            for line in lines:
                seen += bool(line.strip()) or (kind == "char" and bool(line))
                yield line

        inner.train_from_iterator(counted(), trainer)
        if not seen:
            raise InputError("There is no text to learn a vocabulary from.")
        return cls(_with_special(inner, special))

    @classmethod
    def from_vocab(cls, path, lowercase=True):
        """Read a WordPiece `vocab.txt`: one token a line, its id the line's number.

        Our special tokens must be there, [PAD] first.
        """
        tokens = vocab_lines(path)
        inner = _wordpiece(lowercase)
        inner.model = models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token=UNKNOWN)
        inner.add_special_tokens([token for token in (*SPECIAL, MASK) if token in tokens])
        return cls(inner)

    def save_vocab(self, path):
        """Write the tokens one a line, in the order of their ids."""
        Path(path).write_text("\n".join(map(self.lookup, range(len(self)))) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path):
        """Read what `save` wrote.

        Raises:
            InputError: the file is missing or is no tokenizer.
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
    def from_json(cls, text):
        """Make a tokenizer of its JSON text; `InputError` when it is none."""
        try:
            parse_json(text, "a tokenizer")
            return cls(tokenizers.Tokenizer.from_str(text))
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"not a tokenizer: {error}.") from error

    def to_json(self):
        """Return all there is to know about the tokenizer as JSON text."""
        return self._inner.to_str(pretty=True)

    def save(self, path):
        """Write a JSON file that `load` and the `tokenizers` library read."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    def encode(self, text):
        """Return the ids of a text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts):
        """Return the ids of each of many texts, in parallel.

        Raises:
            InputError: a text was not UTF-8: Python keeps such bytes as halves of characters.
        """
        texts = list(texts)
        try:
            encodings = self._inner.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError as error:  # the library's word for it
            if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
                raise InputError("There is text that is not UTF-8.") from error
            raise
        return [encoding.ids for encoding in encodings]

    def decode(self, ids, clean_up_spaces=None):
        """Return the text of `ids` without special tokens.

        Args:
            clean_up_spaces: for WordPiece, whether to remove the spaces before punctuation marks and within English
                contractions, as in `train`; None: as the tokenizer was trained.
        """
        if clean_up_spaces is None or not isinstance(self._inner.model, models.WordPiece):
            return self._inner.decode([int(i) for i in ids], skip_special_tokens=True)
        tokens = [token for token in map(self.lookup, ids) if token not in (*SPECIAL, MASK)]
        return decoders.WordPiece(cleanup=clean_up_spaces).decode(tokens)

    @property
    def lowercase(self):
        """Whether text is lower-cased first, so that no capital letter ever comes back."""
        return self._normalized("A").strip() == "a"

    @property
    def prefix_space(self):
        """Whether a text is read as if a space stood before it, so that its first word is a word like others."""
        return self._normalized("a").startswith(" ")

    @functools.cached_property
    def carries_spaces(self):
        """Whether the space before a word is part of the word's token, so that a text does not end in one."""
        return any(len(token) > 1 and token[0] in _SPACES for token in self._inner.get_vocab())

    @property
    def within(self):
        """What the tokens begin with that go on with a word, as WordPiece spells them; None where nothing tells."""
        return "##" if isinstance(self._inner.model, models.WordPiece) else None

    @property
    def keeps_text(self):
        """Whether decoding gives back a text of known tokens to the letter: words do not say what stood between."""
        kept = isinstance(self._inner.decoder, (decoders.ByteLevel, decoders.Fuse))
        return kept and self._inner.normalizer is None

    def lookup(self, token):
        """Return the id of a token (None if unknown), or the token of an id."""
        return self._inner.token_to_id(token) if isinstance(token, str) else self._inner.id_to_token(int(token))

    def pieces(self, ids):
        """Return ids as short readable texts, for people to look at."""
        shown = []
        for i in ids:
            token = self.lookup(i)
            spaced = " " if self.prefix_space and token.startswith(_SPACE) else ""  # of which decoding takes the first
            shown.append(token if token in SPECIAL else spaced + self._inner.decode([int(i)]) or token)
        return shown

    def begins_word(self):
        """Say of each id whether a word, or a punctuation mark, begins with it: a list of booleans."""
        tokens = [self._inner.id_to_token(i) for i in range(len(self))]
        if self.within:
            return [not token.startswith(self.within) for token in tokens]
        if isinstance(self._inner.model, models.WordLevel):
            return [True] * len(tokens)
        # Byte-level: white space before a word is written as a letter, and belongs to it; other bytes beyond ASCII are
        # parts of letters.
        return [t[0] in f"{_SPACE}\u010a\u0109" or (t[0].isascii() and not t[0].isalnum()) for t in tokens]

    def __len__(self):
        return self._inner.get_vocab_size()

    def _normalized(self, text):
        return self._inner.normalizer.normalize_str(text) if self._inner.normalizer else text


def _bpe(lowercase, options):
    inner = _byte_level(tokenizers.Tokenizer(models.BPE()), lowercase)
    return inner, trainers.BpeTrainer(initial_alphabet=_alphabet(), **options)


def _unigram(lowercase, options):
    # On the byte-level alphabet: every text has pieces, so nothing is unknown and the round trip is exact.
    inner = _byte_level(tokenizers.Tokenizer(models.Unigram()), lowercase)
    return inner, trainers.UnigramTrainer(unk_token=UNKNOWN, initial_alphabet=_alphabet(), **options)


def _wordpiece(lowercase, clean_up_spaces=True):
    inner = tokenizers.Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    inner.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=lowercase)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece(cleanup=clean_up_spaces)
    return inner


def _wordpiece_trainer(inner, lines, options):
    """Return a trainer that makes one vocabulary of the same lines each time.

    The library numbers letters within words in the order of a hash table, another one each time, and what it merges
    depends on these numbers. As special tokens they are numbered beforehand.
    """
    letters, within = Counter(), set()
    for line in lines:
        for word, _ in inner.pre_tokenizer.pre_tokenize_str(inner.normalizer.normalize_str(line)):
            letters.update(word)
            within.update(word[1:])
    # Each letter has two entries, at the beginning of a word and within; the rarest have to go.
    room = (options["vocab_size"] - len(options["special_tokens"])) // 2
    kept = {letter for letter, _ in letters.most_common(room)}
    special = [*options["special_tokens"], *(f"##{letter}" for letter in sorted(within & kept))]
    alphabet = {"initial_alphabet": sorted(kept), "limit_alphabet": len(kept)}
    return trainers.WordPieceTrainer(**options | alphabet | {"special_tokens": special})


def _with_special(inner, special):
    """Return a tokenizer in which only these tokens are special."""
    data = json.loads(inner.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] in special]
    return tokenizers.Tokenizer.from_str(json.dumps(data))


def _word(lowercase, options):
    inner = tokenizers.Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    if lowercase:
        inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Whitespace()  # words, and what stands between them
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


def _read_with_space(inner):
    """Have a byte-level tokenizer put a space before each text, and take it away from what is decoded."""
    before = [inner.normalizer] if inner.normalizer else []
    inner.normalizer = normalizers.Sequence([*before, normalizers.Prepend(" ")])
    inner.decoder = decoders.Sequence([inner.decoder, decoders.Strip(" ", left=1, right=0)])


def _alphabet():
    return sorted(pre_tokenizers.ByteLevel.alphabet())


_KIND = {"bpe": _bpe, "unigram": _unigram, "word": _word, "char": _char}
