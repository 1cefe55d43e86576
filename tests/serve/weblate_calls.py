"""Calls a server with Weblate's own machinery classes, in an environment that has Weblate; prints what they return.

python weblate_calls.py ADDRESS
"""

import json
import sys

import django
from django.conf import settings

MEMORY = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}


def main() -> None:
    """Print the results as JSON."""
    from weblate import settings_test

    own = {name: getattr(settings_test, name) for name in dir(settings_test) if name.isupper()}
    settings.configure(**own | {"CACHES": {"default": MEMORY, "avatar": MEMORY}})
    django.setup()
    from weblate.machinery.deepl import DeepLTranslation
    from weblate.machinery.libretranslate import LibreTranslateTranslation

    address, results = sys.argv[1], {}
    deepl = DeepLTranslation({"key": "key", "url": f"{address}/v2/", "formality": "default", "context": "a menu"})
    results["deepl languages"] = sorted(map(list, deepl.download_languages()))
    texts = [('o gato bebe <x id="12"></x>', None), ("a vaca come", None)]
    results["deepl"] = deepl.download_multiple_translations("PT", "EN", texts, None, 75)
    deepl.create_glossary("pt", "en", "weblate:1:pt:en:1", "gato\ttomcat")
    results["glossaries"] = deepl.list_glossaries()
    for key in results["glossaries"].values():
        deepl.delete_glossary(key)
    results["glossaries left"] = deepl.list_glossaries()
    libre = LibreTranslateTranslation({"key": "", "url": address})
    results["libretranslate languages"] = sorted(libre.download_languages())
    texts = [("o gato [X5X] bebe", None), ("a vaca come", None)]
    results["libretranslate"] = libre.download_multiple_translations("pt", "en", texts, None, 75)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
