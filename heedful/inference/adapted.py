"""Several adapters over the weights of one model."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from heedful import backend
from heedful.core.errors import InputError
from heedful.core.storage import name_in_model
from heedful.runs.adapters import Adapter, merged


class AdapterSwitch:
    """Merges one of several adapters into the weights of a model at a time. Threads may share it.

    The memory that it needs is that of one model, its matrices with adapters once more, and the adapters.

    Args:
        model: with the weights of the base.
        adapters: by name.
        refresh: called after the weights have changed.

    Raises:
        InputError: an adapter does not fit the model.
    """

    def __init__(self, model: Any, adapters: Mapping[str, Adapter], refresh: Callable[[], Any]):
        self.adapters, self._refresh = dict(adapters), refresh
        changed = {name for adapter in adapters.values() for name in (*adapter.parts, *adapter.replaced)}
        named = {name_in_model(variable): variable for variable in (model.weights if changed else ())}
        self._variables = {name: variable for name, variable in named.items() if name in changed}
        self._base = {name: backend.to_numpy(variable) for name, variable in self._variables.items()}
        for name, adapter in adapters.items():
            merged(self._base, adapter, f"adapter {name!r}")
        self._applied = ""
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def applied(self, name: str) -> Iterator[None]:
        """Hold the model in the state with adapter `name`, or that of the base if the name is empty.

        Raises:
            InputError: there is no such adapter.
        """
        if name and name not in self.adapters:
            known = ", ".join(sorted(self.adapters)) or "none"
            raise InputError(f"Unknown adapter {name!r}; loaded are: {known}.")
        with self._lock:
            if name != self._applied:
                self._assign(name)
            yield

    def _assign(self, name: str) -> None:
        adapter = self.adapters.get(name)
        values: Mapping[str, np.ndarray] = merged(self._base, adapter, name) if adapter else self._base
        for own_name, variable in self._variables.items():
            variable.assign(values[own_name])
        self._applied = name
        self._refresh()


class AdaptedSearch:
    """A search that runs with one of the adapters.

    Args:
        search: a `BatchSearch`.
        switch: the `AdapterSwitch` of its model.
        adapter: name of the adapter; empty: the base.
    """

    def __init__(self, search: Any, switch: AdapterSwitch, adapter: str):
        self._search, self._switch, self._adapter = search, switch, adapter
        self.decode, self.model, self.forbidden = search.decode, search.model, search.forbidden
        self.length_limit = search.length_limit

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Search as the original does."""
        with self._switch.applied(self._adapter):
            return self._search(*arguments, **options)

    def stream(self, *arguments: Any) -> Iterator[int]:
        """Yield ids as the original does; other threads may use other adapters between two of them."""
        steps = iter(self._search.stream(*arguments))
        while True:
            with self._switch.applied(self._adapter):
                token = next(steps, None)
            if token is None:
                return
            yield token
