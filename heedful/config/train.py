"""The section [train] of a config."""

import typing
from dataclasses import dataclass
from typing import Literal

from heedful.core.errors import InputError
from heedful.core.validation import at_least, at_most, fraction, named_number, positive

BALANCED = "balanced"  # class weights
# Default peaks of the learning rate. Published rates of Adam fall with the width about so: 3e-3 at 128, 7e-4 at 512.
RATE_TIMES_WIDTH, HIGHEST_DEFAULT_RATE, FINE_TUNING_RATE = 0.384, 3e-3, 1e-4
MAX_PEAK_RATE = 0.1  # no model learns at a higher one
SCHEDULES_WITH_END = ("cosine", "linear", "wsd")  # they reach their final rate at a given update
CONSISTENCY_WEIGHTS = {"r_drop": 5.0, "sim_cut": 3.0}  # as in the papers


# The text under a field is its help. If it begins with names of tasks ("classify: ..."), the field is for these alone.
@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the model is trained. An update is a step of the optimizer."""

    init_from: str = ""
    """Run to start from. If it has the same task, trained or imported, all weights are trained further on this text,
    with its tokenizers and sizes. For translate and classify it may be a run of task fill, which provides the
    tokenizer, the sizes and the encoder. Empty: random weights."""
    freeze: bool = False
    """Whether the encoder that comes from `init_from`, a run of task fill, is frozen."""
    freeze_weights: tuple[str, ...] = ()
    """Weights to freeze: shell patterns of their names, such as "encoder/*" or "*embedding/*". Needs `init_from`."""
    lora_rank: int = 0
    """Rank of the adapters that are trained beside frozen weights (LoRA, Hu et al. 2021). 0: no adapters. They need
    `init_from`, a run of the same task. The new run has the merged model and, separately, the adapter. A classifier may
    also start from a run of task fill; its output is then trained without an adapter, and only the merged model is
    kept."""
    lora_alpha: float = 0.0
    """The product of an adapter's two matrices is multiplied by `lora_alpha` / `lora_rank`. 0: a factor of 1."""
    lora_weights: tuple[str, ...] = ("*/kernel",)
    """Matrices that have an adapter, by shell patterns of their names, such as "*/self_attention/*/kernel"."""
    rate_factors: tuple[str, ...] = ()
    """Factors of the learning rate for weights whose names match a shell pattern, such as "encoder/*=0.1"; the first
    pattern that matches counts."""
    general_tolerance: float = 0.05
    """Fraction of the score on `data.general_valid` before the training that a checkpoint may lose and still be
    selected as the best."""
    updates: int = 8000
    """Number of updates of the whole training; with `minutes`, the maximum."""
    epochs: float = 0.0
    """Number of passes over the training text. It replaces `updates`. 0: `updates` counts."""
    minutes: float = 0.0
    """Maximum minutes of training (see `minutes_of`). 0: no limit. If the schedule has an end (cosine, linear, wsd), a
    new run first measures its speed and lowers `updates` to the number that fits, with a warm-up of at most half of
    them. Each validation adjusts this number, so that the schedule ends in time."""
    minutes_of: Literal["all", "updates"] = "all"
    """What counts towards `minutes`. all: updates, compilation and validations. updates: updates only; the schedule
    must not have an end."""
    schedule: Literal["paper", "inverse_square_root", "cosine", "linear", "wsd", "constant"] = "paper"
    """Learning rate after the warm-up. paper: as in Vaswani et al. 2017, section 5.3. inverse_square_root: falls with
    the inverse square root of the update. cosine, linear: falls along half a cosine, or a line, until `updates`. wsd
    (warm-up, stable, decay; Hu et al. 2024): stays, and falls along a line in the last `decay_share` of the updates.
    constant: stays. A training that starts from a run of its task has constant instead of paper."""
    decay_share: float = 0.2
    """Share of the updates in which the rate falls with the schedule wsd."""
    learning_rate: float | None = None
    """Peak learning rate; for the schedule paper, a factor of that schedule's rates. By default 1 for paper. For the
    others 0.0001 with `init_from`, and 0.384 / model.d_model, at most 0.003, without."""
    final_learning_rate: float = 0.0
    """Learning rate at the end of a schedule that has an end: cosine, linear or wsd."""
    warmup_updates: int = 4000
    """Number of updates over which the learning rate rises from zero to its peak."""
    optimizer: Literal["adam", "muon", "schedule_free"] = "adam"
    """adam: Adam. muon (Jordan et al. 2024): orthogonal updates of the matrices between embeddings and output, and Adam
    for all other weights, at the same learning rates (Liu et al. 2025). schedule_free (Defazio et al. 2024): an AdamW
    that validates and keeps an average of the weights, so that a training may end at any time. It needs the schedule
    constant; its gradients are computed at `beta_1` x average + (1 - `beta_1`) x latest weights."""
    label_smoothing: float = 0.1
    """Fraction of the target probability that is spread over the vocabulary (Szegedy et al. 2016, section 7)."""
    consistency: Literal["none", "r_drop", "sim_cut"] = "none"
    """Read every text twice, and add the divergence of the two predictions to the loss. It helps where text is scarce,
    and doubles the cost of an update. r_drop (Liang et al. 2021): the passes differ in their dropout. sim_cut (Gao et
    al. 2022): the second pass also loses a share of its tokens, `model.token_dropout`."""
    consistency_weight: float | None = None
    """Weight of the divergence of the two predictions, alpha in the papers. By default 5 for r_drop, 3 for sim_cut."""
    class_weights: tuple[str, ...] = ()
    """classify: weights of the classes in the loss. "balanced": every class has the same total weight. "LABEL=WEIGHT":
    the weight of one class; a class without one has weight 1. Empty: every text has weight 1."""
    calibrate: bool = True
    """classify: whether the output of the best checkpoint is divided by the temperature that fits the validation text
    best, so that predicted probabilities match the observed accuracy (Guo et al. 2017)."""
    clip_norm: float = 0.0
    """Maximum global norm of the gradients. 0: no clipping."""
    weight_decay: float = 0.0
    """Decoupled decay of matrices, as in AdamW; biases and norms do not decay."""
    beta_1: float = 0.9
    """Adam's decay rate of the first moment (Vaswani et al. 2017, section 5.3)."""
    beta_2: float = 0.98
    """Adam's decay rate of the second moment."""
    epsilon: float = 1e-9
    """Constant added to the denominator in Adam. The defaults of Keras and PyTorch are 1e-7 and 1e-8."""
    accumulate_batches: int = 1
    """Batches whose gradients are accumulated for one update, weighted by their tokens."""
    devices: int = 0
    """Devices of this machine that train together: each computes a part of the rows of every batch. 0: all. On
    TensorFlow and PyTorch one device trains."""
    shard: bool = False
    """Whether each device keeps a part of the weights and of the optimizer's state between updates, instead of a copy
    (as in ZeRO, Rajbhandari et al. 2020). It saves memory where several devices train. The result is the same; with
    several processes, up to rounding."""
    stall_minutes: float = 5.0
    """With several processes: minutes within which every batch must be finished, compilation included. If one takes
    longer, a process is stuck, and all of them exit. Between updates, a process that no longer runs is noticed within
    another minute. 0: wait without limit."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Compute type. bfloat16 is faster on GPUs and on CPUs that support it; weights stay float32. See
    decode.precision."""
    seed: int = 1
    """Seed of the initial weights, of dropout, and of the order of the data."""
    validate_every: int = 500
    """Number of updates between validations; a checkpoint is saved after each."""
    save_minutes: float = 5.0
    """Minutes between saves of the training state, in addition to those at validations: what a killed training loses at
    most. 0: only at validations. Several processes that `shard` always save at validations only."""
    validate_sentences: int = 200
    """translate: number of validation sentences that are translated for BLEU and chrF. 0: none."""
    prompt: str = "\n"
    """generate: the prompt of the sample text at each validation."""
    patience: int = 0
    """Validations without a better score after which training stops. 0: never."""
    select_by: str | None = None
    """Score that selects the best checkpoint; the loss decides between equal ones. By default accuracy for classify,
    and loss for generate and fill. For translate bleu, but chrf if the target is Chinese, Japanese, Korean, Thai, Lao,
    Khmer, Burmese or Tibetan, or most of its texts have fewer than four words; and loss if `validate_sentences` is
    0."""
    keep: int = 5
    """Number of most recent checkpoints to keep."""
    moving_average: float = 0.0
    """Decay of a moving average of the weights, such as 0.999, which is validated and kept instead of the weights
    themselves. 0: none."""
    average: int = 0
    """Number of last checkpoints, at most `keep`, whose weights are averaged at the end. The average is used if it
    scores no worse than the best single checkpoint. 0 or 1: no averaging."""
    snapshots: bool = False
    """Whether to keep the weights, in 8 bits, after validations 1, 2, 5, 10, 20, 50, ..., so that `heedful page` can
    show how the model learned."""
    tensorboard: bool = True
    """Whether the log is written for TensorBoard too, where its package is installed (`heedful[tensorboard]`)."""
    loggers: tuple[str, ...] = ()
    """Programs that get the curves while the model trains: wandb, mlflow or trackio, or those of other packages."""
    examine: bool = True
    """Whether to examine the first 200,000 rows of the training text before the training, as `heedful doctor` does. The
    text is not changed."""
    score: bool = True
    """Whether to score the test text after the training, or the validation text where there is none."""
    check: bool = True
    """Whether to check model, text and training before the first update; a failed check stops the training."""

    def __post_init__(self) -> None:
        positive(self, "updates", "accumulate_batches", "validate_every", "keep", "epsilon", "decay_share")
        optional = ("learning_rate", "consistency_weight")
        positive(self, *(name for name in optional if getattr(self, name) is not None))
        at_least(
            self, 0, "minutes", "final_learning_rate", "warmup_updates", "clip_norm", "weight_decay", "seed", "devices",
            "save_minutes", "stall_minutes", "epochs", "validate_sentences", "patience", "average", "lora_rank",
            "lora_alpha", "general_tolerance",
        )  # fmt: skip
        at_most(
            self, updates=10**9, accumulate_batches=10**5, validate_every=10**9, validate_sentences=10**7, keep=10**4,
            seed=2**32 - 1, stall_minutes=10**5, lora_rank=10**5, decay_share=1,
        )  # fmt: skip
        fraction(self, "label_smoothing", "beta_1", "beta_2", "moving_average")
        self.parsed_rate_factors()  # raises an error if one is malformed
        if self.minutes_of == "updates" and self.is_paced:
            raise InputError(
                f"train.minutes_of = 'updates' cannot be used with the schedule {self.schedule!r}, which ends within "
                "train.minutes."
            )
        if self.parsed_class_weights() and BALANCED in self.class_weights:
            raise InputError(f"train.class_weights is either {BALANCED!r} or weights of classes.")
        if self.average > self.keep:
            raise InputError(f"train.average ({self.average}) cannot exceed train.keep ({self.keep}).")
        if self.lora_rank and self.average > 1:
            raise InputError("train.average cannot be used with train.lora_rank: a mean of adapters is not an adapter.")

    def parsed_rate_factors(self) -> list[tuple[str, float]]:
        """Return the pairs of pattern and factor in `rate_factors`."""
        return [named_number(text, "train.rate_factors") for text in self.rate_factors]

    def parsed_class_weights(self) -> dict[str, float]:
        """Return the weights in `class_weights` by class; none if they are `balanced`."""
        return dict(named_number(text, "train.class_weights") for text in self.class_weights if text != BALANCED)

    @property
    def effective_consistency_weight(self) -> float:
        """`consistency_weight`, or the default of the method; only where `consistency` is one."""
        return self.consistency_weight or CONSISTENCY_WEIGHTS[self.consistency]

    def rate(self, d_model: int) -> float:
        """Return `learning_rate`, or its default, for a model of width `d_model`; for the schedule paper, a factor."""
        if self.learning_rate is not None:
            return self.learning_rate
        if self.schedule == "paper":
            return 1.0
        return self.default_rate(d_model)

    def default_rate(self, d_model: int) -> float:
        """Return the default peak of the learning rate for a model of width `d_model`, with any schedule but paper."""
        return FINE_TUNING_RATE if self.init_from else min(HIGHEST_DEFAULT_RATE, RATE_TIMES_WIDTH / d_model)

    def highest_rate(self, d_model: int) -> float:
        """Return the highest learning rate that a training of a model of width `d_model` reaches."""
        rate = self.rate(d_model)
        return rate * (d_model * max(self.warmup_updates, 1)) ** -0.5 if self.schedule == "paper" else rate

    def refuse_impossible_rate(self) -> None:
        """Raise `InputError` if no model learns at the peak; a factor of the schedule paper may be as high."""
        if self.schedule != "paper" and self.learning_rate is not None and self.learning_rate > MAX_PEAK_RATE:
            raise InputError(
                f"train.learning_rate = {self.learning_rate:g} is too high: no model learns at it. It is the peak of "
                f"the schedule {self.schedule!r}; only for the schedule 'paper' it is a factor. Leave it out, or try "
                "0.001."
            )

    @property
    def schedule_ends(self) -> bool:
        """Whether the learning rate reaches its final value at `updates`."""
        return self.schedule in SCHEDULES_WITH_END

    @property
    def is_paced(self) -> bool:
        """Whether the schedule is to end within `minutes`."""
        return bool(self.minutes) and self.schedule_ends

    @property
    def could_be_paced(self) -> bool:
        """Whether another schedule would be planned to end within `minutes`; this one has no end."""
        without_end = not self.schedule_ends and self.optimizer != "schedule_free"
        return bool(self.minutes) and self.minutes_of == "all" and without_end

    @property
    def dtype_policy(self) -> str:
        """The Keras dtype policy of the precision; weights stay float32."""
        return {"float32": "float32", "bfloat16": "mixed_bfloat16"}[self.precision]


SCHEDULES = typing.get_args(typing.get_type_hints(TrainConfig)["schedule"])
