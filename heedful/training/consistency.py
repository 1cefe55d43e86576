"""Consistency of two passes: R-Drop and SimCut.

Both read every text twice, with different dropout, and add to the loss how far the two predictions are apart. The rows
of a batch are doubled next to each other, so that a pair stays on one device.

Axes: B texts, T length, P pairs of tokens, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from heedful.backend import Tensor
from heedful.config import TrainConfig
from heedful.layers.dropout import TokenDropout


@dataclass(frozen=True)
class Consistency:
    """What two passes over the same texts add to the loss.

    - R-Drop (Liang et al. 2021, equations 1 to 4): both passes have the mean of their cross-entropies, and the weight
      times the mean of the two divergences, KL(p || q) and KL(q || p), is added.
    - SimCut (Gao et al. 2022, section 3): the cross-entropy is that of the first pass. The second pass loses the
      embeddings of some tokens (`TokenDropout`), and the weight times KL(p || q) is added.

    Args:
        kind: `r_drop` or `sim_cut`.
        weight: of the divergence, alpha in both papers. The cross-entropy of R-Drop is a mean here and a sum there, so
            alpha is halved with it.
    """

    kind: str
    weight: float

    @property
    def forward(self) -> float:
        """The factor of KL(p || q) in the loss of a token."""
        return self.weight / 4 if self.kind == "r_drop" else self.weight

    @property
    def backward(self) -> float:
        """The factor of KL(q || p) in the loss of a token."""
        return self.weight / 4 if self.kind == "r_drop" else 0.0

    def attach(self, model: keras.Model) -> None:
        """Let the layers of a model spare the first text of each pair, if only the second one loses tokens."""
        if self.kind == "sim_cut":
            for layer in model._flatten_layers():
                if isinstance(layer, TokenDropout):
                    layer.spares_first_of_pairs = True

    def doubled(self, batch: Mapping[str, Any], replicated: tuple[str, ...]) -> dict[str, Any]:
        """Return a batch with every row twice, and with the weights of the two passes; a pair's sum is unchanged."""
        twice = {name: array if name in replicated else ops.repeat(array, 2, axis=0) for name, array in batch.items()}
        shares = ops.convert_to_tensor([0.5, 0.5] if self.kind == "r_drop" else [1.0, 0.0], "float32")
        rows = ops.shape(batch["weights"])[0]
        twice["weights"] = ops.cast(twice["weights"], "float32") * ops.tile(shares, (rows,))[:, None]
        return twice

    def of_tokens(self, log_probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """Return the addition to the loss of each pair (P,), and its gradient by the logits (P, 2, V).

        Args:
            log_probabilities: those of both passes (P, 2, V).
        """
        difference = log_probabilities[:, 0] - log_probabilities[:, 1]
        p, q = ops.exp(log_probabilities[:, 0]), ops.exp(log_probabilities[:, 1])
        forward = ops.sum(p * difference, axis=-1)  # KL(p || q)
        added = self.forward * forward
        by_p, by_q = self.forward * p * (difference - forward[:, None]), self.forward * (q - p)
        if self.backward:
            backward = -ops.sum(q * difference, axis=-1)  # KL(q || p)
            added = added + self.backward * backward
            by_p = by_p + self.backward * (p - q)
            by_q = by_q - self.backward * q * (difference + backward[:, None])
        return added, ops.stack([by_p, by_q], axis=1)

    def of_decisions(self, logits: Tensor) -> Tensor:
        """Return the addition to the loss of each text (B,), from the logits (2 B, C) of independent yes-no labels."""
        pairs = ops.reshape(logits, (-1, 2, logits.shape[-1]))
        p, yes, no = ops.sigmoid(pairs), ops.log_sigmoid(pairs), ops.log_sigmoid(-pairs)
        difference = yes - ops.flip(yes, axis=1)  # log p - log q, log q - log p
        opposite = no - ops.flip(no, axis=1)
        divergences = ops.sum(p * difference + (1 - p) * opposite, axis=-1)  # (B, 2)
        return self.forward * divergences[:, 0] + self.backward * divergences[:, 1]


def consistency_of(train: TrainConfig) -> Consistency | None:
    """Return the `Consistency` of a config, or None."""
    return None if train.consistency == "none" else Consistency(train.consistency, train.effective_consistency_weight)
