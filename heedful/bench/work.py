"""The work that all engines are given: a recipe's text, tokenized, in batches, and the sizes of the model."""

import dataclasses
from dataclasses import dataclass

from heedful.config import ModelConfig, TrainConfig
from heedful.data.encoded import encode
from heedful.data.examples import PlannedExamples
from heedful.jobs.translation import corpora, examples_of, train_tokenizers

SHAPES = 10  # of single pairs, which is what KerasHub is compiled for; torch needs none
RANDOM_PAIRS = 64  # of a batch in the tutorials


@dataclass(frozen=True)
class Work:
    """What is trained on, and what is trained.

    Args:
        packed: examples as the recipe has them; in ours pairs share rows.
        single: the same pairs in rows of their own, in batches as large of pairs of like length.
        random: the same again, in batches of 64 pairs of any length.
        vocab_size: of both sides.
        model: sizes and dropout; tables are tied, norms stand behind the residual, as in the paper.
        train: the recipe's precision, and label smoothing as in the paper.
    """

    packed: PlannedExamples
    single: PlannedExamples
    random: PlannedExamples
    vocab_size: int
    model: ModelConfig
    train: TrainConfig

    @classmethod
    def of_recipe(cls, config, size, batch_tokens):
        """Prepare the text of a translation recipe."""
        text = corpora(config)["train"]
        tokenizer, _ = train_tokenizers(config, text)
        pairs = encode(text, tokenizer, tokenizer, config.data.max_tokens)
        data = dataclasses.replace(config.data, batch_tokens=batch_tokens, batch_sentences=0)
        rows_of_their_own = dataclasses.replace(data, max_shapes=SHAPES, pack_tokens=0)
        at_random = dataclasses.replace(rows_of_their_own, max_shapes=1, batch_sentences=RANDOM_PAIRS)
        ways = (dataclasses.replace(config, data=each) for each in (data, rows_of_their_own, at_random))
        model = ModelConfig(size=size, tie="all", dropout=config.model.dropout)
        train = TrainConfig(precision=config.train.precision, label_smoothing=0.1)
        return cls(*(examples_of(way, pairs) for way in ways), len(tokenizer), model, train)

    @property
    def longest(self):
        """The longest source or target of all shapes, in tokens."""
        return max(length for shape in self.single.plan.shapes for length in shape.lengths)

    @staticmethod
    def first_of_each_shape(examples):
        """Return a batch number for every shape, for warming up."""
        found, number = {}, 0
        while len(found) < len(examples.plan.shapes):
            found.setdefault(examples.shape(number), number)
            number += 1
        return list(found.values())
