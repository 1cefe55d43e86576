"""Environment variables with which another process sees one device only."""

import os
import re

from heedful.backend.devices import NAME

COUNT_FLAG = re.compile(r"--xla_force_host_platform_device_count=\d+")
# Variables that choose among the accelerators of a kind, by JAX's name of the kind.
CHOOSING = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES"}


def environment_of_device(number: int) -> dict[str, str] | None:
    """Return variables with which a new process uses one of the devices of this process; None: there is no such way.

    Args:
        number: of the device, from 0.
    """
    if NAME != "jax":
        return None
    import jax

    device = jax.local_devices()[number]
    if device.platform == "cpu":
        flags = COUNT_FLAG.sub("", os.environ.get("XLA_FLAGS", ""))
        return {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=1".strip()}
    kind = "rocm" if "rocm" in getattr(device.client, "platform_version", "").lower() else "cuda"
    if device.platform != "gpu":
        return None
    visible = [name for name in os.environ.get(CHOOSING[kind], "").split(",") if name]
    chosen = visible[number] if number < len(visible) else str(number)
    # This process may have memory of the device, and another would ask for most of what it has.
    return {CHOOSING[kind]: chosen, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
