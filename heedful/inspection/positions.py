"""The positional encoding of a run as an array."""

import numpy as np

from heedful import backend
from heedful.config.architecture import SINUSOIDS
from heedful.core.errors import InputError
from heedful.layers import sinusoid
from heedful.runs.run import Run
from heedful.runs.weights import weights_by_name

POSITIONS = 128
LEARNED = "positions/embeddings"  # suffix of the name of a learned table


def position_encoding(run: Run) -> np.ndarray:
    """Return the encoding (positions, d_model) that the model of a run adds to its first 128 tokens.

    Raises:
        InputError: its positions are rotary or none, so nothing is added; or they are learned, but it is not trained
            yet.
    """
    config = run.config.model
    if config.positions == "none":
        raise InputError("model.positions = 'none': this model adds no positions.")
    if config.positions == "rotary":
        raise InputError("Rotary positions have no encoding to draw: they turn queries and keys.")
    if config.positions == "learned":
        tables = [array for name, array in weights_by_name(run.load_model()).items() if name.endswith(LEARNED)]
        return tables[0][:POSITIONS]
    kind = SINUSOIDS[config.positions]
    return np.asarray(backend.to_numpy(sinusoid(np.arange(POSITIONS), config.d_model, *kind)))
