"""The one-sided tasks from a recipe to an answer: train, resume, evaluate, generate, fill, classify, embed."""

import json

import numpy as np
import pytest

import heedful
from heedful import workflows
from heedful.config import Config
from heedful.config.settings import override
from heedful.core.errors import InputError
from heedful.core.storage import read_checked
from heedful.runs.run import Run
from heedful.runs.scores.comparison import compare
from heedful.runs.scores.provenance import read
from heedful.runs.training_log import SAMPLE_DATA
from heedful.tasks.start import starting_point
from tests.conftest import KINDS, SMALL, change, quiet, talk


@pytest.fixture
def recipe(recipe_of):
    return recipe_of


ON_ALL = "generate"  # the other tasks train and resume by the same code


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize(
    "task", [task if task == ON_ALL else pytest.param(task, marks=pytest.mark.slow) for task in KINDS]
)
def test_n_updates_and_n_after_resuming_equal_2n_updates(recipe, tmp_path, task):
    """Checks the training state bitwise, with dropout on, for every task."""
    config = Config.from_toml(recipe(task))
    whole = workflows.train(config, tmp_path / "whole", quiet)
    workflows.train(override(config, ["--train.updates", "3"]), tmp_path / "parts", quiet)
    labels = Run.open(tmp_path / "parts").config.data.labels
    parts = workflows.resume(tmp_path / "parts", quiet, override(whole.config, ["--train.updates", "6"]))
    assert parts.config.data.labels == labels
    first, second = whole.checkpoints.read_last()[0], parts.checkpoints.read_last()[0]
    assert first.keys() == second.keys()
    assert any("seed" in name and array[1] > 0 for name, array in first.items())
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert [entry["update"] for entry in parts.log.read()] == [3, 6]
    assert "valid_loss" in parts.log.read()[-1]


