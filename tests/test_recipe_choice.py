"""Settings that are chosen for a text: by its size, with reasons, and less than what the user says."""

import pytest

from heedful.config import Config, settings
from heedful.core.errors import InputError
from heedful.runs.run import Run
from heedful.tasks.suggestions import (
    TextFacts,
    facts_of,
    length_suggestion,
    model_suggestions,
    optimizer_suggestion,
    times,
    tokens_per_word,
)
from heedful.workflows import recipe_choice
from heedful.workflows.recipe_choice import choose_recipe, choose_rest
from tests.conftest import change, quiet

pytestmark = pytest.mark.any_backend


@pytest.fixture
def text(recipe, tmp_path):
    return [str(tmp_path / name) for name in ("text.pt", "text.en")]


@pytest.fixture(autouse=True)
def known_rate(monkeypatch):
    """The speed of the machine is the same in every test."""
    monkeypatch.setattr(recipe_choice, "product_rate", lambda precision: 1.5e11)


def facts(words=700_000, **other):
    return TextFacts(
        **({"words": words, "long": 24, "mean": 12.0, "sides": 2, "seconds": 900.0, "operations": 1.5e11} | other)
    )


def chosen(facts, given=None):
    return {name: value for one in model_suggestions(facts, given or {}) for name, value in one.values.items()}


def test_facts_are_counted_on_all_sides():
    known = facts_of([("um gato", "a black cat"), ("o rei", "the king")])
    assert known.mean == 2.25
    assert (known.words, known.long, known.sides) == (9, 3, 2)
    assert facts_of([("um gato", "one " * 50)] + [("a", "b")] * 199).long == 1
    assert facts_of([]).words == 0


def test_a_script_without_spaces_is_counted_by_characters_on_its_side_only():
    english, japanese = "the black cat drinks milk", "黒い猫がミルクを飲んでいます"
    assert facts_of([(english, japanese)] * 100).words == 100 * (5 + 7)
    assert facts_of([(english, japanese)] * 100).long == 7


def test_more_text_gets_a_larger_vocabulary_and_a_wider_model():
    sizes = [chosen(facts(words, operations=1e15)) for words in (1, 50_000, 700_000, 3_000_000, 100_000_000)]
    assert [one["model.d_model"] for one in sizes] == [128, 128, 128, 256, 512]
    assert [one["tokenizer.vocab_size"] for one in sizes] == [500, 500, 8000, 16000, 32000]


def test_a_model_that_cannot_read_the_text_once_is_narrower():
    widths = [chosen(facts(100_000_000, seconds=each, operations=1e13))["model.d_model"] for each in (1e5, 60.0)]
    assert widths == [512, 64]


def test_a_training_of_few_updates_has_a_narrower_model():
    """Guards a few minutes on a slow machine: 20,000 pairs gave BLEU 17.7 with width 128, and 26.9 with 64."""
    short, long = (chosen(facts(450_000, seconds=each, operations=57e9)) for each in (480.0, 3600.0))
    assert [one["model.d_model"] for one in (short, long)] == [64, 128]
    assert [one["train.learning_rate"] for one in (short, long)] == [6e-3, None]
    assert chosen(facts(450_000, seconds=0.0, updates=100))["model.d_model"] == 128  # their time is not limited


def test_narrow_translators_are_trained_with_muon(text):
    """Guards what was measured, at widths 64 and 128; wider models and further training keep Adam."""
    config = choose_recipe(text, text, report=quiet).config
    assert (config.train.optimizer, config.model.residual_init, config.train.learning_rate) == ("muon", 0.2, 5e-3)
    narrow = choose_recipe(text, text, overrides=["--model.d_model", "64"], report=quiet)
    assert narrow.config.train.learning_rate == 6e-3
    assert "width 64" in narrow.origins()["train.optimizer"]
    for given in (["--train.optimizer", "adam"], ["--model.d_model", "256"]):
        config = choose_recipe(text, text, overrides=given, report=quiet).config
        assert (config.train.optimizer, config.model.residual_init) == ("adam", 1.0)
    assert optimizer_suggestion(facts(), {"train.init_from": "runs/x"}) is None
    paper = ["--model.d_model", "64", "--train.schedule", "paper"]  # whose learning rate is a factor
    assert choose_recipe(text, text, overrides=paper, report=quiet).config.train.learning_rate == 1.0


