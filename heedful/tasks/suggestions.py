"""Settings for a text that comes without a recipe, each with its reason.

They follow rules derived from the bundled recipes, each of which was tuned on its own text.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

TOKENS_PER_WORD = 1.4
# Tokens per word by the largest size of the vocabulary: means of software strings, captions and documentation.
TOKENS_OF_SMALL_VOCABULARIES = {500: 3.2, 1000: 2.4, 2000: 2.0, 4000: 1.67}
WORDS_PER_ENTRY = 80  # of the vocabulary: a rare entry is learned badly
VOCABULARIES = (500, 1000, 2000, 4000, 8000, 16000, 32000)
ENTRIES_PER_WIDTH = 64  # with more, the output layer costs more than the blocks
# Width, heads, layers, and the number of words from which they pay: the first is for accelerators, or days, the last
# for short trainings.
SIZES = ((512, 8, 6, 50_000_000), (256, 8, 6, 2_000_000), (128, 8, 4, 0), (64, 4, 4, 0))
NARROW_RATES = {64: 6e-3}  # peaks of the learning rate by width, where the default is too low
MUON_RATES = {64: 6e-3, 128: 5e-3}  # peaks for Muon by width; other widths were not measured
ADAM_ONLY = ("train.init_from", "train.lora_rank", "train.rate_factors")  # given, these keep Adam
FEW_UPDATES = 1000  # a training with fewer gains more from a narrower model, which does more of them
EFFICIENCY = 0.35  # share of the rate of matrix products that a training reaches
NARROW_EFFICIENCY = 0.25  # the same of models of width 64 or less
MAX_UPDATES = 10**9
PREPARATION = 60  # seconds to plan, compile and validate; at most half of the training
LONG_WORD = 12  # characters: text with longer "words" has no spaces between its words
CHARACTERS = 2  # of a word in such text
SHORT_TEXT, LONGEST_TEXT = 64, 512  # tokens
PAIRS_PER_ROW = 4  # of average length, where pairs are packed
MARGIN = 1.5  # of the limit of a text over the tokens that most texts have
ACCELERATOR_TOKENS = 25_000  # of a batch

Given = Mapping[str, Any]  # the settings that the user gives, by their full names


class Suggestion(NamedTuple):
    """Values of settings by their full names, None for the default, and why."""

    values: Mapping[str, Any]
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFacts:
    """What the choice of settings depends on.

    Args:
        words: of all texts, on all sides.
        long: words of a side that 99 % of the texts do not exceed.
        mean: words of a side, on average.
        sides: of each text: 2 for pairs.
        has_spaces: whether there are spaces between the words, on all sides.
        seconds: for the training; 0: `updates` counts.
        updates: of the training, if it is counted in updates.
        operations: per second, of matrix products on this machine.
        accelerator: whether it has one.
    """

    words: int
    long: int
    mean: float = 0.0
    sides: int = 1
    has_spaces: bool = True
    seconds: float = 0.0
    updates: int = 0
    operations: float = 0.0
    accelerator: bool = False

    @property
    def tokens(self) -> float:
        """The estimated number of tokens on all sides."""
        return TOKENS_PER_WORD * self.words

    @property
    def batch_tokens(self) -> int:
        """The tokens of a batch on one side: small text is learned faster in small batches."""
        return ACCELERATOR_TOKENS if self.accelerator else 1536 if self.words < 1_000_000 else 3072

    def passes(self, width: int, layers: int, vocabulary: int) -> float:
        """Return about how often a model reads the whole text: six operations for each weight and token."""
        if not self.seconds:
            return self.updates * self.sides * self.batch_tokens / self.tokens
        weights = 12 * width**2 * layers + width * vocabulary / self.sides
        efficiency = NARROW_EFFICIENCY if width <= SIZES[-1][0] else EFFICIENCY
        seconds = max(self.seconds - PREPARATION, self.seconds / 2)
        return efficiency * self.operations * seconds / (6 * weights * self.tokens)

    def updates_in(self, passes: float) -> int:
        """Return the number of updates in which the whole text is read `passes` times."""
        return max(1, round(passes * self.tokens / (self.sides * self.batch_tokens)))


def facts_of(texts: Iterable[Sequence[str]], **more: Any) -> TextFacts:
    """Return the facts about a text, whose sides may be in scripts with and without spaces; `more`: other fields."""
    words, characters, lengths = Counter[int](), Counter[int](), list[Counter[int]]()
    for sides in texts:
        for number, side in enumerate(sides):
            count = sum(1 for _ in re.finditer(r"\S+", side))
            if number == len(lengths):
                lengths.append(Counter())
            lengths[number][count] += 1
            words[number] += count
            characters[number] += len(side)
    scales = [
        characters[number] / CHARACTERS / words[number] if characters[number] > LONG_WORD * words[number] > 0 else 1.0
        for number in range(len(lengths))
    ]
    total = sum(scale * words[number] for number, scale in enumerate(scales))
    long = max((scale * _quantile(counts, 0.99) for scale, counts in zip(scales, lengths, strict=True)), default=0)
    mean = total / max(1, sum(counts.total() for counts in lengths))
    has_spaces = all(scale == 1 for scale in scales)
    return TextFacts(
        words=round(total), long=round(long), mean=mean, sides=max(1, len(lengths)), has_spaces=has_spaces, **more
    )


def _quantile(counts, share):
    left = share * counts.total()
    for length in sorted(counts):
        left -= counts[length]
        if left <= 0:
            break
    return length


def model_suggestions(facts: TextFacts, given: Given) -> list[Suggestion]:
    """Return the suggestions for size, vocabulary, dropout and schedule of a model, beside what is given."""
    width, heads, layers = _size(facts, given)
    vocabulary = _vocabulary(facts, width, given)
    passes = facts.passes(width, layers, vocabulary)
    read = f"{facts.words:,} words, which this model reads about {times(passes)}"
    updates = facts.updates_in(passes)
    return [
        Suggestion(
            {
                "model.size": None, "model.num_layers": layers, "model.d_model": width, "model.num_heads": heads,
                "model.d_ff": 4 * width,
            },
            f"{read} in {facts.seconds / 60:g} minutes at {facts.operations / 1e9:,.0f} GFLOP/s" if facts.seconds else
            f"{read} in {facts.updates:,} updates",
        ),
        Suggestion(
            {"tokenizer.vocab_size": vocabulary},
            f"{facts.words:,} words are {facts.words // vocabulary:,} for each entry"
            if facts.words >= VOCABULARIES[0] * WORDS_PER_ENTRY else
            f"{facts.words:,} words are enough for the smallest vocabulary only",
        ),
        Suggestion(
            {"model.dropout": 0.3 if passes > 25 else 0.2 if passes > 4 else 0.1}, f"the text is read {times(passes)}"
        ),
        Suggestion({"train.learning_rate": _rate(NARROW_RATES, width, given)}, f"the width is {width}"),
        schedule_suggestion(facts, updates, min(2 * updates, MAX_UPDATES)),
    ]  # fmt: skip


def optimizer_suggestion(facts: TextFacts, given: Given) -> Suggestion | None:
    """Return the suggestion for the optimizer of a translator, beside what is given; None: that of the recipe."""
    width = _size(facts, given)[0]
    if given.get("train.optimizer", "muon") != "muon" or any(given.get(name) for name in ADAM_ONLY):
        return None
    if width not in MUON_RATES:
        return None
    return Suggestion(
        {"train.optimizer": "muon", "model.residual_init": 0.2, "train.learning_rate": _rate(MUON_RATES, width, given)},
        f"Muon learns more than Adam in the same time, at width {width}",
    )


def _rate(rates, width, given):
    """Return the peak of the learning rate for a width, or None: the default.

    The default also applies to the schedule paper, whose learning rate is a factor, and to models that are trained
    further.
    """
    return None if given.get("train.schedule") == "paper" or given.get("train.init_from") else rates.get(width)


def _size(facts, given):
    """Return width, heads and layers: the first size that suits, or the last."""
    width, heads, layers, _ = next((size for size in SIZES[:-1] if _suits(facts, given, *size)), SIZES[-1])
    layers = given.get("model.num_layers", layers)
    if "model.d_model" in given:
        width, heads = given["model.d_model"], SIZES[0][1]
    return width, max(count for count in range(1, heads + 1) if width % count == 0), layers


def _suits(facts, given, width, heads, layers, words):
    """Return whether a model of a size reads the text at least once, in enough updates."""
    passes = facts.passes(width, layers, _vocabulary(facts, width, given))
    if not facts.seconds:  # a narrower model would do no more updates
        return facts.words >= words and (passes >= 1 or not words)
    return facts.words >= words and passes >= 1 and facts.updates_in(passes) >= FEW_UPDATES


def _vocabulary(facts, width, given):
    """Return the size of the vocabulary for a model of a width."""
    suitable = [
        count for count in VOCABULARIES if count * WORDS_PER_ENTRY <= facts.words and count <= ENTRIES_PER_WIDTH * width
    ]
    return given.get("tokenizer.vocab_size", max(suitable, default=VOCABULARIES[0]))


def schedule_suggestion(facts: TextFacts, updates: int, maximum: int) -> Suggestion:
    """Return the suggestion for time, updates and schedule of a training of about `updates`, and at most `maximum`."""
    values: dict[str, Any] = {"train.schedule": "cosine"}
    values |= {"train.minutes": facts.seconds / 60, "train.updates": maximum} if facts.seconds else {
        "train.minutes": None
    }  # fmt: skip
    return Suggestion(values | intervals(updates), f"about {updates:,} updates; the learning rate falls along a cosine")


def intervals(updates: int) -> dict[str, int]:
    """Return the settings of a training of some updates that count updates: the warm-up, and between validations."""
    return {
        "train.warmup_updates": min(600, max(1, updates // 5)),
        "train.validate_every": min(1000, max(10, updates // 10)),
    }


def tokens_per_word(facts: TextFacts, given: Given) -> float:
    """Return about how many tokens of the suggested vocabulary a word has."""
    vocabulary = _vocabulary(facts, _size(facts, given)[0], given)
    return next(
        (tokens for size, tokens in TOKENS_OF_SMALL_VOCABULARIES.items() if vocabulary <= size), TOKENS_PER_WORD
    )


def length_suggestion(facts: TextFacts, given: Given, per_word: float = TOKENS_PER_WORD) -> Suggestion:
    """Return the suggestion for the lengths of texts, whose words have about `per_word` tokens."""
    tokens = SHORT_TEXT
    while tokens < min(LONGEST_TEXT, MARGIN * per_word * facts.long):
        tokens *= 2
    tokens = given.get("data.max_tokens") or min(tokens, given.get("model.max_length", tokens))
    packing = {"data.pack_tokens": _row_tokens(per_word * facts.mean, tokens)} if facts.sides > 1 else {}
    return Suggestion(
        {"data.max_tokens": tokens, "model.max_length": 2 * tokens} | packing,
        f"99 % of the texts have at most {facts.long:,} words, and a text has {facts.mean:.3g} on average",
    )


def _row_tokens(mean, max_tokens):
    """Return the length of rows that hold several pairs each, so that short pairs are not padded; 0: no packing.

    `mean`: tokens of a side, on average.
    """
    row = SHORT_TEXT // 2
    while 2 * row <= max_tokens // 2 and row < PAIRS_PER_ROW * mean:
        row *= 2
    return row if 1.5 * mean <= row <= max_tokens // 2 else 0


def batch_suggestion(facts: TextFacts, given: Given) -> Suggestion:
    """Return the suggestion for the size of batches."""
    if "data.batch_sentences" in given:
        return Suggestion({"data.batch_tokens": None}, "batches are counted in sentences")
    where = "on an accelerator" if facts.accelerator else "on a CPU"
    return Suggestion({"data.batch_tokens": facts.batch_tokens}, f"{facts.words:,} words, {where}")


def times(passes: float) -> str:
    """Return how often a text is read, in words."""
    return f"{passes:,.0f} times" if passes >= 9.5 else f"{passes:.1g} times" if passes >= 1.5 else "once or less"
