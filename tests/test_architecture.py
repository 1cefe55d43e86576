"""The house keeps to its plan: imports point one way, and the quick verbs are quick."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_backend

PACKAGE = Path(__file__).parent.parent / "heedful"
# A room may import rooms of a lower rank, and its own.
RANKS = {
    "__version__": 0, "errors": 0, "arriving": 0, "memory": 0, "progress": 0, "checked": 1, "storage": 1, "backend": 1,
    "cache": 2, "config": 2, "settings": 3, "layers": 3, "data": 3,
    "doctor": 4, "models": 4, "run": 5, "training": 6, "generation": 6, "reading": 6, "pretrained": 6, "scores": 6,
    "evaluation": 7, "inspection": 7, "selfcheck": 7, "serving": 8, "jobs": 8, "loading": 8, "recipes": 8,
    "bench": 9, "parser": 9, "verbs": 10, "cli": 11, "__init__": 12, "__main__": 12,
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
