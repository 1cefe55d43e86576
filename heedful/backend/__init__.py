"""The only backend-specific code: which backend and device there are, its programs, and its matrix products."""

from heedful.backend.hardware import NAME, device, device_memory, workers
from heedful.backend.products import affine, multiply, multiply_transposed
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
    "NAME", "affine", "apart", "compiled", "device", "device_memory", "feed", "finish",
    "keep_compilations", "multiply", "multiply_transposed", "precise", "scan", "set_seed", "to_numpy", "workers",
]  # fmt: skip
