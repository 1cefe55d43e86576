"""The pages in docs/ run."""

import doctest
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_backend

PAGES = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))


TESTED = [path for path in PAGES if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", TESTED, ids=lambda path: path.name)
def test_the_examples_of_a_page_print_what_it_says(path):
    result = doctest.testfile(str(path), module_relative=False)
    assert result.attempted > 5
    assert result.failed == 0
