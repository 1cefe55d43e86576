"""The HTML document: style, modules, engine and data in one file that loads nothing."""

import base64
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WEB = Path(__file__).parent / "web"
VENDORED = {"preact": "vendor/preact.mjs", "preact/hooks": "vendor/hooks.mjs", "htm": "vendor/htm.mjs"}
# In the order in which they are put together: a worker started from a text has no import map.
ENGINE = (
    "linear",
    "arena",
    "layers",
    "networks",
    "search",
    "charsmap",
    "tokenizer",
    "unpack",
    "spelling",
    "local",
    "remote",
    "worker",
)
RELATIVE_IMPORT = re.compile(r'(\bfrom )"\./([^"]+)"')
IMPORT, EXPORT = re.compile(r"^import\b[^;]*;\n", re.MULTILINE), re.compile(r"^export ", re.MULTILINE)
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data: blob: 'wasm-unsafe-eval'; worker-src blob:; "
    "style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"
)
INDEX_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'"
SERVED_POLICY = "; connect-src 'self'"
PACKAGE = "heedful/"  # prefix of our modules in the import map


def build_document(
    title: str, runs: Sequence[dict[str, Any]], weights: Sequence[Sequence[bytes]], served: bool = False
) -> str:
    """Return the HTML of a page.

    Browsers refuse modules from `file://`. So the document carries them as `data:` URLs in its import map, and relative
    imports become names in that map.

    Args:
        title: shown by the browser.
        runs: the descriptions from `contents.describe`, one for each run.
        weights: for each run the packed weights of its checkpoints.
        served: whether the page may connect to the server that it comes from.
    """
    modules = {name: (WEB / path).read_text(encoding="utf-8") for name, path in VENDORED.items()}
    modules |= {PACKAGE + path.name: page_module(path) for path in sorted(WEB.glob("*.js"))}
    imports = {name: f"data:text/javascript;base64,{encoded(text.encode())}" for name, text in modules.items()}
    blocks = [
        f'<script type="text/plain" class=weights data-run={number}>{encoded(block)}</script>\n'
        for number, blocks_of_run in enumerate(weights)
        for block in blocks_of_run
    ]
    return "".join([
        _head(title, POLICY + SERVED_POLICY * served),
        "<noscript>This page computes in your browser: it needs JavaScript.</noscript>\n<main id=app></main>\n",
        f'<script type="application/json" id=runs>{as_json(list(runs))}</script>\n',
        *blocks,
        f'<script type="text/plain" id=engine>{engine_text()}</script>\n',
        f"<script type=importmap>{as_json({'imports': imports})}</script>\n",
        f'<script type=module>import "{PACKAGE}main.js";</script>\n',
    ])  # fmt: skip


def build_index(title: str, content: str) -> str:
    """Return a document in the style of a page that computes nothing; `content` is HTML."""
    return f"{_head(title, INDEX_POLICY)}<main id=app>\n{content}</main>\n"


def _head(title, policy):
    """Return the beginning of a document, with the style, up to its body."""
    return "".join([
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n",
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
        '<meta name=viewport content="width=device-width, initial-scale=1">\n',
        f'<title>{escaped(title)}</title>\n<link rel=icon href="data:,">\n',
        f"<style>\n{(WEB / 'style.css').read_text(encoding='utf-8')}</style>\n<body>\n",
    ])  # fmt: skip


def page_module(path: Path) -> str:
    """Return a module of the page, its relative imports as names of the import map."""
    text = RELATIVE_IMPORT.sub(rf'\1"{PACKAGE}\2"', path.read_text(encoding="utf-8"))
    return f"{text}\n//# sourceURL={PACKAGE}{path.name}\n"


def engine_text() -> str:
    """Return the engine as one script without imports; top-level names are distinct over all of its modules."""
    text = "".join((WEB / "engine" / f"{name}.js").read_text(encoding="utf-8") for name in ENGINE)
    return EXPORT.sub("", IMPORT.sub("", text))


def as_json(value: Any) -> str:
    """Return JSON that is safe inside a script element: nothing in it can end the element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def escaped(text: str) -> str:
    """Return text for HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def encoded(content: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(content).decode("ascii")
