"""General text beside the text of a training: mixed in, validated, and kept from being forgotten."""

import numpy as np
import pytest

from heedful import workflows
from heedful.config import Config
from heedful.core.errors import InputError
from heedful.core.storage import read_checked
from heedful.data.mixture import MixedExamples
from heedful.training.selection import Selection
from heedful.workflows import Training
from tests.conftest import PAIRS, change, quiet, write_pairs


class Numbered:
    """Examples whose batches are their numbers; every third has another shape."""

    batches_per_epoch = 10.0

    def __init__(self, name, length):
        self.name, self.length = name, length

    def batch(self, number):
        return self.name, number

    def shape(self, number):
        return (self.length + number % 3,)

    def tokens(self, number):
        return self.length

    def first_of_each_shape(self):
        return [0, 1, 2]


@pytest.mark.parametrize("share", [0.1, 0.25, 1 / 3, 0.5, 0.9])
def test_a_share_of_the_batches_is_general_and_both_are_read_in_order(share):
    mixed = MixedExamples(Numbered("own", 10), Numbered("general", 20), share)
    batches = [mixed.batch(number) for number in range(600)]
    by_name = {name: [number for each, number in batches if each == name] for name in ("own", "general")}
    assert len(by_name["general"]) == pytest.approx(600 * share, abs=1)
    for numbers in by_name.values():
        assert numbers == list(range(len(numbers)))
    for start in range(0, 500, 50):  # evenly spread
        part = [name for name, _ in batches[start : start + 50]]
        assert part.count("general") == pytest.approx(50 * share, abs=1)
    assert mixed.batches_per_epoch == pytest.approx(10 / (1 - share))
    assert {mixed.shape(number) for number in mixed.first_of_each_shape()} == {(n,) for n in (10, 11, 12, 20, 21, 22)}
    assert mixed.tokens(0) == {"own": 10, "general": 20}[mixed.batch(0)[0]]


def test_the_first_batch_of_each_shape_is_found_in_any_mixture():
    for share in (1e-6, 0.001, 0.3, 0.999, 1 - 1e-6):  # without reading batch after batch
        mixed = MixedExamples(Numbered("own", 10), Numbered("general", 20), share)
        numbers = mixed.first_of_each_shape()
        assert {mixed.shape(number) for number in numbers} == {(n,) for n in (10, 11, 12, 20, 21, 22)}
        if 0.001 < share < 0.999:
            seen = [mixed.shape(number) for number in range(numbers[-1] + 1)]
            assert [seen.index(mixed.shape(number)) for number in numbers] == numbers


@pytest.fixture
def domains(run, tmp_path):
    """The config of a training that adapts a trained run to ten of its pairs; the others are general text."""
    paths = {}
    for name, pairs in (("own", PAIRS[:10]), ("general", PAIRS[10:])):
        (tmp_path / name).mkdir()
        paths[name] = '["{}", "{}"]'.format(*write_pairs(tmp_path / name, pairs))
    return change(
        Config.from_json(run / "config.json"), "--train.init_from", str(run), "--data.train", paths["own"],
        "--data.valid", paths["own"], "--data.general", paths["general"], "--data.general_valid", paths["general"],
        "--train.updates", "6", "--train.learning_rate", "3e-3", "--train.select_by", "loss",
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.any_backend
def test_both_domains_are_validated_and_the_change_is_reported(domains, tmp_path):
    lines = []
    run = workflows.train(domains, tmp_path / "new", lines.append)
    entry = run.log.read()[-1]
    assert {"valid_loss", "valid_general_loss", "valid_bleu", "valid_general_bleu"} <= entry.keys()
    [start] = [line for line in lines if line.startswith("before the training: valid loss")]
    assert "valid general_loss" in start
    [change_line] = [line for line in lines if line.startswith("change by this training: loss -")]
    assert ", general loss " in change_line
    progress = run.checkpoints.read_last()[1]
    assert progress["start"].keys() >= {"loss", "general_loss"}
    assert progress["best"] < progress["start"]["loss"]


def test_general_text_is_part_of_the_fingerprint(domains, tmp_path):
    with_general = Training.create(domains, tmp_path / "a", quiet)
    without = Training.create(change(domains, "--data.general_share", "0"), tmp_path / "b", quiet)
    assert with_general.fingerprint != without.fingerprint
    assert isinstance(with_general.examples, MixedExamples)
    assert not isinstance(without.examples, MixedExamples)


@pytest.mark.any_backend
@pytest.mark.slow
def test_a_mixed_training_resumes_exactly(domains, tmp_path):
    whole = workflows.train(domains, tmp_path / "whole", quiet)
    workflows.train(change(domains, "--train.updates", "3"), tmp_path / "parts", quiet)
    config = change(Config.from_json(tmp_path / "parts" / "config.json"), "--train.updates", "6")
    parts = workflows.resume(tmp_path / "parts", quiet, config)
    first, second = (run.checkpoints.read_last() for run in (whole, parts))
    for name in first[0]:
        np.testing.assert_array_equal(first[0][name], second[0][name], err_msg=name)
    assert first[1]["start"] == second[1]["start"]
    one, other = (read_checked(run.weights_path())[0] for run in (whole, parts))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize(
    ("by", "start", "now", "verdict"),
    [
        ("bleu", (20.0, 30.0), (25.0, 29.0), "best"),
        ("bleu", (20.0, 30.0), (25.0, 27.0), "not selected: general_bleu is 3 worse, 1.5 allowed"),
        ("bleu", (20.0, 30.0), (19.0, 31.0), ""),
        ("loss", (2.0, 3.0), (1.5, 3.1), "best"),
        ("loss", (2.0, 3.0), (1.5, 3.3), "not selected: general_loss is 0.3 worse, 0.15 allowed"),
    ],
)
def test_a_state_that_forgets_too_much_is_not_selected(by, start, now, verdict, config, whole, monkeypatch):
    run, saved = whole, []
    run.config = change(config, "--train.select_by", by)
    selection = Selection(run, None, None, None, quiet)
    monkeypatch.setattr(selection, "_save", lambda progress: saved.append(dict(progress)))
    names = (by, f"general_{by}")
    progress = {"best": start[0], "waited": 0, "start": dict(zip(names, start, strict=True))}
    assert selection.consider(dict(zip(names, now, strict=True)), progress) == verdict
    assert bool(saved) == (verdict == "best")
    assert progress["best"] == (now[0] if saved else start[0])
    assert progress["waited"] == (0 if saved else 1)


def test_general_text_that_is_missing_is_reported(domains, tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        workflows.train(change(domains, "--data.general_valid", '["nowhere.tsv"]'), tmp_path / "new", quiet)
    assert not (tmp_path / "new").exists()
