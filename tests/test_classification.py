"""Classifiers: several labels, weights of classes, convolutions, calibration, and what decided."""

import functools
import json

import keras
import numpy as np
import pytest
from keras import ops

from benchmarks.bench.__main__ import main as bench
from heedful import backend, workflows
from heedful.config import Config
from heedful.core.errors import InputError
from heedful.data.corpus import Corpus
from heedful.data.labels import label_sets
from heedful.inference.text_classifier import TextClassifier
from heedful.layers.convolution import Convolutions
from heedful.models import Classifier
from heedful.runs.run import Run
from heedful.runs.scores.calibration import best_temperature, calibration_error
from heedful.tasks.calibration import FILE as CALIBRATION
from heedful.tasks.calibration import calibrate
from heedful.training.evaluation import class_scores, label_set_scores
from heedful.training.loss import label_set_crossentropy
from heedful.workflows import Training
from heedful.workflows.selfcheck.check import check
from tests.conftest import PAIRS, change, quiet

TEXTS = [target for _, target in PAIRS]
SIZES = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 12}


@pytest.mark.any_backend
def test_convolutions_equal_those_of_keras(normal):
    x, real = normal(2, 7, 4), np.ones((2, 7), bool)
    layer = Convolutions(4, (3, 5))
    layer.build((None, None, 4))
    expected = x.copy()
    for width, projection in zip((3, 5), layer.projections, strict=True):
        projection.bias.assign(normal(4))
        theirs = keras.layers.Conv1D(4, width, padding="same", activation="gelu")
        theirs.build((None, 7, 4))
        theirs.kernel.assign(ops.reshape(projection.kernel, (width, 4, 4)))
        theirs.bias.assign(projection.bias)
        expected = expected + backend.to_numpy(theirs(x))
    np.testing.assert_allclose(backend.to_numpy(layer(x, real)), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.any_backend
def test_padding_changes_no_logit_of_a_classifier_with_convolutions():
    model = Classifier(30, 3, convolutions=(3, 5), **SIZES)
    short = np.array([[2, 7, 8, 9, 3]], np.int32)
    long = np.pad(short, ((0, 0), (0, 4)))
    np.testing.assert_allclose(backend.to_numpy(model(short)), backend.to_numpy(model(long)), atol=1e-5)
    copy = Classifier.from_config(model.get_config())
    assert [weight.shape for weight in copy.weights] == [weight.shape for weight in model.weights]


@pytest.mark.any_backend
def test_the_loss_of_several_labels_is_the_binary_cross_entropy_of_keras(normal, rng):
    logits, labels = 3 * normal(5, 4), rng.integers(0, 2, (5, 4))
    weights = np.array([1, 0, 1, 2, 0.5], np.float32)
    sums = backend.to_numpy(label_set_crossentropy(logits, labels, weights, 0.2))
    for index, smoothing in ((0, 0.2), (1, 0.0)):
        theirs = keras.losses.BinaryCrossentropy(True, label_smoothing=smoothing, reduction=None)
        each = 4 * backend.to_numpy(theirs(ops.array(labels, "float32"), ops.array(logits)))
        assert sums[index] == pytest.approx(float((weights * each).sum()), rel=1e-5)
    assert sums[2] == (weights * ((logits > 0) == labels).all(-1)).sum()
    assert sums[3] == weights.sum()


def test_label_sets_are_read_from_the_text():
    corpus = Corpus.from_pairs([("b,a", "x"), ("-", "y"), ("c", "z")], "text")
    assert label_sets(corpus, ["a", "b", "c"]).tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    with pytest.raises(InputError, match="text 3: the label 'c' is not one of the 2"):
        label_sets(corpus, ["a", "b"])


@pytest.fixture
def several(recipe_of, tmp_path):
    """The config of a classifier that says whether a text mentions an animal, and whether someone drinks."""
    recipe = recipe_of("classify")

    def labels(text):
        return ",".join(name for name, word in (("animal", " c"), ("drink", "drink")) if word in text) or "-"

    (tmp_path / "labelled.txt").write_text("".join(f"{labels(text)}\t{text}\n" for text in TEXTS * 3))
    return change(Config.from_toml(recipe), "--data.several_labels", "true", "--train.updates", "150",
                  "--train.validate_every", "50", "--model.dropout", "0")  # fmt: skip


@pytest.mark.slow
@pytest.mark.any_backend
def test_several_labels_are_learned(several, tmp_path, cli):
    run = workflows.train(several, tmp_path / "run", quiet)
    assert run.config.data.labels == ("animal", "drink")
    classifier = TextClassifier.from_run(run)
    found = [[label for label, _ in labels] for labels in classifier.classify(TEXTS)]
    wanted = [[name for name, word in (("animal", " c"), ("drink", "drink")) if word in text] for text in TEXTS]
    assert sum(sorted(one) == other for one, other in zip(found, wanted, strict=True)) >= 0.9 * len(TEXTS)
    scores = json.loads(cli("evaluate", "run", "--json").stdout)
    assert scores["accuracy"] > 0.9
    assert scores["micro_f1"] > 0.9
    text = next(text for text in TEXTS if "drink" in text and " c" in text)
    assert "-\n" in (run.path / "outputs" / "0001.txt").read_text()  # as in the text, where there is no label
    one_label = change(several, "--train.init_from", str(run.path), "--data.several_labels", "false")
    with pytest.raises(InputError, match=r"gives a text several labels: set data\.several_labels = true"):
        workflows.train(one_label, tmp_path / "other", quiet)
    line = cli("classify", "run", stdin=text + "\n").stdout.decode().strip()
    assert sorted(line.split(",")) == ["animal", "drink"]
    answer = json.loads(cli("classify", "run", "--probabilities", stdin=text + "\n").stdout)
    assert sorted(answer["labels"]) == ["animal", "drink"]
    assert set(answer["probabilities"]) == {"animal", "drink"}
    refused = cli("page", "run", "page.html")
    assert b"gives a text several labels" in refused.stderr


@pytest.mark.slow
@pytest.mark.any_backend
def test_the_self_check_passes_for_several_labels_and_convolutions(several, tmp_path):
    config = change(several, "--model.convolutions", "[3, 5]", "--model.embedding_std", "0.02")
    training = Training.create(config, tmp_path / "run", quiet)
    findings = check(training.run, training.examples.batch(0))
    assert [str(finding) for finding in findings if not finding.passed] == []


@pytest.mark.any_backend
def test_balanced_classes_count_the_same(recipe_of, tmp_path):
    config = change(Config.from_toml(recipe_of("classify")), "--train.class_weights", '["balanced"]')
    examples = Training.create(config, tmp_path / "balanced", quiet).examples
    totals = np.zeros(2)
    for batch in examples.one_pass():
        np.add.at(totals, batch["labels"][:, 0], batch["weights"][:, 0])
    assert totals[0] == pytest.approx(totals[1], rel=1e-6)
    assert totals.sum() == pytest.approx(len(examples.texts), rel=1e-6)
    config = change(Config.from_toml(recipe_of("classify")), "--train.class_weights", '["animal=0"]')
    batch = Training.create(config, tmp_path / "given", quiet).examples.batch(0)
    assert (batch["weights"][:, 0] == batch["labels"][:, 0]).all()  # classes in the order of their names
    for weights, message in (('["bird=2"]', "names the class 'bird'"), ('["animal"]', "is not NAME=NUMBER"),
                             ('["balanced", "animal=2"]', "is either 'balanced' or")):  # fmt: skip
        with pytest.raises(InputError, match=message):
            Training.create(change(config, "--train.class_weights", weights), tmp_path / "bad", quiet)


def test_the_scores_of_each_class():
    scores = class_scores(np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0]), ["a", "b", "unused"])
    assert scores["classes"]["a"] == {"precision": 0.5, "recall": 0.5, "f1": 0.5, "texts": 2}
    assert scores["classes"]["b"]["recall"] == pytest.approx(2 / 3)
    assert "unused" not in scores["classes"]
    sets = label_set_scores(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [0, 1]]), ["a", "b"])
    assert sets["accuracy"] == 0.5
    assert sets["micro_f1"] == pytest.approx(0.8)
    assert sets["classes"]["a"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "texts": 1}


