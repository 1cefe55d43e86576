"""What a plan says a training will cost, and batches as large as the memory holds."""

import re

import pytest

from heedful import jobs
from heedful.config import Config
from heedful.errors import InputError
from heedful.jobs import JOBS
from heedful.run import Run
from heedful.settings import override
from heedful.training import rehearsal
from heedful.training.rehearsal import largest_batch


@pytest.mark.parametrize("task", ["translate", "generate"])
def test_a_plan_tells_time_and_memory_and_leaves_nothing(task, recipe_of, tmp_path):
    said = []
    config = override(Config.from_toml(recipe_of(task)), ["--train.accumulate", "2"])
    before = sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts)
    jobs.plan(config, said.append)
    assert sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts) == before
    told = re.fullmatch(
        r"compiling (\d+) s once, then ([\d.e-]+) s an epoch \(([\d,]+) tokens/s\), ([\d.]+) of ([\d.]+) GiB of memory",
        said[-1],
    )
    compiling, epoch, rate, memory, limit = (float(number.replace(",", "")) for number in told.groups())
    assert 0 <= compiling < 300
    assert 0.05 < memory < limit
    job = JOBS[task](Run(tmp_path / "none", *_prepared(config)), said.append)
    count = round(job.examples.batches_per_epoch)
    tokens = sum(map(job.examples.tokens, range(count)))
    assert epoch * rate == pytest.approx(tokens, rel=0.15)


def _prepared(config):
    config, tokenizers = JOBS[config.task].prepare(config, JOBS[config.task].find_corpora(config)["train"])
    return config, *tokenizers


def test_the_largest_batch_fills_the_memory_that_it_may(monkeypatch):
    base, each, limit = 2 * 2**30, 400_000, 20 * 2**30
    monkeypatch.setattr(rehearsal, "memory_limit", lambda: limit)
    tried = []

    def rehearsed(tokens):
        tried.append(tokens)
        return base + each * tokens, False

    found = largest_batch(rehearsed)
    assert 0.95 < (base + each * found) / (rehearsal.ROOM * limit) <= 1
    assert base + each * max(tried) < limit  # never tried what would not have fitted
    everything = largest_batch(lambda tokens: (base + each * tokens, tokens >= 4096))
    assert everything == 4096  # more than all text is nothing to learn from
    assert largest_batch(lambda tokens: (base, False)) == rehearsal.LARGEST  # it never grows


@pytest.mark.any_backend
def test_auto_becomes_a_number_of_the_run(recipe, tmp_path):
    config = override(Config.from_toml(recipe), ["--data.batch_tokens", "auto", "--data.batch_sentences", "0"])
    said = []
    run = jobs.train(config, tmp_path / "run", said.append)
    tokens = run.config.data.batch_tokens
    assert f"largest batch: {tokens:,} tokens" in said
    assert Run.open(tmp_path / "run").config.data.batch_tokens == tokens >= rehearsal.FIRST
    with pytest.raises(InputError, match="is for a new training"):
        jobs.resume(tmp_path / "run", said.append, override(run.config, ["--data.batch_tokens", "auto"]))
    with pytest.raises(InputError, match="leaves nothing to batch_sentences"):
        override(config, ["--data.batch_sentences", "5"])
    with pytest.raises(InputError, match="not a whole number"):
        override(config, ["--data.batch_tokens", "many"])
