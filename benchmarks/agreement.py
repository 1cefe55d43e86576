"""Compare logits and loss of the same weights and batch on JAX, TensorFlow and torch.

    python -m benchmarks.agreement

The last line gives the largest differences between any two backends.
"""

import itertools
import os
import subprocess
import sys
import tempfile

import numpy as np

BACKENDS = ("jax", "tensorflow", "torch")


def main():
    if len(sys.argv) == 2:
        from tests.make_golden import MODELS, outputs

        arrays = {name: outputs(options) for name, options in MODELS.items()}
        np.savez(
            sys.argv[1],
            **{
                f"{name}/{kind}": array for name, pair in arrays.items() for kind, array in zip("ls", pair, strict=True)
            },
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        made = {}
        for backend in BACKENDS:
            path = os.path.join(folder, f"{backend}.npz")
            environment = os.environ | {"KERAS_BACKEND": backend}
            subprocess.run([sys.executable, "-m", "benchmarks.agreement", path], check=True, env=environment)
            made[backend] = dict(np.load(path))
        worst = {"l": 0.0, "s": 0.0}
        for one, other in itertools.combinations(BACKENDS, 2):
            for key, array in made[one].items():
                scale = np.maximum(np.abs(array), 1.0) if key.endswith("s") else 1.0  # one of the sums may be 0
                difference = float((np.abs(array - made[other][key]) / scale).max())
                assert np.isfinite(difference), key
                worst[key[-1]] = max(worst[key[-1]], difference)
    print(f"largest difference of logits {worst['l']:.1e}, of losses {worst['s']:.1e} (relative)")


if __name__ == "__main__":
    main()
