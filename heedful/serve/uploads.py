"""The documents that clients have sent, and their translation."""

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass

from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from heedful.core.errors import InputError
from heedful.data.document_formats import read_document
from heedful.data.document_formats.document import Document
from heedful.data.glossary import Glossary
from heedful.serve.requests import Limits, Refused, read_body, require_key
from heedful.serve.service import Served, Service
from heedful.serve.texts import in_background, joined

WINDOW = 128  # texts of a document that wait in the queue at a time
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
    """The documents of a server, in memory; the oldest is forgotten if there are too many."""

    LIMIT = 64

    def __init__(self, service: Service):
        self._service = service
        self._uploads: OrderedDict[str, Upload] = OrderedDict()

    async def start(self, served: Served, name: str, content: bytes, glossary: Glossary | None = None) -> Upload:
        """Begin to translate a document; raise `InputError` if it cannot be read."""
        document = await in_background(read_document, content, name, served.predictor.reader.protection)
        upload = Upload(secrets.token_hex(16), secrets.token_hex(32), name)
        upload.characters = sum(len(text.text) for text in document.texts)
        self._uploads[upload.id] = upload
        while len(self._uploads) > self.LIMIT:
            _, oldest = self._uploads.popitem(last=False)
            if oldest.task:
                oldest.task.cancel()
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
    """Translate the texts of a document; wait for room in the queue where it is full."""
    results: list[str] = []
    for first in range(0, len(document.texts), WINDOW):
        texts = document.texts[first : first + WINDOW]
        part = Document(texts, lambda written: b"")
        lines = served.predictor.pieces_of_texts(part, glossary)
        while True:
            try:
                futures = service.translate(served, lines)
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
        require_key(request, fields)
        return fields.get("filename") or upload.filename or "document", content, fields
    finally:
        await form.close()
