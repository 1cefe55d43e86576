"""The section [train] of a config."""

import typing
from dataclasses import dataclass
from typing import Literal

from heedful.core.errors import InputError
from heedful.core.validation import at_least, at_most, fraction, named_number, positive

BALANCED = "balanced"  # class weights
# Default peaks of the learning rate. Published rates of Adam fall with the width about so: 3e-3 at 128, 7e-4 at 512.
RATE_TIMES_WIDTH, HIGHEST_DEFAULT_RATE, FINE_TUNING_RATE = 0.384, 3e-3, 1e-4
IMPOSSIBLE_RATE = 0.1
ENDING = ("cosine", "linear", "wsd")  # schedules that end at a given update
CONSISTENCY_WEIGHTS = {"r_drop": 5.0, "sim_cut": 3.0}  # as in the papers


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the model is trained. Everything is counted in updates (steps of the optimizer)."""

    init_from: str = ""
    """A run of the same task, trained or imported, whose model is trained further on this text, with its tokenizers,
    sizes and all weights. Or, for translate and classify, a run of task fill that provides the tokenizer, the sizes and
    the encoder."""
    freeze: bool = False
    """Whether the encoder that comes from `init_from`, a run of task fill, is frozen."""
    freeze_weights: tuple[str, ...] = ()
    """Weights to freeze, by shell patterns of their names, such as "encoder/*" or "*embedding/*"; with `init_from`."""
    lora_rank: int = 0
    """Rank of the adapters that are trained beside the frozen weights from `init_from`, a run of the same task (LoRA,
    Hu et al. 2021). The run keeps the merged model, and the adapter apart. classify: `init_from` may also be a run of
    task fill; the output is then trained as a whole, and only the merged model is kept. 0: no adapters."""
    lora_alpha: float = 0.0
    """The adapters' product is multiplied by lora_alpha / lora_rank. 0: by 1."""
    lora_weights: tuple[str, ...] = ("*/kernel",)
    """Matrices that have an adapter, by shell patterns of their names, such as "*/self_attention/*/kernel"."""
    rate_factors: tuple[str, ...] = ()
    """Factors of the learning rate for weights whose names match a shell pattern, such as "encoder/*=0.1"; the first
    pattern that matches counts."""
    general_tolerance: float = 0.05
    """Fraction of its starting score on `data.general_valid` that a checkpoint may lose and still be selected as the
    best."""
    updates: int = 8000
    """Number of updates of the whole training; with `minutes`, the maximum."""
    epochs: float = 0.0
    """Number of passes over the training text. It replaces `updates`. 0: `updates` counts."""
    minutes: float = 0.0
    """Stop after this many minutes of training (see `minutes_of`); 0: no limit. If the schedule has an end
    (cosine, linear, wsd), a new run first measures its speed and replaces `updates` by the number that fits, so that
    the schedule ends in time."""
    minutes_of: Literal["all", "updates"] = "all"
    """What counts towards `minutes`: all, with compiling and validation; or the time of the updates alone, for a
    schedule that has no end."""
    schedule: Literal["paper", "inverse_square_root", "cosine", "linear", "wsd", "constant"] = "paper"
    """Learning rate after the warm-up: as in the paper (Vaswani et al. 2017, section 5.3), falling with the inverse
    square root of the update, falling until `updates` along a cosine or a line, constant until the last `decay_share`
    of the updates and then falling along a line (wsd: warm-up, stable, decay; Hu et al. 2024), or constant."""
    decay_share: float = 0.2
    """Share of the updates in which the rate falls with the schedule wsd."""
    learning_rate: float | None = None
    """Peak learning rate; with the paper's schedule, a factor applied to it. By default 1 with the paper's schedule,
    otherwise 0.384 / model.d_model, at most 0.003, and 0.0001 with `init_from`."""
    final_learning_rate: float = 0.0
    """Learning rate at the end of a schedule that has an end: cosine, linear or wsd."""
    warmup_updates: int = 4000
    """Number of updates over which the learning rate rises from zero to its peak."""
    optimizer: Literal["adam", "muon", "schedule_free"] = "adam"
    """The optimizer: Adam; or Muon (Jordan et al. 2024), whose updates of the matrices between embeddings and output
    are orthogonal, with Adam for all other weights, at the same learning rates (Liu et al. 2025); or schedule_free, an
    AdamW (Defazio et al. 2024) for the schedule constant: it validates and keeps an average of the weights, so that a
    training may end at any time. Its `beta_1` is the share of that average in the weights that are trained."""
    label_smoothing: float = 0.1
    """Fraction of the target probability that is spread over the vocabulary (Szegedy et al. 2016, section 7)."""
    consistency: Literal["none", "r_drop", "sim_cut"] = "none"
    """Whether every text is read twice, and the two predictions are pulled together, which helps where text is scarce
    and doubles the cost of an update: r_drop, two passes with different dropout (Liang et al. 2021); sim_cut, one pass
    over the text and one over the text without some of its tokens (Gao et al. 2022), by `model.token_dropout`."""
    consistency_weight: float | None = None
    """Weight of the divergence of the two predictions, alpha in the papers. By default 5 for r_drop, 3 for sim_cut."""
    class_weights: tuple[str, ...] = ()
    """classify: how much the texts of a class count in the loss: "balanced", as much as those of any other class
    together, or "LABEL=WEIGHT" for some classes, 1 for the others. Empty: each text counts the same."""
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
    """Constant added to the denominator in Adam; 1e-7 in Keras, 1e-8 in PyTorch."""
    accumulate_batches: int = 1
    """Batches whose gradients are accumulated for one update, weighted by their tokens."""
    devices: int = 0
    """Devices of this machine that train together: each computes a part of the rows of every batch. 0: all. On
    TensorFlow and PyTorch one device trains."""
    shard: bool = False
    """Whether each device keeps a part of the weights and of the optimizer's state between updates, instead of a copy
    (as in ZeRO, Rajbhandari et al. 2020). It saves memory where several devices train; the result is the same,
    among several processes within rounding."""
    stall_minutes: float = 5.0
    """Minutes within which a batch has to end, compilation included, when several processes train together; otherwise
    one of them is stuck, and all end. Between updates, a process that does not run at all is noticed a minute later.
    0: they wait."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Compute type. bfloat16 is faster on GPUs and on CPUs that support it; weights stay float32. See
    decode.precision."""
    seed: int = 1
    """Seed of the initial weights, of dropout, and of the order of the data."""
    validate_every: int = 500
    """Number of updates between validations; a checkpoint is saved after each."""
    save_minutes: float = 5.0
    """Minutes after which the state is saved between validations too, so that a killed training loses no more than
    these. 0: only at validations, as always where several processes share the weights (train.shard)."""
    validate_sentences: int = 200
    """translate: validation sentences that are decoded for BLEU. 0: none."""
    prompt: str = "\n"
    """generate: the prompt of the sample text at each validation."""
    patience: int = 0
    """Validations without a better score after which training stops. 0: never."""
    select_by: str | None = None
    """Score that selects the best checkpoint; of equal ones, the loss. By default accuracy for classify, loss for
    generate and fill. translate: bleu; chrf for target text in Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese or
    Tibetan, or if most of it has fewer than four words; loss without `validate_sentences`."""
    keep: int = 5
    """Number of most recent checkpoints to keep."""
    moving_average: float = 0.0
    """Decay of a moving average of the weights, such as 0.999, which is validated and kept instead of the weights
    themselves. 0: none."""
    average: int = 0
    """Number of last checkpoints whose weights are averaged at the end; the average is used if it scores no worse than
    the best single checkpoint. 0 or 1: no averaging."""
    snapshots: bool = False
    """Whether to keep the weights, in 8 bits, after validations 1, 2, 5, 10, 20, 50, ..., so that `heedful page` can
    show how the model learned."""
    tensorboard: bool = True
    """Whether the log is written for TensorBoard too, where its package is installed (`heedful[tensorboard]`)."""
    loggers: tuple[str, ...] = ()
    """Programs that get the curves while the model trains: wandb, mlflow or trackio, or those of other packages."""
    examine: bool = True
    """Whether to examine the training text first, up to 200,000 rows, as `heedful doctor` does. It is not changed."""
    score: bool = True
    """Whether to score the test text after the training, or the validation text where there is none."""
    check: bool = True
    """Whether to check model, text and training before the first update; a failed check stops the training."""

    def __post_init__(self) -> None:
        positive(self, "updates", "accumulate_batches", "validate_every", "keep", "epsilon")
        if self.learning_rate is not None:
            positive(self, "learning_rate")
        if self.consistency_weight is not None:
            positive(self, "consistency_weight")
        positive(self, "decay_share")
        at_most(self, decay_share=1)
        at_least(self, 0, "minutes", "final_learning_rate", "warmup_updates", "clip_norm", "weight_decay", "seed")
        at_least(self, 0, "devices", "save_minutes", "epochs", "validate_sentences", "patience", "average")
        at_most(self, stall_minutes=10**5)
        at_least(self, 0, "stall_minutes", "lora_rank", "lora_alpha", "general_tolerance")
        at_most(self, lora_rank=10**5)
        if self.minutes_of == "updates" and self.is_paced:
            raise InputError(f"train.minutes_of = 'updates' cannot be used with the schedule {self.schedule!r}.")
        self.factors()
        if self.weights_of_classes() and BALANCED in self.class_weights:
            raise InputError(f"train.class_weights is either {BALANCED!r} or weights of classes.")
        at_most(
            self, updates=10**9, accumulate_batches=10**5, validate_every=10**9, validate_sentences=10**7, keep=10**4
        )
        at_most(self, seed=2**32 - 1)
        fraction(self, "label_smoothing", "beta_1", "beta_2", "moving_average")
        if self.average > self.keep:
            raise InputError(f"train.average ({self.average}) cannot exceed train.keep ({self.keep}).")

        if self.lora_rank and self.average > 1:
            raise InputError("train.average cannot be used with train.lora_rank: a mean of adapters is not an adapter.")

    def factors(self) -> list[tuple[str, float]]:
        """Return the pairs of pattern and factor in `rate_factors`."""
        return [named_number(text, "train.rate_factors") for text in self.rate_factors]

    def weights_of_classes(self) -> dict[str, float]:
        """Return the weights in `class_weights` by class; none if they are `balanced`."""
        return dict(named_number(text, "train.class_weights") for text in self.class_weights if text != BALANCED)

    @property
    def weight_of_consistency(self) -> float:
        """`consistency_weight`, or its default."""
        return self.consistency_weight or CONSISTENCY_WEIGHTS[self.consistency]

    def rate(self, d_model: int) -> float:
        """Return `learning_rate`, or its default for a model of a width."""
        if self.learning_rate is not None:
            return self.learning_rate
        if self.schedule == "paper":
            return 1.0
        return self.default_rate(d_model)

    def default_rate(self, d_model: int) -> float:
        """Return the default of `learning_rate` for a model of a width, unless the schedule is the paper's."""
        return FINE_TUNING_RATE if self.init_from else min(HIGHEST_DEFAULT_RATE, RATE_TIMES_WIDTH / d_model)

    def highest_rate(self, d_model: int) -> float:
        """Return the highest learning rate of the training of a model of a width."""
        rate = self.rate(d_model)
        return rate * (d_model * max(self.warmup_updates, 1)) ** -0.5 if self.schedule == "paper" else rate

    def refuse_impossible_rate(self) -> None:
        """Raise `InputError` if the learning rate cannot be a peak; as a factor of the paper's schedule, it could."""
        if self.schedule != "paper" and self.learning_rate is not None and self.learning_rate > IMPOSSIBLE_RATE:
            raise InputError(
                f"train.learning_rate = {self.learning_rate:g} is the peak of the schedule {self.schedule!r}, at which "
                "no model learns; only for the schedule 'paper' it is a factor. Leave it out, or try 0.001."
            )

    @property
    def schedule_ends(self) -> bool:
        """Whether the learning rate reaches its final value at `updates`."""
        return self.schedule in ENDING

    @property
    def is_paced(self) -> bool:
        """Whether the schedule is to end within `minutes`."""
        return bool(self.minutes) and self.schedule_ends

    @property
    def policy(self) -> str:
        """The Keras dtype policy of the precision; weights stay float32."""
        return {"float32": "float32", "bfloat16": "mixed_bfloat16"}[self.precision]


SCHEDULES = typing.get_args(typing.get_type_hints(TrainConfig)["schedule"])
