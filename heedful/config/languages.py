"""The languages of a translator, as its config tells."""

import re

from heedful.config.run import Config

PAIR = re.compile(r"(?:^|[:/.\-_])([a-z]{2})[-_]([a-z]{2})$")
SUFFIX = re.compile(r"\.(?!txt|tsv)([a-z]{2,3})(?:\.(?:gz|bz2|xz))?$")


def languages_of(config: Config) -> tuple[str, str]:
    """Return the codes of source and target language, without countries: as set, or as names tell; `""` if unknown."""
    source, target = _named_in(config)
    source, target = config.data.source_language or source, config.data.target_language or target
    return re.split("[-_]", source)[0].lower(), re.split("[-_]", target)[0].lower()


def _named_in(config: Config) -> tuple[str, str]:
    """Return the languages that the names of the text, or of the run, tell."""
    if config.data.corpus == "phrasebook":
        return "pt", "en"
    if pair := PAIR.search(config.data.corpus) or PAIR.search(config.name):
        return pair[1], pair[2]
    suffixes = [SUFFIX.search(path) for path in config.data.train]
    if len(suffixes) == 2 and all(suffixes):
        source, target = (match[1] for match in suffixes if match)
        return source, target
    return "", ""
