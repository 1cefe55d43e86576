"""The recipes that come with the package: complete named runs."""

from pathlib import Path

from heedful.errors import InputError

FOLDER = Path(__file__).parent


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_recipe(name: str) -> Path:
    """Return the path of a recipe: a file, or one that comes with the package, which is named without a folder."""
    path = Path(name)
    if path.is_file():
        return path
    own = FOLDER / f"{path.stem}.toml"
    if path.parent == Path() and path.suffix in ("", ".toml") and own.is_file():
        return own
    problem = "is a folder, but no run folder" if path.is_dir() else "does not exist"
    raise InputError(f"{name} {problem}, and is none of the recipes {', '.join(recipe_names())}.")
