"""The section [train] of a config."""

from dataclasses import dataclass
from typing import Literal

from heedful.errors import InputError
from heedful.validation import at_least, at_most, positive, share


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the model is trained. Everything is counted in updates (steps of the optimizer)."""

    init_from: str = ""
    """translate, classify: a run of task fill that provides the tokenizer, the sizes and the encoder."""
    freeze: bool = False
    """Whether the weights that come from `init_from` are frozen."""
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
    accumulate_batches: int = 1
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
    select_by: str | None = None
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
        positive(self, "updates", "accumulate_batches", "validate_every", "keep", "learning_rate")
        at_least(self, 0, "minutes", "final_learning_rate", "warmup_updates", "clip_norm", "weight_decay", "seed")
        at_least(self, 0, "validate_sentences", "patience", "average")
        at_most(
            self, updates=10**9, accumulate_batches=10**5, validate_every=10**9, validate_sentences=10**7, keep=10**4
        )
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
