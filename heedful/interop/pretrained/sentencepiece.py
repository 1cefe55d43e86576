"""Convert SentencePiece models (Kudo and Richardson 2018), one per language, to tokenizer.json data."""

import base64
from typing import Any

from heedful.core.errors import InputError, extra_needed
from heedful.interop.pretrained.vocabulary import NEVER_CHOSEN, Side

SOURCE, TARGET, VOCABULARY = "source.spm", "target.spm", "vocab.json"
UNKNOWN_PENALTY = 10  # unknown characters score this much below the rarest piece, as in SentencePiece


def read_sides(folder: Any, special: Any) -> Any:
    """Return the `Side`s of source and target.

    The source has only tokens that can occur in a source text. The target has all, since the model may write any.

    Args:
        folder: a `PretrainedFolder` with `source.spm`, `target.spm` and their joint `vocab.json`.
        special: tokens that occur in no text, but are needed.

    Raises:
        InputError: a file is missing or damaged, or needs an unsupported kind of tokenization.
    """
    vocabulary = folder.read_json(VOCABULARY)
    if set(vocabulary.values()) != set(range(len(vocabulary))):
        raise InputError(f"{folder.path / VOCABULARY} does not number its tokens from 0 on.")
    source, target = (_read_model(folder.path / name) for name in (SOURCE, TARGET))
    of_source = {piece.piece for piece in source.pieces}.union(special)
    readable = {
        token: index
        for token, index in vocabulary.items()
        if token in of_source or len(token) == 1 or _names_language(token)
    }
    writable = dict(sorted(vocabulary.items(), key=lambda item: item[1]))
    return [Side(_tokenizer_data(source, readable), readable), Side(_tokenizer_data(target, writable))]


def _read_model(path):
    with extra_needed("sentencepiece", f"To read {path}"):
        from google.protobuf.message import DecodeError
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]
    if not path.is_file():
        raise InputError(f"{path} does not exist.")
    model = ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise InputError(f"{path} is no SentencePiece model.") from error
    trained = model.trainer_spec
    kinds = {piece.type for piece in model.pieces}
    unknown_ways = {
        "is not a unigram model": trained.model_type != trained.UNIGRAM,
        "falls back to bytes": trained.byte_fallback,
        "puts white space after words": trained.treat_whitespace_as_suffix,
        "has user-defined tokens": model.SentencePiece.USER_DEFINED in kinds,
        "has no pieces": model.SentencePiece.NORMAL not in kinds,
    }
    for way, there in unknown_ways.items():
        if there:
            raise InputError(f"{path} {way}, which is not supported.")
    return model


def _tokenizer_data(model, vocabulary):
    """Return tokenizer.json data that splits text as `model` does; `vocabulary` maps tokens to ids.

    Marian also looks up text for which SentencePiece has no piece. So a single character of the vocabulary can be a
    token although the model lacks it; it scores like an unknown character there. Longer such tokens are never chosen.
    """
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type == piece.NORMAL}
    unknown = min(scores.values()) - UNKNOWN_PENALTY
    pieces = {token: scores.get(token, unknown if len(token) == 1 else NEVER_CHOSEN) for token in vocabulary}
    rules = model.normalizer_spec
    steps: list[dict[str, Any]] = []
    if rules.precompiled_charsmap:
        characters = base64.b64encode(rules.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": characters})
    if rules.remove_extra_whitespaces:
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    spaces = {
        "type": "Metaspace", "replacement": "\u2581", "split": True,
        "prepend_scheme": "always" if rules.add_dummy_prefix else "never",
    }  # fmt: skip
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": index, "content": token} | flags for token, index in vocabulary.items() if _names_language(token)
        ],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": spaces,
        "decoder": spaces,
        "model": {"type": "Unigram", "unk_id": None, "vocab": list(map(list, pieces.items()))},
    }


def _names_language(token):
    """Return whether a token is a target-language token such as `>>fra<<`."""
    return token.startswith(">>") and token.endswith("<<") and len(token) > 4
