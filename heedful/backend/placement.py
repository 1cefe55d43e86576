"""Where arrays live: which devices compute, how batches get there, and how results come back."""

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from heedful.backend.devices import NAME, device, device_count, jax_on_cpu
from heedful.backend.processes import process_count
from heedful.backend.tensors import Tensor
from heedful.backend.threads import forget_copies
from heedful.core.errors import InputError

DEVICE_AXIS = "rows"  # name of the axis of devices
# Name of a batch array with several processes: 1 in each row of a process that wants to stop, else 0.
STOP_WISHES = "stop_wishes"
_devices: list[Any] = []  # the devices that share the rows of a batch; empty: the default device computes alone
# Whether each device keeps only a shard of the weights.
_shards_weights: contextvars.ContextVar[bool] = contextvars.ContextVar("shards_weights", default=False)
# Whether the running code sees the rows of one device.
_in_shard_map: contextvars.ContextVar[bool] = contextvars.ContextVar("in_shard_map", default=False)


def training_devices(count: int = 0) -> int:
    """Return how many devices train together, over all joined processes.

    Args:
        count: devices to use per process; 0: all that JAX sees. Other backends use one.

    Raises:
        InputError: there are fewer devices, or the backend supports only one.
    """
    if count > 1 and NAME != "jax":
        raise InputError(f"The {NAME} backend trains on one device only: use the jax backend for several.")
    if count > device_count():
        raise InputError(f"{count} devices were asked for, and JAX sees {device_count()}.")
    return process_count() * (1 if NAME != "jax" else count or device_count())


@contextlib.contextmanager
def using_devices(count: int = 0, processes: bool = False, shard: bool = False) -> Iterator[None]:
    """Train on several devices inside this context: each computes a part of every batch's rows.

    Args:
        count: as for `training_devices`.
        processes: whether to use the devices of all joined processes, which must run the same programs in this
            context, or only those of this process.
        shard: whether each device keeps a part of the weights, instead of a copy.
    """
    count, before = training_devices(count) // process_count(), _devices[:]
    _devices.clear()
    if count > 1 or (processes and process_count() > 1):
        import jax

        of_each: dict[int, list[Any]] = {}
        for one in jax.devices() if processes else jax.local_devices():
            of_each.setdefault(one.process_index, []).append(one)
        _devices[:] = [one for index in sorted(of_each) for one in of_each[index][:count]]
    shards = _shards_weights.set(shard)
    try:
        yield
    finally:
        _shards_weights.reset(shards)
        _devices[:] = before


def _sharding(*axes):
    import jax

    mesh = jax.sharding.Mesh(np.array(_devices), (DEVICE_AXIS,))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))


def distribute(variables: Iterable[keras.Variable]) -> None:
    """Give each device that trains a copy of each variable, or its shard; `collect` undoes this."""
    if _devices:
        forget_copies()  # of the last validation
        for variable in variables:
            variable.assign(_distributed(variable.value))


def keep_distribution(values: Any) -> Any:
    """Constrain arrays that a compiled program computes to the shardings that `distribute` uses; return them."""
    if not _devices:
        return values
    import jax

    return jax.tree.map(lambda value: jax.lax.with_sharding_constraint(value, _sharding_of(value)), values)


def _sharding_of(value):
    """Return the sharding of a variable: replicated, unless weights are sharded and it has several axes.

    Then it is split along the first axis whose size is a multiple of the number of devices, if there is one.
    """
    if _shards_weights.get() and value.ndim > 1:
        for axis, size in enumerate(value.shape):
            if size % len(_devices) == 0:
                return _sharding(*[None] * axis, DEVICE_AXIS)
    return _sharding()


def _distributed(value):
    import jax

    sharding = _sharding_of(value)
    if value.sharding.is_equivalent_to(sharding, value.ndim):
        return value
    if sharding.is_fully_addressable:
        return jax.device_put(value, sharding)
    if not sharding.is_fully_replicated:
        return jax.make_array_from_callback(value.shape, sharding, np.asarray(value).__getitem__)
    # `device_put` would compare the values of all processes.
    copies = [jax.device_put(value, one) for one in _devices if one.process_index == jax.process_index()]
    return jax.make_array_from_single_device_arrays(value.shape, sharding, copies)


def collect(variables: Iterable[keras.Variable]) -> None:
    """Gather each distributed variable, whole, onto the first local device; every process takes part."""
    if NAME != "jax":
        return
    import jax

    variables = [variable for variable in variables if len(variable.value.sharding.device_set) > 1]
    elsewhere = [variable for variable in variables if not is_whole_here(variable)]
    if elsewhere:
        replicate = jax.jit(lambda values: values, out_shardings=_sharding())
        for variable, value in zip(elsewhere, replicate([variable.value for variable in elsewhere]), strict=True):
            variable.assign(value)
    for variable in variables:
        value = variable.value
        replicated = value.is_fully_replicated
        variable.assign(value.addressable_data(0) if replicated else jax.device_put(value, jax.local_devices()[0]))


def is_whole_here(array: Any) -> bool:
    """Return whether this process has all parts of a variable or an array; they may be spread over processes."""
    if NAME != "jax":
        return True
    import jax

    value = array.value if isinstance(array, keras.Variable) else array
    return not isinstance(value, jax.Array) or value.is_fully_replicated or value.is_fully_addressable


