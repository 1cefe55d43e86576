"""Create the work that engines are compared on from a translation recipe."""

import dataclasses

from benchmarks.bench.work import Work
from heedful.config import ModelConfig, TrainConfig, settings
from heedful.config.recipes import find_recipe
from heedful.core.errors import InputError
from heedful.data.encoded import encode
from heedful.tasks.translate import Translate, examples_of
from heedful.tasks.translation_data import corpora, train_tokenizers

SHAPES = 10  # of unpacked batches, each of which KerasHub compiles; torch does not need them
RANDOM_PAIRS = 64  # per batch, as in the tutorials
FIXED = ("data.batch_tokens", "data.batch_sentences")  # data settings that --batch-tokens replaces
FREE = ("model.dropout", "train.precision")  # settings that all engines support, besides data and tokenizer


def prepare(recipe, overrides, size, batch_tokens):
    """Return the `Work` of a recipe.

    Args:
        recipe: name or path.
        overrides: settings as arguments, `["--model.dropout", "0", ...]`.
        size: name of a model size.
        batch_tokens: tokens per batch, including padding.

    Raises:
        InputError: the recipe is not a translation with a joint vocabulary, its text is missing, or a setting would
            be ignored.
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
    packed, single, random = (examples_of(way, pairs) for way in ways)
    return Work(packed, single, random, len(tokenizer), model, train)
