"""Convert a pretrained model's tokenizer to our ids: special tokens first, then all others in their order."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from heedful.core.errors import InputError
from heedful.core.special_tokens import MASK, SPECIAL, UNKNOWN, UNKNOWN_ID
from heedful.data.tokenizer import Tokenizer, vocab_lines

NEVER_CHOSEN = -1e9  # the score of a Unigram token that text is never split into
# The settings in tokenizer_config.json with which a vocab.txt can be read, and their supported values.
SUPPORTED_SETTINGS = {
    "tokenizer_class": (None, "BertTokenizer", "BertTokenizerFast"), "word_tokenizer_type": ("basic",),
    "subword_tokenizer_type": ("wordpiece",), "do_basic_tokenize": (True,),
}  # fmt: skip
# Without this split, Unigram reads the text "[END]" as the special token, whatever its score.
SPLIT_SPECIAL_TEXT = {
    "type": "Split", "behavior": "Isolated", "invert": False,
    "pattern": {"Regex": rf"\[(?=({'|'.join(token.strip('[]') for token in (*SPECIAL, MASK))})\])"},
}  # fmt: skip


class Side(NamedTuple):
    """The pretrained tokenizer of one side.

    Args:
        data: content of a tokenizer.json; by default that of the folder, or a conversion of its vocab.txt.
        ids: pretrained id of each token that this side uses; None: all ids of `data`.
    """

    data: dict | None = None
    ids: dict | None = None


class Vocabulary:
    """The mapping of our token ids to those of the pretrained model.

    Args:
        folder: a `PretrainedFolder`.
        names: for each of our special tokens, its name or id in the pretrained model, or None if it has none, such as
            `{"[START]": "[CLS]"}`.
        side: its tokenizer.
        size: size of the vocabulary; None: as config.json says.
        optional: those of our special tokens that its tokenizer may lack.
    """

    def __init__(
        self,
        folder: Any,
        names: Mapping[str, Any],
        side: Side = Side(),  # noqa: B008 - a tuple is immutable
        size: int | None = None,
        optional: Sequence[str] = (),
    ):
        self.size, ids = size or folder.setting("vocab_size"), side.ids
        self._data = side.data or _data(folder, names)
        model = self._data["model"]
        is_unigram = isinstance(model["vocab"], list)  # Unigram: pieces with scores
        if ids is None:
            pretrained_ids = (
                {piece: i for i, (piece, _) in enumerate(model["vocab"])} if is_unigram else dict(model["vocab"])
            )
            pretrained_ids |= {token["content"]: token["id"] for token in self._data.get("added_tokens", [])}
        else:
            pretrained_ids = ids
        if max(pretrained_ids.values()) >= self.size:
            raise InputError(f"{folder.path}: the tokenizer has ids beyond the model's vocabulary of {self.size}.")
        names = {token: name for token, name in names.items() if token not in optional or name in pretrained_ids}
        ours = [*SPECIAL, MASK] if MASK in names else list(SPECIAL)
        named = {token: name for token, name in names.items() if isinstance(name, str)}
        if missing := [name for name in named.values() if name not in pretrained_ids]:
            raise InputError(f"{folder.path}: the tokenizer has no token {missing[0]!r}.")
        special = {token: pretrained_ids[named[token]] if token in named else names.get(token) for token in ours}
        used_ids = range(self.size) if ids is None else sorted(ids.values())
        other_ids = [index for index in used_ids if index not in special.values()]
        self.old_ids = [special[token] for token in ours] + other_ids
        self._tokens = ours + [None] * len(other_ids)
        by_id = {index: token for token, index in pretrained_ids.items()}
        for our_id in range(len(ours), len(self.old_ids)):
            self._tokens[our_id] = by_id.get(self.old_ids[our_id], f"[unused {self.old_ids[our_id]}]")
        self._pretrained_ids = pretrained_ids
        self._scores = dict(map(tuple, model["vocab"])) if is_unigram else None

    def token(self, old_id: int) -> str | None:
        """Return the token that has an id in the pretrained model."""
        return next((token for token, index in self._pretrained_ids.items() if index == old_id), None)

    def rows(self, array: np.ndarray, missing: float = 0.0) -> np.ndarray:
        """Return the rows of a pretrained array in our order; tokens that the pretrained model lacks get `missing`."""
        known = np.array([index is not None for index in self.old_ids])
        values = array[[index or 0 for index in self.old_ids]]
        return np.where(known.reshape(-1, *[1] * (array.ndim - 1)), values, np.float32(missing))

    def tokenizer(self, prefix: str | None = None) -> Tokenizer:
        """Return the tokenizer with our ids; each text begins with the token `prefix`."""
        data = copy.deepcopy(self._data)
        model = data["model"]
        if self._scores is None:
            model["vocab"] = {token: our_id for our_id, token in enumerate(self._tokens)}
        else:
            model["vocab"] = [[token, self._scores.get(token, NEVER_CHOSEN)] for token in self._tokens]
            model["unk_id"] = UNKNOWN_ID
            steps = _steps(data["pre_tokenizer"])
            data["pre_tokenizer"] = {
                "type": "Sequence",
                "pretokenizers": steps if SPLIT_SPECIAL_TEXT in steps else [*steps, SPLIT_SPECIAL_TEXT],
            }
        if model.get("unk_token"):
            model["unk_token"] = UNKNOWN
        special = [token for token in self._tokens if token in (*SPECIAL, MASK)]
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        added: list[dict[str, Any]] = [{"content": token} | flags for token in special]
        ids = {token: our_id for our_id, token in enumerate(self._tokens)}
        others = [token for token in data.get("added_tokens", []) if token["content"] in ids.keys() - special]
        added += others  # keep them: special ones, such as language codes, must not be split as text
        data["added_tokens"] = [token | {"id": ids[token["content"]]} for token in added]
        data["post_processor"] = data["truncation"] = data["padding"] = None  # we add special tokens ourselves
        if prefix is not None and prefix not in ids:
            raise InputError(f"The tokenizer starts each text with {prefix!r}, which is not in its vocabulary.")
        if prefix:
            data["post_processor"] = template([prefix], [], ids.__getitem__)
        return Tokenizer.from_json(json.dumps(data))


def template(before: Sequence[str], after: Sequence[str], id_of: Callable[[str], int]) -> dict[str, Any]:
    """Return the post-processor of a tokenizer.json that adds tokens before and after each text."""

    def step(token):
        return {"SpecialToken": {"id": token, "type_id": 0}}

    texts = {"A": {"Sequence": {"id": "A", "type_id": 0}}, "B": {"Sequence": {"id": "B", "type_id": 0}}}
    single = [*map(step, before), texts["A"], *map(step, after)]
    ids = {token: id_of(token) for token in (*before, *after)}
    return {
        "type": "TemplateProcessing", "single": single, "pair": [*single, texts["B"], *map(step, after)],
        "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]} for token, i in ids.items()},
    }  # fmt: skip


def special_names(folder: Any, roles: Mapping[str, str], usual: Sequence[str]) -> dict[str, str]:
    """Return the name of each of our special tokens in a folder's tokenizer.

    Args:
        folder: a `PretrainedFolder`.
        roles: the key of a tokenizer_config.json or special_tokens_map.json for each of our special tokens.
        usual: their names in a folder without these files, in the same order.
    """
    named: dict[str, Any] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder.path / file).is_file():
            named |= folder.read_json(file)
    names = {}
    for (token, role), name in zip(roles.items(), usual, strict=True):
        value = named.get(role) or name
        names[token] = value["content"] if isinstance(value, dict) else value
    return names


def adds_start_token(folder: Any) -> bool:
    """Return whether a folder's tokenizer begins each text with a special token."""
    if (folder.path / "tokenizer.json").is_file():
        post_processor = folder.read_json("tokenizer.json").get("post_processor") or {}
        for step in post_processor.get("processors", [post_processor]):
            if step.get("single"):
                return "SpecialToken" in step["single"][0]
    return folder.tokenizer_settings().get("add_bos_token") is True


