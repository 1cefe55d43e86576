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
from heedful.backend.placement import (
    device_summary,
    feed,
    first_place,
    has_values,
    replicate,
    sum_over_devices,
    to_numpy,
    used_device_count,
    using_devices,
)
from heedful.backend.products import affine, look_up, multiply, multiply_transposed
from heedful.backend.programs import (
    compiled,
    finish,
    full_float32_products,
    fusion_barrier,
    keep_compilations,
    scan,
    set_seed,
)

__all__ = [
    "NAME",
    "affine",
    "attend",
    "compiled",
    "cores",
    "device",
    "device_count",
    "device_memory",
    "device_summary",
    "feed",
    "finish",
    "first_place",
    "full_float32_products",
    "fusion_barrier",
    "has_values",
    "keep_compilations",
    "layer_norm",
    "look_up",
    "multiply",
    "multiply_transposed",
    "relu",
    "replicate",
    "scan",
    "set_seed",
    "sum_over_devices",
    "to_numpy",
    "used_device_count",
    "using_devices",
    "workers",
]  # fmt: skip
