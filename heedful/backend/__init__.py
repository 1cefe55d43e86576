"""All that calls a backend by its name: which one and what device there are, its programs, products and others."""

from heedful.backend.hardware import (  # first: it chooses the backend of Keras
    NAME,
    cores,
    device,
    device_count,
    device_memory,
    device_summary,
    workers,
)
from heedful.backend.kernels import attend, layer_norm, relu
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
    "NAME", "affine", "apart", "attend", "compiled", "cores", "device", "device_count", "device_memory",
    "device_summary", "feed", "finish", "keep_compilations", "layer_norm", "look_up", "multiply",
    "multiply_transposed", "precise", "relu", "scan", "set_seed", "to_numpy", "workers",
]  # fmt: skip
