"""The structure of the package: imports point one way, functions are short, commands start quickly."""

import ast
import fnmatch
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import heedful
from heedful.core.plugins import task_names
from heedful.workflows.distillation.plan import FOLDER
from heedful.workflows.folder import RUN_FILES

pytestmark = pytest.mark.any_backend

PACKAGE = Path(__file__).parent.parent / "heedful"
# A package may import those above its line, and its own modules.
LINES = """
core
backend  config
data  layers
decoding  models  runs
inference  training
interop
inspection
tasks
serve  workflows
commands
cli
__init__  __main__
"""
RANKS = {name: rank for rank, line in enumerate(LINES.strip().splitlines()) for name in line.split()}
RANKS["__version__"] = 0


def part_of(module):
    return module.split(".")[1] if "." in module else "__init__"


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("heedful"):
            names = [f"heedful.{alias.name}" for alias in node.names] if node.module == "heedful" else [node.module]
            yield from names
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("heedful"))


def test_imports_point_one_way():
    for path in PACKAGE.rglob("*.py"):
        here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for module in imports(path):
            there = part_of(module)
            assert RANKS[there] < RANKS[here] or there == here, f"{path} imports {module}"


def test_training_and_decoding_are_independent():
    for folder, other in (("training", "decoding"), ("decoding", "training")):
        for path in (PACKAGE / folder).glob("*.py"):
            assert other not in {part_of(module) for module in imports(path)}, path


def test_no_modules_import_each_other():
    """Guards against cycles within a package, which `RANKS` cannot detect; imports in functions count too."""
    modules = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    graph = {}
    for name, path in modules.items():
        graph[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("heedful"):
                found = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= {module if module in modules else node.module for module in found}
    del graph["heedful"]  # which imports its public names on first use
    while ready := [name for name, needed in graph.items() if not needed & graph.keys()]:
        for name in ready:
            del graph[name]
    assert {name: needed & graph.keys() for name, needed in graph.items()} == {}


def module_name(path):
    """Return the name of a module of the package."""
    return ".".join(("heedful", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def test_functions_are_short():
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        assert [node.name for node in functions if node.end_lineno - node.lineno + 1 >= 60] == [], path


def choices_by_task(tree):
    """Yield the numbers of lines that compare a task's name or use it as a key of a dict."""
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


def test_no_code_outside_tasks_depends_on_the_name_of_a_task():
    """Guards extensibility: adding a task must take one new file in tasks/ and no other edit."""
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
assert main(["--help"]) == 0
assert not {"keras", "jax", "numpy", "rich"} & set(sys.modules), sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_translating_with_ctranslate2_loads_no_backend():
    """Loading Keras and JAX takes longer than all else that the command does."""
    modules = "heedful.commands.translate, heedful.interop.export.ctranslate2_search, heedful.tasks.translate"
    code = f"import sys, {modules}; assert not {{'keras', 'jax', 'sacrebleu'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_keras_loads_no_plots_until_they_are_drawn(tmp_path):
    code = f"""
import sys, heedful.backend
assert "matplotlib.figure" not in sys.modules
assert "sklearn" not in sys.modules
import keras
assert keras.wrappers.SKLearnClassifier.__name__ == "SKLearnClassifier"
import matplotlib.pyplot as plt
figure, axes = plt.subplots()
axes.plot([1, 2])
assert type(figure).__name__ == "Figure" and plt is sys.modules["matplotlib.pyplot"]
from keras.visualization import plot_image_gallery
import numpy as np
plot_image_gallery(np.zeros((1, 4, 4, 3)), value_range=(0, 1), rows=1, cols=1, path={str(tmp_path / "drawn.png")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "MPLBACKEND": "agg"})
    assert (tmp_path / "drawn.png").stat().st_size


def test_every_module_has_a_docstring():
    for path in PACKAGE.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def public_functions(node, inside=False):
    """Yield the public functions of a module or class, and its special methods."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from public_functions(child, inside=True)
        elif isinstance(child, ast.FunctionDef) and not re.match("_[^_]", child.name):
            yield child, inside


def test_public_functions_are_annotated():
    for path in PACKAGE.rglob("*.py"):
        for function, is_method in public_functions(ast.parse(path.read_text(encoding="utf-8"))):
            arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            arguments += filter(None, (function.args.vararg, function.args.kwarg))
            bare = [each.arg for each in arguments if each.annotation is None]
            assert not set(bare) - ({"self", "cls"} if is_method else set()), f"{path}: {function.name}"
            assert function.returns or function.name == "__init__", f"{path}: {function.name}"


def test_lazy_imports_and_imports_for_editors_match_all():
    """The lazily imported names, those for editors, and `__all__` are the same, and all can be imported."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    for_editors = {alias.name: node.module for node in block.body for alias in node.names}
    assert for_editors == heedful._MODULES
    assert set(heedful.__all__) == {*heedful._MODULES, "__version__"}
    for name in heedful.__all__:
        assert getattr(heedful, name) is not None


DOCS = PACKAGE.parent / "docs"


def test_the_page_on_the_architecture_describes_every_package():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("## Packages")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)[/.]", table, re.MULTILINE)) == {name for name in RANKS if "__" not in name}


def test_the_page_on_run_folders_lists_what_is_written():
    text = (DOCS / "guides" / "run_folder.md").read_text(encoding="utf-8").partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([\w./]+)`", row)}
    patterns = [pattern.partition("/") for pattern in (*RUN_FILES, f"{FOLDER}/*")]
    folders = {folder + slash for folder, slash, _ in patterns if slash}
    files = [name for name, slash, _ in patterns if not slash]
    assert {name for name in listed if name.endswith("/")} == folders
    assert not [name for name in listed - folders if not any(fnmatch.fnmatch(name, pattern) for pattern in files)]
    assert not [pattern for pattern in files if not any(fnmatch.fnmatch(name, pattern) for name in listed)]
