"""One browser for all tests of the page; each test has a context of its own, offline.

The browser is Debian's Chromium, or the one that HEEDFUL_CHROMIUM names. Without one the tests are skipped, unless
HEEDFUL_NEEDS_CHROMIUM is set, as in `.ci/run`.
"""

import contextlib
import os
import shutil

import pytest

from heedful.inspection.page.document import build_document

READY = '[data-ready="true"]'  # set when everything about the text is computed


def _missing(reason):
    if os.environ.get("HEEDFUL_NEEDS_CHROMIUM"):
        pytest.fail(f"{reason}, and HEEDFUL_NEEDS_CHROMIUM is set")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed")
    path = os.environ.get("HEEDFUL_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        _missing("there is no Chromium here")
    with sync_playwright() as playwright:
        # the sandbox of Chromium needs a user that is not root
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


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
