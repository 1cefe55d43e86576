"""Texts of requests: their markup, and their language."""

import asyncio
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.config.protected import protection_of
from heedful.core.errors import InputError
from heedful.data.document_formats import read_document
from heedful.data.document_formats.document import Document
from heedful.data.document_formats.html_document import html_replacements
from heedful.data.glossary import Glossary
from heedful.data.markup.html_tokens import html_tokens
from heedful.data.sentences import Pieces
from heedful.inference.predictor import ScoredText
from heedful.serve.requests import Refused
from heedful.serve.service import Served, Service

SAMPLE = 20  # texts of a document by which its language is recognised
RECOGNITION_LENGTH = 1000  # characters of the texts of a request by which their language is recognised
SHORT = 2000  # characters of texts that are read without delay for other requests


@dataclass(frozen=True)
class Markup:
    """The markup of a text.

    Args:
        form: `html`, `xml`, or empty for plain text.
        hidden: names of elements whose content is not translated.
        splitting, not_splitting: names of elements that end a sentence, and that do not.
    """

    form: str = ""
    hidden: tuple[str, ...] = ()
    splitting: tuple[str, ...] = ()
    not_splitting: tuple[str, ...] = ()


PLAIN = Markup()


def pieces_of(
    served: Served, text: str, markup: Markup = PLAIN, glossary: Glossary | None = None, **options: Any
) -> Pieces:
    """Return the pieces of a text that a translator answers one by one; joined, they get its markup back.

    `options`: see `LineTranslator.pieces`.
    """
    predictor = served.predictor
    if not markup.form:
        return predictor.pieces(text, glossary, **options)
    inline = None if markup.form == "html" else _inline(text, markup)
    replacements = html_replacements(text, predictor.reader.protection, markup.hidden, inline)
    document = Document(replacements.texts, lambda results: replacements.written(results).encode())
    return predictor.pieces_of_document(document, glossary, **options)


async def pieces_of_all(
    served: Served, texts: Sequence[str], markup: Markup = PLAIN, glossary: Glossary | None = None, **options: Any
) -> list[Pieces]:
    """Return the pieces of several texts; what takes a moment to read does not block other requests."""

    def read():
        return [pieces_of(served, text, markup, glossary, **options) for text in texts]

    at_once = not (markup.form or glossary or served.predictor.glossary) and sum(map(len, texts)) <= SHORT
    return read() if at_once else await in_background(read)


async def recognised(service: Service, text: str, target: str) -> tuple[str | None, float]:
    """Return the likeliest source language of a text, among those that are translated to `target`, and its probability.

    None: nothing is translated to it.
    """
    sources = [served.languages[0] for served in service.translators if served.languages[1] == target.lower()]
    several = len(set(sources)) > 1
    ranked = await in_background(detect_languages, text, sources) if several else detect_languages(text, sources)
    return next(iter(ranked), (None, 0.0))


async def sample_of_texts(texts: Sequence[str], markup: Markup = PLAIN) -> str:
    """Return the beginning of the texts of a request, without their markup, for `recognised`."""
    sample = ""
    for text in texts:
        if markup.form:
            replacements = await in_background(html_replacements, text, protection_of(()), markup.hidden)
            text = " ".join(each.text for each in replacements.texts)
        sample += text + "\n"
        if len(sample) >= RECOGNITION_LENGTH:
            break
    return sample[:RECOGNITION_LENGTH]


def sample_of(content: bytes, name: str) -> str:
    """Return the first texts of a document, for `recognised`; `Refused` (400) if it cannot be read."""
    try:
        document = read_document(content, name, protection_of(()))
    except InputError as error:
        raise Refused(400, str(error)) from error
    return " ".join(text.text for text in document.texts[:SAMPLE])


def _inline(text: str, markup: Markup) -> list[str]:
    """Return the elements of an XML text that stand within sentences: those that text adjoins anywhere."""
    tokens = html_tokens(text)
    inline = set(markup.not_splitting) | set(markup.hidden)
    for before, after in itertools.pairwise(tokens):
        if before.kind == "text" and before.raw.strip() and after.kind in ("open", "alone"):
            inline.add(after.name)
        elif after.kind == "text" and after.raw.strip() and before.kind in ("close", "alone"):
            inline.add(before.name)
    return sorted(inline - set(markup.splitting))


def combined(answered: Sequence[Any], count: int) -> Iterator[list[str]]:
    """Yield `count` results of a text, each the texts of all its pieces, from the candidates of each piece.

    A piece with fewer candidates repeats its last one.
    """
    candidates_of = [[each] if isinstance(each, ScoredText) else each for each in answered]
    for index in range(count):
        yield [candidates[min(index, len(candidates) - 1)].text for candidates in candidates_of]


def join_all(pieces: Sequence[Pieces], results: Sequence[Any]) -> list[str]:
    """Return the results of all pieces as the texts they belong to; it may align words, which takes a moment."""
    written = iter(results)
    return [each.join(next(written).text for _ in each.texts) for each in pieces]


async def joined(pieces: Sequence[Pieces], results: Sequence[Any]) -> list[str]:
    """Do what `join_all` does, without blocking other requests."""
    if not any(each.joined for each in pieces):
        return join_all(pieces, results)
    return await in_background(join_all, pieces, results)


def detect_languages(text: str, codes: Iterable[str]) -> list[tuple[str, float]]:
    """Return the languages by their probability, most likely first; those that cannot be recognised are last."""
    codes = tuple(dict.fromkeys(codes))
    identifier = _identifier(codes) if len(codes) > 1 else None
    if identifier is None:
        return [(code, 0.0) for code in codes]
    ranked = [(code, float(share)) for code, share in identifier.rank(text) if code in codes]
    return ranked + [(code, 0.0) for code in codes if code not in dict(ranked)]


@functools.lru_cache(maxsize=16)
def _identifier(codes: tuple[str, ...]) -> Any:
    """Return what identifies some languages, or None if it knows none of them; loading it takes most of a second."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    known = [code for code in codes if code in identifier.nb_classes]
    if known:
        identifier.set_languages(known)
    return identifier if known else None


def in_background(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return an awaitable for a function that takes a moment."""
    return asyncio.get_running_loop().run_in_executor(None, functools.partial(function, *arguments))
