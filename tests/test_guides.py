"""The trainings that the guides advise, on real text: each command leads to a model that has learned something.

`heedful train` exits with 0 only if the validation loss was below that of a constant guess, see `workflows.outcome`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.data.corpus import resolve
from heedful.data.text_files import read_lines
from heedful.runs.run import Run
from tests.test_docs import COMMANDS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not resolve("multi30k").is_dir(), reason="needs HEEDFUL_DATA")]

PAIRS = 4000  # of a training text, so that an epoch takes seconds
LITTLE_TEXT = "--model.size toy --train.updates 300 --train.validate_every 150"  # as the page advises
SHORT = "--train.validate_every 60 --train.updates 120 --train.warmup_updates 40 --train.check false".split()


def trainings(page):
    """Return the arguments of the trainings on a page, without comments."""
    commands = [command.partition("#")[0] for name, command in COMMANDS if name == page]
    return [command for command in commands if command.startswith("train ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files and runs that the guides name, from Multi30k and TREC."""
    folder = tmp_path_factory.mktemp("guides")
    source = resolve("multi30k")
    for part, file, count in (("train", "train", PAIRS), ("valid", "val", 200), ("test", "test_2016_flickr", 200)):
        for ours, theirs in (("pt", "de"), ("en", "en")):
            lines = list(read_lines(source / f"{file}.{theirs}.gz"))[:count]
            for name in (f"{part}.{ours}", f"manual.{part}.{theirs}", f"news.{part}.{theirs}"):
                (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for kind in ("manual", "news"):
        for language in ("de", "en"):
            shutil.copy(folder / f"{kind}.train.{language}", folder / f"{kind}.{language}")
    trec = resolve("trec")
    for real in (source, trec):  # the recipes' own text
        (folder / real.name).symlink_to(real.resolve())
    for part in ("train", "test"):
        lines = read_lines(trec / f"{part}.txt")
        text = "".join(line.replace(" ", "\t", 1) + "\n" for line in lines)
        (folder / f"{part}.tsv").write_text(text, encoding="utf-8")
    page = (Path(__file__).parent.parent / "docs" / "guides" / "your_own_text.md").read_text(encoding="utf-8")
    (folder / "mine.toml").write_text(re.search(r"```toml\n(name = \"by-recipe\".*?)```", page, re.DOTALL)[1])
    return folder


@pytest.fixture
def train(folder):
    """Run `heedful train` there with fewer updates; return the run."""

    def train(command, *more):
        words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", command.replace("--plan", ""))]
        given = {word for word in words if word.startswith("--train.")}
        short = [word for pair in zip(SHORT[::2], SHORT[1::2], strict=True) if pair[0] not in given for word in pair]
        done = subprocess.run(
            [sys.executable, "-m", "heedful", *words, *short, *more, "--run", "runs/tried", "--force"],
            cwd=folder, env=os.environ | {"HEEDFUL_DATA": str(folder)}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return Run.open(folder / "runs" / "tried")

    return train


def bleu(run):
    return json.loads((run.path / "scores.json").read_text())[-1]["bleu"]


@pytest.mark.parametrize("options", ["", "--train.schedule cosine", "--tokenizer.kind bpe --tokenizer.lowercase false"])
def test_your_own_text(train, options):
    """Guards against advice that trains garbage: with the cosine, every translation was one repeated token."""
    [command, _] = trainings("your_own_text.md")
    warmup = 40 if "cosine" in options else 1000  # the paper's peak falls with the warm-up
    run = train(f"{command} {options} {LITTLE_TEXT} --train.warmup_updates {warmup}")
    assert bleu(run) > 3
    losses = [entry["valid_loss"] for entry in run.log.read()]
    assert losses[-1] < losses[0]


def test_a_recipe_of_your_own(train):
    """The recipe has the paper's schedule, too, so its peak must be that of a longer training."""
    assert bleu(train(f"{trainings('your_own_text.md')[1]} {LITTLE_TEXT} --train.warmup_updates 1000")) > 5


@pytest.mark.parametrize("number", range(len(trainings("models_in_and_out.md"))))
def test_training_a_trained_model_further(train, folder, number):
    if not (folder / "runs" / "mine").exists():
        shutil.move(train("train multi30k-de-en", "--train.updates", "300").path, folder / "runs" / "mine")
    before = bleu(Run.open(folder / "runs" / "mine"))
    run = train(trainings("models_in_and_out.md")[number])
    assert bleu(run) > 0.8 * before


@pytest.mark.parametrize("number", range(3))
def test_classification(train, folder, number):
    run = train(trainings("classification.md")[number], "--train.updates", "300")
    if run.config.task == "fill":
        shutil.rmtree(folder / "runs" / "trec-fill", ignore_errors=True)
        shutil.move(run.path, folder / "runs" / "trec-fill")
    else:
        assert json.loads((run.path / "scores.json").read_text())[-1]["accuracy"] > 0.5
