"""Several devices: the rows of a batch are split, and the result is that of one device within rounding."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from heedful import backend, workflows
from heedful.core.errors import InputError
from heedful.runs.run import Run
from tests.conftest import change, write_recipe

needs_jax = pytest.mark.skipif(backend.NAME != "jax", reason="one device trains on other backends")


# Threads of XLA: with as many as cores, the collectives of one device can take all of them, and wait for the other.
THREADS = {"NPROC": "16"}


def heedful(folder, *arguments, devices=1, optimized=False):
    """Run a command in a process that sees some number of CPU devices; `optimized`: it compiles as for users."""
    flags = f"{'' if optimized else os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    compiling = {"XLA_FLAGS": flags} | ({"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"} if optimized else {})
    return subprocess.run(
        [sys.executable, "-m", "heedful", *map(str, arguments)], cwd=folder,
        env=os.environ | THREADS | compiling,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def difference(one, other, part=""):
    """Return |a - b| / |a| over the arrays of two training states whose names contain `part`.

    The dropout counts must be equal.
    """
    first, second = (Run.open(folder).checkpoints.read_last()[0] for folder in (one, other))
    assert first.keys() == second.keys()
    changed = total = 0.0
    for name, array in first.items():
        if "seed" in name:
            np.testing.assert_array_equal(array, second[name], err_msg=name)
        elif array.dtype.kind == "f" and part in name:
            changed += float(((array.astype(np.float64) - second[name]) ** 2).sum())
            total += float((array.astype(np.float64) ** 2).sum())
    return (changed / total) ** 0.5


@needs_jax
@pytest.mark.parametrize(
    ("task", "devices", "settings"),
    [
        pytest.param(
            "translate",
            2,
            ["--data.batch_sentences", "7", "--train.accumulate_batches", "2", "--train.clip_norm", "1"],
            marks=pytest.mark.slow,
        ),
        pytest.param("translate", 4, ["--data.batch_sentences", "7"], marks=pytest.mark.slow),
        pytest.param("generate", 2, ["--data.packing", "documents"], marks=pytest.mark.slow),
        pytest.param("fill", 2, ["--model.attention_dropout", "0.1"], marks=pytest.mark.slow),
        pytest.param("classify", 4, ["--train.precision", "bfloat16"], marks=pytest.mark.slow),
    ],
)
def test_several_devices_train_as_one_does(tmp_path, task, devices, settings):
    """Rows that the devices cannot divide, accumulated gradients, dropout."""
    recipe = write_recipe(tmp_path, task)
    common = ["train", recipe, "--train.updates", "1", "--train.check", "true", *settings]
    for count, folder in ((1, "one"), (devices, "several")):
        done = heedful(tmp_path, *common, "--run", folder, devices=count)
        assert done.returncode == 0, done.stderr
        assert f"devices: {count} of {count} used" in done.stdout
        assert "checks passed" in done.stdout
    # The first moments are the gradient of the first update; Adam would hide a factor, and enlarge rounding.
    assert difference(tmp_path / "one", tmp_path / "several", "_momentum") < (5e-2 if "bfloat16" in settings else 1e-5)
    losses = [Run.open(tmp_path / folder).log.read()[0]["loss"] for folder in ("one", "several")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2 if "bfloat16" in settings else 1e-5)


@needs_jax
@pytest.mark.slow
def test_a_training_resumes_exactly_on_as_many_devices_and_reports_others(tmp_path):
    recipe = write_recipe(tmp_path)
    for updates, folder in (("6", "whole"), ("3", "parts")):
        assert (
            heedful(tmp_path, "train", recipe, "--run", folder, "--train.updates", updates, devices=2).returncode == 0
        )
    done = heedful(tmp_path, "train", "--resume", "parts", "--train.updates", "6", devices=2)
    assert done.returncode == 0, done.stderr
    one, other = (Run.open(tmp_path / folder).checkpoints.read_last()[0] for folder in ("whole", "parts"))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    refused = heedful(tmp_path, "train", "--resume", "parts", "--verify", devices=1)
    assert refused.returncode == 2
    assert "were computed on 2 devices, and would be repeated on one device" in refused.stderr
    done = heedful(tmp_path, "train", "--resume", "parts", "--train.updates", "7", devices=1)
    assert "was trained on 2 devices, and is continued on one device" in done.stdout
    limited = heedful(tmp_path, "train", recipe, "--run", "limited", "--train.devices", "1", devices=2)
    assert "devices: 1 of 2 used" in limited.stdout
    losses = [Run.open(tmp_path / folder).log.read()[-1]["loss"] for folder in ("limited", "whole")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@needs_jax
@pytest.mark.slow
def test_shared_weights_give_the_same_bits_as_copies_and_resume_from_them(tmp_path):
    recipe = write_recipe(tmp_path)
    for folder, updates, shard in (("copies", "6", "false"), ("parts", "6", "true"), ("mixed", "3", "true")):
        done = heedful(
            tmp_path,
            "train",
            recipe,
            "--run",
            folder,
            "--train.updates",
            updates,
            "--train.shard",
            shard,
            devices=2,
            optimized=True,
        )
        assert done.returncode == 0, done.stderr
    settings = ["--train.updates", "6", "--train.shard", "false"]
    assert heedful(tmp_path, "train", "--resume", "mixed", *settings, devices=2, optimized=True).returncode == 0
    first, *others = (Run.open(tmp_path / folder).checkpoints.read_last()[0] for folder in ("copies", "parts", "mixed"))
    for other in others:
        for name in first:
            np.testing.assert_array_equal(first[name], other[name], err_msg=name)


PROGRAM = """
import jax, json, numpy as np
from heedful import backend
from heedful.config import TrainConfig
from heedful.models import Transformer
from heedful.training.objective import training_objective, with_update_tokens

