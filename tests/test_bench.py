"""The benchmark against peers: all train on the same work, and the table reports what was measured."""

import functools
import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.bench import measure, training
from benchmarks.bench.__main__ import main
from benchmarks.bench.peers import PEERS
from benchmarks.bench.preparation import prepare
from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID
from heedful.training import machine
from heedful.training.flops import FlopCounter

pytestmark = pytest.mark.any_backend


@pytest.fixture
def bench(cli):
    """A function that runs a benchmark as `cli` runs a command."""
    return functools.partial(cli, main=main)


@pytest.fixture
def work(recipe):
    return prepare(str(recipe), ["--data.pack_tokens", "16", "--model.dropout", "0.0"], "toy", 64)


def test_single_packed_and_random_batches_hold_the_same_pairs(work):
    def labels(examples):
        rows = (row[row != 0].tolist() for batch in examples.one_pass() for row in batch["labels"])
        return sorted(" ".join(map(str, row)).split(f" {END_ID}")[0] for row in rows if row)

    single = labels(work.single)
    assert len(single) == 20
    texts = sorted(
        " ".join(map(str, labels[segments == number][:-1]))
        for batch in work.packed.one_pass()
        for labels, segments in zip(batch["labels"], batch["target_segments"], strict=True)
        for number in range(1, segments.max() + 1)
    )
    assert texts == single
    shapes = [work.single.shape(number) for number in work.single.first_of_each_shape()]
    assert len(set(shapes)) == len(shapes) == len(work.single.plan.shapes)
    assert labels(work.random) == single
    assert work.random.shape(0)[0] == 64


@pytest.mark.slow  # loading the peers takes longer than their updates
@pytest.mark.filterwarnings("default")  # warnings of the peers are not our concern
@pytest.mark.parametrize("name", ["torch", "tutorial_loop", "transformers", "eole", "joeynmt"])
def test_a_peer_learns(name, work):
    if not all(map(importlib.util.find_spec, PEERS[name].MODULES)):
        pytest.skip(f"{name} is not installed")
    peer = PEERS[name](work)
    batch = peer.padded(getattr(work, peer.BATCHES).batch(0))
    assert all((batch[side] != 0).any(axis=0).all() for side in ("source", "labels"))  # no column holds only padding
    parameters = sum(p.numel() for p in peer.model.parameters() if p.requires_grad)
    sizes = work.model
    least = work.vocab_size * sizes.d_model + sizes.num_layers * (
        12 * sizes.d_model**2 + 4 * sizes.d_model * sizes.d_ff
    )
    assert least < parameters < 1.05 * least  # the rest are biases and norms; the tables are tied
    losses = [peer.update(batch) for _ in range(24)]
    assert losses[-1] < losses[0] - 0.4
    assert np.isfinite(losses).all()


def test_heedful_is_measured_with_packed_batches_and_mfu(work, tmp_path, capsys, monkeypatch):
    work.save(tmp_path / "work")
    monkeypatch.setattr(machine, "product_rate", lambda precision: 1e12)
    measure.main("heedful", str(tmp_path / "work"), updates=2)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["tokens_per_second"] > 0
    assert 0 <= found["padding"] < 1
    demand = FlopCounter(measure.new_objective(work).model)
    operations = sum(demand.of(work.packed.batch(number)) for number in range(2))
    operations /= sum(map(work.packed.tokens, range(2)))
    assert found["mfu"] == pytest.approx(operations * found["tokens_per_second"] / 1e12)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed")
def test_a_peer_is_measured_without_loading_a_backend(work, tmp_path):
    """Guards the measured memory of the peer: a backend of heedful would count in it."""
    work.save(tmp_path / "work")
    code = """
import sys
from benchmarks.bench import measure
measure.main("torch", sys.argv[1], updates=2)
assert not {"keras", "jax", "tensorflow", "matplotlib"} & sys.modules.keys()
"""
    made = subprocess.run([sys.executable, "-c", code, tmp_path / "work"], check=True, stdout=subprocess.PIPE)
    found = json.loads(made.stdout.splitlines()[-1])
    assert found["batch_tokens"] == sum(map(work.single.tokens, range(2))) / 2
    assert found["tokens_per_second"] > 0
    assert 0 < found["peak_gib"] < 4


