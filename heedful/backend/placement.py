"""Where arrays live: which devices compute, how batches get there, and how results come back."""

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from heedful.backend.devices import NAME, device, device_count
from heedful.errors import InputError

ROWS = "rows"  # name of the axis of devices
_used: list[Any] = []  # the devices that share the rows of a batch; none: the first one computes alone
_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("inside", default=False)  # a device's own rows


@contextlib.contextmanager
def using_devices(count: int = 0) -> Iterator[None]:
    """Train on several devices of this process inside this context: each computes a part of every batch's rows.

    Args:
        count: how many devices; 0: all that JAX sees. Other backends use one.

    Raises:
        InputError: there are not so many, or the backend uses only one.
    """
    if count > 1 and NAME != "jax":
        raise InputError(f"{NAME} trains on one device here: several need the backend jax.")
    if count > device_count():
        raise InputError(f"There are {device_count()} devices, not {count}.")
    count = 1 if NAME != "jax" else count or device_count()
    before = _used[:]
    if count > 1:
        import jax

        _used[:] = jax.local_devices()[:count]
    else:
        _used.clear()
    try:
        yield
    finally:
        _used[:] = before


def used_device_count() -> int:
    """Return how many devices train. One alone holds batches and weights; several hold a copy of the weights each."""
    return max(1, len(_used))


def _sharding(*axes):
    import jax

    mesh = jax.sharding.Mesh(np.array(_used), (ROWS,))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))


def replicate(variables: Iterable[keras.Variable]) -> None:
    """Put a copy of each variable on every device that trains; values assigned later are copied too."""
    if not _used:
        return
    for variable in variables:
        variable._layout = _sharding()  # as Keras does under a distribution of its own
        variable.assign(variable.value)


def sum_over_devices(
    function: Callable[[Mapping[str, Any]], Any], model: keras.Model, batch: Mapping[str, Any], whole: Sequence[str]
):
    """Return `function(batch)`, an array of sums over the rows of a batch; each device sums over its own rows.

    Rows of zeros are appended to what the devices cannot divide. The gradient is summed over the devices too.

    Args:
        function: it may read and change the variables of `model`.
        model: the model.
        batch: arrays by name, with the same number of rows.
        whole: names of arrays that every device gets as they are.
    """
    if not _used:
        return function(batch)
    import jax

    every, mesh = jax.sharding.PartitionSpec(), _sharding().mesh
    rows = {name: _divisible(array) for name, array in batch.items() if name not in whole}
    others = {name: batch[name] for name in whole if name in batch}
    variables, changing = model.variables, model.non_trainable_variables

    def local(values, rows, others):
        inside = _inside.set(True)
        try:
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))) as scope:
                sums = function(rows | others)
        finally:
            _inside.reset(inside)
        after = [scope.get_current_value(variable) for variable in changing]
        return jax.lax.psum(sums, ROWS), after

    parts = jax.sharding.PartitionSpec(ROWS)
    shared = jax.shard_map(
        local, mesh=mesh, in_specs=(every, parts, every), out_specs=(every, every), check_vma=False
    )  # fmt: skip
    sums, after = shared([variable.value for variable in variables], rows, others)
    for variable, value in zip(changing, after, strict=True):
        variable.assign(value)
    return sums


def _divisible(array):
    """Append rows of zeros to an array so that each device gets the same number of rows."""
    missing = -array.shape[0] % len(_used)
    return ops.pad(array, [(0, missing)] + [(0, 0)] * (len(array.shape) - 1)) if missing else array


def first_place(shape: Sequence[int]):
    """Return the place of the first element of an array of a given shape in the array of all devices, by rows."""
    if not _inside.get():
        return 0
    import jax

    return jax.lax.axis_index(ROWS) * math.prod(shape)


def device_summary() -> str:
    """Return a line that tells the user how many devices the backend sees and how many are used."""
    return f"devices: {used_device_count()} of {device_count()} used ({device()}), backend {NAME}"


def feed(batches, example):
    """Return the iterator `batches` in a form that `fit` accepts; its items are dicts of arrays like `example`.

    TensorFlow infers shapes from the first two batches and refuses a third that differs, so every axis is declared as
    unknown there.
    """
    if NAME != "tensorflow":
        return ((batch,) for batch in batches)
    import tensorflow

    signature = {name: tensorflow.TensorSpec([None] * array.ndim, array.dtype) for name, array in example.items()}
    return tensorflow.data.Dataset.from_generator(lambda: batches, output_signature=signature)


def to_numpy(array) -> np.ndarray:
    """Return an array or variable of the backend as a NumPy array."""
    return ops.convert_to_numpy(array.value if isinstance(array, keras.Variable) else array)


def has_values(array) -> bool:
    """Return whether an array holds numbers; False inside a compiled or symbolic computation."""
    if NAME == "jax":
        import jax

        return isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)
    if NAME == "tensorflow":
        return hasattr(array, "numpy")
    return not array.is_meta
