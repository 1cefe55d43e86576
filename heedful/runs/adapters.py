"""Low-rank adapters (LoRA, Hu et al. 2021): trained beside frozen matrices, then merged into them and kept apart.

A matrix W becomes W + alpha / rank A B, with A (inputs, rank) and B (rank, outputs). B starts at zero, so the first
output is that of the base model.
"""

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from heedful.core.errors import InputError
from heedful.core.storage import name_in_model, read_checked, with_checksum, write_atomically

if TYPE_CHECKING:
    import keras

FILE = "adapter.safetensors"  # in a run folder
MATRICES = ("kernel", "embeddings")  # names of the matrices that can have an adapter
MARK = "lora_"  # Keras calls the parts of an adapter lora_kernel_a and lora_kernel_b


class Adapter(NamedTuple):
    """A trained adapter.

    Args:
        parts: A and B by the name of their matrix.
        replaced: whole weights by name, trained along with the adapter, such as the output of a classifier.
        scale: alpha / rank.
        base: fingerprint of the weights that it was trained on.
    """

    parts: dict[str, tuple[np.ndarray, np.ndarray]]
    replaced: dict[str, np.ndarray]
    scale: float
    base: str


def is_adapter_weight(name: str) -> bool:
    """Return whether a weight of a model belongs to an adapter."""
    return name.rsplit("/", 1)[-1].startswith(MARK)


def add_adapters(
    model: "keras.Model", patterns: Sequence[str], rank: int, alpha: float, seed: int,
    whole: Callable[[str], bool] = lambda name: False,
) -> None:  # fmt: skip
    """Add an adapter to each matrix whose name matches one of the shell `patterns`, and freeze the matrix.

    Args:
        model: a built model.
        patterns: such as `*/self_attention/*/kernel`.
        rank: of the product A B.
        alpha: factor of the product, divided by `rank`; 0: the rank, so that the factor is 1.
        seed: of the initial values of A.
        whole: says of a name whether its matrix is trained as a whole, without an adapter.

    Raises:
        InputError: a pattern matches no matrix; the message names some.
    """
    import keras

    matrices = {name: layer for layer in model._flatten_layers() for name in _matrices(layer)}
    for pattern in patterns:
        if not fnmatch.filter(matrices, pattern):
            some = ", ".join(sorted(matrices)[:3])
            raise InputError(f"train.lora_weights: no matrix matches {pattern!r}; there are {some}, ...")
    for number, (name, layer) in enumerate(sorted(matrices.items())):
        if not whole(name) and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            start = keras.initializers.HeUniform(seed=(seed * 1_000_003 + number) % 2**31)
            layer.enable_lora(rank, lora_alpha=alpha or rank, a_initializer=start)


def _matrices(layer) -> Iterable[str]:
    """Yield the name of the matrix of a layer that can have an adapter."""
    for kind in MATRICES:
        matrix = getattr(layer, f"_{kind}", None) if layer.built and hasattr(layer, "enable_lora") else None
        if matrix is not None:
            yield name_in_model(matrix)


def adapted_layers(model: "keras.Model") -> dict[str, Any]:
    """Return the layers with an adapter by the names of their matrices."""
    layers = (layer for layer in model._flatten_layers() if getattr(layer, "lora_enabled", False))
    return {name: layer for layer in layers for name in _matrices(layer)}


def parts_of(layer: Any) -> tuple[Any, Any]:
    """Return the variables A and B of a layer with an adapter."""
    [kind] = [kind for kind in MATRICES if hasattr(layer, f"{MARK}{kind}_a")]
    return getattr(layer, f"{MARK}{kind}_a"), getattr(layer, f"{MARK}{kind}_b")


def adapter_of(model: "keras.Model", base: str) -> Adapter:
    """Return the adapter of a model in training, with everything else that is trained."""
    from heedful import backend

    layers = adapted_layers(model)
    parts = {}
    for name, layer in layers.items():
        a, b = parts_of(layer)
        parts[name] = backend.to_numpy(a), backend.to_numpy(b)
    replaced = {name_in_model(weight): backend.to_numpy(weight) for weight in model.trainable_weights}
    replaced = {name: array for name, array in replaced.items() if not is_adapter_weight(name)}
    first = next(iter(layers.values()))
    return Adapter(parts, replaced, first.lora_alpha / first.lora_rank, base)


def merged(arrays: Mapping[str, np.ndarray], adapter: Adapter, origin: object) -> dict[str, np.ndarray]:
    """Return weights by name with an adapter merged into them.

    Raises:
        InputError: the adapter is for a model with other weights; the message names `origin`.
    """
    sums = dict(arrays)
    for name, (a, b) in adapter.parts.items():
        if name not in sums or sums[name].shape != (a.shape[0], b.shape[1]):
            raise InputError(f"{origin} does not fit: the model has no matrix {name} {(a.shape[0], b.shape[1])}.")
        sums[name] = sums[name] + np.float32(adapter.scale) * (a @ b)
    for name, array in adapter.replaced.items():
        if name not in sums or sums[name].shape != array.shape:
            raise InputError(f"{origin} does not fit: the model has no weight {name} {array.shape}.")
        sums[name] = array
    return sums


def write_adapter(path: Path, adapter: Adapter) -> None:
    """Write an adapter to a safetensors file."""
    arrays = dict(adapter.replaced)
    for name, (a, b) in adapter.parts.items():
        arrays |= {f"{name}/a": a, f"{name}/b": b}
    metadata = {"format": "1", "base": adapter.base, "scale": repr(adapter.scale)}
    write_atomically(path, with_checksum(arrays, metadata))


def adapter_file(path: str | Path) -> Path:
    """Return the file of an adapter that is named by itself, or by the run folder that trained it."""
    return Path(path) / FILE if Path(path).is_dir() else Path(path)


def read_adapter(path: str | Path) -> Adapter:
    """Read an adapter: a file, or the run folder that trained it.

    Raises:
        InputError: there is none, or the file is damaged or no adapter.
    """
    path = adapter_file(path)
    if not path.is_file():
        raise InputError(f"There is no adapter {path}; a training with train.lora_rank writes one.")
    arrays, metadata = read_checked(path)
    matrices = [name.removesuffix("/a") for name in arrays if name.endswith("/a")]
    try:
        parts = {name: (arrays[f"{name}/a"], arrays[f"{name}/b"]) for name in matrices}
        scale, base = float(metadata["scale"]), metadata["base"]
    except (KeyError, ValueError) as error:
        raise InputError(f"{path} is no adapter of heedful.") from error
    if any(a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] for a, b in parts.values()):
        raise InputError(f"{path} is no adapter of heedful: the shapes of its matrices do not fit.")
    replaced = {name: array for name, array in arrays.items() if name.rpartition("/")[0] not in parts}
    return Adapter(parts, replaced, scale, base)


def read_adapter_of(path: str | Path, base: str, run: object) -> Adapter:
    """Read an adapter that must have been trained on the weights with the fingerprint `base`, those of a `run`.

    Raises:
        InputError: as `read_adapter`, or it was trained on other weights.
    """
    adapter = read_adapter(path)
    if adapter.base != base:
        raise InputError(f"{path} was trained on weights {adapter.base}; those of {run} are {base}.")
    return adapter