def distribute_batch(batch: dict[str, np.ndarray], replicated: Sequence[str], stop: bool = False) -> dict[str, Any]:
    """Return a batch in the form that `fit` takes; with several processes, each puts its rows on its devices.

    Args:
        batch: all rows; the same in each process.
        replicated: names of the arrays that every device gets whole.
        stop: whether this process wants to stop. `Objective` sums this, so every process sees it.
    """
    if process_count() == 1 or not _devices:
        return batch
    import jax

    rows = next(len(array) for name, array in batch.items() if name not in replicated)
    batch = batch | {STOP_WISHES: np.full(rows, stop, np.float32)}
    placed = {}
    for name, array in batch.items():
        sharding = _sharding() if name in replicated else _sharding(DEVICE_AXIS)
        array = array if name in replicated else _divisible(array)
        placed[name] = jax.make_array_from_callback(array.shape, sharding, array.__getitem__)
    return placed


def sum_over_devices(
    function: Callable[[Mapping[str, Any]], Any],
    model: keras.Model,
    batch: Mapping[str, Any],
    replicated: Sequence[str],
) -> Any:
    """Return `function(batch)`, an array of sums over the rows of a batch; each device sums over its own rows.

    If the number of rows is not a multiple of the number of devices, rows of zeros are appended. The gradient is summed
    over the devices too.

    Args:
        function: it may read all variables of `model`, and change those that are not trainable.
        model: the model.
        batch: arrays by name, with the same number of rows.
        replicated: names of the arrays that every device gets whole.
    """
    if not _devices:
        return function(batch)
    import jax

    whole, by_rows = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(DEVICE_AXIS)
    rows = {name: _divisible(array) for name, array in batch.items() if name not in replicated}
    others = {name: batch[name] for name in replicated if name in batch}
    variables, non_trainable = model.variables, model.non_trainable_variables
    pack, unpack = _joined_into_one(variables)

    def local(values, rows, others):
        values, inside = unpack(values), _in_shard_map.set(True)
        try:
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))) as scope:
                sums = function(rows | others)
        finally:
            _in_shard_map.reset(inside)
        new_values = [scope.get_current_value(variable) for variable in non_trainable]
        return jax.lax.psum(sums, DEVICE_AXIS), new_values

    on_devices = jax.shard_map(
        local, mesh=_sharding().mesh, in_specs=(whole, by_rows, whole), out_specs=(whole, whole), check_vma=False
    )
    sums, new_values = on_devices(pack([variable.value for variable in variables]), rows, others)
    for variable, value in zip(non_trainable, new_values, strict=True):
        variable.assign(value)
    return sums


def _joined_into_one(variables):
    """Return `pack`, which joins the trainable float32 values of `variables` into one vector, and its inverse `unpack`.

    So processes exchange one gradient array: Gloo needs milliseconds per array.
    """
    if process_count() == 1 or not jax_on_cpu():
        return (lambda values: values), (lambda values: values)
    joined = [index for index, variable in enumerate(variables) if variable.trainable and variable.dtype == "float32"]
    ends = np.cumsum([math.prod(variables[index].shape) for index in joined])

    def pack(values):
        vector = ops.concatenate([ops.reshape(values[index], -1) for index in joined])
        return vector, [value for index, value in enumerate(values) if index not in joined]

    def unpack(packed):
        vector, rest = packed
        parts = dict(zip(joined, map(_with_float32_gradient(), ops.split(vector, ends[:-1].tolist())), strict=True))
        others = iter(rest)
        return [
            ops.reshape(parts[index], variable.shape) if index in parts else next(others)
            for index, variable in enumerate(variables)
        ]

    return pack, unpack


def _with_float32_gradient():
    """Return the identity with its gradient in float32: in mixed precision a weight's gradient may be bfloat16."""
    import jax

    identity = jax.custom_vjp(lambda values: values)
    identity.defvjp(lambda values: (values, None), lambda _, gradient: (gradient.astype("float32"),))
    return identity


def _divisible(array):
    """Append rows of zeros to an array so that each device gets the same number of rows."""
    missing = -array.shape[0] % len(_devices)
    pad = np.pad if isinstance(array, np.ndarray) else ops.pad
    return pad(array, [(0, missing)] + [(0, 0)] * (len(array.shape) - 1)) if missing else array


def first_index(shape: Sequence[int]) -> Any:
    """Return the flat index, over all devices, of the first element of this device's array of a given shape."""
    if not _in_shard_map.get():
        return 0
    import jax

    return jax.lax.axis_index(DEVICE_AXIS) * math.prod(shape)


def device_summary(count: int = 0) -> str:
    """Return a line that tells the user how many devices the backend sees, and how many train."""
    used, seen = training_devices(count), device_count() * process_count()
    processes = f", in {process_count()} processes" if process_count() > 1 else ""
    return f"devices: {used} of {seen} used{processes} ({device()}), backend {NAME}"


def feed(batches: Iterable[Any], example: Any) -> Any:
    """Return the iterator `batches` in a form that `fit` accepts; its items are dicts of arrays like `example`.

    TensorFlow would infer shapes from the first two batches and refuse a later one that differs: its signature leaves
    every axis unknown.
    """
    if NAME != "tensorflow":
        return ((batch,) for batch in batches)
    import tensorflow

    signature = {name: tensorflow.TensorSpec([None] * array.ndim, array.dtype) for name, array in example.items()}
    return tensorflow.data.Dataset.from_generator(lambda: batches, output_signature=signature)


def to_numpy(array: Tensor) -> np.ndarray:
    """Return an array or variable of the backend as a NumPy array."""
    return ops.convert_to_numpy(array.value if isinstance(array, keras.Variable) else array)


def has_values(array: Tensor) -> bool:
    """Return whether an array holds numbers; False inside a compiled or symbolic computation."""
    if NAME == "jax":
        import jax

        return isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)
    if NAME == "tensorflow":
        return hasattr(array, "numpy")
    return not array.is_meta
