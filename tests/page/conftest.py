"""Pages in the browser; each test has a context of its own, offline."""

import contextlib

from heedful.inspection.page.document import build_document

READY = '[data-ready="true"]'  # set when everything about the text is computed


@contextlib.contextmanager
def page_of(browser, path, fragment="", width=1180, dark=False, **options):
    """Open a file offline; afterwards fail if the console has an error or warning, or if anything was requested."""
    complaints = []
    scheme = "dark" if dark else "light"
    context = browser.new_context(
        viewport={"width": width, "height": 900}, offline=True, color_scheme=scheme, **options
    )
    page = context.new_page()
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if request.url.startswith("http") else None)
    page.goto(path.as_uri() + fragment)
    page.locator(READY).wait_for(state="attached")
    yield page
    context.close()
    assert not complaints


def write_document(path, contents):
    """Write a page of some `Contents`."""
    descriptions, weights = [one.description for one in contents], [one.weights for one in contents]
    path.write_text(build_document("test", descriptions, weights), encoding="utf-8")
    return path
