"""The README: its commands parse, its snippets are valid Python, and its lists are complete."""

import ast
import doctest
import importlib.util
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import heedful
from heedful.cli import command_parser
from heedful.commands import HELP, module_of
from heedful.config import Config, settings
from heedful.config.recipes import find_recipe, recipe_names
from tests.conftest import PAIRS

pytestmark = pytest.mark.any_backend

PACKAGE = Path(__file__).parent.parent / "heedful"
README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    *(line for line in re.findall(r"^    heedful (.+)$", README, re.MULTILINE)),
    *(f"{command}" for command in re.findall(r"`heedful ([a-z]+ [^`]*--help)`", README)),
]


def check_command(command):
    """Parse what follows `heedful ` on a line of a shell, as far as the first pipe or redirection."""
    words = shlex.split(re.split(r" [<>|] ", command)[0], comments=True)
    name = next(name for name in (" ".join(words[:2]), words[0]) if name in HELP)
    words = words[len(name.split()) :]
    takes_settings = getattr(module_of(name), "TAKES_SETTINGS", False)
    own, overrides = settings.split_arguments(words) if takes_settings else (words, [])
    if "--help" in own:
        with pytest.raises(SystemExit):
            command_parser(name).parse_args(own)
        return
    options = command_parser(name).parse_args(own)
    if takes_settings and options.recipe and not options.recipe.endswith(".toml"):
        settings.of_recipe(find_recipe(options.recipe), overrides)
    elif overrides:
        settings.override(Config(), overrides)


@pytest.mark.parametrize("command", [command for command in COMMANDS if "COMMAND" not in command])
def test_every_command_parses(command):
    check_command(command)


def test_the_table_of_commands_is_complete():
    assert set(re.findall(r"^\| `([a-z]+(?: [a-z]+)?)", README, re.MULTILINE)) == set(HELP)


def test_every_recipe_is_listed():
    text = README[README.index("Recipes: ") :].split("\n\n")[0]
    assert set(recipe_names()) <= set(re.findall(r"`([a-z0-9-]+)`", text))


def test_snippets_are_python_and_use_existing_names():
    for snippet in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "heedful":
                assert hasattr(heedful, node.attr)


def test_each_cell_of_the_table_of_figures_holds_one_number():
    table = README[README.index("## Figures") : README.index("Speed ratios vary")]
    cells = [line.split("|")[-2] for line in table.splitlines() if line.startswith("|")][2:]
    assert len(cells) > 10
    assert all(len(re.findall(r"\d+(?:\.\d+)?", cell)) == 1 for cell in cells)


def results():
    """Return the recorded results, and the page that benchmarks/figures.py writes from them."""
    path = Path(__file__).parent.parent / "benchmarks" / "figures.py"
    spec = importlib.util.spec_from_file_location("figures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.read_results(), module


def test_the_page_of_figures_is_written_from_the_recorded_results():
    recorded, module = results()
    assert module.page(recorded) == module.PAGE.read_text(encoding="utf-8")
    known = {section for section, *_ in module.MEASUREMENTS.values()} | {result["section"] for result in recorded}
    assert known <= set(module.SECTIONS)


def test_every_figure_of_the_readme_is_a_recorded_result():
    values = {f"{figure['value']:g}" for result in results()[0] for figure in result["figures"]}
    table = README[README.index("## Figures") : README.index("Speed ratios vary")]
    cells = [line.split("|")[-2] for line in table.splitlines() if line.startswith("|")][2:]
    numbers = {f"{float(re.search(r'[0-9.]+', cell)[0]):g}" for cell in cells}
    assert numbers - values == set()


QUICK = [
    "--train.validate_every", "2", "--model.size", "toy", "--model.num_layers", "1", "--tokenizer.vocab_size", "300",
    "--train.check", "false", "--train.tensorboard", "false", "--train.warmup_updates", "2",
]  # fmt: skip


def test_the_main_job_runs(cli, tmp_path, monkeypatch):
    """Run the shell commands as they stand there, but for the size of the model and the number of updates."""
    monkeypatch.chdir(tmp_path)
    for name in ("train", "valid", "test", "in"):
        for side, language in enumerate(("pt", "en")):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    shell = README[README.index("In the shell") : README.index("In Python:")]
    commands = re.findall(r"^    heedful (.+)$", shell, re.MULTILINE)
    assert len(commands) == 5
    for number, command in enumerate(commands):
        words, *redirected = re.split(r" < | > ", re.sub(r"minutes \d+", "minutes 0", command))
        more = [] if number > 1 else [*QUICK[: 2 if number else None], "--train.updates", str(2 + 2 * number)]
        stdin = (tmp_path / redirected[0]).read_text(encoding="utf-8") if redirected else ""
        result = cli(*shlex.split(words, comments=True), *more, stdin=stdin)
        assert result.returncode == 0, result.stderr
        if redirected:
            assert result.stdout.count(b"\n") == len(PAIRS)


def test_the_python_snippets_run(whole, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whole.path, tmp_path / "runs" / "quickstart")
    ids = np.ones((2, 3), np.int32)
    names = {"source": ids, "target": ids, "labels": ids}
    snippets = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(snippets) == 2
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), names)  # noqa: S102
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text("utf-8")))
def test_doctests_pass(path):
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    found = doctest.testmod(importlib.import_module(name))
    assert (found.failed, found.attempted > 0) == (0, True)
