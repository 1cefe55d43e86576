"""The house keeps to its plan: imports point one way, and the quick verbs are quick."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.plugins import task_names

pytestmark = pytest.mark.any_backend

PACKAGE = Path(__file__).parent.parent / "heedful"
# A room may import rooms of a lower rank, and its own.
RANKS = {
    "__version__": 0, "errors": 0, "special_tokens": 0, "architecture": 0, "arriving": 0, "memory": 0, "progress": 0,
    "plugins": 1, "checked": 1, "storage": 1, "backend": 1,
    "cache": 2, "config": 2, "settings": 3, "layers": 3, "data": 3,
    "doctor": 4, "models": 4, "run": 5, "training": 6, "generation": 6, "reading": 6, "pretrained": 6, "scores": 6,
    "evaluation": 7, "inspection": 7, "selfcheck": 7, "serving": 8, "tasks": 8, "loading": 8, "recipes": 8,
    "workflows": 9, "bench": 9, "parser": 9, "verbs": 10, "cli": 11, "__init__": 12, "__main__": 12,
}  # fmt: skip


def room(module):
    return module.split(".")[1] if "." in module else "__init__"


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("heedful"):
            names = [f"heedful.{alias.name}" for alias in node.names] if node.module == "heedful" else [node.module]
            yield from names
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("heedful"))


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for module in imports(path):
        there = room(module)
        assert RANKS[there] < RANKS[here] or there == here, f"{path} imports {module}"


def test_training_and_generation_do_not_know_each_other():
    for folder, other in (("training", "generation"), ("generation", "training")):
        for path in (PACKAGE / folder).glob("*.py"):
            assert other not in {room(module) for module in imports(path)}, path


def choices_by_task(tree):
    """Yield the lines in which a name of a task is compared, or is the key of a table."""
    tasks = set(task_names())
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            compared = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.MatchValue):
            compared = [node.value]
        else:
            continue
        names = {leaf.value for part in compared for leaf in ast.walk(part) if isinstance(leaf, ast.Constant)}
        if names & tasks:
            yield node.lineno


def test_only_tasks_know_what_differs_between_tasks():
    """Guards the next task: whoever adds one writes a file in tasks/ and edits nothing else."""
    outside = [path for path in PACKAGE.rglob("*.py") if path.parent.name != "tasks" and path.name != "plugins.py"]
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in outside
        for line in choices_by_task(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_data_needs_no_backend():
    modules = "heedful.data.batches, heedful.data.encoded, heedful.data.phrasebook"
    code = f"import sys, {modules}; assert 'keras' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_does_not_load_a_backend():
    code = """
import sys
from heedful.cli import main
try:
    main(["--help"])
except SystemExit:
    assert not {"keras", "jax", "numpy", "rich"} & set(sys.modules), sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_every_module_says_what_it_is_for():
    for path in PACKAGE.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
