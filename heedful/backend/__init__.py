"""The only backend-specific code: which backend and device there are, its programs, and its matrix products."""

from heedful.backend.hardware import NAME, cores, device, device_memory, workers
from heedful.backend.products import affine, look_up, multiply, multiply_transposed
from heedful.backend.programs import (
    apart,
    compiled,
    feed,
    finish,
    keep_compilations,
    precise,
    scan,
    set_seed,
    to_numpy,
)

__all__ = [
    "NAME", "affine", "apart", "compiled", "cores", "device", "device_memory", "feed", "finish",
    "keep_compilations", "look_up", "multiply", "multiply_transposed", "precise", "scan", "set_seed", "to_numpy",
    "workers",
]  # fmt: skip
