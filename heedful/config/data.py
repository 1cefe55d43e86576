"""The sections [data] and [tokenizer] of a config."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heedful.config.named_texts import find, refuse_training_on_test_text
from heedful.config.protected import protection_of
from heedful.core.errors import InputError
from heedful.core.validation import at_least, at_most, fraction, named_number, positive

PARTS = ("train", "valid", "test")

BUILT_IN = ("phrasebook", "reverse")  # corpora


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the text comes from and how it becomes batches."""

    corpus: str = "files"
    """files: the text files below; phrasebook or reverse: the built-in Portuguese-English phrasebook, or reversal
    puzzle; or the name of a text that `heedful data get` has downloaded: its files are used unless `train` is set."""
    train: tuple[str, ...] = ()
    """Training text, plain or .gz, .bz2, .xz. translate: source file and target file, or one file of pairs (.tsv, .po,
    .xlf, .tmx). classify: a label, a tab or a space, and a text on each line. generate, fill: any number of files. A
    name may be a pattern, such as "part-*.de"; the files that match are read in the order of their names."""
    weights: tuple[str, ...] = ()
    """How often the text of some training files is read, relative to that of the others: PATTERN=NUMBER, such as
    "news*=3", for names of files (translate: of source files). The first pattern that matches a name counts. The texts
    of each weight have batches of their own, of up to `max_shapes` shapes."""
    valid: tuple[str, ...] = ()
    """Validation text, in the same form."""
    test: tuple[str, ...] = ()
    """Test text, in the same form. It is never read during training, and scored at the end."""
    general: tuple[str, ...] = ()
    """Text of the kind that the model from `train.init_from` was trained on, in the same form as `train`: a share of
    the batches is taken from it, so that the model does not forget what it could do."""
    general_valid: tuple[str, ...] = ()
    """Validation text of that kind; see `train.general_tolerance`."""
    general_share: float = 0.5
    """Fraction of the training batches that are taken from `general`. 0: `general_valid` is only validated."""
    origin: str = ""
    """Where to get the text; printed when a file is missing."""
    held_out: float = 0.1
    """generate, fill, classify: fraction of the training text, taken from its end, that is used for validation if there
    are no validation files."""
    documents: Literal["whole", "lines", "paragraphs", "labelled"] = "whole"
    """generate, fill: what a document is: a whole file, a line, a paragraph between blank lines, or a line without its
    label."""
    packing: Literal["stream", "documents"] = "stream"
    """generate: cut windows from one stream of all text, or pack documents into rows, where they cannot attend to each
    other."""
    pack_tokens: int = 0
    """translate: length in tokens, on each side, of the rows into which pairs are packed; pairs in a row cannot attend
    to each other. Longer pairs get rows of their own. 0: no packing."""
    bpe_dropout: float = 0.0
    """translate: rate at which training skips merges of a BPE, so that each word is split in several ways, which helps
    where text is scarce (Provilkov et al. 2020; 0.1 there). Each text has eight segmentations; a batch draws one."""
    protected: tuple[str, ...] = ()
    """translate: spans that the model learns to carry as numbered tokens: `all`, or some of url, email, code, braces
    ({name}), printf (%s), variable ($NAME), entity (&amp;), escape (\\n), path (C:\\new) and number (5 km); or regular
    expressions. Pairs without such spans train them too, at random. Without it, a translation gets its spans back by
    alignment."""
    terms: float = 0.0
    """translate: share of the training pairs whose source is followed by words of the target, so that the model learns
    to use the terms of a glossary in the right form. 0: a glossary replaces what the model wrote for a term."""
    source_language: str = ""
    """translate: language of the source text, such as "ja" or "pt-BR"; it decides where sentences end. Empty: decided
    by the names of the text."""
    several_sentences: float | None = None
    """translate: share of the training lines with several sentences. A run takes it from its training text."""
    target_language: str = ""
    """translate: language of the target text, such as "ja" or "pt-BR"; it decides how BLEU finds words. Empty: decided
    by the script."""
    bleu_tokenizer: Literal[
        "auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores101", "flores200", "spm", "none"
    ] = "auto"
    """translate: how sacreBLEU splits translations into words for BLEU: "13a" for most languages, "zh", "ja-mecab" and
    "ko-mecab" (extra `mecab`), "flores200" and "spm" (extra `sentencepiece`; they download a model), "char", "intl",
    "none". auto: by `target_language` or by the script of the references; characters if a package is missing."""
    mask_share: float = 0.15
    """fill: fraction of the tokens that are masked."""
    whole_words: bool = False
    """fill: mask all subwords of a word, or none."""
    labels: tuple[str, ...] = ()
    """classify: the classes. Empty: taken from the training text."""
    several_labels: bool = False
    """classify: whether a text may have several labels, separated by commas, or none, written as a dash."""
    sentences: int = 40_000
    """Number of training sentences of a built-in corpus."""
    length: int = 10
    """Length of a sequence of the `reverse` puzzle."""
    fresh: bool = False
    """`reverse`: whether to draw new training examples for every batch, as in the annotated Transformer tutorial;
    `sentences` are then an epoch. Otherwise the same `sentences` are used in every epoch."""
    repeats_counted_in: Literal["input", "output"] = "input"
    """`reverse`: X replaces every even occurrence of a token, counted in the order of the input, as in the annotated
    Transformer tutorial, or of the reversed output, as in heedful 0.1.0."""
    max_tokens: int = 100
    """Length limit in tokens. translate: pairs with a longer source or target are left out. generate: length of a
    window or row. fill: longer texts are cut into pieces. classify: longer texts are truncated."""
    batch_tokens: int | Literal["auto"] = 4096
    """Tokens in a batch, padding included, counted on the longer side. auto: as many as fit in memory."""
    batch_sentences: int = 0
    """Sentences (or packed rows) in a batch. 0: use `batch_tokens` instead."""
    max_shapes: int = 10
    """translate, fill, classify: largest number of different batch shapes; each is compiled once."""
    planned_updates: int = 0
    """translate: number of updates for which the batch shapes are chosen, since more shapes pay off in longer training.
    0: the value of train.updates when the run is created. A run keeps this value, so extending the run does not change
    its batches."""

    def __post_init__(self) -> None:
        if self.corpus not in ("files", *BUILT_IN):
            self._take_files()
        for path in self.train:
            refuse_training_on_test_text(Path(path))
        protection_of(self.protected)
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
        if self.fresh and (self.corpus != "reverse" or self.pack_tokens):
            raise InputError("fresh is for the built-in corpus 'reverse', without pack_tokens.")
        if len(set(self.labels)) < len(self.labels):
            raise InputError("labels names a class twice.")
        if self.several_labels and any("," in label or label == "-" for label in self.labels):
            raise InputError("With several_labels a class cannot be named '-' or contain a comma.")
        fraction(self, "held_out", "mask_share", "general_share", "terms", "bpe_dropout")
        for path in self.general:
            refuse_training_on_test_text(Path(path))
        if self.general and not self.general_valid:
            raise InputError("general needs general_valid, text of the same kind to validate on.")
        if self.weights and not (self.train and self.valid):
            raise InputError("weights are for the files in train, and need files in valid.")
        for text, (_, weight) in zip(self.weights, self.file_weights(), strict=True):
            if not 1e-3 <= weight <= 1e3:
                raise InputError(f"weights: {text!r} is not from 0.001 to 1000.")
        if not self.mask_share:
            raise InputError("mask_share (0.0) must be above 0: there would be nothing to learn.")

    def file_weights(self) -> list[tuple[str, float]]:
        """Return the pairs of pattern and weight in `weights`."""
        return [named_number(text, "data.weights") for text in self.weights]

    def _take_files(self) -> None:
        """Set the files of the parts that are not given to those of the named text.

        A run has them all, so it can be opened where the name is no longer known.
        """
        if self.train and self.origin:
            return
        text = find(self.corpus)
        if not text.paths("train"):
            raise InputError(f"{self.corpus} is a test set: it has no text to train on.")
        if not self.train:
            for part in ("train", "valid", "test"):
                if not getattr(self, part):
                    object.__setattr__(self, part, text.paths(part))
        if not self.origin:
            object.__setattr__(self, "origin", f"heedful data get {self.corpus} downloads it.")


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How text is converted to token ids."""

    kind: Literal["bpe", "wordpiece", "unigram", "word", "char"] = "bpe"
    """bpe and unigram work on bytes, and reproduce any text exactly with normalize = none and without lowercase;
    wordpiece splits as BERT does; word: words and punctuation marks; char: characters."""
    vocab_size: int = 8000
    """Largest number of entries in a vocabulary, special tokens included."""
    source_vocab_size: int | None = None
    """translate without joint: largest number of entries in the source vocabulary. None: vocab_size."""
    joint: bool = True
    """translate: whether both languages share one vocabulary."""
    new_tokens: tuple[str, ...] = ()
    """Tokens that the vocabulary, or both, have whatever the text contains, such as a tag `<2en>`; text is split at
    them first. With `train.init_from` they are appended to the vocabulary of that run, and each starts with the mean
    vector of the tokens that spelled it before."""
    lowercase: bool = False
    """Convert text to lower case first (wordpiece strips accents too, as BERT does)."""
    normalize: Literal["nfc", "nfkc", "none"] | None = None
    """How texts that look the same become the same: nfc composes letters and accents, folds runs of tabs and spaces of
    any kind to one space, and removes spaces at the ends; nfkc replaces compatibility characters too, such as
    full-width letters; none keeps a text as it is. By default nfc for tasks that read whole texts (translate,
    classify), otherwise none."""
    prefix_space: bool = False
    """bpe, unigram: read each line as if it began with a space, so that its first word has the same token as elsewhere
    in a line. For tasks that read whole texts (translate, classify)."""
    clean_up_spaces: bool = True
    """wordpiece: remove the spaces before punctuation marks from decoded text. Set it to false for text that really
    contains such spaces."""

    def __post_init__(self) -> None:
        positive(self, "vocab_size")
        at_most(self, vocab_size=10**7)
        if self.source_vocab_size is not None:
            positive(self, "source_vocab_size")
            at_most(self, source_vocab_size=10**7)
            if self.joint:
                raise InputError("tokenizer.source_vocab_size needs tokenizer.joint = false.")

    def keywords(self, side: int = 1) -> dict[str, Any]:
        """Return the keyword arguments of `Tokenizer.train`; side 0 is the source."""
        options = dataclasses.asdict(self)
        source_size, _ = (options.pop(name) for name in ("source_vocab_size", "joint"))
        return options | ({"vocab_size": source_size} if source_size and side == 0 else {})
