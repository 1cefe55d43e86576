"""Parallel text from gettext catalogues: the messages of programs and their translations.

    python benchmarks/catalogues.py FOLDER de OUT

Reads every .mo file below a folder whose path has the language as a component, such as ...
de/LC_MESSAGES/gimp20.mo, from a Debian package that `apt-get download` fetched and `dpkg -x` unpacked. Writes
OUT/train.de.gz and .en.gz, and the same for valid and test. Messages are cleaned of marks for keyboard shortcuts and
of line breaks, each is kept once, and belongs to a part by the hash of its English text.
"""

import argparse
import gettext
import gzip
import hashlib
import re
from pathlib import Path

PARTS = (("test", 0.05), ("valid", 0.1), ("train", 1.0))  # upper limits of the hash
SHORTEST, LONGEST = 3, 60  # words


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("language", help="such as de")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    pairs = {}
    for path in sorted(options.folder.rglob("*.mo")):
        if options.language in path.relative_to(options.folder).parts:
            pairs |= dict(messages(path))
    options.out.mkdir(parents=True, exist_ok=True)
    parts = {part: [] for part, _ in PARTS}
    for english, other in pairs.items():
        fraction = int(hashlib.sha256(english.encode()).hexdigest()[:8], 16) / 16**8
        parts[next(part for part, limit in PARTS if fraction < limit)].append((other, english))
    for part, lines in parts.items():
        for column, language in enumerate((options.language, "en")):
            with gzip.open(options.out / f"{part}.{language}.gz", "wt", encoding="utf-8") as file:
                file.writelines(f"{pair[column]}\n" for pair in lines)
        print(f"{part}: {len(lines):,} pairs")


def messages(path):
    """Yield (English, translation) of the messages in a catalogue that look like sentences or phrases."""
    with path.open("rb") as file:
        catalogue = gettext.GNUTranslations(file)._catalog
    for key, translation in catalogue.items():
        if isinstance(key, str) and key:
            english, other = (cleaned(text) for text in (key.rsplit("\x04", 1)[-1], translation))
            lengths = [len(text.split()) for text in (english, other)]
            if min(lengths) >= SHORTEST and max(lengths) <= LONGEST and english != other:
                yield english, other


def cleaned(text):
    """Return a message without marks for keyboard shortcuts, line breaks and repeated spaces."""
    return " ".join(re.sub(r"[_~&](?=\w)", "", text).split())


if __name__ == "__main__":
    main()
