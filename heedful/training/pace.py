"""The pace of a training in its learning rate schedule, so that the schedule ends within `train.minutes`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

SHARE = 0.95  # share of the remaining time that is planned for; the rest allows for a machine that slows down
OLD_NAMES = {"most": "max_updates", "since": "start", "place": "position", "step": "speed"}
NOTICEABLE = 0.02  # relative change of the number of updates that is worth another pace


@dataclasses.dataclass(frozen=True)
class Pace:
    """Maps updates to positions in the planned schedule: `position` + (update - `start`) x `speed`.

    A new pace starts at the position that the old one has reached, so the learning rate does not jump.

    Args:
        updates: the update at which the schedule ends.
        max_updates: the largest number of updates.
        start: the update from which this pace holds.
        position: position in the schedule at that update.
        speed: positions per update.
    """

    updates: int
    max_updates: int
    start: int = 0
    position: float = 0.0
    speed: float = 1.0

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> "Pace":
        """Return the pace that a state holds; older states have other names."""
        return cls(**{OLD_NAMES.get(name, name): value for name, value in saved.items()})

    def position_of(self, update: int) -> float:
        """Return the position of an update in the schedule."""
        return self.position + (update - self.start) * self.speed

    def ending_at(self, updates: int, update: int, planned: int) -> "Pace":
        """Return the pace from `update` on with which the schedule, of `planned` updates, ends at `updates`."""
        position = self.position_of(update)
        return Pace(updates, self.max_updates, update, position, (planned - position) / (updates - update))

    def replanned(
        self,
        update: int,
        planned: int,
        seconds_left: float,
        update_seconds: float,
        validation_seconds: float,
        validate_every: int,
    ) -> "Pace":
        """Return the pace after a validation: this one, or one that ends in time at the speed of the last interval.

        Args:
            update: the last update.
            planned: number of updates of the schedule as planned first.
            seconds_left: seconds until the deadline.
            update_seconds: seconds per update.
            validation_seconds: seconds of a validation.
            validate_every: updates between validations.
        """
        fitting = update + updates_within(SHARE * seconds_left, update_seconds, validation_seconds, validate_every)
        updates = max(update + 1, min(self.max_updates, fitting))
        if abs(updates - self.updates) <= NOTICEABLE * self.updates:
            return self
        return self.ending_at(updates, update, planned)


def updates_within(seconds: float, update_seconds: float, validation_seconds: float, validate_every: int) -> int:
    """Return how many updates fit into a given time, at least one.

    Args:
        seconds: the time available.
        update_seconds: seconds of an update.
        validation_seconds: of a validation; one follows every `validate_every` updates, and one the last update.
        validate_every: updates between validations.
    """
    intervals = int(max(seconds, 0) / (validate_every * update_seconds + validation_seconds))
    rest = int(
        (seconds - intervals * (validate_every * update_seconds + validation_seconds) - validation_seconds)
        / update_seconds
    )
    return max(1, intervals * validate_every + min(max(rest, 0), validate_every))