def test_a_given_size_decides_what_depends_on_it(text):
    """Guards against the learning rate of the narrow model that would have been chosen."""
    choice = choose_recipe(text, text, overrides=["--model.size", "base"], report=quiet)
    config = choice.config
    assert (config.model.d_model, config.train.optimizer, config.model.residual_init) == (512, "adam", 1.0)
    assert config.train.learning_rate == config.train.default_rate(512)
    assert "model.d_model" not in choice.origins()
    assert chosen(facts(), {"model.d_model": 64, "train.init_from": "runs/x"})["train.learning_rate"] is None


def test_the_estimate_leaves_time_to_prepare_and_knows_narrow_models():
    """Guards against 2,250 estimated updates of which 450 were done."""
    minute, two, ten = (facts(seconds=seconds, operations=1e11).passes(128, 4, 8000) for seconds in (60, 120, 600))
    assert two / minute == pytest.approx(2)  # half of the time
    assert ten / two == pytest.approx(9)  # all but a minute
    by_width = [facts(seconds=600.0, operations=1e11).passes(width, 4, 2000) for width in (64, 128)]
    weights = [12 * width**2 * 4 + width * 2000 / 2 for width in (64, 128)]
    assert by_width[0] * weights[0] / (by_width[1] * weights[1]) == pytest.approx(0.25 / 0.35)


def test_time_decides_dropout_and_schedule():
    short, usual, long = (chosen(facts(seconds=seconds)) for seconds in (60.0, 900.0, 9000.0))
    assert [one["model.dropout"] for one in (short, usual, long)] == [0.1, 0.2, 0.3]
    assert short["train.warmup_updates"] < short["train.validate_every"] * 3 < short["train.updates"]
    assert usual["train.minutes"] == 15
    counted = chosen(facts(seconds=0.0, updates=400))
    assert counted["train.minutes"] is None
    assert counted["train.warmup_updates"] == 80


def test_what_is_given_decides_what_depends_on_it():
    wide = chosen(facts(), {"model.d_model": 100})
    assert (wide["model.d_ff"], wide["model.num_heads"]) == (400, 5)
    assert chosen(facts(seconds=60.0), {"model.d_model": 256})["model.num_heads"] == 8  # not those of a narrow model
    lengths = length_suggestion(facts(long=10_000), {"model.max_length": 300}).values
    assert (lengths["data.max_tokens"], lengths["data.pack_tokens"]) == (300, 128)
    assert length_suggestion(facts(), {"data.max_tokens": 200}).values["model.max_length"] == 400


def test_short_pairs_are_packed():
    """Without packing, half of a batch is padding where a few texts are much longer than most."""
    for long, mean, sides, expected in (
        (24, 12, 2, (64, 32)), (41, 8.5, 2, (128, 64)), (41, 3, 2, (128, 32)), (45, 23, 2, (128, 64)),
        (45, 40, 2, (128, 0)), (300, 200, 2, (512, 0)), (24, 12, 1, (64, None)),
    ):  # fmt: skip
        values = length_suggestion(facts(long=long, mean=mean, sides=sides), {}).values
        assert (values["data.max_tokens"], values.get("data.pack_tokens")) == expected


def test_a_small_vocabulary_needs_longer_texts():
    """Guards against dropping 92 of 2,751 messages of software as too long: at 500 entries, a word has 3 tokens."""
    few, many = (facts(words, long=28, mean=4.8) for words in (26_472, 700_000))
    assert [tokens_per_word(one, {}) for one in (few, many)] == [3.2, 1.4]
    assert tokens_per_word(many, {"tokenizer.vocab_size": 2000}) == 2.0
    limits = [length_suggestion(one, {}, tokens_per_word(one, {})).values["data.max_tokens"] for one in (few, many)]
    assert limits == [256, 64]


def test_passes_are_readable():
    assert [times(passes) for passes in (0.2, 2.4, 12.3, 2900.0)] == [
        "once or less",
        "2 times",
        "12 times",
        "2,900 times",
    ]


