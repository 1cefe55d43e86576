"""Tokens appended to the vocabulary of a trained model, and the rows of its tables for them."""

from collections.abc import Mapping, Sequence

import numpy as np

from heedful.data.tokenizer import Tokenizer


def grown_tables(
    arrays: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
    sides: Mapping[str, Sequence[Sequence[int]]],
) -> dict[str, np.ndarray]:
    """Return weights whose tables have a row for each new token: the mean of the rows of what spelled it before.

    Args:
        arrays: weights by name, of the model before.
        shapes: those of the model with the new tokens, by name.
        sides: for the `source` and the `target` vocabulary, the former ids of each new token.
    """
    grown = dict(arrays)
    for name, array in arrays.items():
        spelled = sides["source" if name.startswith("source_") else "target"]
        if spelled and name in shapes and shapes[name] == (array.shape[0] + len(spelled), *array.shape[1:]):
            rows = np.stack([array[list(ids)].mean(0) for ids in spelled])
            grown[name] = np.concatenate([array, rows.astype(array.dtype)])
    return grown


def former_ids(tokenizer: Tokenizer, tokens: Sequence[str]) -> list[list[int]]:
    """Return, for each of the new tokens, the ids by which a tokenizer without them spells it."""
    begun = len(tokenizer.prefix_ids)
    return [ids[begun:] for ids in tokenizer.encode_batch(tokens)]
