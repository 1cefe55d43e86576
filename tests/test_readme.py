"""The README: its commands are understood, its snippets are Python, its lists are complete."""

import ast
import re
import shlex
from pathlib import Path

import pytest

import heedful
from heedful import settings
from heedful.config import Config
from heedful.parser import new_parser
from heedful.recipes import find_recipe, recipe_names

pytestmark = pytest.mark.any_backend

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    *(line for line in re.findall(r"^    heedful (.+)$", README, re.MULTILINE)),
    *(f"{verb}" for verb in re.findall(r"`heedful ([a-z]+ [^`]*--help)`", README)),
]


@pytest.mark.parametrize("command", [command for command in COMMANDS if "VERB" not in command])
def test_every_command_is_understood(command):
    words = shlex.split(re.split(r" [<>] ", command)[0])
    own, overrides = settings.take(words) if words[0] == "train" else (words, [])
    if "--help" in own:
        with pytest.raises(SystemExit):
            new_parser().parse_args(own)
        return
    options = new_parser().parse_args(own)
    if words[0] == "train" and options.recipe:
        settings.of_recipe(find_recipe(options.recipe), overrides)
    elif overrides:
        settings.override(Config(), overrides)


def test_the_table_of_verbs_is_complete():
    named = set(re.findall(r"^\| `([a-z]+)", README, re.MULTILINE))
    (verbs,) = (action.choices for action in new_parser()._actions if action.dest != "help" and action.choices)
    assert named == set(verbs)


def test_every_recipe_is_named():
    text = README[README.index("Recipes: ") :].split("\n\n")[0]
    assert set(recipe_names()) <= set(re.findall(r"`([a-z0-9-]+)`", text))


def test_snippets_are_python_and_name_what_there_is():
    for snippet in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "heedful":
                assert hasattr(heedful, node.attr)


def test_a_cell_of_figures_holds_one_number():
    table = README[README.index("## Figures") : README.index("Ratios differ")]
    cells = [line.split("|")[-2] for line in table.splitlines() if line.startswith("|")][2:]
    assert len(cells) > 10
    assert all(len(re.findall(r"\d+(?:\.\d+)?", cell)) == 1 for cell in cells)
