"""The pages in docs/ run."""

import ast
import doctest
import re
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


def test_the_messages_in_the_guide_exist():
    """Guards the page on errors: what it quotes in bold must be in the code."""
    root = Path(__file__).parent.parent
    texts = []
    for path in (root / "heedful").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
                texts.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    page = (root / "docs" / "guides" / "troubleshooting.md").read_text(encoding="utf-8")
    quoted = re.findall(r"\*\*(.+?)\*\*", page, re.DOTALL)
    assert len(quoted) > 12
    for message in quoted:
        pieces = [piece.strip(" ().:,") for piece in " ".join(message.split()).split("...")]
        pattern = re.compile(".*".join(map(re.escape, filter(None, pieces))), re.DOTALL)
        assert any(pattern.search(text) for text in texts), message
