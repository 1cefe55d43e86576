"""Test sets that sacrebleu knows, as named texts: sacrebleu:SET/SOURCE-TARGET. They are for scoring only."""

from pathlib import Path

from heedful.config.named_texts import TEST_SET
from heedful.core.errors import InputError


def write_test_set(name: str, folder: Path) -> None:
    """Download a test set with sacrebleu, and write its source and first reference.

    Raises:
        InputError: sacrebleu has no such set or pair of languages, or cannot download it.
    """
    from sacrebleu.dataset import DATASETS
    from sacrebleu.utils import smart_open

    match = TEST_SET.fullmatch(name)
    dataset, source, target = match.groups() if match else ("", "", "")
    if dataset not in DATASETS:
        raise InputError(f"sacrebleu has no test set {dataset!r}: `sacrebleu --list` names them.")
    pair = f"{source}-{target}"
    if pair not in DATASETS[dataset].langpairs:
        pairs = ", ".join(sorted(DATASETS[dataset].langpairs))
        raise InputError(f"sacrebleu's {dataset} has no {pair}: it has {pairs}.")
    try:
        files = DATASETS[dataset].get_source_file(pair), DATASETS[dataset].get_reference_files(pair)[0]
    except (OSError, SystemExit) as error:
        raise InputError(f"sacrebleu could not download {dataset}: {error}.") from error
    for side, file in zip((source, target), files, strict=True):
        with smart_open(file) as lines, (folder / f"test.{side}").open("w", encoding="utf-8") as own:
            own.writelines(f"{line.rstrip()}\n" for line in lines)
