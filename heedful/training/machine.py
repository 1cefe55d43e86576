"""The machine's capacity for training: its rate of matrix products and its memory."""

import contextlib
import functools
import re
import time
from pathlib import Path

import psutil
from keras import ops

from heedful import backend
from heedful.core import memory

# Peak dense TFLOP/s of well-known GPUs: bfloat16 (V100, T4: float16), and float32 as JAX and TensorFlow multiply it by
# default (TF32 where supported). From the vendors' data sheets, without sparsity.
GPUS = {
    "B200": (2250, 1125), "H200": (989, 494), "H100 PCIe": (756, 378), "H100": (989, 494), "GH200": (989, 494),
    "L40S": (362, 183), "L40": (181, 90.5), "L4": (121, 60), "A100": (312, 156), "A40": (150, 75), "A30": (165, 82),
    "A10": (125, 62.5), "V100": (125, 15.7), "T4": (65, 8.1), "RTX 4090": (165, 82.6), "RTX 3090": (71, 35.6),
}  # fmt: skip
SIZES = 2048, 1024, 1024  # sizes of the matrix product timed on a CPU: too large for its caches


def product_rate(precision: str = "float32") -> float | None:
    """Return the peak rate of matrix products in operations per second; None for an unknown GPU.

    On a CPU it is measured, in a fifth of a second or less; for a GPU it is the vendor's figure (`GPUS`).
    """
    name = backend.device()
    if name != "cpu":
        rates = next((rates for gpu, rates in GPUS.items() if re.search(rf"\b{gpu}\b", name)), None)
        return rates and rates[precision == "float32"] * 1e12
    rows, inner, columns = SIZES
    dtype = "float32" if precision == "float32" else "bfloat16"
    one, other = ops.ones((rows, inner), dtype), ops.ones((inner, columns), dtype)
    seconds = []
    for _ in range(10):
        began = time.perf_counter()
        backend.to_numpy(backend.multiply(one, other)[0, :1])
        seconds.append(time.perf_counter() - began)
    return 2 * rows * inner * columns / min(seconds)


def peak_memory() -> int:
    """Return the peak memory use in bytes: of the accelerator if there is one, else of this process."""
    if accelerator := backend.device_memory():
        return accelerator[0]
    return memory.peak()


def memory_limit() -> int:
    """Return the memory limit in bytes: of the accelerator, or of this process on the host.

    On the host it is the memory that was available at the first call, including that of the process, but at most the
    limit of its control group (version 2, as seen from inside a container).
    """
    if accelerator := backend.device_memory():
        return accelerator[1]
    return _host_memory()


@functools.cache
def _host_memory():
    limits = [psutil.virtual_memory().available + psutil.Process().memory_info().rss]
    with contextlib.suppress(OSError):  # this file exists only on Linux
        group = Path("/sys/fs/cgroup/memory.max").read_text("ascii").strip()
        limits += [int(group)] if group.isdigit() else []
    return min(limits)
