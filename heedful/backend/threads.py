"""Threads for independent programs. Where a process has several devices, each thread computes on one of them."""

import collections
import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from heedful.backend.devices import NAME, device_count, parallel_programs

Item = TypeVar("Item")
Result = TypeVar("Result")
AHEAD = 2  # items for each thread that are read ahead
_limits: list[int] = []  # of the contexts of `at_most_devices`
_thread = threading.local()  # `device`: of this thread
_copies: dict[tuple[int, int], tuple[Any, Any, Any]] = {}  # by device and variable: the variable, its value, the copy
_copying = threading.Lock()


@contextlib.contextmanager
def at_most_devices(count: int) -> Iterator[None]:
    """Let programs use only the first `count` devices in this context; 0: all."""
    _limits.append(count)
    try:
        yield
    finally:
        _limits.pop()


def inference_devices() -> int:
    """Return how many devices of this process independent programs use; one on TensorFlow and torch."""
    if NAME != "jax":
        return 1
    return min([device_count(), *filter(None, _limits)])


def workers() -> int:
    """Return how many searches to run in parallel: one on each device, and at least as many as suit one device."""
    return max(inference_devices(), parallel_programs())


def spread(function: Callable[[Item], Result], items: Iterable[Item], count: int | None = None) -> Iterator[Result]:
    """Yield the results of `function` for all items, in order, computed by some threads.

    Args:
        function: runs compiled programs.
        items: read a little ahead.
        count: how many threads; None: one for each device. With one, all is computed in the calling thread.
    """
    count = inference_devices() if count is None else count
    items = iter(items)
    first = list(itertools.islice(items, 2))
    if count == 1 or len(first) < 2:
        yield from map(function, itertools.chain(first, items))
        return
    numbers, precision = itertools.count(), _product_precision()
    pool = ThreadPoolExecutor(count, initializer=lambda: _begin(next(numbers), precision))
    try:
        waiting: collections.deque[Future[Result]] = collections.deque()
        for item in itertools.chain(first, items):
            waiting.append(pool.submit(function, item))
            if len(waiting) > AHEAD * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _product_precision():
    """Return the precision of matrix products that JAX uses in this thread; None: the default."""
    if NAME != "jax":
        return None
    import jax

    config: Any = jax.config  # its options are no declared attributes
    return config.jax_default_matmul_precision


def _begin(number, precision):
    """Prepare a new thread to compute as the one that created it does."""
    use_device(number)
    if precision is not None:
        import jax

        jax.default_matmul_precision(precision).__enter__()  # as long as the thread lives


def use_device(number: int) -> None:
    """Let the programs that this thread runs compute on the device with this number, modulo how many there are."""
    count = inference_devices()
    if count > 1:
        import jax

        _thread.device = jax.local_devices()[number % count]


def weights_here(variables: Sequence[Any]) -> list[Any]:
    """Return the values of Keras variables on the device of this thread."""
    device = getattr(_thread, "device", None)
    if device is None:
        return [variable.value for variable in variables]
    with _copying:
        return [_copy(variable, device) for variable in variables]


def forget_copies() -> None:
    """Release the memory of all copies of weights."""
    with _copying:
        _copies.clear()


def _copy(variable, device):
    """Return the value of a variable on a device. It is copied once, and again after it has changed."""
    import jax

    value, key = variable.value, (device.id, id(variable))
    owner, copied, copy = _copies.get(key, (None, None, None))
    if owner is None or owner() is not variable or copied is not value:
        parts = {part.device: part.data for part in value.addressable_shards} if value.is_fully_replicated else {}
        copy = parts[device] if device in parts else jax.device_put(value, device)
        _copies[key] = weakref.ref(variable, lambda _: _copies.pop(key, None)), value, copy
    return copy
