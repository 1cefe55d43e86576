"""Import a pretrained model from a folder, the Hugging Face hub or a Keras file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from heedful import backend
from heedful.core.errors import InputError, extra_needed
from heedful.interop.pretrained.architectures import LAYOUTS
from heedful.interop.pretrained.archive import ENDINGS, import_archive
from heedful.interop.pretrained.folder import PretrainedFolder
from heedful.runs.run import CONFIG, LOADED, Run
from heedful.runs.weights import load_weights, weights_by_name

HEAD = ("transform/", "transform_norm/")  # prefixes of the weights that a bare encoder lacks
WANTED = ["*.json", "*.safetensors", "vocab.txt", "*.spm"]  # files to fetch from the hub; never a pickle


def import_model(
    source: str | Path,
    path: str | Path,
    tokenizers: Sequence[str | Path] = (),
    trust: bool = False,
    source_language: str | None = None,
    target_language: str | None = None,
) -> "Run":
    """Create a run from a pretrained model.

    Args:
        source: a folder in the Hugging Face layout, of a class in `architectures.py`, the name of a model on the hub,
            or a file that Keras saved.
        path: the new run folder.
        tokenizers, trust: for Keras files, see `import_archive`.
        source_language, target_language: for models whose texts begin with their language, as those of mBART-50 do:
            the tokens, such as `de_DE`; None: as the files of the folder say.

    Returns:
        The `Run`, with task `fill`, `classify`, `generate` or `translate`.

    Raises:
        InputError: the architecture is unknown; a tensor is missing, superfluous or of the wrong shape; a file is
            missing or is a pickle; the run folder already holds files of a run.
    """
    path = Path(path)
    if there := [name for name in LOADED if (path / name).exists()]:
        held = "already holds a run" if CONFIG in there else f"holds {there[0]}, which would be written over"
        raise InputError(f"{path} {held}: choose another folder.")
    if str(source).endswith(ENDINGS):
        if source_language or target_language:
            raise InputError(f"{source}: texts of such a model do not begin with their language.")
        return import_archive(source, path, tokenizers, trust)
    if tokenizers or trust:
        raise InputError(f"{source}: a tokenizer of your own, and trust, are for files that Keras saved.")
    folder = PretrainedFolder(_find(source), source_language, target_language)
    kind = folder.setting("model_type")
    if kind not in LAYOUTS:
        raise InputError(f"{folder.path} holds a model of type {kind!r}; known are {', '.join(LAYOUTS)}.")
    if (source_language or target_language) and not getattr(LAYOUTS[kind], "languages", False):
        raise InputError(f"Texts of a model of type {kind!r} do not begin with their language.")
    try:
        imported = LAYOUTS[kind].read(folder)
    except InputError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # such as sizes that are strings
        raise InputError(f"{folder.path} is malformed: {type(error).__name__}: {error}") from error
    folder.tensors.finish()
    weights = {name: np.ascontiguousarray(array) for name, array in imported.weights.items()}
    backend.set_seed(imported.config.train.seed)
    model = Run(path, imported.config, *imported.tokenizers).build_model()
    if imported.config.model.untrained_head:
        fresh = weights_by_name(model)
        weights = {name: fresh[name] for name in fresh if name.startswith(HEAD)} | weights
    load_weights(model, weights, folder.path)
    return Run.create(path, imported.config, *imported.tokenizers, weights=weights)


def _find(source):
    if Path(source).exists() or str(source).count("/") > 1 or str(source).startswith((".", "/", "~")):
        return source
    with extra_needed("hub", f"There is no folder {source}; to fetch a model of that name from the hub"):
        from huggingface_hub import snapshot_download
    try:
        return snapshot_download(str(source), allow_patterns=WANTED)
    except Exception as error:
        raise InputError(f"There is no folder {source}, and fetching it from the hub failed: {error}") from error
