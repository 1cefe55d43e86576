"""The languages of a translator, as its config tells."""

import re

from heedful.config.run import Config

# The codes of ISO 639-1, with `sh`, which corpora still have.
TWO_LETTERS = frozenset(
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz "
    "ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik "
    "io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml "
    "mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd "
    "se sg sh si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve "
    "vi vo wa wo xh yi yo za zh zu".split()
)
# Endings of files that look like codes of three letters.
ENDINGS = frozenset("txt tsv csv src tgt trg ref hyp raw tok bpe low out dat log sgm xml xlf tmx".split())
PAIR = re.compile(r"(?:^|[:/.\-_])([a-z]{2})[-_]([a-z]{2})$")
SUFFIX = re.compile(r"\.([a-z]{2,3})(?:\.(?:gz|bz2|xz))?$")


def languages_of(config: Config) -> tuple[str, str]:
    """Return the codes of source and target language, without countries: as set, or as names tell; `""` if unknown."""
    source, target = _named_in(config)
    source, target = config.data.source_language or source, config.data.target_language or target
    return re.split("[-_]", source)[0].lower(), re.split("[-_]", target)[0].lower()


def _named_in(config: Config) -> tuple[str, str]:
    """Return the languages that the names of the text, or of the run, tell."""
    if config.data.corpus == "phrasebook":
        return "pt", "en"
    for name in (config.data.corpus, config.name):
        if (pair := PAIR.search(name)) and _is_code(pair[1]) and _is_code(pair[2]):
            return pair[1], pair[2]
    codes = [match[1] for path in config.data.train if (match := SUFFIX.search(path)) and _is_code(match[1])]
    if len(codes) == len(config.data.train) == 2:
        return codes[0], codes[1]
    return "", ""


def _is_code(text: str) -> bool:
    """Return whether a text of two or three letters is the code of a language."""
    return text in TWO_LETTERS if len(text) == 2 else text not in ENDINGS
