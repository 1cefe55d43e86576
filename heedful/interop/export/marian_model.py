"""What Marian computes of a transformer, in NumPy: the check of an export for which no Python library exists.

The equations are those of Marian's `src/models/transformer.h` for `--type transformer` with norms after each sublayer.

Axes: S source length, T target length, N heads, D model width, V vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

EPSILON = 1e-9  # of Marian's layer norm
HIDDEN = -1e9
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0.0), "swish": lambda x: x / (1.0 + np.exp(-x)),
}  # fmt: skip
END_ID = 0


class MarianModel:
    """A transformer of Marian.

    Args:
        arrays: by the names of Marian's parameters.
        options: of the model, as in its `special:model.yml`.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], options: Mapping[str, Any]):
        self.arrays, self.options = arrays, options
        self.heads, self.activation = options["transformer-heads"], ACTIVATIONS[options["transformer-ffn-activation"]]
        self.tables = {
            side: arrays["Wemb" if "Wemb" in arrays else f"{side}_Wemb"] for side in ("encoder", "decoder")
        }  # fmt: skip

    def encode(self, ids: Sequence[int]) -> np.ndarray:
        """Return the memory (S, D) of source ids, which end with the end token."""
        x = self._embedded("encoder", list(ids))
        for number in range(1, self.options["enc-depth"] + 1):
            name = f"encoder_l{number}"
            x = self._attended(f"{name}_self", x, x)
            x = self._fed_forward(f"{name}_ffn", x)
        return x

    def logits(self, memory: np.ndarray, ids: Sequence[int]) -> np.ndarray:
        """Return the logits (T + 1, V) of the tokens after none, and after each of the T ids that are written."""
        x = self._embedded("decoder", [None, *ids])  # a decoder begins with a vector of zeros
        hidden = np.triu(np.full((len(x), len(x)), HIDDEN, np.float32), 1)
        for number in range(1, self.options["dec-depth"] + 1):
            name = f"decoder_l{number}"
            x = self._attended(f"{name}_self", x, x, hidden)
            x = self._attended(f"{name}_context", x, memory)
            x = self._fed_forward(f"{name}_ffn", x)
        table = self.arrays.get("decoder_ff_logit_out_W")
        return x @ (self.tables["decoder"].T if table is None else table) + self.arrays["decoder_ff_logit_out_b"][0]

    def greedy(self, ids: Sequence[int], max_tokens: int, shortlist: np.ndarray | None = None) -> list[int]:
        """Return the most likely token after each one, up to the end token or `max_tokens`.

        Args:
            ids: the source.
            max_tokens: limit of the result.
            shortlist: ids that are considered; None: all.
        """
        memory, written = self.encode(ids), list[int]()
        considered = np.arange(self.tables["decoder"].shape[0]) if shortlist is None else shortlist
        while len(written) < max_tokens:
            best = int(considered[self.logits(memory, written)[-1, considered].argmax()])
            if best == END_ID:
                break
            written.append(best)
        return written

    def _embedded(self, side, ids):
        table = self.tables[side]
        width = table.shape[1]
        x = np.stack([np.zeros(width, np.float32) if one is None else table[one] for one in ids])
        rates = np.exp(-np.arange(width // 2) * (np.log(10000.0) / (width // 2 - 1)))
        angles = np.arange(len(ids))[:, None] * rates
        return (x * width**0.5 + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)).astype(np.float32)

    def _attended(self, name, x, memory, hidden=0.0):
        """Return the norm of `x` (T, D) and what it attends to in a memory (S, D)."""
        query, key, value = (
            (source @ self.arrays[f"{name}_W{part}"] + self.arrays[f"{name}_b{part}"])
            .reshape(len(source), self.heads, -1).transpose(1, 0, 2)
            for part, source in (("q", x), ("k", memory), ("v", memory))
        )  # fmt: skip
        scores = query @ key.transpose(0, 2, 1) * query.shape[-1] ** -0.5 + hidden  # (N, T, S)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        joined = (weights @ value).transpose(1, 0, 2).reshape(len(x), -1)
        return self._normalized(f"{name}_Wo", x + joined @ self.arrays[f"{name}_Wo"] + self.arrays[f"{name}_bo"])

    def _fed_forward(self, name, x):
        inner = self.activation(x @ self.arrays[f"{name}_W1"] + self.arrays[f"{name}_b1"])
        return self._normalized(f"{name}_ffn", x + inner @ self.arrays[f"{name}_W2"] + self.arrays[f"{name}_b2"])

    def _normalized(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
        return scaled * self.arrays[f"{name}_ln_scale"][0] + self.arrays[f"{name}_ln_bias"][0]
