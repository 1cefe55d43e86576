"""The command line handles any input: no traceback, no hang, no changed file of the user.

`FUZZ_INPUTS` sets how many inputs are drawn in all, a few dozen by default, and `FUZZ_SEED` selects them;
`benchmarks/fuzzing.py` draws 10,000.
"""

import collections
import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from heedful import workflows
from heedful.cli import main
from heedful.config import Config
from heedful.config import settings as known_settings
from heedful.runs.run import Run
from heedful.workflows import Training
from tests.conftest import write_recipe

pytestmark = [pytest.mark.slow, pytest.mark.any_backend]

INPUTS, SEED = int(os.environ.get("FUZZ_INPUTS", "40")), int(os.environ.get("FUZZ_SEED", "1"))
PATIENCE = 120  # seconds that a command may take on inputs of this size, compilation included
COUNTS = collections.Counter()  # calls by command, and by exit code
TASKS = ("translate", "generate", "fill", "classify")


class Hang(BaseException):
    """A command took longer than `PATIENCE`."""


def inputs(share):
    """Return a decorator that draws this share of all inputs, the same ones for the same seed."""
    count = max(1, round(INPUTS * share))
    same = settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    return lambda test: seed(SEED)(same(test))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a recipe and a trained run for each task; fail if a test changes it."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEEDFUL_CACHE", str(folder / "cache"))
        for task in TASKS:
            recipe = write_recipe(folder, task)
            workflows.train(Config.from_toml(recipe), folder / f"run-{task}", lambda line: None)
    before = fingerprint(folder)
    yield folder
    assert fingerprint(folder) == before  # no file of the user was changed


def fingerprint(folder):
    """Return the hash of each file in a folder by its relative path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "cache" not in path.parts
    }


def call(home, *arguments, stdin=b""):
    """Run a command in an empty folder; fail on a traceback, a hang, or an exit code that no command has."""
    arguments = [str(argument) for argument in arguments]
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", "replace"), io.TextIOWrapper(io.BytesIO(), "utf-8", "replace")

    def waited(number, frame):
        raise Hang(arguments)

    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(PATIENCE)
    with tempfile.TemporaryDirectory() as empty, pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Training, "estimate_cost", lambda training: ""
        )  # it takes seconds and comes after all input is read
        patch.chdir(empty)
        patch.setenv("HEEDFUL_CACHE", str(home / "cache"))
        patch.setenv("HEEDFUL_DATA", empty)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(arguments)
        except SystemExit as leave:
            code = leave.code or 0
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
    err.flush()
    told = err.buffer.getvalue().decode("utf-8", "replace")
    assert code in (0, 1, 2), (code, told)
    assert "Traceback" not in told
    if code == 2:
        assert told.strip(), arguments  # a refusal says why
    COUNTS[arguments[0] if arguments else ""] += 1
    COUNTS[code] += 1
    return code


SETTINGS = sorted(known_settings.meanings())
WORDS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda text: "\0" not in text),
    st.sampled_from(
        ["", "-", "--", "0", "-1", "1e400", "nan", "None", "../..", "/dev/null", "~", "*", "a" * 5000, "%s"]
    ),
    st.integers().map(str),
)
VALUES = st.one_of(
    WORDS,
    st.integers(-3, 70).map(str),
    st.floats().map(str),
    st.sampled_from(["true", "false", "[]", '["a", "b"]', "{}", '"bpe"', "'word'", "1979-05-27", "0x10", "1_000"]),
)
# Any bytes, text of any script, and lines that are almost valid.
LINE = st.one_of(
    st.binary(max_size=40).map(lambda line: line.replace(b"\n", b" ")),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30).map(lambda text: text.replace("\n", " ").encode()),
    st.sampled_from(
        [b"", b" ", b"o gato bebe", b"\xff\xfe", b"\t", b"a\tb\tc", b"[MASK]", b"the " * 300, b"\xef\xbb\xbfx"]
    ),
)
LINES = st.lists(LINE, max_size=12).map(b"\n".join)
JSON = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([]), st.just({})
)  # fmt: skip
WAYS = ("plan", "doctor", "fix", "labelled", "tsv", "gz")  # of reading a text


@inputs(0.28)
@given(data=st.data())
def test_any_arguments_are_handled(home, data):
    """Commands with any of their flags and any words."""
    commands = {
        "translate": ["--beam-size", "--n-best", "--scores", "--engine", "--prefixes", "--with", "--sample"],
        "generate": ["--max-length", "--top-k", "--scores"], "fill": ["--count", "--json"], "classify": ["--scores"],
        "embed": ["--pooling"], "evaluate": ["--json", "--beam-size"], "explain": [], "diff": [], "check": ["--json"],
        "compare": ["--metric", "--json"], "export": ["--to", "--quantization", "--out"], "inspect": ["--layer"],
        "doctor": ["--valid", "--test", "--labelled", "--ignore", "--fix", "--json"],
        "import": ["--trust", "--tokenizer"], "train": ["--run", "--resume", "--seeds", "--verify", "--plan"],
        "quickstart": ["--nonsense"], "nonsense": [], "--help": [], "-x": [],
    }  # fmt: skip
    command = data.draw(st.sampled_from(sorted(commands)))
    flags = st.sampled_from(commands[command] or ["--json"])
    places = st.sampled_from(
        [home / "none", home / "text.pt", home / "cache", home / "translate.toml", home / "run-fill"]
    )
    first = [data.draw(places)] if command in ("explain", "diff", "compare", "import", "export") else [home / "none"]
    rest = data.draw(st.lists(st.one_of(flags, WORDS), max_size=6))
    extra = ["--plan"] if command == "train" else ["--nonsense"] if command == "quickstart" else []
    call(home, command, *first, *rest, *extra, stdin=data.draw(LINES))


@inputs(0.28)
@given(name=st.sampled_from(SETTINGS), value=VALUES, task=st.sampled_from(TASKS))
def test_any_value_of_a_setting_is_handled(home, name, value, task):
    """Any value for any setting."""
    call(home, "train", home / f"{task}.toml", "--plan", f"--{name}", value)


@inputs(0.16)
@given(data=st.data(), task=st.sampled_from(TASKS))
def test_an_altered_recipe_is_handled(home, data, task):
    """Recipes with lines removed, duplicated, swapped or overwritten."""
    lines = (home / f"{task}.toml").read_text(encoding="utf-8").splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        change = data.draw(st.sampled_from(["drop", "double", "swap", "write", "value"]))
        if change == "drop" and len(lines) > 1:
            lines.pop(at)
        elif change == "double":
            lines.insert(at, lines[at])
        elif change == "swap":
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif change == "write":
            lines[at] = data.draw(WORDS)
        else:
            lines[at] = lines[at].split("=")[0] + "= " + data.draw(VALUES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.toml"
        path.write_text("\n".join(lines), encoding="utf-8")
        call(home, "train", path, "--plan")


@inputs(0.17)
@given(source=LINES, target=LINES, command=st.sampled_from(WAYS), task=st.sampled_from(TASKS))
def test_any_training_text_is_handled(home, source, target, command, task):
    """Any bytes as training text: examine it, clean it, or plan a training on it."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "a.x", Path(folder) / "a.y"]
        for path, content in zip(paths, (source, target), strict=True):
            path.write_bytes(content)
        if command == "plan":
            files = json.dumps([str(path) for path in (paths if task == "translate" else paths[:1])])
            call(home, "train", home / f"{task}.toml", "--plan", "--data.train", files, "--data.valid", files)
        elif command == "tsv":
            call(home, "doctor", shutil.copy(paths[0], Path(folder) / "a.tsv"), "--json")
        elif command == "gz":
            call(home, "doctor", shutil.copy(paths[0], Path(folder) / "a.txt.gz"))
        elif command == "labelled":
            call(home, "doctor", paths[0], "--labelled", "--valid", paths[1], "--ignore", "empty")
        else:
            fix = ["--fix", Path(folder) / "clean"] if command == "fix" else []
            call(home, "doctor", *paths, *fix)


