"""Configs: every key and value is checked, with a helpful message."""

import pytest

from heedful.config import SIZES, Config, ModelConfig, TrainConfig
from heedful.config.recipes import FOLDER, find_recipe
from heedful.config.settings import origins, override
from heedful.core.errors import InputError

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_is_valid_and_named_like_its_file(path):
    assert Config.from_toml(path).name == path.stem


def test_a_config_survives_a_json_round_trip(tmp_path):
    config = Config.from_table({"model": {"size": "tiny", "dropout": 0.3}, "data": {"train": ["a", "b"]}}, "test")
    (tmp_path / "config.json").write_text(config.to_json())
    assert Config.from_json(tmp_path / "config.json") == config


def test_a_model_size_sets_only_what_is_not_given():
    model = Config.from_table({"model": {"size": "base", "num_layers": 3}}, "test").model
    assert (model.num_layers, model.d_model, model.num_heads, model.d_ff) == (3, *SIZES["base"][1:])
    bigger = override(Config.from_table({}, "test"), ["--model.size", "big"]).model
    assert bigger.d_model == 1024


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"train": {"updatez": 3}}, r"section \[train\]: unknown key 'updatez'; did you mean 'updates'\?"),
        ({"modell": {}}, r"unknown key 'modell'; did you mean 'model'\?"),
        ({"train": {"updates": 0}}, r"\[train\]: updates \(0\) must be greater than 0"),
        ({"train": {"updates": "many"}}, r"updates = 'many' is not a whole number"),
        ({"train": {"updates": True}}, r"updates = True is not a whole number"),
        ({"model": {"dropout": 1.0}}, r"dropout \(1.0\) must be at least 0 and less than 1"),
        ({"model": {"norm_position": "mid"}}, r"norm_position = 'mid' is not one of 'post', 'pre'"),
        (
            {"model": {"d_model": 100, "num_heads": 8}},
            r"d_model \(100\) must be a multiple of num_heads \(8\): try 96 or 104",
        ),
        ({"model": {"num_heads": 8, "num_kv_heads": 3}}, r"num_heads \(8\) must be a multiple of num_kv_heads \(3\)"),
        ({"format": 3}, r"This run has format 3; this version of heedful reads up to 2"),
        ({"model": {"tie": "all"}, "tokenizer": {"joint": False}}, r"tie = 'all' needs one vocabulary"),
        ({"model": {"tie": "inputs"}, "tokenizer": {"joint": False}}, r"tie = 'inputs' needs one vocabulary: .*'none'"),
        (
            {"model": {"attention_projections": "input", "head_dim": 4}},
            r"needs num_heads \* head_dim \(32\) to be",
        ),
        ({"model": {"attention_projections": "none", "num_kv_heads": 1}}, r"needs as many num_kv_heads as num_heads"),
        ({"model": {"head_dim": 5, "positions": "rotary"}}, r"head_dim or d_model / num_heads \(5\) must be even"),
        ({"tokenizer": {"source_vocab_size": 90}}, r"source_vocab_size needs tokenizer.joint = false"),
        ({"train": {"average": 9, "keep": 3}}, r"train.average \(9\) cannot exceed train.keep \(3\)"),
        ({"data": {"train": ["a", "b", "c"]}}, r"takes two files or one .tsv file, not 3"),
        ({"data": {"train": 3}}, r"train = 3 is not a list of texts"),
        ({"train": {"minutes": float("inf")}}, r"minutes = inf is not a finite number"),
        (
            {"model": {"positions": "learned", "max_length": 64}},
            r"data.max_tokens \(100\) cannot exceed model.max_length \(64\)",
        ),
        (
            {"task": "generate", "tokenizer": {"prefix_space": True}},
            r"prefix_space is for tasks that read whole texts: those of task = 'generate' are cut",
        ),
        ({"data": 3}, r"expected a table of settings, found 3"),
    ],
)
def test_mistakes_are_explained(table, message):
    with pytest.raises(InputError, match=message):
        Config.from_table(table, "recipe.toml")


def test_a_packaged_recipe_is_named_without_a_folder():
    """Guards against a missing run or file of that name being taken for the packaged recipe."""
    assert find_recipe("trec") == find_recipe("trec.toml") == FOLDER / "trec.toml"
    for name in ("runs/trec", "elsewhere/trec.toml", "../trec"):
        with pytest.raises(InputError, match="does not exist, and is not one of the recipes"):
            find_recipe(name)


def test_a_recipe_may_begin_with_a_byte_order_mark(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_bytes("\ufefftask = 'translate'\n[train]\nupdates = 7\n".encode())
    assert Config.from_toml(recipe).train.updates == 7
    assert origins(recipe, [])["train.updates"] == "recipe mine.toml"


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({"schedule": "paper"}, 1.0),
        ({"schedule": "cosine"}, 3e-3),
        ({"schedule": "constant", "init_from": "runs/other"}, 1e-4),
        ({"schedule": "cosine", "learning_rate": 0.01}, 0.01),
    ],
)
def test_a_rate_that_is_not_given_fits_the_schedule(settings, rate):
    """Guards the guide's advice: --train.schedule cosine after a recipe with the paper's schedule."""
    config = Config(model=ModelConfig(size="tutorial"), train=TrainConfig(**settings))
    assert config.train.learning_rate == rate
    wide = Config(model=ModelConfig(size="base"), train=TrainConfig(schedule="cosine"))
    assert wide.train.learning_rate == pytest.approx(7.5e-4)


def test_a_rate_that_cannot_be_a_peak_is_refused():
    TrainConfig(schedule="paper", learning_rate=2.0).refuse_impossible_rate()
    with pytest.raises(InputError, match="learning_rate = 1 is too high: no model learns at it"):
        TrainConfig(schedule="cosine", learning_rate=1.0).refuse_impossible_rate()
