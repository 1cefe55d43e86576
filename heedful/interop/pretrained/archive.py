"""Import of models that Keras saved (`.keras` or `.h5`). Keras loads them only if the user trusts the file.

Such a file names the classes and functions of its model, and Keras imports and calls them. Keras' safeguards have had
vulnerabilities (CVE-2024-3660, CVE-2025-1550, CVE-2025-8747, CVE-2025-9905, CVE-2025-9906 and others), so an untrusted
file must not reach the loader.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from heedful.config import Config, DataConfig, ModelConfig, TokenizerConfig
from heedful.config.architecture import Architecture
from heedful.core.errors import InputError
from heedful.core.plugins import find_task
from heedful.data.tokenizer import Tokenizer
from heedful.runs.run import Run
from heedful.runs.weights import weights_by_name

MODELS = {"Transformer": "translate", "CausalLM": "generate", "MaskedLM": "fill"}  # task by class
ENDINGS = (".keras", ".h5", ".hdf5")


def import_archive(source: str | Path, path: str | Path, tokenizers: Sequence[str | Path], trust: bool) -> "Run":
    """Create a run from a `Transformer`, `CausalLM` or `MaskedLM` that was saved with `model.save`.

    Args:
        source: the file.
        path: the new run folder.
        tokenizers: tokenizer files: one for all text, or one each for source and target.
        trust: whether to load the file although it can run any code.

    Raises:
        InputError: the file is not trusted, is missing, holds another kind of model, or does not fit the tokenizers.
    """
    if not trust:
        raise InputError(
            f"{source} was written by Keras: loading it can run any code in it. If you know where it comes from, "
            "pass --trust; otherwise ask for safetensors."
        )
    if not tokenizers:
        raise InputError(f"{source} has no tokenizer in it: name one with --tokenizer, or those of source and target.")
    model = _load(source)
    name = MODELS.get(type(model).__name__)
    if name is None or not isinstance(getattr(model, "architecture", None), Architecture):
        raise InputError(f"{source} holds a {type(model).__name__}, which is no Transformer, CausalLM or MaskedLM.")
    loaded = [Tokenizer.load(file) for file in tokenizers]
    sizes = find_task(name).vocabulary_sizes(model)
    if len(loaded) not in (1, len(sizes)):
        raise InputError(f"A run of task {name!r} has {len(sizes)} tokenizers at most, not {len(loaded)}.")
    tokenizer_sizes = [len(tokenizer) for tokenizer in (loaded * len(sizes) if len(loaded) == 1 else loaded)]
    if tokenizer_sizes != sizes:
        raise InputError(f"{source} has vocabularies of {sizes} entries, the tokenizers have {tokenizer_sizes}.")
    config = Config(
        task=name,
        name=Path(path).name,
        data=DataConfig(max_tokens=min(100, model.architecture.max_length)),
        tokenizer=TokenizerConfig(joint=len(loaded) == 1, vocab_size=max(sizes)),
        model=ModelConfig(**dataclasses.asdict(model.architecture)),
    )
    return Run.create(path, config, *loaded, weights=weights_by_name(model))


def _load(source):
    if not Path(source).is_file():
        raise InputError(f"{source} does not exist.")
    import keras

    from heedful import models  # noqa: F401 - registers our classes

    try:
        return keras.saving.load_model(source, compile=False, safe_mode=True)
    except Exception as error:  # Keras raises many types
        reason = str(error).split("\n", 1)[0]
        raise InputError(f"{source} cannot be loaded: {reason}") from error