@inputs(0.08)
@given(data=st.data(), task=st.sampled_from(TASKS))
def test_a_damaged_run_folder_is_handled(home, data, task):
    """A run folder with a file that was truncated, corrupted, removed, or changed in one value."""
    with tempfile.TemporaryDirectory() as folder:
        run = shutil.copytree(home / f"run-{task}", Path(folder) / "run")
        names = ["config.json", "model.safetensors", "scores.json", "origins.json", "log.jsonl", "samples.txt"]
        names += ["outputs/0001.safetensors", f"state/{Run.open(run).checkpoints.paths()[-1].name}"]
        names += ["source.tokenizer.json", "target.tokenizer.json"] if task == "translate" else ["tokenizer.json"]
        path = run / data.draw(st.sampled_from(names))
        content = path.read_bytes()
        change = data.draw(st.sampled_from(["cut", "flip", "insert", "value", "remove", "folder"]))
        at = data.draw(st.integers(0, len(content) - 1))
        if change == "cut":
            path.write_bytes(content[:at])
        elif change == "flip":
            path.write_bytes(content[:at] + bytes([content[at] ^ data.draw(st.integers(1, 255))]) + content[at + 1 :])
        elif change == "insert":
            path.write_bytes(content[:at] + data.draw(st.binary(max_size=20)) + content[at:])
        elif change == "value" and path.suffix == ".json":
            path.write_text(json.dumps(_changed(json.loads(content), data)), encoding="utf-8")
        else:
            path.unlink()
            if change == "folder":
                path.mkdir()
        reads = {"translate": "translate", "generate": "generate", "fill": "fill", "classify": "classify"}[task]
        quick = ["compare", "explain", "diff", "doctor", "inspect"]  # the others compile programs
        command = data.draw(st.sampled_from([*quick, *quick, *quick, reads, reads, "resume"]))
        arguments = {
            "explain": ["explain", "train", run], "diff": ["diff", run, home / f"run-{task}"],
            "doctor": ["doctor", run], "inspect": ["inspect", run, "--positions"],
            "resume": ["train", "--resume", run, "--train.updates", "7"],
        }.get(command, [command, run])  # fmt: skip
        call(home, *arguments, stdin=b"the cat [MASK]\n")


@inputs(0.03)
@given(data=st.data(), task=st.sampled_from(TASKS), stdin=LINES)
def test_any_input_of_a_model_is_handled(home, data, task, stdin):
    """Any text for a trained model, with valid decode settings."""
    run, arguments = home / f"run-{task}", []
    if task in ("translate", "generate"):
        choices = [[], ["--beam-size", "3", "--n-best", "2"], ["--sample", "--top-p", "0.5", "--seed", "3"],
                   ["--no-repeat-ngram", "1"], ["--min-length", "5"], ["--max-length", "1"], ["--batch-size", "1"],
                   ["--repetition-penalty", "5"], ["--forbidden", "[UNK]"], ["--scores"]]  # fmt: skip
        arguments = data.draw(st.sampled_from(choices))
    command = data.draw(st.sampled_from(["fill", "embed"])) if task == "fill" else task
    call(home, command, run, *arguments, stdin=stdin)


def _changed(table, data):
    """Return a JSON value with one randomly drawn part replaced."""
    place = table
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(list(keys)))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(JSON)
            break
        place = place[key]
    return table
