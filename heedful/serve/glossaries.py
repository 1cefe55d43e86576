"""The glossaries that clients have made, by pair of languages."""

import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from heedful.data.glossary import Glossary
from heedful.serve.requests import Refused


@dataclass
class Entry:
    """A glossary that a client has made: its terms by pair of languages."""

    id: str
    name: str
    made: str
    dictionaries: dict[tuple[str, str], Glossary] = field(default_factory=dict)


class Glossaries:
    """The glossaries of a server, in memory; the oldest is forgotten if there are too many."""

    LIMIT = 1000

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, name: str) -> Entry:
        """Make an empty glossary."""
        made = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + ".000000Z"
        entry = Entry(secrets.token_hex(16), name, made)
        with self._lock:
            self._entries[entry.id] = entry
            while len(self._entries) > self.LIMIT:
                self._entries.popitem(last=False)
        return entry

    def all(self) -> list[Entry]:
        """Return all glossaries."""
        return list(self._entries.values())

    def find(self, key: str) -> Entry:
        """Return a glossary; `Refused` (404) if there is none."""
        try:
            return self._entries[key]
        except KeyError:
            raise Refused(404, f"There is no glossary {key!r}.") from None

    def remove(self, key: str) -> None:
        """Forget a glossary."""
        self.find(key)
        with self._lock:
            self._entries.pop(key, None)

    def terms(self, key: str | None, source: str, target: str) -> Glossary | None:
        """Return the terms of a glossary for two languages; `Refused` (400) if it has none for them."""
        if not key:
            return None
        glossary = self.find(key).dictionaries.get((source, target))
        if glossary is None:
            raise Refused(400, f"The glossary {key!r} has no terms for {source} to {target}.")
        return glossary