def test_what_the_user_says_counts_more(text):
    arguments = ["--model.dropout", "0.4", "--model.d_model", "64", "--train.minutes", "2"]
    choice = choose_recipe(text, text, overrides=arguments, report=quiet)
    model, origins = choice.config.model, choice.origins()
    assert (model.dropout, model.d_model, model.d_ff, model.norm_position) == (0.4, 64, 256, "pre")
    assert (choice.config.train.minutes, choice.config.name) == (2.0, "text")
    assert origins["model.dropout"] == origins["train.minutes"] == origins["data.train"] == "command line"
    assert origins["model.tie"] == "chosen: as in the recipe multi30k-de-en"
    assert set(origins) <= set(settings.flat(choice.config))
    [line] = [line for line in choice.lines() if line.startswith("tokenizer.vocab_size 500: ")]
    assert line.endswith("enough for the smallest vocabulary only")
    assert not any("dropout" in line for line in choice.lines())
    separate = choose_recipe(text, text, overrides=["--tokenizer.joint", "false"], report=quiet)
    assert separate.config.model.tie == "target"


def test_the_recipe_can_be_written(text, cli, tmp_path):
    arguments = ("--minutes", 3, "--model.dropout", 0.25)
    done = cli("train", "--text", *text, "--valid", *text, *arguments, "--write-recipe", "mine.toml")
    assert done.returncode == 0, done.stderr.decode()
    options = ["--model.dropout", "0.25", "--train.minutes", "3"]
    assert Config.from_toml(tmp_path / "mine.toml") == choose_recipe(text, text, overrides=options, report=quiet).config
    written = (tmp_path / "mine.toml").read_text()
    assert "# as in the recipe multi30k-de-en\n" in written
    assert written.count("[model]") == 1


