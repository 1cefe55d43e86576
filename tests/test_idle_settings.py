"""Settings and options that would have no effect are refused: they would be recorded as used."""

import pytest

from heedful.config import Config, idle_settings, settings
from heedful.config.idle_settings import refuse_idle, refuse_idle_on_resuming
from heedful.config.recipes import find_recipe
from heedful.core.errors import InputError

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize(("recipe", "arguments", "needs"), [
    ("multi30k-de-en", "--data.sentences 1000", "a built-in data.corpus"),
    ("multi30k-de-en", "--data.held_out 0.2", "task = 'generate' or 'fill' or 'classify'"),
    ("multi30k-de-en", "--data.mask_share 0.2", "task = 'fill'"),
    ("multi30k-de-en", "--model.convolutions [3]", "task = 'classify'"),
    ("multi30k-de-en", "--train.lora_alpha 16", "train.lora_rank"),
    ("multi30k-de-en", "--tokenizer.clean_up_spaces false", "tokenizer.kind = 'wordpiece'"),
    ("shakespeare-char-cpu", "--data.pack_tokens 100", "task = 'translate'"),
    ("shakespeare-char-cpu", "--data.max_shapes 2", "task = 'translate' or 'fill' or 'classify'"),
    ("shakespeare-char-cpu", "--decode.max_ratio 3", "task = 'translate'"),
    ("trec", "--decode.beam_size 4", "a task that writes text"),
    ("trec", "--model.causal_mask false", "a task that writes text"),
    ("trec", "--model.pooler_activation relu", "model.pooling = 'first'"),
    ("trec", "--train.validate_sentences 3", "task = 'translate'"),
    ("tutorial-pt-en", "--train.general_tolerance 0.1", "data.general_valid"),
    ("quickstart", "--train.epochs 1 --train.updates 3", "train.epochs = 0"),
    ("quickstart", "--data.length 3", "data.corpus = 'reverse'"),
])  # fmt: skip
def test_a_setting_without_effect_is_refused(recipe, arguments, needs):
    config = settings.of_recipe(find_recipe(recipe), arguments.split())
    name = arguments.split()[-2].removeprefix("--")
    with pytest.raises(InputError) as refused:
        refuse_idle(config, settings.given_names(arguments.split()))
    assert str(refused.value).startswith(f"--{name} would have no effect here: it needs {needs}")


def test_settings_with_an_effect_are_accepted():
    for recipe, arguments in (
        ("multi30k-de-en", "--train.lora_rank 4 --train.lora_alpha 16 --train.init_from x --train.average 0"),
        ("trec", "--model.pooling first --model.pooler_activation relu --data.max_shapes 2"),
        ("shakespeare-char-cpu", "--decode.temperature 0.5 --train.prompt x"),
        ("quickstart", "--data.sentences 100 --train.updates 3 --tokenizer.joint true"),
    ):
        config = settings.of_recipe(find_recipe(recipe), arguments.split())
        refuse_idle(config, settings.given_names(arguments.split()))


def test_the_table_names_settings_that_exist():
    """Guards against a renamed setting that is then never refused."""
    assert idle_settings._NEEDS.keys() <= settings.meanings().keys()


def test_another_corpus_replaces_the_files_of_a_recipe():
    """Guards a training on the recipe's files whose config names another text."""
    recipe = find_recipe("multi30k-de-en")
    other = settings.of_recipe(recipe, ["--data.corpus", "phrasebook"])
    assert (other.data.train, other.data.test) == ((), ())
    assert "data.train" not in settings.origins(recipe, ["--data.corpus", "phrasebook"])
    own_files = settings.of_recipe(recipe, ["--data.corpus", "files", "--data.train", '["a.de", "a.en"]'])
    assert own_files.data.valid == Config.from_toml(recipe).data.valid


def test_tokens_in_a_batch_replace_the_sentences_of_a_recipe():
    recipe = find_recipe("shakespeare-char-cpu")
    assert Config.from_toml(recipe).data.batch_sentences
    assert settings.of_recipe(recipe, ["--data.batch_tokens", "10000"]).data.batch_sentences == 0


@pytest.mark.parametrize(("arguments", "message"), [
    ("--train.learning_rate 0.1", "all 210 updates are done"), ("--model.dropout 0.3", "all 210 updates are done"),
    ("--train.updates 50", "has 210 updates already"), ("--train.check true", "before the first update"),
    ("--name other", "before the first update"),
])  # fmt: skip
def test_a_setting_without_effect_on_resuming_is_refused(arguments, message):
    config = settings.override(Config.from_toml(find_recipe("quickstart")), ["--train.updates", "210"])
    given = settings.override(config, arguments.split())
    with pytest.raises(InputError, match=message):
        refuse_idle_on_resuming(given, settings.given_names(arguments.split()), 210)


def test_more_updates_and_averages_are_accepted_on_resuming():
    config = settings.override(Config.from_toml(find_recipe("quickstart")), ["--train.updates", "210"])
    for arguments in (
        "--train.updates 300 --train.label_smoothing 0", "--train.average 3", "--decode.beam_size 4",
        "--train.score false",
    ):  # fmt: skip
        given = settings.override(config, arguments.split())
        refuse_idle_on_resuming(given, settings.given_names(arguments.split()), 210)


def test_commands_refuse_options_without_effect(cli, run):
    """Guards scores and texts that a user believes to depend on an option."""
    for arguments, message in (
        (["translate", run, "--seed", "7"], b"sampling only"),
        (["translate", run, "--length-penalty", "0.1"], b"scores only"),
        (["translate", run, "--into", "x"], b"is for a whole file"),
        (["evaluate", run, "--beam-size", "4", "--n-best", "4"], b"unrecognized arguments: --n-best"),
        (["evaluate", run, "--length-norm", "gnmt"], b"scores only"),
        (["inspect", run, "--positions", "--tokens", "7"], b"is for --heads"),
        (["serve", run, "--languages", "pt-en", "--languages", "ja-ko"], b"1 translator"),
        (["page", run, "p.html", "--text", "/nowhere"], b"There is no text /nowhere"),
        (["train", "quickstart", "--seeds", "1", "2", "--train.seed", "9"], b"--seeds sets train.seed"),
        (["train", "quickstart", "--plan", "--force"], b"--plan writes no run"),
        (["train", "--resume", run, "--train.updates", "1"], b"updates already"),
    ):
        refused = cli(*arguments, stdin="o gato\n")
        assert refused.returncode == 2, arguments
        assert message in refused.stderr, refused.stderr
    assert cli("translate", run, "--length-penalty", "0.1", "--scores", stdin="o gato\n").returncode == 0
