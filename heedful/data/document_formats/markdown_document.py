"""Markdown: paragraphs, headings, list items and cells of tables are translated; code and addresses are not."""

import functools
import re
from collections.abc import Mapping
from typing import Any

from heedful.config.protected import Protection
from heedful.core.errors import extra_needed
from heedful.data.document_formats import decoded
from heedful.data.document_formats.document import Document, Replacement, Replacements, unwrapped
from heedful.data.document_formats.html_document import html_replacements
from heedful.data.markup.html_tokens import OPAQUE
from heedful.data.markup.marked_text import marked

# A reference link without a separate label; or code, which contains no links.
_REFERENCE = re.compile(
    r"(?<!`)(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)|(?<![\]\\])\[(?P<label>[^\[\]]+)\](?:\[\]|(?![\[(:]))"
)
# Of YAML, or of TOML.
_FRONT_MATTER = re.compile(
    r"\ufeff?(?:---\r?\n(?:.*?\r?\n)?(?:---|\.\.\.)|\+\+\+\r?\n(?:.*?\r?\n)?\+\+\+)[ \t]*(?:\r?\n|\Z)", re.DOTALL
)
_BREAK = re.compile(r"(?:(?<! )  +|\\)\n")  # a line break within a paragraph


def read(content: bytes, name: str, protection: Protection) -> Document:
    """Read a Markdown file in UTF-8. A paragraph of several lines becomes one line."""
    with extra_needed("files", "Markdown needs markdown-it-py"):
        from markdown_it import MarkdownIt
    text = decoded(content, name)
    starts = [0, *(end.end() for end in re.finditer(r"\r\n?|\n|.\Z", text, re.DOTALL))]
    front = _FRONT_MATTER.match(text)
    skipped = text[: front.end()].count("\n") if front else 0
    body = "\n" * skipped + text[front.end() :] if front else text
    replacements = Replacements(text)
    cursor = 0
    reads = functools.partial(marked, form="markdown", protection=protection)
    environment: dict[str, Any] = {}
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for token in parser.parse(body.removeprefix("\ufeff").replace("\r\n", "\n"), environment):
        if not token.map:
            continue
        first, last = starts[token.map[0]], starts[min(token.map[1], len(starts) - 1)]
        if token.type == "html_block":
            for one in html_replacements(text[first:last], protection).ranges:
                # Entities stay as they are: what a model writes into Markdown is not escaped.
                sentence = marked(unwrapped(text[first + one.start : first + one.end]), "tags", protection, OPAQUE)
                replacements.ranges.append(Replacement(first + one.start, first + one.end, sentence))
            cursor = last
        elif token.type == "inline":
            cursor = max(cursor, first)
            for part in _BREAK.split(token.content):
                span = _located(text, part, cursor, last)
                if span is None:  # what the parser has changed, such as escaped bars in a table
                    escaped = _located(text, part.replace("|", "\\|"), cursor, last)
                    cursor = escaped[1] if escaped else cursor
                    continue
                start, cursor = span
                sentence = reads(_with_labels(unwrapped(part.strip()), environment.get("references", {})))
                if not sentence.wordless:
                    replacements.ranges.append(Replacement(start, cursor, sentence))

    notes = [f"{name}: {note}" for one in replacements.texts for note in one.notes]
    return Document(replacements.texts, lambda results: replacements.written(results).encode(), notes)


def _with_labels(text: str, references: Mapping[str, Any]) -> str:
    """Return a text whose links by reference name their label, since their text will be translated."""

    def named(match):
        label = match["label"]
        known = label and " ".join(label.split()).upper() in references
        return f"[{label}][{label}]" if known else match.group()

    return _REFERENCE.sub(named, text) if references else text


def _located(text: str, content: str, start: int, end: int) -> tuple[int, int] | None:
    """Return where the lines of a paragraph stand in a text, with what precedes them in each line but the first."""
    lines = [line.strip() for line in content.split("\n") if line.strip()]
    if not lines:
        return None
    line_end = text.find("\n", start, end)
    first = text[start : end if line_end < 0 else line_end].rstrip()
    if first.endswith(lines[0]):  # after the mark of a list, which may look like its text
        begin = position = start + len(first) - len(lines[0])
    else:
        begin = position = text.find(lines[0], start, end)
    for line in lines:
        position = text.find(line, position, end)
        if position < 0:
            return None
        position += len(line)
    return begin, position