def test_a_text_is_trained_on_without_a_recipe(text, cli, tmp_path):
    done = cli(
        "train", "--text", *text, "--valid", *text, "--run", "mine", "--model.d_model", 16, "--model.num_layers", 1,
        "--train.updates", 2, "--train.validate_every", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert "tokenizer.vocab_size 500: " in done.stdout.decode()
    run = Run.open(tmp_path / "mine")
    assert (run.config.model.tie, run.config.train.minutes) == ("all", 0)
    said = cli("explain", "model.tie", tmp_path / "mine").stdout.decode()
    assert "'all', chosen: as in the recipe multi30k-de-en" in said


@pytest.mark.parametrize(("task", "base"), [("classify", "trec"), ("generate", "shakespeare-char-cpu")])
def test_other_tasks_begin_with_their_own_recipe(task, base, tmp_path):
    path = tmp_path / "text.tsv"
    path.write_text("".join(f"{n % 2}\tsome words {n}\n" for n in range(400)), encoding="utf-8")
    choice = choose_recipe([str(path)], task=task, report=quiet)
    assert choice.config.task == task
    assert choice.origins()["model.norm_position"] == f"chosen: as in the recipe {base}"
    assert choice.config.data.max_tokens <= choice.config.model.max_length


def test_text_without_spaces_is_not_classified_by_its_words(tmp_path):
    for text, kind in (("この映画はとても面白かったです", "wordpiece"), ("this film was a great joy", "word")):
        path = tmp_path / f"{kind}.tsv"
        path.write_text("".join(f"{n % 2}\t{text}{n}\n" for n in range(400)), encoding="utf-8")
        assert choose_recipe([str(path)], task="classify", report=quiet).config.tokenizer.kind == kind


def test_a_classifier_of_few_updates_leaves_its_warm_up(tmp_path):
    path = tmp_path / "text.tsv"
    path.write_text("".join(f"{n % 2}\tsome words {n}\n" for n in range(400)), encoding="utf-8")
    train = choose_recipe([str(path)], task="classify", overrides=["--train.updates", "100"], report=quiet).config.train
    assert (train.updates, train.warmup_updates, train.validate_every) == (100, 20, 10)


def test_contradictions_are_refused(recipe, text, cli, tmp_path):
    (tmp_path / "empty.pt").write_text("\n\n")
    both = ("--text", *text, "--valid", *text)
    for arguments, message in (
        ([recipe, *both], "Name a recipe to train, or text"), ([recipe, "--valid", *text], "go with --text"),
        ([*both, "--processes", 2], "write them with --write-recipe first"),
        (["--text", *text], "Name validation text after --valid"),
        (["--text", text[0], "--task", "fill"], "needs a recipe"),
        (["--text", "no.pt", "no.en", "--valid", *text], "no.pt"),
        (["--text", "empty.pt", "empty.pt", "--valid", *text], "no words"),
        ([*both, "--minutes", 0], "needs minutes above 0"),
        ([*both, "--minutes", 5, "--train.minutes", 6], "give one of them"),
        ([*both, "--data.corpus", "phrasebook"], "leave out --data.corpus"),
        ([*both, "--run", tmp_path / "run", "--model.size", "huge"], "huge"),
        ([*both, "--model.dimension", 3], "unknown key 'dimension'"),
        ([*both, "--model.d_model", "wide"], "model.d_model ('wide') must be a number from 1"),
        ([*both, "--tokenizer.vocab_size", 0], "tokenizer.vocab_size (0)"),
        ([*both, "--minutes", "nan"], "train.minutes (nan)"), ([*both, "--minutes", -5], "train.minutes (-5.0)"),
        ([*both, "--plan", "--run", "x"], "--plan writes no run"),
        ([*both, "--plan", "--write-recipe", "x.toml"], "--write-recipe writes no run"),
    ):  # fmt: skip
        done = cli("train", *arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr.decode(), arguments


def test_a_pattern_names_many_files_and_no_run(text, cli, tmp_path):
    choice = choose_recipe([str(tmp_path / "*.pt"), str(tmp_path / "*.en")], text, report=quiet)
    assert choice.config.name == "run"


def test_nothing_is_read_if_the_folder_holds_a_run(run, text, cli):
    done = cli("train", "--text", *text, "--valid", *text, "--run", run)
    assert done.returncode == 2
    assert "already holds a run" in done.stderr.decode()
    assert b"counting" not in done.stdout


def test_a_wrong_setting_is_an_input_error(text):
    with pytest.raises(InputError, match="dropout"):
        choose_recipe(text, text, overrides=["--model.dropout", "2"], report=quiet)


def test_the_rest_of_a_recipe_is_what_a_training_without_one_would_have(text):
    length = {"train.minutes": 2.0, "train.updates": 1000}
    files = {"train": text, "valid": text}
    short = Config.from_table({"name": "mine", "model": {"d_model": 64, "num_heads": 4}, "data": files}, "text")
    rest = choose_rest(short, ["data.train", "data.valid", "model.d_model", "model.num_heads"], length, quiet)
    arguments = ["--model.d_model", "64", "--model.num_heads", "4", "--train.minutes", "2", "--train.updates", "1000"]
    choice = choose_recipe(text, text, overrides=arguments, report=quiet)
    values = {name: value for name, (value, _) in rest.items()}
    assert list(settings.changed(change(short, *settings.as_arguments(values | length)), choice.config)) == ["name"]
    assert rest["model.norm_position"] == ("pre", "as in the recipe multi30k-de-en")
    assert not {"name", "data.train", "model.d_model", "train.minutes"} & rest.keys()
    assert choose_rest(short, settings.flat(short), length, quiet) == {}


def test_the_rest_contradicts_nothing_that_a_recipe_names(config, text, tmp_path):
    files = {"train": text, "valid": text}
    said = []
    length = {"train.minutes": 2.0}
    auto = Config.from_table({"name": "mine", "data": files | {"batch_tokens": "auto"}}, "text")
    rest = choose_rest(auto, ["data.train", "data.valid", "data.batch_tokens"], length, quiet)
    assert rest["train.average"][0] == 5
    assert "data.batch_tokens" not in rest
    few = Config.from_table({"name": "mine", "data": files, "train": {"keep": 2}}, "text")
    assert choose_rest(few, ["train.keep"], length, said.append) == {}
    assert "train.average (5) cannot exceed train.keep (2)" in said[-1]
    path = tmp_path / "labelled.tsv"
    path.write_text("".join(f"{n % 2}\tsome words {n}\n" for n in range(400)), encoding="utf-8")
    table = {"name": "mine", "task": "classify", "data": {"train": [str(path)], "batch_sentences": 32}}
    rest = choose_rest(Config.from_table(table, "text"), ["data.train", "data.batch_sentences"], length, quiet)
    assert rest["model.pooling"][0] == "max"
    assert "data.batch_tokens" not in rest


def test_the_rest_is_not_chosen_for_named_text_or_a_model_that_is_trained_further(config):
    for arguments in (["--data.corpus", "phrasebook"], ["--train.init_from", "runs/some"], ["--data.valid", "[]"]):
        assert choose_rest(change(config, *arguments), (), {}, quiet) == {}