def test_the_table_has_medians_and_ratios(monkeypatch):
    speeds = {"heedful": iter([600.0, 500.0, 100.0]), "torch": iter([250.0, 100.0, 1000.0])}
    order = []

    def run(command, **options):
        engine = json.loads(command[-1])["engine"]
        order.append(engine)
        found = {"tokens_per_second": next(speeds[engine]), "batch_tokens": 3500.0, "padding": 0.1, "peak_gib": 1.0}
        share = {"mfu": None} if engine == "heedful" else {}
        return subprocess.CompletedProcess(command, 0, f"noise\n{json.dumps(found | share)}\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    said = []
    medians = training.compare(["heedful", "torch"], 3, {"size": "toy"}, said.append)
    assert order == ["heedful", "torch"] * 3
    assert training.summary(medians) == "heedful: 500 target tokens/s, 2.00 times torch"
    assert said[-1].split() == ["torch", "250", "2.00", "times", "3,500", "10.0%", "1.00", "GiB"]


@pytest.mark.parametrize("failing", ["torch", "heedful"])
def test_a_peer_that_fails_is_left_out(monkeypatch, failing):
    """The results of the others are kept; if heedful itself fails, there is nothing to compare with."""
    found = {"tokens_per_second": 500.0, "batch_tokens": 3500.0, "padding": 0.1, "peak_gib": 1.0}

    def run(command, **options):
        failed = json.loads(command[-1])["engine"] == failing
        return subprocess.CompletedProcess(command, int(failed), json.dumps(found), "Traceback\nNo module named 'x'\n")

    monkeypatch.setattr(subprocess, "run", run)
    said, engines = [], ["heedful", "torch", "eole"]
    if failing == "heedful":
        with pytest.raises(InputError, match="heedful failed with exit code 1: No module named 'x'"):
            training.compare(engines, 2, {}, said.append)
        return
    assert list(training.compare(engines, 2, {}, said.append)) == ["heedful", "eole"]
    assert said[1] == "round 1  left out: torch failed with exit code 1: No module named 'x'"
    assert sum("torch" in line for line in said) == 1


@pytest.mark.slow
def test_decoding_is_measured_in_several_precisions(bench, run):
    done = bench("decode", run, "--rounds", 2, "--sizes", "trained", "--precision", "float32", "int8")
    assert done.returncode == 0, done.stderr
    *rows, cold, memory, last = done.stdout.decode().splitlines()
    assert len(rows) == 8  # greedy and a beam, batches and single sentences, in each precision
    assert [row.split(" tokens/s")[0].split("heedful ")[1].split()[0] for row in rows] == ["float32", "int8"] * 4
    ratios = [float(row.split("ratio median ")[1].split()[0]) for row in rows]
    assert last.startswith(f"8 rows, lowest median ratio {min(ratios):.2f} (trained ")
    assert "the second" in cold
    assert memory.endswith("GiB")


def test_mistakes_in_benchmarks_are_explained(bench, recipe, tmp_path):
    refused = bench("train", recipe, "--engines", "fairseq")
    assert refused.returncode == 2
    assert b"Not installed here: fairseq" in refused.stderr
    unknown = bench("train", recipe, "--tokenizer.words", "9")
    assert unknown.returncode == 2
    assert b"words" in unknown.stderr
    for idle in ("--model.size", "base"), ("--data.batch_tokens", "9"), ("--train.accumulate_batches", "2"):
        ignored = bench("train", recipe, *idle)
        assert ignored.returncode == 2
        assert f"{idle[0].removeprefix('--')} is not compared: ".encode() in ignored.stderr
    missing = bench("train", HEEDFUL_DATA=str(tmp_path / "none"))
    assert missing.returncode == 2
    assert b"Missing text" in missing.stderr
    assert bench("decode", tmp_path / "none").returncode == 2
    assert bench().returncode == 2