@pytest.mark.any_backend
@pytest.mark.parametrize("packing", ["stream", pytest.param("documents", marks=pytest.mark.slow)])
def test_a_language_model_from_recipe_to_text(recipe, cli, packing, tmp_path):
    options = ["--data.packing", packing, "--data.documents", "lines", "--train.updates", 40, "--model.dropout", 0.0]
    trained = cli("train", recipe("generate"), "--run", "run", *options)
    assert trained.returncode == 0, trained.stderr
    assert b"bits per byte" in trained.stdout
    made = cli("generate", "run", "the c", "--max-length", 30).stdout.decode()
    assert made.startswith("the c")
    assert cli("generate", "run", "--max-length", 30, stdin="the c\n").stdout.decode() == made
    several = cli("generate", "run", "the c", "a", "--max-length", 5, "--scores").stdout.decode().splitlines()
    assert [line.split("\t")[0] for line in several if line.startswith("---")] == ["--- 1", "--- 2"]
    scores = json.loads(cli("evaluate", "run", "--json").stdout)
    assert scores["bits_per_byte"] == pytest.approx(scores["loss"] * scores["tokens"] / np.log(2) / 400, rel=0.2)
    assert isinstance(heedful.load("run"), heedful.Generator)
    if packing == "stream":
        (tmp_path / "one.txt").write_text("a\n")
        assert b"There is nothing to score" in cli("evaluate", "run", "one.txt").stderr  # no token precedes it
        gaps = cli("generate", "run", "--max-length", 5, stdin="the\n\na\n")
        assert gaps.returncode == 0
        assert gaps.stdout.decode().splitlines()[2:4] == ["--- 2", ""]
        told = cli("evaluate", "run", "--top-k", 5)
        assert b"Nothing is decoded to score a run of task 'generate'" in told.stderr
        assert b"warning: prompt 2 is empty" in gaps.stderr


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_masked_model_from_recipe_to_gaps_and_a_classifier_on_top(recipe, cli, labelled, tmp_path):
    assert cli("train", recipe("fill"), "--run", "words").returncode == 0
    filled = cli("fill", "words", "the [MASK] drinks", "--count", 2).stdout.decode().splitlines()
    assert filled[0].startswith("the ")
    assert len(filled) == 3
    assert len(json.loads(cli("fill", "words", "--json", stdin="[MASK] cat\n").stdout)["gaps"]) == 1
    several = cli("fill", "words", "--json", stdin="\n[MASK] cat\nthe cat\n\ufeff")
    assert [len(json.loads(line)["gaps"]) for line in several.stdout.decode().splitlines()] == [0, 1, 0, 0]
    assert b"line 3 has no [MASK]: it stays as it is" in several.stderr
    long = "the cat " * 20 + "[MASK]"
    several = cli("fill", "words", "--json", stdin=f"[MASK] cat\n{long}\n[MASK] cow\n")
    assert [len(json.loads(line)["gaps"]) for line in several.stdout.decode().splitlines()] == [1, 0, 1]
    assert b"line 2: The text has 43 tokens; the model reads up to 16. It stays as it is." in several.stderr
    assert cli("fill", "words", long).returncode == 2
    answers = talk(["fill", tmp_path / "words", "--json"], ["[MASK] cat", "the [MASK]"])
    assert [len(json.loads(answer)["gaps"]) for answer in answers] == [1, 1]
    vectors = cli("embed", "words", stdin="the cat\n\nthe cow eats\n").stdout.decode().splitlines()
    assert [len(line.split("\t")) for line in vectors] == [16, 16, 16]

    trained = cli(
        "train", recipe("classify"), "--run", "classes", "--train.init_from", "words", "--train.freeze", "true"
    )
    assert trained.returncode == 0, trained.stderr
    assert b"weights initialised from words, frozen" in trained.stdout
    before, after = (read_checked(tmp_path / name / "model.safetensors")[0] for name in ("words", "classes"))
    shared = [name for name in after if name.startswith(("embedding", "text_input", "encoder"))]
    assert len(shared) > 10
    for name in shared:
        np.testing.assert_array_equal(before[name], after[name])
    assert (tmp_path / "classes" / "figures" / "confusion.png").stat().st_size > 1000
    for command, run in (("classify", "classes"), ("embed", "words")):
        cut = cli(command, run, stdin="the cat\n" + "the cat " * 20 + "\n")
        assert len(cut.stdout.splitlines()) == 2
        assert b"warning: 1 line with more tokens than the model reads" in cut.stderr
    found = cli("classify", "classes", "--scores", stdin="the cat drinks\nthe king eats\n").stdout.decode().splitlines()
    assert all(line.split("\t")[0] in ("animal", "human") for line in found)
    assert len(found) == 2
    scores = json.loads(cli("evaluate", "classes", "--json").stdout)
    assert scores["accuracy"] == np.trace(scores["confusion"]) / 20
    assert b"texts" in cli("train", recipe("classify"), "--plan").stdout

    config = (tmp_path / "words" / "config.json").read_text()
    (tmp_path / "words" / "config.json").write_text(config.replace('"d_model": 16', '"d_model": 80000'))
    huge = cli("train", recipe("classify"), "--run", "huge", "--train.init_from", "words")
    assert b"such a model has more than" in huge.stderr
    assert not (tmp_path / "huge").exists()
    (tmp_path / "words" / "config.json").write_text(config)

    (tmp_path / "odd.txt").write_text("plant\tthe cat\n")
    refused = cli("evaluate", "classes", tmp_path / "odd.txt")
    assert refused.returncode == 2
    assert b"the label 'plant' is not one of the 2 that the model knows: animal, human." in refused.stderr
    assert b"is a run of task 'classify'; this needs one of task generate" in cli("generate", "classes", "a").stderr
    assert b"is a run of task 'fill'; this needs one of task translate" in cli("translate", "words", stdin="a\n").stderr
    assert b"nothing to fill in" in cli("fill", "words", "the cat").stderr


@pytest.mark.any_backend
@pytest.mark.slow
def test_a_translator_starts_from_a_frozen_encoder(recipe, tmp_path, text_files):
    """After training, the encoder is bitwise that of the masked model, and the source tokenizer is the same."""
    words = workflows.train(Config.from_toml(recipe("fill")), tmp_path / "words", quiet)
    small = tmp_path / "small.toml"
    small.write_text(SMALL.format(*text_files[::-1]).replace('tie = "all"', 'tie = "target"'))
    said = []
    options = ["--train.init_from", str(words.path), "--model.dropout", "0.1"]
    config = override(Config.from_toml(small), [*options, "--train.freeze", "true"])
    run = workflows.train(config, tmp_path / "run", said.append)
    before, after = (read_checked(folder.path / "model.safetensors")[0] for folder in (words, run))
    np.testing.assert_array_equal(after["source_embedding/embeddings"], before["embedding/embeddings"])
    same = [name for name in before if name.startswith("encoder/")]
    assert len(same) > 8
    for name in same:
        np.testing.assert_array_equal(after[name], before[name])
    assert run.source_tokenizer.to_json() == words.tokenizer.to_json() != run.target_tokenizer.to_json()
    assert any("frozen" in line for line in said)
    free = workflows.train(override(Config.from_toml(small), options), tmp_path / "free", quiet)
    moved = read_checked(free.path / "model.safetensors")[0]
    assert any((moved[name] != before[name]).any() for name in same)
    frozen, whole = run.build_model(), free.build_model()
    frozen.freeze()
    assert sum(w.size for w in map(np.array, frozen.trainable_weights)) < sum(
        w.size for w in map(np.array, whole.trainable_weights)
    )
    with pytest.raises(InputError, match="brings its own source vocabulary"):
        workflows.train(override(Config.from_toml(small), [*options, "--model.tie", "all"]), tmp_path / "tied", quiet)