model = Transformer(20, 20, num_layers=1, d_model=8, num_heads=2, d_ff=12, tie="all", dropout=0.1)
ids = np.arange(4, 16, dtype=np.int32).reshape(4, 3)
batch = {"source": ids, "target": ids, "labels": ids, "weights": np.ones((4, 3), np.float32)}
[batch] = with_update_tokens([batch])
with backend.using_devices(shard=SHARD):
    objective = training_objective(model, TrainConfig())
    objective.optimizer.build(objective.trainable_variables)
    backend.distribute([*objective.variables, *objective.optimizer.variables])
    objective.fit(backend.feed(iter([batch] * 3), batch), steps_per_epoch=3, epochs=1, verbose=0)
    values = [variable.value for variable in model.trainable_variables]

    def loss(values):
        import keras
        with keras.StatelessScope(state_mapping=list(zip(model.trainable_variables, values))):
            return objective(batch, training=True)[0]

    text = jax.jit(jax.grad(loss)).lower(values).compile().as_text()
    print(json.dumps({"reduces": text.count(" all-reduce("), "gathers": text.count(" all-gather("),
                      "copies": len(values[0].devices()),
                      "whole": sum(v.value.nbytes for v in
                                   [*model.trainable_variables, *objective.optimizer.variables]),
                      "bytes": [sum(part.data.nbytes for value in
                                    [v.value for v in [*model.trainable_variables, *objective.optimizer.variables]]
                                    for part in value.addressable_shards if part.device == one)
                                for one in jax.devices()]}))
"""


@pytest.mark.slow
@needs_jax
@pytest.mark.parametrize("shard", [False, True])
def test_devices_exchange_sums_and_gradients_and_may_share_the_weights(shard):
    flags = "--xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("SHARD", str(shard))],
        env=os.environ | THREADS | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["copies"] == 2
    assert (found["gathers"] > 0) == shard
    assert 1 <= found["reduces"] <= 2  # XLA joins the gradients
    one, other = found["bytes"]
    assert one == other
    assert one < 0.6 * found["whole"] if shard else one == found["whole"]


@pytest.mark.any_backend
def test_devices_that_do_not_exist_are_refused():
    message = "64 devices were asked for, and JAX sees 1" if backend.NAME == "jax" else "trains on one device only"
    with pytest.raises(InputError, match=message), backend.using_devices(64):
        pass


@pytest.mark.any_backend
def test_a_training_on_devices_that_do_not_exist_is_refused_before_text_is_read(run, whole, tmp_path):
    config = change(whole.config, "--train.devices", "64")
    lines = []
    with pytest.raises(InputError, match="64 devices were asked for"):
        workflows.train(config, tmp_path / "new", lines.append)
    with pytest.raises(InputError, match="64 devices were asked for"):
        workflows.resume(run, lines.append, config)
    assert not lines
