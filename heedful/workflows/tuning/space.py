"""The settings that tuning tries: for each question some choices, each a set of values."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from heedful.config import Config, ModelConfig
from heedful.config.idle_settings import is_of_task
from heedful.core.plugins import find_task

Settings = dict[str, Any]  # values by the full names of settings
Space = dict[str, list[Settings]]  # choices by question

FACTORS = (0.5, 1.0, 2.0)  # times the width and the batch of the config
RATES = (0.5, 1.0, 2.0)  # times the learning rate of the config
SMALLEST_TEXT = 20  # times the vocabulary, in lines: with fewer, most of its entries are rare


def search_space(config: Config, lines: int) -> Space:
    """Return the choices for the text of a config, of a given number of lines: around the sizes of the config.

    They are those by which published recipes for small text differ. The vocabulary is a question only where scores do
    not depend on it (BLEU does not, a loss per token does), and depths per side where there are two sides. A model that
    is trained further keeps its sizes and its vocabulary. A question about settings of other tasks is left out.
    """
    space: Space = {} if config.train.init_from else _sizes(config, lines)
    space |= {
        "dropout": [{"model.dropout": rate} for rate in sorted({0.1, 0.2, 0.3, config.model.dropout})],
        "smoothing": [{"train.label_smoothing": share} for share in (0.0, 0.1, 0.2)],
        "optimizer": [{"train.optimizer": name} for name in ("adam", "muon")],
        "rate": [{"rate": factor} for factor in RATES],
        "passes": [
            {"train.consistency": "none", "model.token_dropout": 0.0},
            {"train.consistency": "sim_cut", "model.token_dropout": 0.05},
        ],
    }
    if config.train.lora_rank or config.train.rate_factors:  # which Muon does not allow
        del space["optimizer"]
    tokens = config.data.batch_tokens
    if not config.data.batch_sentences and isinstance(tokens, int):
        space["batch"] = [{"data.batch_tokens": round(factor * tokens)} for factor in FACTORS]
    return {
        question: choices for question, choices in space.items()
        if question == "rate" or all(is_of_task(config.task, name) for name in choices[0])
    }  # fmt: skip


def _sizes(config: Config, lines: int) -> Space:
    """Return the choices for the sizes of a model."""
    space: Space = {}
    if len(widths := _widths(config.model)) > 1:
        space["width"] = widths
    if find_task(config.task).translates:
        depths = sorted({(2, 2), (3, 3), (4, 4), (6, 2), (6, 6), tuple(config.model.depths.values())})
        space["depth"] = [{"model.encoder_layers": up, "model.decoder_layers": down} for up, down in depths]
        sizes = [size for size in (1000, 2000, 4000, 8000, 16000) if size * SMALLEST_TEXT <= 8 * lines]
        if config.tokenizer.kind in ("bpe", "unigram") and len(sizes) > 1:
            space["vocabulary"] = [{"tokenizer.vocab_size": size} for size in sizes]
    else:
        space["depth"] = [{"model.num_layers": depth} for depth in sorted({2, 3, 4, 6, config.model.num_layers})]
    return space


def _widths(model: ModelConfig) -> list[Settings]:
    """Return the widths to try, with heads of the same size, and the same ratio of `d_ff` to the width."""
    if model.head_dim or model.num_kv_heads:
        return []
    sizes = ([round(factor * size) for size in (model.d_model, model.num_heads, model.d_ff)] for factor in FACTORS)
    return [
        {"model.d_model": width, "model.num_heads": heads, "model.d_ff": d_ff}
        for width, heads, d_ff in sizes
        if heads and width * model.num_heads == heads * model.d_model and width % (2 * heads) == 0
    ]  # fmt: skip


def draw_trials(space: Space, count: int, seed: int, config: Config) -> list[Settings]:
    """Return the settings of `count` trials; in these, every choice of a question is equally frequent (within one).

    So the means of the trials with each choice can be compared (a Latin hypercube, McKay et al. 1979). Rates are
    relative to that of the config, and fall with the width as the default does.
    """
    generator = random.Random(seed)
    columns = []
    for choices in space.values():
        column = [choices[index % len(choices)] for index in range(count)]
        generator.shuffle(column)
        columns.append(column)
    rows = (dict(pair for choice in row for pair in choice.items()) for row in zip(*columns, strict=True))
    return [_with_rate(row, config) for row in rows]


def _with_rate(settings, config):
    """Replace the factor `rate` by the learning rate."""
    factor = settings.pop("rate", None)
    if factor is not None:
        width = settings.get("model.d_model", config.model.d_model)
        rate = config.train.rate(config.model.d_model) / config.train.default_rate(config.model.d_model)
        settings["train.learning_rate"] = float(f"{factor * rate * config.train.default_rate(width):.2g}")
    return settings


def choice_of(settings: Mapping[str, Any], choices: Sequence[Settings]) -> Settings | None:
    """Return which of the choices of a question some settings have; None: another one."""
    return next((choice for choice in choices if all(settings.get(name) == choice[name] for name in choice)), None)