def unknown_token(folder: Any) -> str | None:
    """Return the token that a folder's tokenizer gives to unknown text, or None: byte-level ones know all text."""
    model = folder.read_json("tokenizer.json")["model"] if (folder.path / "tokenizer.json").is_file() else {}
    if isinstance(model.get("vocab"), list) and model.get("unk_id") is not None:  # Unigram
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def target_side(folder: Any) -> Side:
    """Return the `Side` of a target with a vocabulary of its own: that of `target/tokenizer.json`."""
    return Side(folder.read_json("target/tokenizer.json"))


def _steps(pre_tokenizer):
    """Return the steps of a pre-tokenizer, which may be None."""
    if pre_tokenizer and pre_tokenizer["type"] == "Sequence":
        return pre_tokenizer["pretokenizers"]
    return [pre_tokenizer] if pre_tokenizer else []


def _data(folder, names):
    if (folder.path / "tokenizer.json").is_file():
        return folder.read_json("tokenizer.json")
    if not (folder.path / "vocab.txt").is_file():
        raise InputError(f"{folder.path} has neither tokenizer.json nor vocab.txt.")
    return _wordpiece(folder, names)


def _wordpiece(folder, names):
    """Return tokenizer.json data for the `vocab.txt` of a BERT model."""
    tokens = vocab_lines(folder.path / "vocab.txt")
    settings = folder.tokenizer_settings()
    for name, known in SUPPORTED_SETTINGS.items():
        if settings.get(name, known[0]) not in known:
            raise InputError(
                f"{folder.path}: {name} = {settings[name]!r} splits words in a way that is not supported; save the "
                "tokenizer as tokenizer.json first."
            )
    lowercase = settings.get("do_lower_case", True)
    unknown = names["[UNK]"]
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "lowercase": lowercase,
            "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
            "strip_accents": settings.get("strip_accents"),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {token: index for index, token in enumerate(tokens)},
        },
    }  # fmt: skip
