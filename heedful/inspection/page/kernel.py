"""Compile the product of the page's engine from its source: `python -m heedful.inspection.page.kernel`.

It needs the package `wasmtime`; the result is committed, so that an installation compiles nothing.
"""

import base64

from heedful.inspection.page.document import WEB

SOURCE, RESULT = WEB / "engine" / "linear.wat", WEB / "engine" / "linear.js"


def compiled() -> bytes:
    """Return the compiled source."""
    from wasmtime import wat2wasm

    return bytes(wat2wasm(SOURCE.read_text(encoding="utf-8")))


def main() -> None:
    """Write the compiled source as a module."""
    code = base64.b64encode(compiled()).decode("ascii")
    RESULT.write_text(
        "// Compiled from linear.wat by `python -m heedful.inspection.page.kernel`; a test compares the two.\n"
        f'export const LINEAR_WASM =\n  "{code}";\n',
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
