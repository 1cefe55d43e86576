"""Everything that depends on the backend: devices, compiled programs, matrix products, kernels."""

from typing import Any

from heedful.backend.devices import (  # imported first: it selects the Keras backend
    NAME,
    cores,
    device,
    device_count,
    device_memory,
    parallel_programs,
    runs_ahead,
)
from heedful.backend.isolation import environment_of_device
from heedful.backend.kernels import attend, layer_norm, relu
from heedful.backend.placement import (
    STOP_WISHES,
    collect,
    device_summary,
    distribute,
    feed,
    first_place,
    has_values,
    keep_distribution,
    place,
    sum_over_devices,
    to_numpy,
    training_devices,
    using_devices,
)
from heedful.backend.processes import (
    abandon,
    abandoned_on_error,
    exchange,
    from_first,
    join,
    joined_by,
    leave,
    process_count,
    process_index,
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
from heedful.backend.threads import at_most_devices, inference_devices, spread, use_device, workers

Tensor = Any
"""A tensor of the backend, or what it converts to one; backends have no type in common."""
Shape = Any
"""The shape of a tensor, in which an axis may be None, or a structure of shapes."""

__all__ = [
    "NAME",
    "STOP_WISHES",
    "Shape",
    "Tensor",
    "abandon",
    "abandoned_on_error",
    "affine",
    "at_most_devices",
    "attend",
    "collect",
    "compiled",
    "cores",
    "device",
    "device_count",
    "device_memory",
    "device_summary",
    "distribute",
    "environment_of_device",
    "exchange",
    "feed",
    "finish",
    "first_place",
    "from_first",
    "full_float32_products",
    "fusion_barrier",
    "has_values",
    "inference_devices",
    "join",
    "joined_by",
    "keep_compilations",
    "keep_distribution",
    "layer_norm",
    "leave",
    "look_up",
    "multiply",
    "multiply_transposed",
    "parallel_programs",
    "place",
    "process_count",
    "process_index",
    "relu",
    "runs_ahead",
    "scan",
    "set_seed",
    "spread",
    "sum_over_devices",
    "to_numpy",
    "training_devices",
    "use_device",
    "using_devices",
    "workers",
]
