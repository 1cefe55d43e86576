"""The pace of a training in its learning rate schedule, so that the schedule ends within `train.minutes`."""

import dataclasses

SHARE = 0.95  # share of the remaining time that is planned for; the rest allows for a machine that slows down
NOTICEABLE = 0.02  # relative change of the number of updates that is worth another pace


@dataclasses.dataclass(frozen=True)
class Pace:
    """Where updates stand in a schedule: `place` + (update - `since`) x `step`, a number of an update as planned first.

    A new pace begins at the place that the old one has reached, so the learning rate has no jump.

    Args:
        updates: the update at which the schedule ends.
        max_updates: the largest number of updates.
        since: the update from which this pace holds.
        place: the place of that update.
        step: places for each update.
    """

    updates: int
    max_updates: int
    since: int = 0
    place: float = 0.0
    step: float = 1.0

    def place_of(self, update: int) -> float:
        """Return the place of an update."""
        return self.place + (update - self.since) * self.step

    def ending_at(self, updates: int, update: int, planned: int) -> "Pace":
        """Return the pace from `update` on with which the schedule, of `planned` updates, ends at `updates`."""
        place = self.place_of(update)
        return Pace(updates, self.max_updates, update, place, (planned - place) / (updates - update))

    def replanned(
        self, update: int, planned: int, left: float, seconds: float, validation: float, validate_every: int
    ) -> "Pace":
        """Return the pace after a validation: this one, or one that ends in time at the speed of the last interval.

        Args:
            update: the last update.
            planned: number of updates of the schedule as planned first.
            left: seconds until the deadline.
            seconds: of an update.
            validation: seconds of a validation.
            validate_every: updates between validations.
        """
        fitting = update + updates_within(SHARE * left, seconds, validation, validate_every)
        updates = max(update + 1, min(self.max_updates, fitting))
        if abs(updates - self.updates) <= NOTICEABLE * self.updates:
            return self
        return self.ending_at(updates, update, planned)


def updates_within(seconds: float, update: float, validation: float, validate_every: int) -> int:
    """Return how many updates fit into a given time, at least one.

    Args:
        seconds: the time available.
        update: seconds of an update.
        validation: seconds of a validation; one follows every `validate_every` updates, and one the last update.
        validate_every: updates between validations.
    """
    intervals = int(max(seconds, 0) / (validate_every * update + validation))
    rest = int((seconds - intervals * (validate_every * update + validation) - validation) / update)
    return max(1, intervals * validate_every + min(max(rest, 0), validate_every))
