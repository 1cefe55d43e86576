"""The token with which a pretrained model begins each text: BART's start token, mBART's language."""

from collections.abc import Sequence
from typing import Any

from heedful.core.errors import InputError


def text_prefixes(folder: Any, target: Any, specials: Sequence[str | int | None], languages: bool) -> Any:
    """Return the token that begins each source, and the one that begins each target; None: there is none.

    Args:
        folder: a `PretrainedFolder`.
        target: the `Vocabulary` of the targets.
        specials: tokens that cannot begin a text, since they have a role of their own.
        languages: whether texts begin with their language, so that the two tokens may differ.

    Raises:
        InputError: the tokenizer adds something else to a text; or nothing says with which language targets begin.
    """
    for language in filter(None, (folder.source_language, folder.target_language)):
        _require_language(folder, language, specials)
    framed = _source_prefix(folder, specials)
    source = folder.source_language or framed
    written = folder.target_language or _forced_token(folder, target)
    if written is None and languages and source:
        written = folder.tokenizer_settings().get("tgt_lang")
        if written is None:
            raise InputError(
                f"{folder.path}: each source begins with {source!r}, and nothing says with which language targets "
                "begin: give --target-language."
            )
    if written and not source:
        advice = ": give --source-language" if languages else ", which is not supported"
        raise InputError(
            f"{folder.path}: each target begins with {written!r}, and no source with such a token{advice}."
        )
    if written and written != source and not languages:
        raise InputError(
            f"{folder.path}: each target begins with {written!r} and each source with {source!r}: they have to be the "
            "same."
        )
    return source, written or source


def _require_language(folder, language, specials):
    """Refuse a token that is no language of the model: languages are special tokens without another role."""
    data = folder.read_json("tokenizer.json") if (folder.path / "tokenizer.json").is_file() else {}
    added = [token["content"] for token in data.get("added_tokens", []) if token.get("special")]
    roles = {
        value for key, value in folder.tokenizer_settings().items() if key.endswith("_token") and isinstance(value, str)
    }
    known = [token for token in added if token not in {*specials, *roles}]
    if language in known:
        return
    near = [token for token in known if token.startswith(f"{language[:2].lower()}_")]  # such as de_DE
    advice = f"did you mean {near[0]!r}?" if near else f"its languages are {', '.join(known[:8]) or 'none'} ..."
    raise InputError(f"{language!r} is no language of {folder.path}; {advice}")


def _forced_token(folder, target):
    """Return the token with which each target has to begin (forced_bos_token_id), or None."""
    forced = folder.config.get("forced_bos_token_id")
    if forced is None and (folder.path / "generation_config.json").is_file():
        forced = folder.read_json("generation_config.json").get("forced_bos_token_id")
    if forced is None:
        return None
    token = target.token(forced)
    if token is None:
        raise InputError(f"{folder.path}: forced_bos_token_id = {forced} is the id of no token.")
    return token


def _source_prefix(folder, specials):
    """Return the token that a folder's tokenizer puts before each source, or None.

    Raises:
        InputError: it adds other tokens to a text, besides the end token after it.
    """
    path = folder.path / "tokenizer.json"
    post_processor = (folder.read_json(path.name).get("post_processor") if path.is_file() else None) or {}
    for step in post_processor.get("processors", [post_processor]):
        if step.get("type") in ("RobertaProcessing", "BertProcessing"):
            before, after = [step["cls"][0]], [step["sep"][0]]
        elif step.get("single"):
            kinds = ["Sequence" in piece for piece in step["single"]]
            names = [piece.get("SpecialToken", {}).get("id") for piece in step["single"]]
            before, after = names[: kinds.index(True)], names[kinds.index(True) + 1 :]
        else:
            continue
        if len(before) > 1 or len(after) > 1 or set(before) & set(specials):
            raise InputError(
                f"{path} adds {before + after} to each source; we support an end token after it, and one other token "
                "before it (mBART-50 does so, the first mBART does not)."
            )
        return before[0] if before else None
    return None
