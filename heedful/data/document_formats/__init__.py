"""Files of other programs whose text is translated: HTML, Markdown, PO, XLIFF, subtitles, Word; by suffix.

All else of a file stays as it is, byte for byte.
"""

import importlib
from collections.abc import Callable
from pathlib import Path

from heedful.config.protected import Protection
from heedful.core.errors import InputError
from heedful.data.document_formats.document import Document
from heedful.data.text_files import uncompressed_name

FORMATS = {
    ".html": "html_document", ".htm": "html_document", ".xhtml": "html_document",
    ".md": "markdown_document", ".markdown": "markdown_document",
    ".po": "po_document", ".pot": "po_document",
    ".xlf": "xliff_document", ".xliff": "xliff_document",
    ".srt": "subtitles", ".vtt": "subtitles",
    ".docx": "docx_document",
}  # fmt: skip
# Formats that look like files to translate, but are not read.
REFUSED = (".doc", ".epub", ".odp", ".ods", ".odt", ".pdf", ".ppt", ".pptx", ".rtf", ".tmx", ".xls", ".xlsx")


def is_document(path: Path) -> bool:
    """Return whether a file is translated as a document, by its name.

    Raises:
        InputError: it is a document of a format that heedful does not know, or compressed.
    """
    suffix = Path(uncompressed_name(path)).suffix.lower()
    if suffix in FORMATS and suffix != path.suffix.lower():
        raise InputError(f"{path}: documents are read uncompressed; decompress it first.")
    if suffix in REFUSED:
        raise InputError(
            f"{path}: {suffix} files cannot be translated; known are {', '.join(FORMATS)}, and plain text."
        )
    return suffix in FORMATS


def read_document(content: bytes, name: str, protection: Protection) -> Document:
    """Read a document.

    Args:
        content: of the file.
        name: of the file, whose suffix tells the format, and for messages.
        protection: finds protected spans.

    Raises:
        InputError: the format is not known, the content is not of that format, or a library that reads it is missing.
    """
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"{name}: {suffix or 'such'} files cannot be translated; known are {', '.join(FORMATS)}.")
    module = importlib.import_module(f"{__name__}.{FORMATS[suffix]}")
    read: Callable[[bytes, str, Protection], Document] = module.read
    return read(content, name, protection)


def decoded(content: bytes, name: str, encoding: str = "utf-8") -> str:
    """Return the text of a file; raise `InputError` if it is in another encoding."""
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not {encoding.upper()}: byte {error.start}.") from error
