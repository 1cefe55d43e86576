"""Low-rank adapters: they start at nothing, train alone, merge exactly, and share one base."""

import concurrent.futures
import shutil

import numpy as np
import pytest

from heedful import backend, workflows
from heedful.config import Config
from heedful.core.errors import InputError
from heedful.core.storage import name_in_model, read_checked
from heedful.inference.text_classifier import TextClassifier
from heedful.inference.translator import Translator
from heedful.models import Transformer
from heedful.runs.adapters import (
    FILE,
    adapted_layers,
    adapter_of,
    add_adapters,
    merged,
    parts_of,
    read_adapter,
    write_adapter,
)
from heedful.runs.run import Run
from heedful.runs.weights import load_weights, weights_by_name
from heedful.training.freezing import prepare_weights
from tests.conftest import PAIRS, change, quiet

SIZES = {"num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 24, "tie": "all"}
LORA = ("--train.lora_rank", "3", "--train.lora_alpha", "6", "--train.learning_rate", "0.05", "--train.updates", "6")
SOURCES = [source for source, _ in PAIRS]


def logits(model):
    ids = np.arange(4, 12, dtype=np.int32)[None]
    return backend.to_numpy(model({"source": ids, "target": ids}))


def with_values(model, rng):
    """Give the adapters of a model other values than zero."""
    for layer in adapted_layers(model).values():
        for part in parts_of(layer):
            part.assign(rng.normal(size=part.shape, scale=0.1).astype("float32"))
    return model


@pytest.mark.any_backend
def test_fresh_adapters_change_no_output():
    model = Transformer(20, 20, **SIZES)
    before = logits(model)
    add_adapters(model, ["*/kernel", "*embedding/*"], 3, 6.0, seed=1)
    np.testing.assert_array_equal(logits(model), before)
    assert len(adapted_layers(model)) > 8


@pytest.mark.any_backend
def test_adapters_have_the_same_values_for_the_same_seed():
    models = [Transformer(20, 20, **SIZES) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        add_adapters(model, ["*/query_key_value/kernel"], 3, 0.0, seed)
    first, same, other = (
        [backend.to_numpy(parts_of(layer)[0]) for layer in adapted_layers(model).values()] for model in models
    )
    assert len(first) == 2
    assert not np.array_equal(first[0], first[1])
    for index in range(2):
        np.testing.assert_array_equal(first[index], same[index])
        assert not np.array_equal(first[index], other[index])


@pytest.mark.any_backend
def test_merged_weights_compute_what_the_adapters_do(rng):
    model = Transformer(20, 20, **SIZES)
    names = {name_in_model(weight) for weight in model.weights}
    add_adapters(model, ["*/kernel", "*embedding/*"], 3, 6.0, seed=1)
    with_values(model, rng)
    plain, weights = Transformer(20, 20, **SIZES), weights_by_name(model)
    assert weights.keys() == names
    untouched = logits(plain)
    load_weights(plain, weights, "merged")
    np.testing.assert_allclose(logits(model), logits(plain), atol=1e-5)
    assert np.abs(logits(plain) - untouched).max() > 0.01
    load_weights(model, weights, "merged")  # merged weights, and adapters that start at zero again
    np.testing.assert_array_equal(logits(model), logits(plain))


@pytest.fixture
def base(run):
    return Run.open(run)


def adapted(base, folder, *options):
    """Train adapters on a run; return the new run."""
    config = change(Config.from_json(base.path / "config.json"), "--train.init_from", str(base.path), *LORA, *options)
    return workflows.train(config, folder, quiet)


@pytest.mark.any_backend
def test_training_changes_the_adapters_only(base, tmp_path):
    run = adapted(base, tmp_path / "lora", "--train.select_by", "loss")
    before, after = (read_checked(each.weights_path())[0] for each in (base, run))
    adapter = read_adapter(run.path)
    assert adapter.base == base.weights_fingerprint()
    assert adapter.scale == 2.0
    assert not adapter.replaced
    assert {a.shape[1] for a, _ in adapter.parts.values()} == {3}
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == adapter.parts.keys()
    combined = merged(before, adapter, "the adapter")
    for name in after:
        np.testing.assert_array_equal(after[name], combined[name])
    states = [run.checkpoints.read(path)[0] for path in run.checkpoints.paths()]
    for name in states[0]:
        if name.startswith("model/") and "lora_" not in name and "seed" not in name:
            np.testing.assert_array_equal(states[0][name], states[-1][name], err_msg=name)


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_training_of_adapters_resumes_exactly(base, tmp_path):
    whole = adapted(base, tmp_path / "whole", "--train.updates", "6")
    adapted(base, tmp_path / "parts", "--train.updates", "3")
    shutil.move(base.path, tmp_path / "elsewhere")  # a resumed training does not need its base
    config = change(Config.from_json(tmp_path / "parts" / "config.json"), "--train.updates", "6")
    parts = workflows.resume(tmp_path / "parts", quiet, config)
    first, second = (run.checkpoints.read_last()[0] for run in (whole, parts))
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert (whole.path / FILE).exists() == (parts.path / FILE).exists()


@pytest.mark.slow
def test_a_worse_model_is_not_selected(base, tmp_path):
    """The base stays the best if training only harms it."""
    lines = []
    config = change(
        Config.from_json(base.path / "config.json"), "--train.init_from", str(base.path), *LORA,
        "--train.learning_rate", "0.1", "--train.select_by", "loss",
    )  # fmt: skip
    run = workflows.train(config, tmp_path / "bad", lines.append)
    before, after = (read_checked(each.weights_path())[0] for each in (base, run))
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])
    assert any(line.startswith("change by this training: loss +0 ") for line in lines)


