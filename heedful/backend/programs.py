"""Programs of the backend: a function compiled over a model, loops in it, what goes in and what comes out."""

import contextlib
import functools
import os
import random
import time
from pathlib import Path

import keras
from keras import ops

from heedful import memory
from heedful.backend.hardware import NAME, jax_on_cpu

# For loops of small steps on a CPU: products go to XLA's library kernels one by one, and all else is compiled in place.
# By default sums and maxima go there too, and each call of the library costs more than they do: with two programs side
# by side the greedy search of size `tutorial` makes 23,000 tokens/s instead of 18,500.
LOOP_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}
_KEPT_IN: set[str] = set()  # folders of compiled programs that are ours
_COMPILED = "/jax/core/compile/backend_compile_duration"  # JAX's event after a program was compiled
_LARGE = 0.5  # seconds that a program took to compile, or to load, if it is one that takes much memory


def _after_compiling(event, duration_secs, **_):
    """Give back what compiling a large program used: size `tutorial` then trains in 1.20 GiB instead of 1.28."""
    if event == _COMPILED and duration_secs > _LARGE:
        memory.give_back()


if NAME == "jax":
    import jax.monitoring

    jax.monitoring.register_event_duration_secs_listener(_after_compiling)


def compiled(function, model, loop=False):
    """Return `function` compiled for the backend; it may read every weight of `model` and gets arrays as arguments.

    On JAX the weights are passed into the compiled program at each call, so it always sees their present values, and
    a new program is made for each new shape of arguments. On TensorFlow one graph serves all lengths. On torch the
    function runs as it is, without recording gradients.

    A `loop` of many small steps is compiled for those; on TensorFlow each shape of its arguments has its own graph.
    """
    if NAME == "jax":
        import jax

        variables = model.variables  # collecting them takes as long as the call of a small program

        @functools.partial(jax.jit, compiler_options=LOOP_OPTIONS if loop and jax_on_cpu() else None)
        def pure(values, arguments):
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return function(*arguments)

        return lambda *arguments: pure([variable.value for variable in variables], arguments)
    if NAME == "tensorflow":
        import tensorflow

        return tensorflow.function(function, reduce_retracing=not loop)
    if NAME == "torch":
        import torch

        return torch.inference_mode()(function)
    raise NotImplementedError(f"heedful runs on jax, tensorflow and torch, not on {NAME}.")


def set_seed(seed):
    """Seed the random numbers from which fresh weights and dropout seeds are drawn."""
    if NAME == "jax":  # Keras would import TensorFlow too, if it is installed, and that takes seconds
        random.seed(seed)
    else:
        keras.utils.set_random_seed(seed)


def feed(batches, example):
    """Return what `fit` should be given to read the iterator `batches`, whose items are dicts of arrays like `example`.

    TensorFlow guesses shapes from the first two batches and refuses a third that differs, so there they are declared:
    every axis free.
    """
    if NAME != "tensorflow":
        return ((batch,) for batch in batches)
    import tensorflow

    signature = {name: tensorflow.TensorSpec([None] * array.ndim, array.dtype) for name, array in example.items()}
    return tensorflow.data.Dataset.from_generator(lambda: batches, output_signature=signature)


def finish(loss, began):
    """Wait until an update that `began` (by `time.monotonic`) is done and its memory is free; return its loss.

    XLA frees what an update has used a moment after its results are there. An update that begins before that gets other
    memory, which the process then keeps: 2.1 or 2.7 GiB, by chance, for size `tutorial` instead of 1.5. So there is a
    pause of a millisecond, or of a hundredth of a short update.
    """
    loss = float(loss)
    if jax_on_cpu():
        time.sleep(min(0.001, (time.monotonic() - began) / 100))
    return loss


def scan(function, carry, inputs, length):
    """Fold `function(carry, items) -> (carry, output)` over the first axis of `inputs`; stack the outputs.

    One compiled loop on JAX. Elsewhere a Python loop: Keras' scan for TensorFlow takes outputs to have the carry's
    shape, and torch has no other.
    """
    if NAME == "jax" and length > 1:
        return ops.scan(function, carry, inputs, length=length)
    outputs = []
    for index in range(length):
        carry, output = function(carry, tuple(x[index] for x in inputs))
        outputs.append(output)
    return carry, ops.stack(outputs)


def apart(values):
    """Return `values`, one or several tensors, through a barrier that XLA does not fuse across."""
    if NAME != "jax":
        return values
    import jax

    return jax.lax.optimization_barrier(values)


def keep_compilations(folder):
    """Cache compiled programs in `folder`, so that a second run of the same shapes starts at once (JAX only).

    The small ones too: together they take seconds to compile, and their files little room. A folder that the user has
    given JAX already stays the one.
    """
    if NAME != "jax":
        return
    import jax

    if jax.config.jax_compilation_cache_dir not in (None, *_KEPT_IN):
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    _KEPT_IN.add(os.fspath(folder))
    jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


@contextlib.contextmanager
def precise():
    """Multiply float32 as float32 while open; GPUs like to round it to fewer digits."""
    if NAME == "jax":
        import jax

        with jax.default_matmul_precision("highest"):
            yield
    elif NAME == "tensorflow":
        from tensorflow.config import experimental

        before = experimental.tensor_float_32_execution_enabled()
        experimental.enable_tensor_float_32_execution(False)
        try:
            yield
        finally:
            experimental.enable_tensor_float_32_execution(before)
    else:
        yield  # torch does so by itself


def to_numpy(array):
    """Return an array or variable of the backend as a NumPy array."""
    return ops.convert_to_numpy(array.value if isinstance(array, keras.Variable) else array)