def test_the_temperature_of_logits_that_are_too_large_is_found(rng):
    logits = rng.normal(size=(4000, 5)) * 2
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    labels = np.array([rng.choice(5, p=share) for share in shares])
    assert best_temperature(logits, labels) == pytest.approx(1.0, abs=0.06)
    assert best_temperature(3 * logits, labels) == pytest.approx(3.0, abs=0.2)
    sets = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(int)
    assert best_temperature(2 * logits, sets) == pytest.approx(2.0, abs=0.15)
    assert best_temperature(logits[:5], logits[:5].argmax(-1)) == 1.0  # all right: any sharper would be better


def test_the_calibration_error_of_probabilities_computed_by_hand():
    assert calibration_error(np.array([0.9, 0.9, 0.6, 0.6]), np.array([1, 0, 1, 0])) == pytest.approx(0.25)
    assert calibration_error(np.array([1.0, 1.0]), np.array([True, True])) == 0.0


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_run_is_calibrated_once_and_keeps_its_decisions(recipe_of, tmp_path):
    lines = []
    config = change(Config.from_toml(recipe_of("classify")), "--train.updates", "60", "--train.validate_every", "20")
    plain = workflows.train(change(config, "--train.calibrate", "false"), tmp_path / "plain", quiet)
    run = workflows.train(config, tmp_path / "run", lines.append)
    record = json.loads((run.path / CALIBRATION).read_text())
    assert any(f"logits divided by {record['temperature']:.3f}" in line for line in lines)
    one, other = (TextClassifier.from_run(Run.open(each.path)).logits(TEXTS) for each in (plain, run))
    np.testing.assert_allclose(one / record["temperature"], other, rtol=1e-4, atol=1e-5)
    before = run.weights_path().read_bytes()
    assert not calibrate(run, other, np.zeros(len(TEXTS), int), quiet)
    assert run.weights_path().read_bytes() == before
    assert not (plain.path / CALIBRATION).exists()


