"""Upload of an exported folder to the Hugging Face hub."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.core.errors import InputError, extra_needed
from heedful.interop.export.folders import exported_weights

if TYPE_CHECKING:
    from heedful.runs.run import Run

NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def push(
    run: "Run", folder: Path, name: str, private: bool = False, message: str = "Upload by heedful",
    report: Callable[[str], Any] = print,
) -> str:  # fmt: skip
    """Upload the export of a `Run`; return the address of the model. The hub finds its token in HF_TOKEN or a login.

    Raises:
        InputError: the name is no OWNER/NAME, the folder is no current export of the run, huggingface_hub is not
            installed, or the hub refuses or cannot be reached.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r} is no name on the hub: write OWNER/NAME.")
    if not (folder / "config.json").is_file() or exported_weights(folder) is None:
        raise InputError(f"{folder} holds no export: heedful export {run.path} --to huggingface writes one.")
    if exported_weights(folder) != run.weights_fingerprint():
        raise InputError(
            f"{folder} was exported from other weights than those of {run.path}: export again with "
            f"heedful export {run.path} --to huggingface."
        )
    with extra_needed("hub", "To upload a model"):
        from huggingface_hub import HfApi
    api = HfApi()
    report(f"uploading {folder} to {name} ...")
    try:
        api.create_repo(name, private=private, exist_ok=True)
        if private and not api.repo_info(name).private:
            raise InputError(f"{name} exists and is public: make it private first, or leave out --private.")
        api.upload_folder(repo_id=name, folder_path=folder, commit_message=message, ignore_patterns=[".*"])
    except InputError:
        raise
    except Exception as error:  # the library raises errors of its own, of its HTTP client, and of the system
        raise InputError(f"The hub did not take {folder}: {_first_line(error)}") from error
    return f"{api.endpoint}/{name}"


def _first_line(error):
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
