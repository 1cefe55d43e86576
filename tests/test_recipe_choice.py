"""Settings that are chosen for a text: by its size, with reasons, and less than what the user says."""

import itertools

import pytest

from heedful.config import settings
from heedful.core.errors import InputError
from heedful.runs.run import Run
from heedful.tasks.suggestions import VOCABULARIES, TextFacts, facts_of, suggest_batches, suggest_model
from heedful.workflows import recipe_choice
from heedful.workflows.recipe_choice import choose_recipe

pytestmark = pytest.mark.any_backend


def facts(words=700_000, **other):
    return TextFacts(**({"items": 29_000, "words": words, "long": 24, "seconds": 900.0, "operations": 1.5e11} | other))


def values(suggestions):
    return {name: value for one in suggestions for name, value in one.values.items()}


def test_facts_are_counted_on_all_sides():
    known = facts_of([("um gato", "a black cat"), ("o rei", "the king")], 60.0, 1.0)
    assert (known.items, known.words, known.long) == (2, 9, 2)
    assert facts_of([("um gato", "one " * 50)] + [("a", "b")] * 199, 60.0, 1.0).long == 1
    assert facts_of([("黒い猫がミルクを飲む黒い猫", "黒い犬がミルクを飲む黒い猫")], 60.0, 1.0).words == 13
    assert facts_of([], 60.0, 1.0).words == 0


def test_more_text_gets_a_larger_vocabulary_and_a_wider_model():
    sizes = [values(suggest_model(facts(words, operations=1e15))[1]) for words in (1, 50_000, 700_000, 3e6, 1e8)]
    assert [one["model.d_model"] for one in sizes] == [128, 128, 128, 256, 512]
    vocabularies = [one["tokenizer.vocab_size"] for one in sizes]
    assert vocabularies == [500, 500, 8000, 16000, 32000]
    assert set(vocabularies) <= set(VOCABULARIES)
    assert all(one["model.d_model"] % one["model.num_heads"] == 0 for one in sizes)


def test_a_model_that_cannot_read_the_text_once_is_narrower():
    wide, narrow = (suggest_model(facts(1e8, seconds=seconds, operations=1e13))[0] for seconds in (1e5, 60.0))
    assert (wide, narrow) == (512, 128)


def test_text_that_is_read_often_gets_more_dropout():
    rates = [values(suggest_model(facts(seconds=seconds))[1])["model.dropout"] for seconds in (60.0, 900.0, 9000.0)]
    assert rates == [0.1, 0.2, 0.3]


def test_texts_fit_into_the_limits():
    for long, accelerator in itertools.product((1, 24, 100, 10_000), (False, True)):
        chosen = values(suggest_batches(facts(long=long), 128, accelerator))
        assert chosen["data.max_tokens"] >= min(512, 1.4 * long)
        assert chosen["model.max_length"] >= chosen["data.max_tokens"] <= chosen["data.batch_tokens"]


def test_what_the_user_says_counts_more(recipe, cli, tmp_path):
    text = [str(tmp_path / name) for name in ("text.pt", "text.en")]
    choice = choose_recipe(text, text, minutes=2.0, overrides=["--model.dropout", "0.4", "--model.d_model", "64"])
    model = choice.config.model
    assert (model.dropout, model.d_model, model.norm_position) == (0.4, 64, "pre")
    assert (choice.config.train.minutes, choice.config.name) == (2.0, "text")
    assert choice.origins["model.dropout"] == choice.origins["train.minutes"] == "command line"
    assert choice.origins["tokenizer.vocab_size"].startswith("chosen: ")
    [line] = [line for line in choice.lines() if line.startswith("tokenizer.vocab_size 500: ")]
    assert line.endswith(" words: each entry occurs about 0 times")
    assert not any("dropout" in line for line in choice.lines())
    assert set(choice.origins) <= set(settings.flat(choice.config))


def test_a_text_is_trained_on_without_a_recipe(recipe, cli, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe_choice, "product_rate", lambda: None)  # of an unknown accelerator
    done = cli(
        "train", "--text", "text.pt", "text.en", "--valid", "text.pt", "text.en", "--run", "mine",
        "--model.d_model", 16, "--model.num_layers", 1, "--train.minutes", 0, "--train.updates", 2,
        "--train.validate_every", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert "tokenizer.vocab_size 500: " in done.stdout.decode()
    run = Run.open(tmp_path / "mine")
    assert run.config.model.tie == "all"
    said = cli("explain", "model.tie", tmp_path / "mine").stdout.decode()
    assert "'all', chosen: as in the recipes for translation" in said


@pytest.mark.parametrize(("task", "setting"), [("classify", "model.convolutions"), ("generate", "model.positions")])
def test_other_tasks_have_suggestions(task, setting, tmp_path):
    path = tmp_path / "text.tsv"
    path.write_text("".join(f"{n % 2}\tsome words {n}\n" for n in range(400)), encoding="utf-8")
    choice = choose_recipe([str(path)], task=task)
    assert choice.config.task == task
    assert choice.origins[setting].startswith("chosen: as in the recipes for ")


def test_contradictions_are_refused(recipe, cli, tmp_path):
    for arguments, message in (
        ([recipe, "--text", "text.pt", "text.en"], "Name a recipe to train, or text"),
        ([recipe, "--valid", "text.pt", "text.en"], "go with --text"),
        (["--text", "text.pt", "text.en", "--processes", 2], "give several processes a recipe"),
        (["--text", "text.pt", "text.en"], "data.valid must name text files"),
        (["--text", "text.pt", "--task", "fill"], "has no settings of its own to begin with"),
        (["--text", "no.pt", "no.en", "--valid", "text.pt", "text.en"], "no.pt"),
    ):
        done = cli("train", *arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr.decode(), arguments


def test_a_task_may_have_no_suggestions(monkeypatch):
    from heedful.core.plugins import find_task

    with pytest.raises(InputError, match="give a recipe"):
        find_task("fill").suggest(facts(), False)
