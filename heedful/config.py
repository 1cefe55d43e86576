"""The configuration of a run: frozen dataclasses, checked when they are created; TOML and JSON in, JSON out."""

import dataclasses
import json
import tomllib
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from heedful.architecture import Architecture
from heedful.checked import at_least, at_most, from_dict, positive, read_json, share
from heedful.errors import InputError, InputWarning
from heedful.plugins import find_task

FORMAT = 1
DRAWING = ("temperature", "top_k", "top_p", "min_p")  # settings of decoding that only sampling uses
SEARCHING = ("coverage_penalty", "stop")  # settings that only beam search uses
OF_SOURCE = ("coverage_penalty", "min_ratio", "max_ratio", "max_extra")  # settings that need a source text

PARTS = ("train", "valid", "test")
SIZED = ("num_layers", "d_model", "num_heads", "d_ff")  # the fields that a named size sets
SIZES = {
    "toy": (2, 128, 8, 256),
    "tiny": (4, 128, 4, 256),
    "tutorial": (4, 128, 8, 512),
    "base": (6, 512, 8, 2048),
    "big": (6, 1024, 16, 4096),
}


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the text comes from and how it becomes batches."""

    corpus: Literal["files", "phrasebook", "reverse"] = "files"
    """Text files, or a built-in corpus: the Portuguese-English phrasebook, or the reversal puzzle."""
    train: tuple[str, ...] = ()
    """Training text, plain or .gz. translate: source file and target file, or one .tsv file. classify: a label, a
    tab or a space, and a text on each line. generate, fill: any number of files."""
    valid: tuple[str, ...] = ()
    """Validation text, in the same form."""
    test: tuple[str, ...] = ()
    """Test text, in the same form. It is never read during training, and scored at the end."""
    origin: str = ""
    """Where such text can be found; printed when a file is missing."""
    held_out: float = 0.1
    """generate, fill, classify: without validation files, the share of the training text, at its end, that is used for
    validation."""
    documents: Literal["whole", "lines", "paragraphs", "labelled"] = "whole"
    """generate, fill: what a document is: a whole file, a line, a paragraph between blank lines, or a line without its
    label."""
    packing: Literal["stream", "documents"] = "stream"
    """generate: cut windows from one stream of all text, or pack documents into rows, where they cannot attend to each
    other."""
    pack_tokens: int = 0
    """translate: tokens, on each side, of the rows into which pairs are packed; pairs in one row cannot attend to each
    other. Longer pairs have rows of their own. 0: no packing."""
    mask_share: float = 0.15
    """fill: share of the tokens that are masked."""
    whole_words: bool = False
    """fill: mask all subwords of a word, or none."""
    labels: tuple[str, ...] = ()
    """classify: the classes. Empty: those of the training text."""
    sentences: int = 40_000
    """Sentences in the training part of a built-in corpus."""
    length: int = 10
    """Length of a sequence of the `reverse` puzzle."""
    repeats_counted_in: Literal["input", "output"] = "input"
    """`reverse`: X replaces every even occurrence of a token, counted in the order of the input, as in the annotated
    Transformer tutorial, or of the reversed output, as in heedful 0.1.0."""
    max_tokens: int = 100
    """Length limit in tokens. translate: pairs with a longer source or target are left out. generate: tokens of a
    window or row. fill, classify: longer texts are cut."""
    batch_tokens: int | Literal["auto"] = 4096
    """Tokens in a batch, padding included, counted on the longer side. auto: as many as fit into memory."""
    batch_sentences: int = 0
    """Sentences (or packed rows) in a batch. 0: use `batch_tokens` instead."""
    max_shapes: int = 10
    """Largest number of different batch shapes; each is compiled once."""
    planned_updates: int = 0
    """translate: number of updates for which the batch shapes are chosen, since more shapes pay off in a long training.
    0: that of train.updates when the run is created. A run keeps the number, so it keeps its batches when it is made
    longer."""

    def __post_init__(self):
        positive(self, "sentences", "length", "max_tokens", "max_shapes")
        at_most(self, sentences=10**7, length=10**4, max_tokens=10**6, max_shapes=10**3)
        if self.batch_tokens != "auto":
            positive(self, "batch_tokens")
            at_most(self, batch_tokens=10**7)
        elif self.batch_sentences:
            raise InputError("batch_tokens = 'auto' leaves nothing to batch_sentences: set one of them.")
        at_most(self, batch_sentences=10**6)
        at_least(self, 0, "batch_sentences", "pack_tokens")
        at_most(self, pack_tokens=10**5)
        at_least(self, 0, "planned_updates")
        if len(set(self.labels)) < len(self.labels):
            raise InputError("labels names a class twice.")
        share(self, "held_out", "mask_share")
        if not self.mask_share:
            raise InputError("mask_share (0.0) must be above 0: there would be nothing to learn.")


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How text is converted to token ids."""

    kind: Literal["bpe", "wordpiece", "unigram", "word", "char"] = "bpe"
    """bpe and unigram work on bytes and reproduce any text exactly; wordpiece splits as BERT does; word: words and
    punctuation marks; char: characters."""
    vocab_size: int = 8000
    """Largest number of entries in a vocabulary, special tokens included."""
    joint: bool = True
    """translate: whether both languages share one vocabulary."""
    lowercase: bool = False
    """Convert text to lower case first (wordpiece strips accents too, as BERT does)."""
    prefix_space: bool = False
    """bpe, unigram: read each line as if it began with a space, so that its first word has the same token as within a
    line. For tasks that read whole texts (translate, classify)."""
    clean_up_spaces: bool = True
    """wordpiece: remove the spaces before punctuation marks and within English contractions from decoded text. Set it
    to false for text that has such spaces itself."""

    def __post_init__(self):
        positive(self, "vocab_size")
        at_most(self, vocab_size=10**7)

    def keywords(self):
        """Return what a vocabulary is learned with, as `Tokenizer.train` takes it."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "joint"}


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Architecture):
    """The architecture of a run's model. Sizes that are not given are those of `size`."""

    size: Literal["toy", "tiny", "tutorial", "base", "big"] = "tutorial"
    """Name of a set of sizes: num_layers, d_model, num_heads and d_ff."""
    # None until __post_init__ puts the number of `size` there
    num_layers: int | None = None  # type: ignore[assignment]
    d_model: int | None = None  # type: ignore[assignment]
    num_heads: int | None = None  # type: ignore[assignment]
    d_ff: int | None = None  # type: ignore[assignment]
    pooling: Literal["mean", "first"] = "mean"
    """classify: from the mean of all tokens' vectors, or from the first one's."""
    untrained_head: bool = False
    """fill: whether the head that predicts masked tokens is untrained, as in an imported encoder that has none: it can
    embed texts and start other trainings, but not fill gaps."""

    def __post_init__(self):
        for name, value in zip(SIZED, SIZES[self.size], strict=True):
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        positive(self, "num_layers", "d_model", "num_heads", "d_ff", "max_length", "norm_epsilon")
        at_most(self, num_layers=10**4, d_model=10**5, num_heads=10**5, d_ff=10**6, max_length=10**7)
        share(self, "dropout", "attention_dropout")
        if self.d_model % self.num_heads:
            below = self.d_model // self.num_heads * self.num_heads
            choices = [str(size) for size in (below, below + self.num_heads) if size]
            raise InputError(
                f"d_model ({self.d_model}) must be a multiple of num_heads ({self.num_heads}): "
                f"try {' or '.join(choices)}."
            )
        if self.num_kv_heads is not None and (self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads):
            raise InputError(f"num_heads ({self.num_heads}) must be a multiple of num_kv_heads ({self.num_kv_heads}).")
        if self.positions.startswith("sinusoidal") and self.d_model % 2:
            raise InputError(f"d_model ({self.d_model}) must be even for sinusoidal positions.")
        if self.positions == "rotary" and self.d_model // self.num_heads % 2:
            raise InputError(
                f"d_model / num_heads ({self.d_model // self.num_heads}) must be even for rotary positions."
            )

    def keywords(self):
        """Return the fields of the `Architecture`, as keyword arguments of a model."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(Architecture)}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the model is trained. Everything is counted in updates (steps of the optimizer)."""

    start_from: str = ""
    """translate, classify: a run of task fill that provides the tokenizer, the sizes and the encoder."""
    freeze: bool = False
    """Whether the weights that come from `start_from` are frozen."""
    updates: int = 8000
    """Updates of the whole training; with `minutes` at most."""
    minutes: float = 0.0
    """Stop after this many minutes of training, validation included; 0: no limit. Where the schedule has an end
    (cosine), a new run measures its speed first, replaces `updates` by what fits into the minutes, and so ends its
    schedule in time."""
    schedule: Literal["paper", "inverse_square_root", "cosine", "constant"] = "paper"
    """Learning rate after the warm-up: as in the paper (Vaswani et al. 2017, section 5.3), falling with the square root
    of the update, falling along a cosine until `updates`, or constant."""
    learning_rate: float = 1.0
    """Highest learning rate; with the paper's schedule a factor of it."""
    final_learning_rate: float = 0.0
    """Learning rate at the end of the cosine."""
    warmup_updates: int = 4000
    """Updates in which the learning rate rises from zero to its highest value."""
    label_smoothing: float = 0.1
    """Share of the target distribution that is spread over all words (Szegedy et al. 2016, section 7)."""
    clip_norm: float = 0.0
    """Largest global norm of a gradient. 0: no clipping."""
    weight_decay: float = 0.0
    """Decoupled decay of matrices, as in AdamW; biases and norms do not decay."""
    beta_2: float = 0.98
    """Adam's decay rate of the second moment."""
    accumulate: int = 1
    """Batches whose gradients are accumulated for one update, weighted by their tokens."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Type of the computation. bfloat16 is faster on GPUs and on processors with units for it; weights stay float32."""
    seed: int = 1
    """Seed of the initial weights, of dropout, and of the order of the data."""
    validate_every: int = 500
    """Updates between validations; the state is saved after each."""
    validate_sentences: int = 200
    """translate: validation sentences that are decoded for BLEU. 0: none."""
    prompt: str = "\n"
    """generate: the prompt of the sample text at each validation."""
    patience: int = 0
    """Validations without a better score after which training stops. 0: never."""
    best_by: str | None = None
    """Score that selects the best state. By default bleu for translate, accuracy for classify, otherwise loss."""
    keep: int = 5
    """Number of training states that are kept, the most recent ones."""
    average: int = 0
    """Number of last states whose weights are averaged at the end; the average is used if it scores no worse than the
    best single state. 0 or 1: no average."""
    tensorboard: bool = True
    """Whether the log is written for TensorBoard too."""
    examine: bool = True
    """Whether the training text is examined first, as `heedful doctor` does: up to 200,000 rows. Nothing is changed."""
    check: bool = True
    """Whether model, text and training are checked before the first update; a failed check stops the training."""

    def __post_init__(self):
        positive(self, "updates", "accumulate", "validate_every", "keep", "learning_rate")
        at_least(self, 0, "minutes", "final_learning_rate", "warmup_updates", "clip_norm", "weight_decay", "seed")
        at_least(self, 0, "validate_sentences", "patience", "average")
        at_most(self, updates=10**9, accumulate=10**5, validate_every=10**9, validate_sentences=10**7, keep=10**4)
        at_most(self, seed=2**32 - 1)
        share(self, "label_smoothing", "beta_2")
        if self.average > self.keep:
            raise InputError(f"train.average ({self.average}) cannot exceed train.keep ({self.keep}).")

    @property
    def schedule_ends(self):
        """Whether the learning rate comes down to its final value at `updates`."""
        return self.schedule == "cosine"

    @property
    def policy(self):
        """Keras' name of the precision: weights stay float32."""
        return {"float32": "float32", "bfloat16": "mixed_bfloat16"}[self.precision]


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """How text is decoded."""

    batch_size: int = 64
    """Sentences that are decoded at the same time."""
    beam_size: int = 1
    """Hypotheses that are kept. 1: greedy search."""
    n_best: int = 1
    """Results for each line, best first."""
    length_penalty: float = 1.0
    """Exponent a of the length normalisation of scores in beam search. 0: plain log-probabilities, which favour short
    text."""
    length_norm: Literal["gnmt", "average"] = "average"
    """Scores are divided by ((5 + length) / 6)^a (gnmt) or length^a (average)."""
    coverage_penalty: float = 0.0
    """Strength of the penalty for source tokens that received little attention (Wu et al. 2016)."""
    stop: Literal["attainable", "width"] = "attainable"
    """When beam search ends: as soon as no better result is possible, or when as many hypotheses as the beam is wide
    have ended."""
    precision: Literal["as_trained", "float32", "bfloat16", "int8"] = "as_trained"
    """Type of the matrix products. bfloat16 and int8 are faster on processors with units for them, but now and then a
    translation depends on the batch size. All else is float32, also after a training in bfloat16."""
    sample: bool = False
    """Sample tokens instead of searching for the most likely ones."""
    temperature: float = 1.0
    """Sampling: below 1 sharpens the distribution, above 1 flattens it."""
    top_k: int = 0
    """Sampling: only from this many most likely words. 0: all."""
    top_p: float = 1.0
    """Sampling: only from the smallest set of words with this total probability."""
    min_p: float = 0.0
    """Sampling: only from words that are at least this share as likely as the most likely one."""
    seed: int = 1
    """Sampling: the same seed gives the same text for any batch size."""
    repetition_penalty: float = 1.0
    """Above 1: makes tokens that were already written less likely (Keskar et al. 2019)."""
    no_repeat_ngram: int = 0
    """Length of the token sequences that may not occur twice. 0: no rule. generate: prompt and text must fit the
    context."""
    forbidden: tuple[str, ...] = ()
    """Tokens, as spelled in the vocabulary, that are never written."""
    min_length: int = 0
    """Smallest number of tokens of a result."""
    min_ratio: float = 0.0
    """translate: smallest number of tokens of a result for each source token."""
    max_length: int = 0
    """Largest number of tokens of a result. 0: what the model can write (generate: 200)."""
    max_ratio: float = 2.0
    """translate: largest number of tokens of a result for each source token, before `max_extra`."""
    max_extra: int = 10
    """translate: number of tokens that a result may have beyond `max_ratio`."""

    def __post_init__(self):
        positive(self, "batch_size", "beam_size", "n_best", "max_ratio", "temperature", "repetition_penalty")
        at_least(self, 0, "max_extra", "length_penalty", "coverage_penalty", "top_k", "no_repeat_ngram", "seed")
        at_least(self, 0, "min_length", "max_length", "min_ratio")
        at_most(self, batch_size=10**5, beam_size=10**4, n_best=10**4, max_length=10**7, seed=2**32 - 1)
        share(self, "min_p")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p ({self.top_p}) must be above 0 and at most 1.")
        if self.max_length and self.min_length > self.max_length:
            raise InputError(f"min_length ({self.min_length}) cannot exceed max_length ({self.max_length}).")
        if self.min_ratio > self.max_ratio:
            raise InputError(f"min_ratio ({self.min_ratio}) cannot exceed max_ratio ({self.max_ratio}).")
        if self.sample and self.beam_size > 1:
            raise InputError("Sampling has no beam: set beam_size = 1, or sample = false.")
        if not self.sample and self.n_best > self.beam_size:
            raise InputError(
                f"n_best ({self.n_best}) cannot exceed beam_size ({self.beam_size}), unless tokens are sampled."
            )

    def for_call(self, **options):
        """Return the settings with `options` in place of some.

        Raises:
            InputError: values contradict each other, or one of the options would do nothing.
        """
        made = dataclasses.replace(self, **options)
        made.refuse_idle(options)
        return made

    def refuse_idle(self, names):
        """Refuse names of settings that were given, and that a search with these settings does not use."""
        if not self.sample and (idle := [name for name in DRAWING if name in names]):
            raise InputError(f"{idle[0]} says how to draw tokens: it goes with sample.")
        if self.beam_size == 1 and (idle := [name for name in SEARCHING if name in names]):
            raise InputError(f"{idle[0]} is for beam search: it goes with a beam_size above 1.")

    def most(self, source_length, room):
        """Return the most tokens that `source_length` tokens may become in a model that writes up to `room`."""
        most = min(int(source_length * self.max_ratio + self.max_extra), room)
        return min(most, self.max_length) if self.max_length else most


