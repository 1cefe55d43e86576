"""The estimated cost of a training, and the largest batch that fits into memory."""

import re
from types import SimpleNamespace

import pytest

from heedful import workflows
from heedful.config import Config
from heedful.config.settings import override
from heedful.core.errors import InputError
from heedful.runs.run import Run
from heedful.training import cost_estimate
from heedful.training.cost_estimate import Trial, largest_batch


@pytest.mark.any_backend
@pytest.mark.parametrize("task", ["translate", "generate"])
def test_a_plan_reports_time_and_memory_and_writes_no_files(task, recipe_of, tmp_path):
    said = []
    config = override(Config.from_toml(recipe_of(task)), ["--train.accumulate_batches", "2"])
    before = sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts)
    workflows.plan(config, said.append)
    assert sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts) == before
    told = re.fullmatch(
        r"compiling (\d+) s once, then ([\d.e-]+) s an epoch \(([\d,]+) tokens/s\), ([\d.]+) of ([\d.]+) GiB of memory",
        said[-1],
    )
    compiling, epoch, rate, memory, limit = (float(number.replace(",", "")) for number in told.groups())
    assert 0 <= compiling < 300
    assert 0.05 < memory < limit
    assert epoch > 0
    assert rate > 0


@pytest.mark.any_backend
def test_the_time_of_an_epoch_is_the_sum_over_its_batches(monkeypatch):
    """Batches of three shapes take 2, 1 and 3 s. Of ten, 3 have the first and 7 the second; the third comes later."""

    class Examples:
        batches_per_epoch = 10.0

        def shape(self, number):
            return (2, 1) if number == 31 else (7, 5) if number % 4 == 0 else (3, 2)

        def first_of_each_shape(self):
            return [0, 1, 31]

        def batch(self, number):
            return {"number": number}

        def tokens(self, number):
            return 11

    seconds = [[9.0, 2.5, 1.5], [4.0, 1.0, 1.0], [6.0, 3.0, 3.0]]
    monkeypatch.setattr(cost_estimate, "_seconds", lambda run, model, batches, steps: seconds)
    train = SimpleNamespace(accumulate_batches=1)
    found = cost_estimate.estimate_cost(SimpleNamespace(config=SimpleNamespace(train=train)), None, Examples())
    assert found.compiling == pytest.approx(19 - 6)
    assert found.epoch == pytest.approx(3 * 2 + 7 * 1)
    assert found.rate == pytest.approx(110 / 13)


@pytest.mark.any_backend
def test_the_largest_batch_fills_the_allowed_memory():
    base, each, limit = 2 * 2**30, 400_000, 20 * 2**30
    tried = []

    def attempt(tokens):
        tried.append(tokens)
        return Trial(tokens, base + each * tokens, limit, False)

    found = largest_batch(attempt)
    assert 0.95 < (base + each * found) / (cost_estimate.ROOM * limit) <= 1
    assert base + each * max(tried) < limit  # no trial exceeded the memory
    everything = largest_batch(lambda tokens: Trial(tokens, base + each * tokens, limit, tokens >= 4096))
    assert everything == 4096  # no batch is larger than the whole text
    assert largest_batch(lambda tokens: Trial(tokens, base, limit, False)) == cost_estimate.LARGEST  # constant memory
    assert (
        largest_batch(lambda tokens: Trial(tokens, base, limit, False) if tokens < 5000 else None) == 4096
    )  # larger trials died
    long_rows = largest_batch(lambda tokens: Trial(max(tokens, 3000), base + each * max(tokens, 3000), limit, False))
    assert abs(long_rows - found) <= 1024  # if a single row has more tokens than the smallest batch

    def noisy(tokens):
        noise = 2 * cost_estimate.MIN_MEMORY_GROWTH if tokens == 4096 else 0
        return Trial(max(tokens, 5000), base + each * max(tokens, 5000) + noise, limit, False)

    assert abs(largest_batch(noisy) - found) <= 1024  # two trials of the same row do not show the memory per token
    with pytest.raises(InputError, match="too little memory for batches of 1,024 tokens"):
        largest_batch(lambda tokens: None)


@pytest.mark.slow
@pytest.mark.any_backend
def test_an_automatic_batch_size_is_stored_in_the_run(recipe, tmp_path):
    config = override(Config.from_toml(recipe), ["--data.batch_tokens", "auto", "--data.batch_sentences", "0"])
    said = []
    run = workflows.train(config, tmp_path / "run", said.append)
    tokens = run.config.data.batch_tokens
    assert f"largest batch: {tokens:,} tokens" in said
    assert Run.open(tmp_path / "run").config.data.batch_tokens == tokens >= cost_estimate.FIRST
    with pytest.raises(InputError, match="is for a new training"):
        workflows.resume(tmp_path / "run", said.append, override(run.config, ["--data.batch_tokens", "auto"]))
    with pytest.raises(InputError, match="leaves nothing to batch_sentences"):
        override(config, ["--data.batch_sentences", "5"])
    with pytest.raises(InputError, match="is not a whole number, nor 'auto'"):
        override(config, ["--data.batch_tokens", "many"])
    with pytest.raises(InputError, match="batch_tokens = None is not a whole number"):
        Config.from_table({"data": {"batch_tokens": None}}, "a file")
