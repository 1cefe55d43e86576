"""The meters: operations, padding and time are those of the batches that were trained on."""

import numpy as np
import pytest

import heedful
from heedful import backend, workflows
from heedful.config import Config
from heedful.runs.run import Run
from heedful.training import machine
from heedful.training.flops import FlopCounter
from heedful.training.machine import peak_memory, product_rate
from heedful.training.meter import Meter
from heedful.workflows import Training
from tests.conftest import write_recipe

SIZES = {"num_layers": 3, "d_model": 10, "num_heads": 5, "d_ff": 7, "max_length": 17}


def ids(*lengths):
    return np.array([[5] * length + [0] * (13 - length) for length in lengths])


@pytest.mark.any_backend
@pytest.mark.parametrize(("activation", "matrices"), [("relu", 2), ("swiglu", 3)])
def test_operations_of_a_translator_equal_a_count_by_hand(activation, matrices):
    """Six operations per weight and real token; source tokens also pass the decoder's key/value projections."""
    model = heedful.Transformer(31, 37, **SIZES, activation=activation, num_kv_heads=1)
    attention, keys_values, inner = 2 * 10 * 10, 2 * 10 * 2, matrices * 10 * 7
    read = 3 * (attention + keys_values + inner) + 3 * keys_values
    written = 3 * (attention + keys_values + inner) + 3 * attention
    batch = {"source": ids(3, 11), "target": ids(2, 5), "weights": ids(2, 5) / 5}
    assert FlopCounter(model).of(batch) == 6 * (14 * read + 7 * (written + 370))
    model = heedful.Transformer(31, 37, **SIZES, activation=activation, num_kv_heads=1)
    model.freeze()
    encoder = 3 * (attention + keys_values + inner)
    assert FlopCounter(model).of(batch) == 6 * (14 * read + 7 * (written + 370)) - 4 * 14 * encoder


@pytest.mark.any_backend
def test_operations_of_one_sided_models_equal_a_count_by_hand():
    block = 4 * 10 * 10 + 2 * 10 * 7
    batch = {"ids": ids(3, 11), "weights": ids(3, 10) / 5}
    assert FlopCounter(heedful.CausalLM(31, **SIZES)).of(batch) == 6 * (14 * 3 * block + 13 * 310)
    masked = {"ids": ids(3, 11), "weights": ids(1, 2) / 5}
    head = 10 * 10  # between the encoder and the vocabulary
    assert FlopCounter(heedful.MaskedLM(31, **SIZES)).of(masked) == 6 * (14 * 3 * block + 3 * (310 + head))


@pytest.mark.any_backend
def test_all_batches_but_the_first_of_each_shape_are_counted(tmp_path):
    """Guards padding, tokens, operations and MFU against compile time, which the first batch of a shape includes."""
    training = Training.create(Config.from_toml(write_recipe(tmp_path)), tmp_path / "run", lambda line: None)
    model, examples = training.run.build_model(), training.examples
    meter = Meter(model, examples, training.run.config.train)
    stream = meter.watched(iter(map(examples.batch, range(12))))
    batches = [next(stream) for _ in range(3)]  # `fit` reads ahead
    for number in range(11):
        batches.append(next(stream)) if number < 9 else None
        meter.count(number, 0.5)
    first = {examples.shape(number): number for number in reversed(range(11))}.values()
    counted = [number for number in range(11) if number not in first]
    assert 0 < len(first) < 11
    texts = [batches[number][name] for number in counted for name in ("source", "target")]
    figures = meter.figures()
    assert figures["padding_share"] == round(1 - sum((t != 0).sum() for t in texts) / sum(t.size for t in texts), 4)
    assert figures["tokens_per_second"] == round(sum(map(examples.tokens, counted)) / len(counted) / 0.5, 1)
    assert figures["compile_seconds"] == 0.5 * len(first)
    operations = sum(FlopCounter(model).of(batches[number]) for number in counted) / len(counted) / 0.5
    assert figures["mfu"] == round(operations / meter._product_rate, 4)
    meter.restart()
    assert set(meter.figures()) == {"compile_seconds", "peak_memory_gib"}  # without batches no rate is reported
    assert meter.counted
    assert f"{figures['padding_share']:.1%} padding" in meter.summary()


@pytest.mark.any_backend
@pytest.mark.slow
def test_training_logs_padding_data_time_and_memory(recipe, tmp_path):
    said = []
    workflows.train(Config.from_toml(recipe), tmp_path / "run", said.append)
    entries = Run.open(tmp_path / "run").log.read()
    for entry in entries:
        assert 0 < entry["padding_share"] < 0.5
        assert 0 <= entry["data_share"] < 1
        assert entry["peak_memory_gib"] > 0.1
    assert any(line.startswith("updates: ") and "padding" in line and "GiB" in line for line in said)


def test_peak_flops_are_measured_on_a_cpu_and_looked_up_on_a_gpu(monkeypatch):
    monkeypatch.setattr(machine, "SIZES", (512, 512, 512))
    assert 1e9 < product_rate() < 1e15
    assert 2**27 < peak_memory() < 2**42
    monkeypatch.setattr(backend, "device", lambda: "NVIDIA H100 80GB HBM3")
    assert product_rate("bfloat16") == 989e12
    monkeypatch.setattr(backend, "device", lambda: "NVIDIA L40S")
    assert product_rate() == 183e12
    monkeypatch.setattr(backend, "device", lambda: "Tesla T4")
    assert product_rate("bfloat16") == 65e12
    monkeypatch.setattr(backend, "device", lambda: "something new")
    assert product_rate() is None
    for name in machine.GPUS:
        monkeypatch.setattr(backend, "device", lambda name=name: f"NVIDIA {name}")
        assert product_rate() == machine.GPUS[name][1] * 1e12
