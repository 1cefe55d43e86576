"""Language detection: py3langid and the trigrams of `heedful doctor`, on Multi30k sentences and single words.

python -m benchmarks.language_detection
"""

import gzip
import os
import random
import re
import time
from pathlib import Path

import numpy as np

from heedful.data.doctor.languages import Letters, Pieces

LANGUAGES = ("de", "en", "fr")
SENTENCES, LEARNED = 1000, 10_000


def lines(name: str) -> list[str]:
    """Return the lines of a file of Multi30k."""
    path = Path(os.environ.get("HEEDFUL_DATA", "data")) / "multi30k" / name
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def words_of_one_language(texts: dict[str, list[str]], count: int) -> dict[str, list[str]]:
    """Return words of at least four letters that only one of the texts has."""
    vocabularies = {name: {w for line in text for w in re.findall(r"[^\W\d_]{4,}", line.lower())}
                    for name, text in texts.items()}  # fmt: skip
    chosen = {}
    for name, own in vocabularies.items():
        others = set().union(*(words for other, words in vocabularies.items() if other != name))
        only = sorted(own - others)
        random.Random(1).shuffle(only)
        chosen[name] = only[:count]
    return chosen


def main() -> None:
    """Print the share of texts whose language is right, and milliseconds per text."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(list(LANGUAGES))
    letters = {name: Letters().learn(Pieces(lines(f"train.{name}.gz")[:LEARNED])) for name in LANGUAGES}
    sentences = {name: lines(f"test_2016_flickr.{name}.gz")[:SENTENCES] for name in LANGUAGES}
    for kind, texts in (("sentences", sentences), ("words", words_of_one_language(sentences, SENTENCES))):
        for method in ("py3langid", "trigrams"):
            right = total = 0
            began = time.perf_counter()
            for name, text in texts.items():
                if method == "py3langid":
                    found = [identifier.classify(line)[0] for line in text]
                else:
                    pieces = Pieces(text)
                    scores = np.stack([letters[one].scores(pieces) for one in LANGUAGES])
                    found = [LANGUAGES[best] for best in scores.argmax(axis=0)]
                right, total = right + sum(one == name for one in found), total + len(text)
            each = 1000 * (time.perf_counter() - began) / total
            print(f"{kind:10s} {method:10s} {right / total:.4f} right of {total:,}  {each:.3f} ms each")


if __name__ == "__main__":
    main()
