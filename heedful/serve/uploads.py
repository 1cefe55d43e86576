"""The documents that clients have sent, and their translation."""

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from heedful.core.errors import InputError
from heedful.core.iteration import batched
from heedful.data.document_formats import read_document
from heedful.data.document_formats.document import Document
from heedful.data.glossary import Glossary
from heedful.data.sentences import Pieces
from heedful.serve.requests import RETRY_AFTER, Limits, Refused, has_left, read_body, require_key
from heedful.serve.service import Served, Service
from heedful.serve.texts import in_background, joined

WINDOW = 128  # texts of a document that are read at a time, and sentences of it that wait in the queue
RETRY_SECONDS = 0.2  # after which a document asks again for room in the queue


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
    """The documents of a server, in memory; if there are too many, the oldest that is finished is forgotten."""

    LIMIT = 64

    def __init__(self, service: Service):
        self._service = service
        self._uploads: OrderedDict[str, Upload] = OrderedDict()

    async def start(self, served: Served, name: str, content: bytes, glossary: Glossary | None = None) -> Upload:
        """Begin to translate a document.

        Raises:
            InputError: it cannot be read.
            Refused: too many documents are being translated.
        """
        document = await in_background(read_document, content, name, served.predictor.reader.protection)
        upload = Upload(secrets.token_hex(16), secrets.token_hex(32), name)
        upload.characters = sum(len(text.text) for text in document.texts)
        if len(self._uploads) >= self.LIMIT:
            oldest = next((key for key, each in self._uploads.items() if each.task and each.task.done()), None)
            if oldest is None:
                raise Refused(429, "Too many documents are being translated.", Retry_After=RETRY_AFTER)
            del self._uploads[oldest]
        self._uploads[upload.id] = upload
        upload.task = asyncio.create_task(self._translate(served, upload, document, glossary))
        return upload

    def find(self, name: str, key: str) -> Upload:
        """Return the document of an id; `Refused` (404) if there is none, or it has another key."""
        if name not in self._uploads:
            raise Refused(404, f"There is no document {name!r}.")
        upload = self._uploads[name]
        if not secrets.compare_digest(key.encode(), upload.key.encode()):
            raise Refused(404, f"There is no document {name!r} with that key.")
        return upload

    async def finished(self, upload: Upload, request: Request) -> None:
        """Wait until a document is translated; if the client leaves, it is forgotten, and `Refused` (499) raised."""
        assert upload.task is not None  # noqa: S101 - for the type checker
        left = asyncio.ensure_future(has_left(request.receive))
        try:
            await asyncio.wait({upload.task, left}, return_when=asyncio.FIRST_COMPLETED)
            if not upload.task.done():
                raise Refused(499, "The client has left.")
        finally:  # also if the server stops
            left.cancel()
            if not upload.task.done():
                upload.task.cancel()
                del self._uploads[upload.id]
        upload.task.result()  # raises the server's own failure

    async def _translate(self, served, upload, document, glossary):
        upload.status = "translating"
        try:
            upload.content = await translated_document(self._service, served, document, glossary)
            upload.status = "done"
        except (InputError, Refused) as error:
            upload.status, upload.message = "error", str(error)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            upload.status, upload.message = "error", "The server failed; its log says why."
            raise RuntimeError(f"{upload.name} could not be translated") from error


async def translated_document(
    service: Service, served: Served, document: Document, glossary: Glossary | None = None
) -> bytes:
    """Translate the texts of a document; it leaves half of the queue to other requests."""
    results: list[str] = []
    half = max(1, served.engine.limit // 2)
    for texts in batched(document.texts, WINDOW):
        part = Document(texts, lambda written: b"")
        lines = await in_background(served.predictor.pieces_of_texts, part, glossary)
        answers: list[Any] = []
        for sentences in batched([text for line in lines for text in line.texts], min(WINDOW, half)):
            while served.engine.pending and served.engine.pending + len(sentences) > half:
                await asyncio.sleep(RETRY_SECONDS)
            futures = service.translate(served, [Pieces(sentences, [], [])])
            answers += await asyncio.gather(*map(asyncio.wrap_future, futures))
        results += await joined(lines, answers)
    return await in_background(document.written, results)


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
        require_key(request, fields)
        return fields.get("filename") or upload.filename or "document", content, fields
    finally:
        await form.close()
