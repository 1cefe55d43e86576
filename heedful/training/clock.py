"""The time that a training has used of `train.minutes`, over all its sessions."""

import math
import time
from collections.abc import Mapping
from typing import Any

from heedful.config import TrainConfig
from heedful.training.meter import Meter


class Clock:
    """Counts the seconds of a training from its creation on, in addition to those of a saved state.

    Args:
        config: a `TrainConfig`.
        progress: of the state: `seconds` spent so far, and `update_seconds` spent on updates.
        meter: counts the seconds of updates in this session.
    """

    def __init__(self, config: TrainConfig, progress: Mapping[str, Any], meter: Meter):
        self.config, self.meter = config, meter
        self.started = time.monotonic() - progress["seconds"]
        self._earlier_update_seconds = progress.get("update_seconds", 0.0)

    def spent(self) -> dict[str, float]:
        """Return the seconds spent so far, as a state keeps them."""
        return {
            "seconds": time.monotonic() - self.started,
            "update_seconds": self._earlier_update_seconds + self.meter.update_seconds,
        }

    def seconds_left(self) -> float:
        """Return the seconds that are left of `train.minutes`; infinity if there is no limit."""
        if not self.config.minutes:
            return math.inf
        counted = "update_seconds" if self.config.minutes_of == "updates" else "seconds"
        return 60 * self.config.minutes - self.spent()[counted]