@pytest.mark.any_backend
def test_the_words_that_decided(recipe_of, tmp_path, cli):
    config = change(Config.from_toml(recipe_of("classify")), "--train.updates", "150", "--train.validate_every", "50")
    run = workflows.train(config, tmp_path / "run", quiet)
    classifier = TextClassifier.from_run(run)
    text = next(text for text in TEXTS if text.split()[1].startswith("c"))
    effects = classifier.explain(text, "animal")
    assert [effect.word for effect in effects] == text.split()
    shorter = " ".join(text.split()[:1] + text.split()[2:])
    whole, without = (classifier.probabilities([each])[0, 0] for each in (text, shorter))
    assert effects[1].effect == pytest.approx(whole - without, abs=1e-6)
    assert sum(effect.effect for effect in classifier.explain("", "animal")) == 0
    label, words = cli("classify", "run", "--explain", stdin=text + "\n").stdout.decode().rstrip("\n").split("\t")
    strongest = max(classifier.explain(text, label), key=lambda effect: abs(effect.effect))
    assert words.split(" ")[0] == f"{strongest.word}:{strongest.effect:+.3f}"
    with pytest.raises(InputError, match="no class 'bird'"):
        classifier.explain(text, "bird")
    long = " ".join([text] * 20)  # the model reads its first words only
    words, labels = long.split(), classifier.probabilities([long], quiet)[0]
    shorter = classifier.probabilities([" ".join(words[:i] + words[i + 1 :]) for i in range(len(words))], quiet)
    effects = classifier.explain(long, classifier.labels[0])
    np.testing.assert_allclose([one.effect for one in effects], labels[0] - shorter[:, 0], atol=1e-6)
    assert not any(one.effect for one in effects[20:])


@pytest.mark.slow
@pytest.mark.any_backend
def test_the_benchmark_reuses_finished_runs_with_the_same_settings_only(recipe_of, labelled, cli):
    pytest.importorskip("sklearn")
    recipe = recipe_of("classify")
    call = ("classify", recipe, "--seeds", "1", "--json", "--folder", "bench")
    cli = functools.partial(cli, main=bench)
    first = cli(*call)
    assert first.returncode == 0, first.stderr
    results = json.loads(first.stdout.splitlines()[-1])
    assert set(results) == {f"{recipe}: TF-IDF and SVM", str(recipe)}
    [own], [machine] = results[str(recipe)], results[f"{recipe}: TF-IDF and SVM"]
    assert 0 <= own["accuracy"] <= 1
    assert own["calibration_error"] is not None
    assert machine["accuracy"] == 1.0  # it is scored on the text that it was trained on, but for the held-out part
    assert json.loads(cli(*call).stdout.splitlines()[-1]) == results | {
        f"{recipe}: TF-IDF and SVM": [machine | {"minutes": pytest.approx(0, abs=1)}]
    }
    other = cli(*call, "--train.updates", "5")
    assert other.returncode == 2
    assert b"holds a run with other settings" in other.stderr
