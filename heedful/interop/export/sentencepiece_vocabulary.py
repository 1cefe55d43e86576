"""A byte-level vocabulary as a SentencePiece model, for engines that read no other.

SentencePiece merges characters, and spells those that it does not know in bytes; byte-level BPE merges bytes. The two
split a text alike as long as every character of the text that has a token of its own is one of the pieces. Tokens that
are parts of a character cannot be pieces, and are left out. Letters are not composed (NFC), and tabs and other spaces
than U+0020 are not folded.
"""

import json
from typing import Any, NamedTuple

from heedful.core.errors import InputError, extra_needed
from heedful.core.special_tokens import END_ID, SPECIAL, UNKNOWN_ID
from heedful.data.tokenizer import Tokenizer

END, UNKNOWN = "</s>", "<unk>"  # the names, and the order, that Marian expects
SPACE = "\u2581"
MULTIPLE = 8  # of the number of pieces, which integer products of Bergamot need


class Vocabulary(NamedTuple):
    """A SentencePiece model, and where its pieces come from."""

    content: bytes
    """Of the file."""
    ids: list[int]
    """The id in the tokenizer of each piece."""
    written: list[bool]
    """Whether a model may write the piece: one that stands for the same token as another is only read."""


def sentencepiece_library() -> Any:
    """Return the modules `sentencepiece` and its `sentencepiece_model_pb2`; raise `InputError` if they are missing."""
    with extra_needed("sentencepiece", "This export needs sentencepiece"):
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2
    return sentencepiece, sentencepiece_model_pb2


def sentencepiece_vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """Return the SentencePiece model of a tokenizer.

    Raises:
        InputError: sentencepiece is not installed, or the tokenizer is of a kind, or folds letters, in a way that
            SentencePiece lacks.
    """
    _, messages = sentencepiece_library()
    data = json.loads(tokenizer.to_json())
    if data["model"]["type"] != "BPE" or "ByteLevel" not in json.dumps(data["decoder"]):
        raise InputError("A SentencePiece vocabulary can be made of tokenizer.kind = 'bpe' only.")
    if tokenizer.lowercase or tokenizer.normalization == "nfkc":
        raise InputError(
            "A SentencePiece vocabulary cannot fold letters: no tokenizer.lowercase, no normalize = 'nfkc'."
        )
    added = [token["content"] for token in data["added_tokens"]]
    if tokenizer.prefix_space and len(added) > len(SPECIAL):
        raise InputError("A SentencePiece vocabulary with prefix_space cannot have new_tokens as we read them.")
    model, pieces = messages.ModelProto(), messages.ModelProto.SentencePiece
    ids: list[int] = []
    written: list[bool] = []

    def add(piece: str, score: float, kind: Any, number: int, is_written: bool = True) -> None:
        model.pieces.add(piece=piece, score=score, type=kind)
        ids.append(number)
        written.append(is_written)

    vocabulary, byte_of = data["model"]["vocab"], _bytes_by_letter()
    rank = {"".join(pair): number for number, pair in reversed(list(enumerate(data["model"]["merges"])))}
    add(END, 0.0, pieces.CONTROL, END_ID)
    add(UNKNOWN, 0.0, pieces.UNKNOWN, UNKNOWN_ID, False)
    for letter, value in sorted(byte_of.items(), key=lambda item: item[1]):
        add(f"<0x{value:02X}>", 0.0, pieces.BYTE, vocabulary[letter], value >= 0x80 or not chr(value).isprintable())
    for token in added[len(SPECIAL) :]:
        add(token, 0.0, pieces.USER_DEFINED, tokenizer.lookup(token))
    for token, number in sorted(vocabulary.items(), key=lambda item: item[1]):
        text = _text_of(token, byte_of) if token not in added else None
        if text is not None:
            add(text, -float(rank.get(token, len(rank))), pieces.NORMAL, number)
    while len(ids) % MULTIPLE:
        add(f"<filler {len(ids)}>", 0.0, pieces.UNUSED, UNKNOWN_ID, False)
    _set_rules(model, tokenizer)
    return Vocabulary(model.SerializeToString(), ids, written)


def _set_rules(model: Any, tokenizer: Tokenizer) -> None:
    """Write down how a text is split, and the special tokens."""
    trained, rules = model.trainer_spec, model.normalizer_spec
    trained.model_type, trained.vocab_size, trained.byte_fallback = trained.BPE, len(model.pieces), True
    trained.eos_id, trained.unk_id, trained.bos_id, trained.pad_id = 0, 1, -1, -1
    trained.eos_piece, trained.unk_piece = END, UNKNOWN
    rules.name, rules.add_dummy_prefix, rules.escape_whitespaces = "identity", tokenizer.prefix_space, True
    rules.remove_extra_whitespaces = tokenizer.normalization != "none"


def _text_of(token: str, byte_of: dict[str, int]) -> str | None:
    """Return a byte-level token as a piece; None if it is part of a character, or a byte that cannot be printed."""
    try:
        text = bytes(byte_of[letter] for letter in token).decode().replace(" ", SPACE)
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _bytes_by_letter() -> dict[str, int]:
    """Return the byte that each letter of a byte-level vocabulary stands for, as in GPT-2.

    Printable bytes stand for themselves; the others, in their order, for the letters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [value for value in range(0x100) if value not in printable]
    return {chr(value): value for value in printable} | {chr(0x100 + n): value for n, value in enumerate(others)}
