"""Write golden.npz: logits and losses of small models on JAX, which every backend must reproduce.

Run `KERAS_BACKEND=jax python -m tests.make_golden` after a change that is meant to change the numbers.
"""

from pathlib import Path

import keras
import numpy as np
from keras import ops

import heedful
from heedful.training.loss import projected_crossentropy
from heedful.training.objective import batch_sums

PATH = Path(__file__).parent / "golden.npz"
MODELS = {
    "paper": {},
    "modern": {"norm_position": "pre", "positions": "rotary", "activation": "swiglu", "num_kv_heads": 2, "tie": "none"},
}


def outputs(options):
    """Return logits and summed losses of a model with weights drawn by NumPy, the same on all backends."""
    rng = np.random.default_rng(5)
    model = heedful.Transformer(31, 37, num_layers=2, d_model=24, num_heads=6, d_ff=20, **options)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    batch = {"source": rng.integers(4, 31, (3, 7)), "target": rng.integers(4, 37, (3, 5))}
    batch["source"][1, 4:] = 0
    labels, weights = rng.integers(4, 37, (3, 5)), np.ones((3, 5), "float32")
    table = model.output_projection.embeddings
    sums = projected_crossentropy(model.features(batch), table, labels, weights, 0.1, chunk=4)
    return ops.convert_to_numpy(model(batch)), ops.convert_to_numpy(sums)


def one_sided_outputs():
    """Return logits and summed losses of a causal LM on packed rows and of a masked LM, as `outputs` does."""
    rng = np.random.default_rng(6)
    options = {"num_layers": 2, "d_model": 24, "num_heads": 6, "d_ff": 20, "positions": "learned", "output_bias": True}
    results = []
    for kind in (heedful.CausalLM, heedful.MaskedLM):
        model = kind(31, activation="gelu_tanh", norm="rms", bias=False, **options)
        for weight in model.weights:
            weight.assign(rng.normal(size=weight.shape, scale=0.3))
        batch = {"ids": rng.integers(4, 31, (3, 7)), "labels": rng.integers(4, 31, (3, 7))}
        batch["weights"] = rng.integers(0, 2, (3, 7)).astype("float32")
        if kind is heedful.CausalLM:
            batch["segments"] = np.sort(rng.integers(1, 4, (3, 7)))
            batch["positions"] = rng.integers(0, 7, (3, 7))
        else:
            batch["places"] = rng.integers(0, 7, (3, 7))
        results += [ops.convert_to_numpy(model(batch)), ops.convert_to_numpy(batch_sums(model, batch))]
    return results


if __name__ == "__main__":
    arrays = {f"one-sided/{index}": array for index, array in enumerate(one_sided_outputs())}
    for name, options in MODELS.items():
        arrays[f"{name}/logits"], arrays[f"{name}/sums"] = outputs(options)
    np.savez(PATH, **arrays)
    print(f"{PATH} written with {keras.backend.backend()}")
