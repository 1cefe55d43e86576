"""Settings that suit a text and the time for it, each with its reason.

They lie between those of the recipes that come with the package, which were found by trials on the texts of these.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

TOKENS_PER_WORD = 1.4
WORDS_PER_ENTRY = 80  # of the vocabulary: an entry that occurs seldom is learned badly
VOCABULARIES = (500, 1000, 2000, 4000, 8000, 16000, 32000)
ENTRIES_PER_WIDTH = 64  # with more, the output costs more than the blocks
# Width, heads, layers, and the words from which on it pays; the last one needs an accelerator or days.
SIZES = ((512, 8, 6, 50_000_000), (256, 8, 6, 2_000_000), (128, 8, 4, 0))
EFFICIENCY = 0.35  # share of the rate of matrix products that a training reaches
SHORT_TEXT, LONGEST_TEXT = 64, 512  # tokens
MARGIN = 1.5  # of the limit of a text above the tokens that most have
LONG_WORD = 12  # characters: text with longer "words" has no spaces between its words
CHARACTERS = 2  # of a word in such text


class Suggestion(NamedTuple):
    """Values of settings by their full names, and why."""

    values: Mapping[str, Any]
    reason: str


@dataclasses.dataclass(frozen=True)
class TextFacts:
    """What the choice of settings depends on.

    Args:
        items: number of pairs, texts or documents.
        words: of all of them, on all sides.
        long: words of a side that 99 % of the items do not exceed.
        seconds: for the training.
        operations: per second, of matrix products on this machine.
    """

    items: int
    words: int
    long: int
    seconds: float
    operations: float

    def passes(self, width: int, layers: int, vocabulary: int) -> float:
        """Return about how often a model reads the whole text in the time: six operations for each weight and token."""
        weights = 12 * width**2 * layers + width * vocabulary / 2
        return EFFICIENCY * self.operations * self.seconds / (6 * weights * TOKENS_PER_WORD * self.words)


def facts_of(items: Iterable[Sequence[str]], seconds: float, operations: float) -> TextFacts:
    """Return the facts about the sides of each item of a text."""
    counts, characters, lengths = 0, 0, []
    for sides in items:
        lengths.append(max(len(side.split()) for side in sides))
        counts += sum(len(side.split()) for side in sides)
        characters += sum(map(len, sides))
    scale = 1.0
    if characters > LONG_WORD * counts:
        scale = characters / CHARACTERS / max(1, counts)
    lengths.sort()
    long = lengths[int(0.99 * (len(lengths) - 1))] if lengths else 0
    return TextFacts(len(lengths), round(scale * counts), round(scale * long), seconds, operations)


def suggest_model(facts: TextFacts) -> tuple[int, list[Suggestion]]:
    """Return the width of a model, and the suggestions for its size, its vocabulary and its dropout."""
    size = next(
        one for one in SIZES if facts.words >= one[3] and (one is SIZES[-1] or facts.passes(one[0], one[2], 16000) >= 1)
    )
    width, heads, layers, _ = size
    suitable = [
        count for count in VOCABULARIES if count * WORDS_PER_ENTRY <= facts.words and count <= ENTRIES_PER_WIDTH * width
    ]
    vocabulary = max(suitable, default=VOCABULARIES[0])
    passes = facts.passes(width, layers, vocabulary)
    dropout = 0.3 if passes > 25 else 0.2 if passes > 5 else 0.1
    text = f"{facts.words:,} words"
    return width, [
        Suggestion(
            {"model.num_layers": layers, "model.d_model": width, "model.num_heads": heads, "model.d_ff": 4 * width},
            f"{text}, which this model reads about {passes:.2g} times in {facts.seconds / 60:g} minutes",
        ),
        Suggestion(
            {"tokenizer.vocab_size": vocabulary}, f"{text}: each entry occurs about {facts.words // vocabulary} times"
        ),
        Suggestion({"model.dropout": dropout}, f"the text is read about {passes:.2g} times"),
    ]  # fmt: skip


def suggest_batches(facts: TextFacts, width: int, on_accelerator: bool) -> list[Suggestion]:
    """Return the suggestions for the lengths of texts and the sizes of batches."""
    tokens = SHORT_TEXT
    while tokens < min(LONGEST_TEXT, MARGIN * TOKENS_PER_WORD * facts.long):
        tokens *= 2
    batch = 25_000 if on_accelerator else 1536 if facts.words < 1_000_000 else 3072 if width <= 256 else 8192
    return [
        Suggestion(
            {"data.max_tokens": tokens, "model.max_length": 2 * tokens, "data.max_shapes": 4},
            f"99 % of the texts have at most {facts.long} words",
        ),
        Suggestion(
            {"data.batch_tokens": max(batch, tokens)},
            f"{facts.words:,} words"
            + (", on an accelerator" if on_accelerator else ": more updates of smaller batches"),
        ),
    ]


def suggest_time(facts: TextFacts) -> Suggestion:
    """Return the suggestion for the time and the schedule."""
    return Suggestion(
        {
            "train.minutes": facts.seconds / 60, "train.updates": 1_000_000, "train.schedule": "cosine",
            "train.warmup_updates": 600, "train.clip_norm": 1.0, "train.validate_every": 300,
        },
        "the rate ends at zero with the minutes",
    )  # fmt: skip
