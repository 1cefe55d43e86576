"""The pages in docs/ run."""

import ast
import doctest
import re
from pathlib import Path

import pytest

from tests.test_readme import check_command

pytestmark = pytest.mark.any_backend

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
COMMANDS = [
    (path.name, command.replace("\\\n", ""))
    for path in PAGES
    for command in re.findall(r"^    heedful ((?:.*\\\n)*.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
]
TESTED = [path for path in PAGES if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("path", TESTED, ids=lambda path: path.name)
def test_the_examples_of_a_page_print_what_it_says(path):
    result = doctest.testfile(str(path), module_relative=False)
    assert result.attempted > 5
    assert result.failed == 0


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_every_command_in_the_pages_parses(page, command):
    check_command(command)


def test_the_pages_have_commands():
    assert len({page for page, _ in COMMANDS}) > 4
    assert len(COMMANDS) > 20


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
    missing = []
    for message in quoted:
        pieces = [piece.strip(" ().:,") for piece in " ".join(message.split()).split("...")]
        pattern = re.compile(".*".join(map(re.escape, filter(None, pieces))), re.DOTALL)
        if not any(pattern.search(text) for text in texts):
            missing.append(message)
    assert not missing
