"""The recipes that come with the package: complete named runs."""

import difflib
from pathlib import Path

from heedful.core.errors import InputError

FOLDER = Path(__file__).parent


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_recipe(name: str) -> Path:
    """Return the path of a recipe: a file, or one that comes with the package, which is named without a folder."""
    path = Path(name)
    if path.is_file():
        return path
    packaged = FOLDER / f"{path.stem}.toml"
    if path.parent == Path() and path.suffix in ("", ".toml") and packaged.is_file():
        return packaged
    if (path / "config.json").is_file():
        raise InputError(f"{name} is a run, not a recipe; heedful train --resume {name} continues its training.")
    problem = "is a folder, but no run folder" if path.is_dir() else "does not exist"
    near = difflib.get_close_matches(path.stem, recipe_names(), 1)
    advice = f" Did you mean {near[0]!r}?" if near else ""
    raise InputError(f"{name} {problem}, and is not one of the recipes {', '.join(recipe_names())}.{advice}")
