"""From a translation recipe to the work that engines are compared on."""

import dataclasses

from heedful import settings
from heedful.bench.work import Work
from heedful.config import ModelConfig, TrainConfig
from heedful.data.encoded import encode
from heedful.errors import InputError
from heedful.recipes import find_recipe
from heedful.tasks.translate import Translate, corpora, examples_of, train_tokenizers

SHAPES = 10  # of single pairs, which is what KerasHub is compiled for; torch needs none
RANDOM_PAIRS = 64  # of a batch in the tutorials
FIXED = ("data.batch_tokens", "data.batch_sentences")  # settings of data that are said otherwise
FREE = ("model.dropout", "train.precision")  # settings that all engines can follow, besides data and tokenizer


def prepare(recipe, overrides, size, batch_tokens):
    """Return the `Work` of a recipe.

    Args:
        recipe: name or path.
        overrides: settings as arguments, `["--model.dropout", "0", ...]`.
        size: one of the named sizes of a model.
        batch_tokens: tokens of a batch, padding included.

    Raises:
        InputError: the recipe is no translation with a joint vocabulary, its text is missing, or a setting would be
            ignored.
    """
    config = settings.of_recipe(find_recipe(recipe), overrides)
    given = [name for name, origin in settings.origins(None, overrides).items() if origin == "command line"]
    for name in given:
        if name in FIXED or (name not in FREE and not name.startswith(("data.", "tokenizer."))):
            raise InputError(
                f"{name} is not compared: sizes and batches are those of --size and --batch-tokens; settings may be "
                f"those of data and tokenizer, {' and '.join(FREE)}."
            )
    if config.task != Translate.name or not config.tokenizer.joint:
        raise InputError("Engines are compared on a translation recipe with a joint vocabulary.")
    text = corpora(config)["train"]
    tokenizer, _ = train_tokenizers(config, text)
    pairs = encode(text, tokenizer, tokenizer, config.data.max_tokens)
    data = dataclasses.replace(config.data, batch_tokens=batch_tokens, batch_sentences=0)
    rows_of_their_own = dataclasses.replace(data, max_shapes=SHAPES, pack_tokens=0)
    at_random = dataclasses.replace(rows_of_their_own, max_shapes=1, batch_sentences=RANDOM_PAIRS)
    ways = (dataclasses.replace(config, data=each) for each in (data, rows_of_their_own, at_random))
    model = ModelConfig(size=size, tie="all", dropout=config.model.dropout)
    train = TrainConfig(precision=config.train.precision, label_smoothing=0.1)
    return Work(*(examples_of(way, pairs) for way in ways), len(tokenizer), model, train)