@pytest.mark.any_backend
def test_a_classifier_can_memorise_its_training_text(recipe, tmp_path):
    options = [
        "--train.updates",
        "120",
        "--train.validate_every",
        "60",
        "--model.dropout",
        "0.0",
        "--data.max_shapes",
        "1",
    ]
    run = workflows.train(override(Config.from_toml(recipe("classify")), options), tmp_path / "run", quiet)
    scores = json.loads((run.path / "scores.json").read_text())[-1]
    assert scores["accuracy"] == 1.0
    assert scores["macro_f1"] == 1.0
    [*_, last] = run.log.read(SAMPLE_DATA)  # from which a page takes its examples where the text is not at hand
    assert [sample["label"] for sample in last["samples"]] == [sample["reference"] for sample in last["samples"]]
    assert all(sample["text"] for sample in last["samples"])


@pytest.mark.slow
@pytest.mark.any_backend
def test_foreign_files_and_refused_changes_leave_a_folder_as_it_was(recipe, tmp_path, cli):
    """Guards a user's other files in the folder, and the config of a run after a refused resume."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("keep me")
    assert cli("train", recipe("fill"), "--run", "run").returncode == 0
    assert cli("train", recipe("fill"), "--run", "run", "--force").returncode == 0
    itself = cli("train", recipe("classify"), "--run", "run", "--train.init_from", "run", "--force")
    assert b"run is the run to start from: choose another folder" in itself.stderr
    assert cli("fill", "run", "the [MASK]").returncode == 0
    assert (tmp_path / "run" / "notes.txt").read_text() == "keep me"
    before = (tmp_path / "run" / "config.json").read_text()
    refused = cli("train", "--resume", "run", "--model.d_model", 32)
    assert refused.returncode == 2
    assert b"was created with model.d_model = 16, which has to stay" in refused.stderr
    assert (tmp_path / "run" / "config.json").read_text() == before


@pytest.mark.slow
@pytest.mark.any_backend
def test_training_continues_if_the_sample_prompt_has_no_tokens(recipe, tmp_path):
    options = [
        "--tokenizer.kind",
        "word",
        "--train.prompt",
        "\n",
        "--decode.min_length",
        "900",
        "--data.max_tokens",
        "8",
    ]
    run = workflows.train(override(Config.from_toml(recipe("generate")), options), tmp_path / "run", quiet)
    assert len((run.path / "samples.txt").read_text()) > 20


@pytest.mark.any_backend
@pytest.mark.parametrize("part", ["valid", "test"])
def test_text_that_cannot_be_scored_is_refused_before_training(recipe, tmp_path, part):
    """Guards against deleting an old run with `force`, or training to the end, before bad text is noticed."""
    for name, text in {"empty": "", "one": "\n", "mute": "c\tthe cat"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    cases = [(task, "empty", r"empty\.txt is empty") for task in ("generate", "fill", "classify")]
    cases += [("generate", "one", r"one\.txt has no token that counts"), ("classify", "mute", "label 'c' is not one")]
    old = tmp_path / "run"
    old.mkdir()
    (old / "config.json").write_text("an old run")
    for task, name, message in cases:
        config = override(Config.from_toml(recipe(task)), [f"--data.{part}", f'["{tmp_path / f"{name}.txt"}"]'])
        with pytest.raises(InputError, match=message):
            workflows.train(config, old, quiet, force=True)
        assert (old / "config.json").read_text() == "an old run"


@pytest.mark.any_backend
@pytest.mark.slow
def test_holding_out_from_a_text_sorted_by_class_is_refused(recipe, tmp_path):
    path = tmp_path / "sorted.tsv"
    path.write_text("".join(f"{label}\ttext {n}\n" for label in ("bad", "good") for n in range(50)), encoding="utf-8")
    config = override(Config.from_toml(recipe("classify")), ["--data.train", f'["{path}"]'])
    with pytest.raises(InputError, match="has 0 texts of class 'bad', the rest 50: the text seems to be sorted"):
        workflows.train(config, tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()
    rare = "".join(f"{'ab'[n % 2]}\ttext {n}\n" for n in range(99)) + "c\tone alone\n"
    path.write_text(rare, encoding="utf-8")
    config = override(config, ["--train.updates", "1", "--data.test", "[]"])
    assert workflows.train(config, tmp_path / "run", quiet).config.data.labels == ("a", "b", "c")


@pytest.mark.any_backend
@pytest.mark.slow
def test_bits_per_byte_are_reported_only_for_lossless_tokenizers(recipe, tmp_path, cli):
    """Guards against a small vocabulary that wins because unknown tokens cost nothing."""
    for kind in ("char", "word"):
        options = ["--train.updates", "1", "--tokenizer.kind", kind, "--tokenizer.vocab_size", "20"]
        run = workflows.train(override(Config.from_toml(recipe("generate")), options), tmp_path / kind, quiet)
    options = ["--train.updates", "1", "--tokenizer.kind", "char", "--tokenizer.vocab_size", "60"]
    workflows.train(override(Config.from_toml(recipe("generate")), options), tmp_path / "whole", quiet)
    bits = {name: "bits_per_byte" in read(Run.open(tmp_path / name))[-1] for name in ("char", "word", "whole")}
    assert bits == {"char": False, "word": False, "whole": True}
    assert compare([run]).metric == "loss"


def test_invalid_settings_and_texts_are_refused(recipe, tmp_path):
    config = Config.from_toml(recipe("generate"))
    for options, message in (
        (["--data.max_tokens", "17"], r"data.max_tokens .17. cannot exceed model.max_length .16."),
        (
            ["--train.select_by", "bleu"],
            "train.select_by = 'bleu' is not a score of task = 'generate', which has loss, accuracy",
        ),
        (["--data.corpus", "reverse"], "The built-in corpus 'reverse' is not for task = 'generate'"),
        (["--train.freeze", "true"], "train.freeze needs train.init_from"),
        (["--train.freeze_weights", '["encoder/*"]'], "train.freeze_weights needs train.init_from"),
    ):
        with pytest.raises(InputError, match=message):
            override(config, options)
    for task in ("fill", "classify"):
        with pytest.raises(InputError, match=r"data.max_tokens .2. must leave room for a token"):
            override(Config.from_toml(recipe(task)), ["--data.max_tokens", "2"])
    short = tmp_path / "short.txt"
    short.write_text("the cat drinks")
    with pytest.raises(InputError, match="fewer than one window"):
        workflows.train(override(config, ["--data.train", f'["{short}"]']), tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(InputError, match="no text to learn a vocabulary from"):
        workflows.train(override(config, ["--data.train", f'["{tmp_path / "empty.txt"}"]']), tmp_path / "run", quiet)


@pytest.mark.any_backend
def test_each_side_may_have_its_own_vocabulary_size(recipe, tmp_path):
    options = ("--tokenizer.joint", "false", "--tokenizer.vocab_size", "9", "--tokenizer.source_vocab_size", "12")
    config = change(Config.from_toml(recipe("translate")), *options, "--model.tie", "none")
    training = workflows.Training.create(config, tmp_path / "run", quiet)
    source, target = training.run.tokenizers()
    assert (len(source), len(target)) == (12, 9)


@pytest.mark.any_backend
def test_a_continued_training_has_a_low_constant_rate_unless_it_names_another(whole):
    """Guards against a refusal of the default rate, as if it had been given."""

    def start(**train):
        return starting_point(
            Config.from_table({"train": {"init_from": str(whole.path), **train}}, "a text")
        ).config.train

    train = start()
    assert (train.schedule, train.learning_rate, train.warmup_updates) == ("constant", 1e-4, 100)
    assert start(schedule="cosine").learning_rate == 1e-4
    for name, value in (("learning_rate", 0.5), ("warmup_updates", 7)):
        with pytest.raises(InputError, match=f"train.{name} would not be used"):
            start(**{name: value})


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_training_continues_from_a_run_of_its_task(recipe, tmp_path, cli):
    """Guards against losing what the first training learned: the first validation is as good as its last one."""
    first = workflows.train(Config.from_toml(recipe("classify")), tmp_path / "first", quiet)
    paper = tmp_path / "paper.toml"
    paper.write_text(
        recipe("classify").read_text().replace('schedule = "constant"', 'schedule = "paper"')
        .replace("learning_rate = 1e-2\n", "").replace("warmup_updates = 2\n", "")
    )  # fmt: skip
    said = cli("train", paper, "--run", "second", "--train.init_from", "first")
    assert said.returncode == 0, said.stderr
    assert b"weights initialised from first" in said.stdout
    second = Run.open(tmp_path / "second")
    train = second.config.train
    assert (train.schedule, train.learning_rate, train.warmup_updates) == ("constant", 1e-4, 100)
    origins = second.origins()
    assert origins["train.schedule"] == "train.init_from, first"
    assert origins["train.updates"] == "recipe paper.toml"
    for option, value in (("model.d_model", 32), ("tokenizer.kind", "char"), ("train.schedule", "paper")):
        idle = cli("train", recipe("classify"), "--run", "idle", "--train.init_from", "first", f"--{option}", value)
        assert idle.returncode == 2
        assert f"--{option} {value} would have no effect: a training that starts from first has" in idle.stderr.decode()
        assert not (tmp_path / "idle").exists()
    assert second.tokenizer.to_json() == first.tokenizer.to_json()
    before, after = (run.log.read()[place]["loss"] for run, place in ((first, -1), (second, 0)))
    assert after < before * 1.05
    (tmp_path / "odd.txt").write_text("plant\tthe cat\nhuman\tthe king\n" * 20)
    refused = cli(
        "train", recipe("classify"), "--run", "third", "--train.init_from", "first", "--data.train", "odd.txt"
    )
    assert b"has no class 'plant', which the training text has; it knows animal, human" in refused.stderr
    assert (
        b"would freeze all weights"
        in cli(
            "train", recipe("classify"), "--run", "third", "--train.init_from", "first", "--train.freeze", "true"
        ).stderr
    )
    assert not (tmp_path / "third").exists()


@pytest.mark.any_backend
def test_weights_are_frozen_by_patterns(recipe, tmp_path):
    first = workflows.train(Config.from_toml(recipe("generate")), tmp_path / "first", quiet)
    options = ["--train.init_from", str(first.path), "--train.freeze_weights", '["embedding/*", "*/feed_forward/*"]']
    second = workflows.train(override(Config.from_toml(recipe("generate")), options), tmp_path / "second", quiet)
    before, after = (read_checked(run.path / "model.safetensors")[0] for run in (first, second))
    for name, array in before.items():
        frozen = name.startswith("embedding/") or "/feed_forward/" in name
        assert np.array_equal(after[name], array) == frozen, name
    for pattern, message in (
        ("encoder/*", "no weight matches 'encoder/\\*'; there are "),
        ("*", "freezes all weights"),
    ):
        wrong = override(Config.from_toml(recipe("generate")), [*options[:3], json.dumps([pattern])])
        with pytest.raises(InputError, match=message):
            workflows.train(wrong, tmp_path / "wrong", quiet)


@pytest.mark.any_backend
def test_a_run_of_another_task_gives_nothing_to_a_writer(recipe, tmp_path):
    """Guards against a training that starts from random weights although the user named a run."""
    words = workflows.train(Config.from_toml(recipe("fill")), tmp_path / "words", quiet)
    config = override(Config.from_toml(recipe("generate")), ["--train.init_from", str(words.path)])
    with pytest.raises(InputError, match="is a run of task 'fill'; this needs one of task generate"):
        workflows.train(config, tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.any_backend
def test_a_translator_continues_with_the_vocabulary_of_another_one(tmp_path, text_files):
    """Its recipe asks for two vocabularies and other ties; the run that it starts from has one for both."""
    joint, apart = tmp_path / "joint.toml", tmp_path / "apart.toml"
    joint.write_text(SMALL.format(*text_files[::-1]))
    apart.write_text(SMALL.format(*text_files[::-1]).replace('tie = "all"', 'tie = "target"'))
    first = workflows.train(Config.from_toml(joint), tmp_path / "first", quiet)
    options = ["--train.init_from", str(first.path), "--tokenizer.joint", "false"]
    second = workflows.train(override(Config.from_toml(apart), options), tmp_path / "second", quiet)
    assert second.config.model.tie == "all"
    assert second.config.tokenizer.joint
    assert second.target_tokenizer.to_json() == first.target_tokenizer.to_json()
