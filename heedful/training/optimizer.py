"""Adam as in the paper, and the other optimizers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from heedful import backend
from heedful.backend import Tensor
from heedful.config import TrainConfig
from heedful.training.schedule import Schedule

WIDE = 1.5  # from this ratio of width to height on, orthogonalisation through the Gram matrix takes fewer operations


def training_optimizer(
    train: TrainConfig,
    schedule: Schedule,
    rate_factors: Mapping[str, float] | None = None,
    fused_widths: Mapping[str, Sequence[int]] | None = None,
) -> keras.optimizers.Optimizer:
    """Return the optimizer of a `TrainConfig`.

    Args:
        train: its settings.
        schedule: of the learning rate.
        rate_factors: factors of the learning rate by paths of weights.
        fused_widths: widths of the matrices that are fused in a weight, by its path; see `Muon`.
    """
    if train.optimizer == "muon":
        return _muon(train, schedule, fused_widths or {})
    if train.optimizer == "schedule_free":
        return ScheduleFreeAdamW(
            schedule, warmup_updates=train.warmup_updates, decay=train.weight_decay, rate_factors=rate_factors or {},
            beta_1=train.beta_1, beta_2=train.beta_2, epsilon=train.epsilon,
            **_shared_options(train.clip_norm, train.accumulate_batches, 0.0),
        )  # fmt: skip
    return adam(
        schedule, train.clip_norm, train.accumulate_batches, train.weight_decay, train.beta_2,
        beta_1=train.beta_1, epsilon=train.epsilon, rate_factors=rate_factors, moving_average=train.moving_average,
    )  # fmt: skip


def adam(
    schedule: Any,
    clip_norm: float | None = None,
    micro_batches: int = 1,
    weight_decay: float = 0.0,
    beta_2: float = 0.98,
    *,
    beta_1: float = 0.9,
    epsilon: float = 1e-9,
    rate_factors: Mapping[str, float] | None = None,
    moving_average: float = 0.0,
) -> keras.optimizers.Optimizer:
    """Return Adam with the paper's betas and epsilon (section 5.3).

    Args:
        schedule: learning rate, a number or a `Schedule`.
        clip_norm: largest global norm of a gradient, or None.
        micro_batches: batches per update.
        weight_decay: decoupled decay of matrices (AdamW); biases and norms are not decayed.
        beta_1, beta_2: decay rates of the means of gradients and of squared gradients.
        epsilon: constant added to the denominator.
        rate_factors: factors of the learning rate by paths of weights, or None.
        moving_average: decay of a moving average of the weights; 0: none.
    """
    options = {"beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon}
    options |= _shared_options(clip_norm, micro_batches, moving_average)
    if rate_factors:
        return _keeping_weights(FactoredAdamW(schedule, decay=weight_decay, rate_factors=rate_factors, **options))
    if not weight_decay:
        return _keeping_weights(keras.optimizers.Adam(schedule, **options))
    return _keeping_weights(MatrixDecayAdamW(schedule, weight_decay=weight_decay, **options))


def _muon(train, schedule, fused_widths):
    """Return Muon, with Adam for embeddings, the output projection, biases and norms.

    Its updates are scaled so that the learning rates of Adam fit (Liu et al. 2025, section 2.2).
    """
    optimizer = Muon(
        schedule, fused_widths=fused_widths, adam_beta_1=train.beta_1, adam_beta_2=train.beta_2, epsilon=train.epsilon,
        weight_decay=train.weight_decay, adam_weight_decay=train.weight_decay, exclude_layers=["output_projection"],
        **_shared_options(train.clip_norm, train.accumulate_batches, train.moving_average),
    )  # fmt: skip
    return _keeping_weights(optimizer)


def _shared_options(clip_norm, micro_batches, moving_average):
    """Return the arguments that every optimizer of Keras has."""
    return {
        "global_clipnorm": clip_norm or None,
        "gradient_accumulation_steps": micro_batches if micro_batches > 1 else None,
        "use_ema": moving_average > 0,
        "ema_momentum": moving_average ** (1 / micro_batches),  # Keras averages after every batch of an update
    }


def _keeping_weights(optimizer):
    """Return an optimizer that keeps an average beside the weights: Keras would replace them at the end of `fit`."""
    if optimizer.use_ema:
        optimizer.finalize_variable_values = lambda variables: None
    return optimizer


class Moment(NamedTuple):
    """The first moment of a weight in an optimizer: an update makes it `decay` x moment + `factor` x gradient."""

    variable: Any
    decay: float
    factor: float


def first_moments(optimizer: Any) -> list[Moment]:
    """Return the first moment of each trained weight, from which two states give the gradient between them."""
    moments = [variable for variable in optimizer.variables if variable.path.endswith("_momentum")]
    if isinstance(optimizer, ScheduleFreeAdamW):
        return [Moment(moment, 0.0, 1.0) for moment in moments]
    if not isinstance(optimizer, keras.optimizers.Muon):
        return [Moment(moment, optimizer.beta_1, 1 - optimizer.beta_1) for moment in moments]
    return [
        Moment(moment, optimizer.momentum, 1.0)
        if velocity is None
        else Moment(moment, optimizer.adam_beta_1, 1 - optimizer.adam_beta_1)
        for moment, velocity in zip(moments, optimizer.adam_velocities, strict=True)
    ]


def averaged_weights(optimizer: keras.optimizers.Optimizer) -> list[tuple[Any, Any]]:
    """Return the pairs of trained variable and average of its values, if an optimizer keeps averages."""
    if isinstance(optimizer, ScheduleFreeAdamW):
        return optimizer.averages()
    if not optimizer.use_ema:
        return []
    return list(zip(optimizer._trainable_variables, optimizer._model_variables_moving_average, strict=True))


class MatrixDecay:
    """Weight decay of matrices only, not of the vectors of biases and norms; the first base of an optimizer."""

    def _use_weight_decay(self, variable):
        # Keras asks this for each variable before it decays it.
        return len(variable.shape) > 1

    def _apply_weight_decay(self, variables):
        if any(map(self._use_weight_decay, variables)):  # on PyTorch an empty list would be an error
            super()._apply_weight_decay(variables)  # type: ignore[misc]


@keras.saving.register_keras_serializable("heedful")
class MatrixDecayAdamW(MatrixDecay, keras.optimizers.AdamW):
    """AdamW that decays matrices only."""


@keras.saving.register_keras_serializable("heedful")
class Muon(MatrixDecay, keras.optimizers.Muon):
    """Keras' Muon (Jordan et al. 2024), in which matrices that are fused in one weight are orthogonalised one by one.

    With JAX on a CPU, wide matrices are orthogonalised through their Gram matrices, which are smaller. Only
    matrices are decayed.

    Args:
        fused_widths: widths of the matrices in a weight (D, sum of widths), by its path.
        options: those of Keras' Muon.
    """

    def __init__(self, *args: Any, fused_widths: Mapping[str, Sequence[int]] | None = None, **options: Any):
        super().__init__(*args, **options)
        self.fused_widths = {path: tuple(widths) for path, widths in (fused_widths or {}).items()}

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor) -> None:
        index = self._get_variable_index(variable)
        widths = self.fused_widths.get(self._trainable_variables[index].path)
        if widths is None:
            super().update_step(gradient, variable, learning_rate)
            return
        momentum = self.momentums[index]
        self.assign(momentum, self.momentum * momentum + gradient)
        step = gradient + self.momentum * momentum if self.nesterov else ops.convert_to_tensor(momentum)
        ends = np.cumsum(widths)[:-1].tolist()
        steps = [
            self.lr_adjust(learning_rate * self.zeropower_via_newtonschulz5(part, self.ns_steps))
            for part in ops.split(step, ends, axis=1)
        ]
        self.assign_sub(variable, ops.concatenate(steps, axis=1))

    def zeropower_via_newtonschulz5(self, x: Tensor, steps: int) -> Tensor:
        """Return a matrix (M, N) with the singular vectors of x and singular values near 1, after some iterations.

        An iteration multiplies x by a polynomial of its Gram matrix x x^T, so all iterations together multiply it by
        one matrix (M, M). The rounding of the Gram matrix grows with each iteration, so this way needs products that
        are exact to float32, which those of GPUs and TPUs are not.
        """
        height, width = x.shape
        if height > width:
            return ops.transpose(self.zeropower_via_newtonschulz5(ops.transpose(x), steps))
        if width < WIDE * height or not backend.jax_on_cpu():
            return super().zeropower_via_newtonschulz5(x, steps)
        x = x / (ops.norm(x) + 1e-7)
        factor = identity = ops.eye(height, dtype=x.dtype)
        gram = x @ ops.transpose(x)
        for step in range(steps):
            polynomial = self.muon_a * identity + self.muon_b * gram + self.muon_c * gram @ gram
            factor = polynomial @ factor if step else polynomial
            gram = polynomial @ gram @ polynomial
        return factor @ x

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"fused_widths": self.fused_widths}


@keras.saving.register_keras_serializable("heedful")
class FactoredAdamW(MatrixDecayAdamW):
    """AdamW with a factor of the learning rate, and so of the decay, for each weight.

    Args:
        rate_factors: by the paths of the weights; 1 for others.
        decay: decoupled decay of matrices.
        options: those of Adam.
    """

    def __init__(self, *args: Any, rate_factors: Mapping[str, float], decay: float = 0.0, **options: Any):
        super().__init__(*args, **options | {"weight_decay": 0.0})  # Keras would decay all weights at one rate
        self.rate_factors, self.decay = dict(rate_factors), decay

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor) -> None:
        rate = ops.cast(learning_rate, variable.dtype) * self._factor(variable)
        if self.decay and self._use_weight_decay(variable):
            variable.assign(variable - variable * rate * self.decay)
        super().update_step(gradient, variable, rate)

    def _factor(self, variable):
        """Return the factor of a variable; on TensorFlow it is one of the backend, without a path."""
        if not self.rate_factors:
            return 1.0
        return self.rate_factors.get(self._trainable_variables[self._get_variable_index(variable)].path, 1.0)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"rate_factors": self.rate_factors, "decay": self.decay}


@keras.saving.register_keras_serializable("heedful")
class ScheduleFreeAdamW(FactoredAdamW):
    """Schedule-free AdamW (Defazio et al. 2024, Algorithm 1).

    There are three sequences of weights: z, which takes the steps; its average x, which is validated and kept; and y,
    at which gradients are computed, `beta_1` of the way from z to x. The variables of the model hold y, the optimizer
    holds z, and x follows from both (`averages`). Steps count in the average by the square of their learning rate,
    which is constant after a linear warm-up.

    Args:
        warmup_updates: length of the warm-up of the learning rate.
        options: those of `FactoredAdamW`.
    """

    def __init__(self, *args: Any, warmup_updates: int = 0, **options: Any):
        super().__init__(*args, **options)
        self.warmup_updates = warmup_updates

    def build(self, variables: list[Any]) -> None:
        if not self.built:
            super().build(variables)
            # The last gradient stands where Adam has its first moment: nothing else has the gradient of an update.
            self._iterates = self.add_optimizer_variables(variables, "iterate")

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor) -> None:
        index = self._get_variable_index(variable)
        last, velocity, iterate = self._momentums[index], self._velocities[index], self._iterates[index]
        rate = ops.cast(learning_rate, variable.dtype) * self._factor(variable)
        y, z = ops.convert_to_tensor(variable), ops.convert_to_tensor(iterate)
        z = ops.where(self.iterations == 0, y, z)
        update = ops.cast(self.iterations + 1, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        self.assign(last, gradient)
        self.assign_add(velocity, (ops.square(gradient) - velocity) * (1 - self.beta_2))
        correction = 1 - ops.power(ops.cast(self.beta_2, variable.dtype), update)
        step = gradient / (ops.sqrt(velocity / correction) + self.epsilon)
        if self.decay and self._use_weight_decay(variable):
            step = step + self.decay * y
        weight = self._weight(update)
        self.assign(variable, y + weight * (z - y) + rate * (self.beta_1 * (1 - weight) - 1) * step)
        self.assign(iterate, z - rate * step)

    def _weight(self, update):
        """Return the share of update number `update` in the average: its squared rate over the sum of all."""
        warmup = float(max(self.warmup_updates, 1))
        risen = ops.minimum(update, warmup)
        total = risen * (risen + 1) * (2 * risen + 1) / (6 * warmup**2) + ops.maximum(update - warmup, 0.0)
        return ops.square(risen / warmup) / total

    def averages(self) -> list[tuple[Any, Any]]:
        """Return the pairs of trained variable and average x."""
        if not self.built or not int(self.iterations):
            return []
        share = 1 - 1 / self.beta_1
        return [
            (variable, ops.convert_to_tensor(variable) + share * (ops.convert_to_tensor(iterate) - variable))
            for variable, iterate in zip(self._trainable_variables, self._iterates, strict=True)
        ]

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"warmup_updates": self.warmup_updates}
