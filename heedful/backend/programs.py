"""Compiled programs: compilation, loops, seeds, precision and the compilation cache."""

import contextlib
import functools
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from heedful.backend.devices import NAME, jax_on_cpu, on_gpu
from heedful.backend.tensors import Tensor
from heedful.backend.threads import weights_here
from heedful.core import memory
from heedful.core.cache import cache_folder
from heedful.core.errors import InputWarning
from heedful.core.processors import cores

# For loops of small steps on a CPU: only matrix products call XLA's library kernels, all else is compiled. By default
# sums and maxima use the library too, although the call costs more than the operation.
LOOP_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}
# For programs that run once or twice on little data, so that compiling them takes most of the time.
BRIEF_OPTIONS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# On a GPU most of that time goes into trying kernels for each matrix product.
BRIEF_GPU_OPTIONS = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
_KEPT_IN: set[str] = set()  # compilation cache folders that heedful has set
_COMPILED = "/jax/core/compile/backend_compile_duration"  # the event that JAX records after each compilation
_LARGE = 0.5  # seconds; programs that take longer to compile or load use much memory


def _after_compiling(event, duration_secs, **_):
    """Release the memory that compiling a large program used."""
    if event == _COMPILED and duration_secs > _LARGE:
        memory.release_free_memory()


if NAME == "jax":
    import jax.monitoring

    jax.monitoring.register_event_duration_secs_listener(_after_compiling)


def compiled(
    function: Callable[..., Any], model: Any, loop: bool = False, brief: bool = False, overwrite: bool = False
) -> Callable[..., Any]:
    """Return `function` compiled for the backend. It may read all weights of `model`; its arguments are arrays.

    JAX receives the current weights at each call and compiles a program for each new shape of the arguments.
    TensorFlow uses one graph for all lengths. Torch runs the function eagerly, without recording gradients.

    With `loop`, JAX on a CPU uses compiler options for many small steps, and TensorFlow builds a graph for each shape.
    With `brief`, JAX compiles faster, to a slower program.
    With `overwrite`, JAX may store results in the memory of the first argument, which must not be used afterwards.
    """
    if NAME == "jax":
        import jax

        variables = model.variables  # collected once: it takes as long as a call of a small program

        @functools.partial(
            jax.jit, compiler_options=_compiler_options(loop, brief), donate_argnums=1 if overwrite else ()
        )
        def pure(values, overwritten, arguments):
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return function(*overwritten, *arguments)

        def run(*arguments):
            split = int(overwrite)
            return pure(weights_here(variables), arguments[:split], arguments[split:])

        return run
    if NAME == "tensorflow":
        import tensorflow

        return tensorflow.function(function, reduce_retracing=not loop)
    if NAME == "torch":
        import torch

        return torch.inference_mode()(function)
    raise NotImplementedError(f"heedful runs on jax, tensorflow and torch, not on {NAME}.")


def _compiler_options(loop, brief):
    """Return JAX's compiler options for a program, or None; see `compiled`."""
    if not jax_on_cpu():
        return BRIEF_GPU_OPTIONS if brief and on_gpu() else None
    return {**(LOOP_OPTIONS if loop else {}), **(BRIEF_OPTIONS if brief else {})} or None


def set_seed(seed: int | None) -> None:
    """Seed the random numbers from which fresh weights and dropout seeds are drawn."""
    if NAME == "jax":  # set_random_seed would also import an installed TensorFlow, which takes seconds
        random.seed(seed)
    else:
        keras.utils.set_random_seed(seed)


def write_state(model: keras.Model) -> None:
    """Write the state of a running `fit` into the variables of a model; only JAX keeps it elsewhere."""
    if hasattr(model, "jax_state_sync"):
        model.jax_state_sync()


def finish(loss: Tensor, began: float) -> float:
    """Wait until an update is done and its memory is free; return its loss. `began` is its start (`time.monotonic`).

    XLA frees the memory of an update shortly after its results are ready. An update that begins earlier allocates more
    memory, which the process then keeps. So this pauses for 1 % of the update, at most a millisecond.
    """
    loss = float(loss)
    if jax_on_cpu():
        time.sleep(min(0.001, (time.monotonic() - began) / 100))
    return loss


def scan(function: Callable[..., Any], carry: Any, inputs: Any, length: int) -> Any:
    """Fold `function(carry, items) -> (carry, output)` over the first axis of `inputs`; stack the outputs.

    JAX compiles one loop. Other backends run a Python loop: Keras' scan for TensorFlow assumes that outputs have the
    shape of the carry, and torch has no compiled scan.
    """
    if NAME == "jax" and length > 1:
        return ops.scan(function, carry, inputs, length=length)
    outputs = []
    for index in range(length):
        carry, output = function(carry, tuple(x[index] for x in inputs))
        outputs.append(output)
    return carry, ops.stack(outputs)


def fusion_barrier(values: Any) -> Any:
    """Return `values`, one or several tensors, through a barrier that XLA does not fuse across."""
    if NAME != "jax":
        return values
    import jax

    return jax.lax.optimization_barrier(values)


def keep_compilations() -> None:
    """Keep compiled programs in the cache folder, so that a second run with the same shapes starts at once (JAX only).

    Small programs are kept too: together they take seconds to compile, and their files are small. A folder that the
    user has already configured in JAX is kept. Warns with an `InputWarning` if there is no folder to write to.
    """
    if NAME != "jax":
        return
    try:
        # XLA compiles for a number of threads, which JAX leaves out of the names of programs.
        _keep_in(cache_folder() / f"compiled-jax-{cores()}-cores")
    except (OSError, RuntimeError) as error:  # there may be no home folder
        advice = "compiled programs are not kept; HEEDFUL_CACHE may name a folder for them"
        reason = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else error
        warnings.warn(f"{advice}: {reason}", InputWarning, stacklevel=2)


def keeps_compilations() -> bool:
    """Return whether compiled programs are kept, so that the same program is not compiled twice."""
    if NAME != "jax":
        return False
    import jax

    return bool(jax.config.jax_compilation_cache_dir)  # type: ignore[attr-defined]


def _keep_in(folder):
    """Let JAX keep compiled programs in a folder, unless the user has configured one."""
    import jax

    if jax.config.jax_compilation_cache_dir not in (None, *_KEPT_IN):  # type: ignore[attr-defined]
        return
    folder.mkdir(parents=True, exist_ok=True)
    _KEPT_IN.add(os.fspath(folder))
    jax.config.update("jax_compilation_cache_dir", os.fspath(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


@contextlib.contextmanager
def full_float32_products() -> Iterator[None]:
    """Multiply float32 in full precision inside this context; GPUs may use TF32 by default."""
    if jax_on_cpu():  # it always does, and JAX would compile everything once more for the context
        yield
    elif NAME == "jax":
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
        yield  # the default of torch
