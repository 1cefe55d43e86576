"""The Keras backend and the devices that it sees."""

import importlib.util
import os

from heedful.core.errors import InputError
from heedful.core.postponed import postponed
from heedful.core.processors import cores

BACKENDS = ("jax", "tensorflow", "torch")
OLDEST_FUSED = 8  # compute capability of the first GPUs with cuDNN's fused attention
_CHOSEN = os.environ.get("KERAS_BACKEND", "jax")
if _CHOSEN not in BACKENDS:  # importing Keras would raise a traceback
    raise InputError(f"KERAS_BACKEND = {_CHOSEN} is not one of {', '.join(BACKENDS)}.")
if importlib.util.find_spec(_CHOSEN) is None:
    raise InputError(f"KERAS_BACKEND = {_CHOSEN} is not installed: pip install 'heedful[{_CHOSEN}]'.")

# Keras imports these, but hardly ever uses them: drawing, and wrappers that import all of scikit-learn.
with postponed("matplotlib.pyplot", "matplotlib.patches", "keras.wrappers"):
    import keras

NAME = keras.backend.backend()


def jax_on_cpu() -> bool:
    """Return whether the backend is JAX on a CPU."""
    if NAME != "jax":
        return False
    import jax

    return jax.default_backend() == "cpu"


def on_gpu() -> bool:
    """Return whether the backend is JAX on a GPU, of any vendor."""
    if NAME != "jax":
        return False
    import jax

    return jax.local_devices()[0].platform == "gpu"


def has_fused_attention() -> bool:
    """Return whether JAX has cuDNN's fused attention here: NVIDIA GPUs since Ampere."""
    if NAME != "jax":
        return False
    import jax

    device = jax.local_devices()[0]
    if not on_gpu() or "cuda" not in getattr(device.client, "platform_version", ""):
        return False
    return int(device.compute_capability.split(".")[0]) >= OLDEST_FUSED


def runs_ahead() -> bool:
    """Return whether the host may prepare the next batch while the device computes: JAX on an accelerator."""
    return NAME == "jax" and not jax_on_cpu()


def parallel_programs() -> int:
    """Return how many programs one device runs best in parallel: one per core with JAX on a CPU, otherwise one.

    XLA parallelizes only large operations on a CPU; torch and TensorFlow use all cores by themselves.
    """
    return cores() if jax_on_cpu() else 1


def device() -> str:
    """Return the name of the device that computes, such as `cpu` or `NVIDIA H100`."""
    if NAME == "jax":
        import jax

        return jax.local_devices()[0].device_kind
    if NAME == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    import tensorflow

    devices = tensorflow.config.list_physical_devices("GPU")
    details = tensorflow.config.experimental.get_device_details(devices[0]) if devices else {}
    return details.get("device_name", "cpu")


def device_count() -> int:
    """Return how many devices of the kind in use this process sees; `placement` decides which of them are used."""
    if NAME == "jax":
        import jax

        return jax.local_device_count()
    if NAME == "torch":
        import torch

        return max(torch.cuda.device_count(), 1)
    import tensorflow

    return max(len(tensorflow.config.list_physical_devices("GPU")), 1)


def device_memory() -> tuple[int, int] | None:
    """Return (peak bytes in use, total bytes) of the accelerator, or None if they are not known."""
    if NAME == "jax":
        import jax

        counts = jax.local_devices()[0].memory_stats()
        return (counts["peak_bytes_in_use"], counts["bytes_limit"]) if counts else None
    if NAME == "torch":
        import torch

        if not torch.cuda.is_available():
            return None
        return torch.cuda.max_memory_allocated(), torch.cuda.mem_get_info()[1]
    return None  # TensorFlow reports the peak use, but not the total