@pytest.fixture
def two(base, tmp_path):
    """Two runs with adapters on a base, as a training writes them, that translate differently."""
    paths, fingerprint = {}, base.weights_fingerprint()
    for seed, name in enumerate(("one", "two")):
        model = base.load_model()
        add_adapters(model, ["*/kernel"], 3, 6.0, seed)
        adapter = adapter_of(with_values(model, np.random.default_rng(seed)), fingerprint)
        paths[name] = shutil.copytree(base.path, tmp_path / name)
        write_adapter(paths[name] / FILE, adapter)
        run = Run.open(paths[name])
        run.save_weights(merged(read_checked(base.weights_path())[0], adapter, "the adapter"))
    return paths


def scored(translator, **options):
    """Return translations with their scores, which differ even if the texts do not."""
    return [(text, round(score, 4)) for [(text, score)] in translator.n_best(SOURCES, beam_size=2, **options)]


@pytest.mark.slow
@pytest.mark.any_backend
def test_one_translator_has_several_adapters(base, two):
    alone = {name: Translator.from_run(Run.open(path)) for name, path in two.items()}
    alone[""] = Translator.from_run(base)
    expected = {name: scored(translator) for name, translator in alone.items()}
    assert expected["one"] != expected["two"] != expected[""] != expected["one"]
    translator = Translator.from_run(base, adapters=two)
    for name in ("one", "", "two", "one"):
        assert scored(translator, adapter=name) == expected[name]
        assert "".join(translator.stream_tokens(SOURCES[0], adapter=name)) == alone[name].translate(SOURCES[0])
        [own] = translator.score(SOURCES[:1], ["the cat"], adapter=name)
        [other] = alone[name].score(SOURCES[:1], ["the cat"])
        np.testing.assert_allclose(own, other, atol=1e-6)
        found, wanted = translator.alternatives(SOURCES[0], adapter=name), alone[name].alternatives(SOURCES[0])
        assert [one.token for one in found] == [one.token for one in wanted]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        names = ["one", "two", ""] * 8
        found = list(pool.map(lambda name: scored(translator, adapter=name), names))
    assert found == [expected[name] for name in names]
    rounded = {"precision": "int8"}
    assert scored(translator, adapter="one", **rounded) == scored(alone["one"], **rounded)
    with pytest.raises(InputError, match="Unknown adapter 'three'; loaded are: one, two"):
        translator.translate(SOURCES, adapter="three")


