"""Imports that are postponed until a module is used."""

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from typing import Any


class _Postponing:
    """Finds modules as the other finders do, and lets some of them be executed when they are first used."""

    def __init__(self, names: tuple[str, ...]):
        self._names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        specs = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


@contextlib.contextmanager
def postponed(*names: str) -> Iterator[None]:
    """Execute modules of these names, if they are imported in this context, when an attribute of them is first used."""
    finder = _Postponing(names)
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    try:
        yield
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]
