"""Data sets of the Hugging Face hub as named texts: hf:OWNER/NAME@REVISION, with /CONFIG for one of several."""

import json
from pathlib import Path, PurePosixPath
from typing import Any

from heedful.config.named_texts import HUB, HUB_ADDRESS
from heedful.core.errors import InputError
from heedful.data.texts.download import download

PARTS = {"train": ("train",), "valid": ("validation", "valid", "dev"), "test": ("test",)}  # our names and the hub's


def describe(name: str, scratch: Path) -> dict[str, Any]:
    """Ask the hub what a data set consists of.

    Args:
        name: as in `config.named_texts.HUB`.
        scratch: folder for the answer.

    Returns:
        Its `licence`, whether it is `gated`, and the addresses of its Parquet files by part, `parquet`.

    Raises:
        InputError: the hub cannot be reached, or has no such data set in Parquet.
    """
    match = HUB.fullmatch(name)
    if not match:
        raise InputError(f"{name!r} is not hf:OWNER/NAME@REVISION, such as hf:Helsinki-NLP/opus_books@main/de-en.")
    owner, revision, config = match.groups()
    revision = revision.replace("/", "%2F")  # a branch such as refs/convert/parquet
    answer = scratch / "description.json"
    download(f"{HUB_ADDRESS}/api/datasets/{owner}/revision/{revision}", answer)
    try:
        facts = json.loads(answer.read_text(encoding="utf-8"))
        files = [file["rfilename"] for file in facts["siblings"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{HUB_ADDRESS} does not describe {owner} as expected: {error}.") from error
    tables = [file for file in files if file.endswith(".parquet")]
    configs = sorted({_config(file) for file in tables} - {""})
    if config is None and len(configs) > 1:
        raise InputError(
            f"{name} has several parts: choose one, such as {name}/{configs[0]} (of {', '.join(configs)})."
        )
    chosen = [file for file in tables if _config(file) == (config or (configs[0] if configs else ""))]
    parquet = {
        part: [f"{HUB_ADDRESS}/datasets/{owner}/resolve/{revision}/{file}" for file in chosen if _split(file) in splits]
        for part, splits in PARTS.items()
    }
    if not parquet["train"] and not parquet["test"]:
        there = f" of {', '.join(configs)}" if configs else ""
        raise InputError(f"{name} has no Parquet files{there} with a split in their names.")
    licence = (facts.get("cardData") or {}).get("license") or "unknown"
    licence = licence if isinstance(licence, str) else ", ".join(licence)
    return {"licence": licence, "gated": bool(facts.get("gated")), "parquet": parquet}


def _config(file):
    """Return the folder of a file, which the hub calls a configuration; "" for data/ and the top."""
    folder = PurePosixPath(file).parent
    if _is_converted(file):
        folder = folder.parent
    return "" if folder.name in ("", "data") else folder.name


def _split(file):
    """Return the split in the name of a file, train-00000-of-00002.parquet, or of its folder, train/0000.parquet."""
    path = PurePosixPath(file)
    return path.parent.name.removeprefix("partial-") if _is_converted(file) else path.stem.split("-")[0]


def _is_converted(file):
    """Return whether the hub has made a file from other formats: CONFIGURATION/SPLIT/0000.parquet."""
    return PurePosixPath(file).stem.isdecimal()