@pytest.mark.slow
def test_the_command_line_takes_an_adapter(base, two, cli):
    text = "".join(f"{line}\n" for line in SOURCES)
    expected = cli("translate", two["one"], "--scores", stdin=text).stdout
    assert cli("translate", base.path, "--scores", "--adapter", two["one"], stdin=text).stdout == expected
    assert cli("translate", base.path, "--scores", "--adapter", two["one"] / FILE, stdin=text).stdout == expected
    assert cli("translate", base.path, "--scores", stdin=text).stdout != expected


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda base, path: path.unlink(), "There is no adapter"),
        (lambda base, path: shutil.copy(base.weights_path(), path), "is no adapter of heedful"),
        (lambda base, path: path.write_bytes(path.read_bytes()[:-9]), "is damaged|cannot be read"),
    ],
)  # fmt: skip
def test_unusable_adapters_are_refused(base, two, damage, message):
    damage(base, two["one"] / FILE)
    with pytest.raises(InputError, match=message):
        Translator.from_run(base, adapters=two)


@pytest.mark.any_backend
def test_an_adapter_of_another_base_is_refused(base, two):
    other = Run.open(two["two"])
    with pytest.raises(InputError, match=r"was trained on weights .*; those of .* are"):
        Translator.from_run(other, adapters={"one": two["one"]})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train.lora_rank", "2"], "train.lora_rank needs train.init_from"),
        (["--train.lora_rank", "2", "--train.average", "2", "--train.init_from", "x"], "a mean of adapters is not"),
        (["--train.lora_rank", "2", "--train.freeze", "true", "--train.init_from", "x"], "freeze the adapters"),
        (["--train.lora_rank", "2", "--tokenizer.new_tokens", '["x"]', "--train.init_from", "x"], "trained tables"),
        (["--train.rate_factors", "encoder/*"], "'encoder/\\*' is not NAME=NUMBER"),
        (["--data.general_valid", "x.tsv"], "data.general_valid needs train.init_from"),
        (["--data.general", "x.tsv", "--train.init_from", "x"], "general needs general_valid"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(config, options, message):
    with pytest.raises(InputError, match=message):
        change(config, *options)


def test_patterns_must_match(base):
    config = change(base.config, "--train.init_from", "x", *LORA, "--train.lora_weights", "nothing/*")
    with pytest.raises(InputError, match="no matrix matches 'nothing/\\*'; there are decoder/"):
        prepare_weights(base.build_model(), config)
    config = change(base.config, "--train.rate_factors", "nothing/*=2")
    with pytest.raises(InputError, match=r"train\.rate_factors: no weight matches"):
        workflows.Training.prepared(config, base.path, quiet)


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_classifier_trains_its_output_with_the_adapters_of_an_encoder(recipe_of, labelled, tmp_path):
    encoder = workflows.train(Config.from_toml(recipe_of("fill")), tmp_path / "words", quiet)
    config = change(Config.from_toml(recipe_of("classify")), "--train.init_from", str(encoder.path), *LORA)
    run = workflows.train(config, tmp_path / "classes", quiet)
    refused = change(config, "--model.pooling", "first")
    model = workflows.Training.prepared(refused, tmp_path / "new", quiet).fresh_model()
    assert "pooler/kernel" not in adapted_layers(model)  # the new head is trained as a whole
    before, after = (read_checked(each.weights_path())[0] for each in (encoder, run))
    same = {name for name in after if name in before and np.array_equal(before[name], after[name])}
    assert {name for name in same if name.endswith("/kernel")} == set()
    assert not (run.path / FILE).exists()  # its base is no classifier
    more = change(run.config, "--train.init_from", str(run.path), *LORA, "--train.select_by", "loss")
    further = workflows.train(more, tmp_path / "further", quiet)
    adapter = read_adapter(further.path)
    assert adapter.replaced.keys() == {"output_projection/embeddings", "output_projection/bias"}
    texts = [target for _, target in PAIRS]
    expected = TextClassifier.from_run(further).probabilities(texts)
    found = TextClassifier.from_run(Run.open(run.path).with_adapter(further.path)).probabilities(texts)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.any_backend
def test_an_encoder_is_no_base_for_the_adapters_of_a_translator(config, recipe_of, tmp_path):
    encoder = workflows.train(Config.from_toml(recipe_of("fill")), tmp_path / "words", quiet)
    wanted = change(config, "--train.init_from", str(encoder.path), "--model.tie", "target", *LORA)
    with pytest.raises(InputError, match="has only an encoder"):
        workflows.train(wanted, tmp_path / "new", quiet)