@dataclass(frozen=True, kw_only=True)
class Config:
    """A complete run."""

    format: int = FORMAT
    """Version of this format; a newer one is refused."""
    task: str = "translate"
    """What the model is for: `translate` (encoder-decoder), `generate` (decoder-only), `fill` (encoder-only),
    `classify` (an encoder with classes), or a task of another package."""
    name: str = "run"
    """The run folder is runs/NAME unless --run says otherwise."""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self):
        if self.format > FORMAT:
            raise InputError(
                f"This run has format {self.format}; this version of heedful reads up to {FORMAT}. Upgrade heedful."
            )
        if self.model.tie == "all" and not self.tokenizer.joint:
            raise InputError("model.tie = 'all' needs one vocabulary: set tokenizer.joint = true, or tie = 'target'.")
        task = find_task(self.task)
        if self.train.best_by is None:
            train = dataclasses.replace(self.train, best_by=task.default_selection(self))
            object.__setattr__(self, "train", train)
        if self.train.best_by not in task.selected_by:
            raise InputError(
                f"train.best_by = {self.train.best_by!r} is no score of task = {self.task!r}, which has "
                f"{', '.join(task.selected_by)}."
            )
        if self.data.corpus not in task.corpora:
            raise InputError(
                f"The built-in corpus {self.data.corpus!r} is not for task = {self.task!r}; name files in data.train."
            )
        if self.tokenizer.prefix_space and not task.whole_texts:
            raise InputError(
                f"tokenizer.prefix_space is for tasks that read whole texts: those of task = {self.task!r} are cut "
                "anywhere."
            )
        task.check_config(self)
        if task.limits_length(self) and self.data.max_tokens > self.model.max_length:
            raise InputError(
                f"data.max_tokens ({self.data.max_tokens}) cannot exceed model.max_length ({self.model.max_length})."
            )
        if self.train.start_from and not task.starts_from:
            raise InputError(
                f"train.start_from is not for task = {self.task!r}: nothing of another run fits its model."
            )
        if self.train.freeze and not self.train.start_from:
            raise InputError("train.freeze needs train.start_from: there is nothing to keep as it is.")

    def planned_as(self, made):
        """Return this config with its batches planned for as many updates as those of `made`, unless it says itself."""
        return find_task(self.task).plan_updates(self, made)

    @classmethod
    def from_toml(cls, path):
        """Read a recipe.

        Raises:
            InputError: the file is missing, is no TOML, or holds an unknown key or a value out of range.
        """
        return from_dict(cls, read_recipe(path), str(path))

    @classmethod
    def from_json(cls, path):
        """Read the `config.json` of a run folder; errors as in `from_toml`."""
        table = read_json(path)
        if isinstance(table, dict) and isinstance(table.get("format"), int) and table["format"] > FORMAT:
            table = {"format": table["format"]}  # its keys are not ours to judge; the version is
        return from_dict(cls, _with_old_rule(table, path), str(path))

    def to_json(self):
        """Return the whole config as JSON text, defaults included."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"


def _with_old_rule(table, origin):
    """Add to the config of a `reverse` run that heedful 0.1.0 trained the rule that it learned, and warn of it."""
    data = table.get("data") if isinstance(table, dict) else None
    if not isinstance(data, dict) or data.get("corpus") != "reverse" or "repeats_counted_in" in data:
        return table
    warnings.warn(
        f"{origin}: this run learned the puzzle of heedful 0.1.0, which counts repeats in the order of the output "
        "(data.repeats_counted_in = 'output'); the tutorial counts them in the order of the input.",
        InputWarning,
        stacklevel=3,
    )
    return table | {"data": data | {"repeats_counted_in": "output"}}


def read_recipe(path):
    """Return what a recipe says, unchecked: a table of its sections, and its name, which is the file's by default."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: byte {error.start}.") from error
    except (ValueError, RecursionError) as error:  # besides what is no TOML, endless digits and brackets
        raise InputError(f"{path} is not valid TOML: {error}.") from error
    return {"name": Path(path).stem} | table
