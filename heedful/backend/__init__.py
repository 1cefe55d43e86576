"""Everything that depends on the backend: devices, compiled programs, matrix products, kernels."""

from heedful.backend.devices import (  # imported first: it selects the Keras backend
    NAME,
    cores,
    device,
    device_count,
    device_memory,
    workers,
)
from heedful.backend.kernels import attend, layer_norm, relu
from heedful.backend.placement import device_summary, feed, to_numpy
from heedful.backend.products import affine, look_up, multiply, multiply_transposed
from heedful.backend.programs import (
    apart,
    compiled,
    finish,
    keep_compilations,
    precise,
    scan,
    set_seed,
)

__all__ = [
    "NAME", "affine", "apart", "attend", "compiled", "cores", "device", "device_count", "device_memory",
    "device_summary", "feed", "finish", "keep_compilations", "layer_norm", "look_up", "multiply",
    "multiply_transposed", "precise", "relu", "scan", "set_seed", "to_numpy", "workers",
]  # fmt: skip
