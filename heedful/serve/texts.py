"""Texts of requests: their markup, their language, glossaries for them, and documents."""

import asyncio
import functools
import itertools
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from heedful.config.protected import protection_of
from heedful.core.errors import InputError
from heedful.data.document_formats import read_document
from heedful.data.document_formats.document import Document
from heedful.data.document_formats.html_document import html_replacements
from heedful.data.glossary import Glossary
from heedful.data.markup.html_tokens import html_tokens
from heedful.data.sentences import Pieces
from heedful.inference.predictor import ScoredText
from heedful.serve.requests import Limits, Refused, read_body
from heedful.serve.service import Served, Service

SAMPLE = 20  # texts of a document by which its language is recognised
WINDOW = 128  # texts of a document that wait in the queue at a time
RETRY_SECONDS = 0.2  # after which a document asks again for room in the queue


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
    one: Served, text: str, markup: Markup = PLAIN, glossary: Glossary | None = None, **options: Any
) -> Pieces:
    """Return the pieces of a text that a translator answers one by one; joined, they get its markup back.

    `options`: see `LineTranslator.pieces`.
    """
    predictor = one.predictor
    if not markup.form:
        return predictor.pieces(text, glossary, **options)
    inline = None if markup.form == "html" else _inline(text, markup)
    replacements = html_replacements(text, predictor.reader.protection, markup.hidden, inline)
    document = Document(replacements.texts, lambda results: replacements.written(results).encode(), True)
    return predictor.pieces_of_document(document, glossary, **options)


async def pieces_of_all(
    one: Served, texts: Sequence[str], markup: Markup = PLAIN, glossary: Glossary | None = None, **options: Any
) -> list[Pieces]:
    """Return the pieces of several texts; reading markup takes a moment, and does not block other requests."""
    if markup.form or glossary:
        return await in_background(lambda: [pieces_of(one, text, markup, glossary, **options) for text in texts])
    return [pieces_of(one, text, **options) for text in texts]


async def recognised(service: Service, text: str, target: str) -> tuple[str | None, float]:
    """Return the likeliest source language of a text, among those that are translated to `target`, and its probability.

    None: nothing is translated to it.
    """
    sources = [one.languages[0] for one in service.translators if one.languages[1] == target.lower()]
    several = len(set(sources)) > 1
    ranked = await in_background(detect_languages, text, sources) if several else detect_languages(text, sources)
    return next(iter(ranked), (None, 0.0))


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
    candidates_of = [[one] if isinstance(one, ScoredText) else one for one in answered]
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


@dataclass
class Entry:
    """A glossary that a client has made: its terms by pair of languages."""

    id: str
    name: str
    made: str
    dictionaries: dict[tuple[str, str], Glossary] = field(default_factory=dict)


class Glossaries:
    """The glossaries of a server, in memory; the oldest is forgotten if there are too many."""

    LIMIT = 1000

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, name: str) -> Entry:
        """Make an empty glossary."""
        made = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + ".000000Z"
        entry = Entry(secrets.token_hex(16), name, made)
        with self._lock:
            self._entries[entry.id] = entry
            while len(self._entries) > self.LIMIT:
                self._entries.popitem(last=False)
        return entry

    def all(self) -> list[Entry]:
        """Return all glossaries."""
        return list(self._entries.values())

    def find(self, key: str) -> Entry:
        """Return a glossary; `Refused` (404) if there is none."""
        try:
            return self._entries[key]
        except KeyError:
            raise Refused(404, f"There is no glossary {key!r}.") from None

    def remove(self, key: str) -> None:
        """Forget a glossary."""
        self.find(key)
        with self._lock:
            self._entries.pop(key, None)

    def terms(self, key: str | None, source: str, target: str) -> Glossary | None:
        """Return the terms of a glossary for two languages; `Refused` (400) if it has none for them."""
        if not key:
            return None
        glossary = self.find(key).dictionaries.get((source, target))
        if glossary is None:
            raise Refused(400, f"The glossary {key!r} has no terms for {source} to {target}.")
        return glossary


@dataclass
class Upload:
    """A document that a client has sent."""

    id: str
    key: str
    name: str
    status: str = "queued"
    content: bytes = b""
    characters: int = 0
    message: str = ""
    task: asyncio.Task | None = None


class Uploads:
    """The documents of a server, in memory; the oldest is forgotten if there are too many."""

    LIMIT = 64

    def __init__(self, service: Service):
        self._service = service
        self._uploads: OrderedDict[str, Upload] = OrderedDict()

    def start(self, one: Served, name: str, content: bytes, glossary: Glossary | None = None) -> Upload:
        """Begin to translate a document; raise `InputError` if it cannot be read."""
        document = read_document(content, name, one.predictor.reader.protection)
        upload = Upload(secrets.token_hex(16), secrets.token_hex(32), name)
        upload.characters = sum(len(text.text) for text in document.texts)
        self._uploads[upload.id] = upload
        while len(self._uploads) > self.LIMIT:
            _, oldest = self._uploads.popitem(last=False)
            if oldest.task:
                oldest.task.cancel()
        upload.task = asyncio.create_task(self._translate(one, upload, document, glossary))
        return upload

    def find(self, key: str) -> Upload:
        """Return a document; `Refused` (404) if there is none."""
        if key not in self._uploads:
            raise Refused(404, f"There is no document {key!r}.")
        return self._uploads[key]

    async def _translate(self, one, upload, document, glossary):
        upload.status = "translating"
        try:
            upload.content = await translated_document(self._service, one, document, glossary)
            upload.status = "done"
        except (InputError, Refused) as error:
            upload.status, upload.message = "error", str(error)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            upload.status, upload.message = "error", "The server failed; its log says why."
            raise RuntimeError(f"{upload.name} could not be translated") from error


async def translated_document(
    service: Service, one: Served, document: Document, glossary: Glossary | None = None
) -> bytes:
    """Translate the texts of a document; wait for room in the queue where it is full."""
    results: list[str] = []
    for first in range(0, len(document.texts), WINDOW):
        texts = document.texts[first : first + WINDOW]
        part = Document(texts, lambda written: b"", document.escaped)
        lines = one.predictor.pieces_of_texts(part, glossary)
        while True:
            try:
                futures = service.translate(one, lines)
                break
            except Refused as refused:
                if refused.status != 429:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
        answers = await asyncio.gather(*map(asyncio.wrap_future, futures))
        results += await joined(lines, answers)
    return document.written(results)


async def read_upload(request: Request, limits: Limits, name: str = "file") -> tuple[str, bytes, dict[str, str]]:
    """Return the name and the content of the file in a multipart form, and its other fields.

    Raises:
        Refused: the body is no such form, or too large.
    """
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Refused(415, "The content type must be multipart/form-data.")
    body = await read_body(request, limits, limits.document_bytes)

    async def stream():
        yield body

    try:
        form = await MultiPartParser(request.headers, stream(), max_files=1, max_fields=50).parse()
    except (MultiPartException, KeyError, UnicodeDecodeError) as error:
        raise Refused(400, "The body is not a form.") from error
    try:
        upload = form.get(name)
        if upload is None or isinstance(upload, str):
            raise Refused(422, f"The field {name!r} must be a file.")
        content = await upload.read()
        fields = {key: value for key, value in form.items() if isinstance(value, str)}
        return fields.get("filename") or upload.filename or "document", content, fields
    finally:
        await form.close()


def in_background(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return an awaitable for a function that takes a moment."""
    return asyncio.get_running_loop().run_in_executor(None, functools.partial(function, *arguments))
