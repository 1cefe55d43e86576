"""Counters of a training run (tokens, time, padding, FLOPs), and its progress bar."""

import collections
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from heedful import backend
from heedful.config import TrainConfig
from heedful.core.progress import note, progress_bar
from heedful.data.examples import Examples
from heedful.training.flops import FlopCounter
from heedful.training.machine import peak_memory, product_rate

NOTE_INTERVAL = 60.0  # seconds between progress lines where no bar is shown, as in a log file
TOKEN_ARRAYS = ("source", "target", "ids")  # arrays of a batch that hold tokens


class Meter:
    """Counts non-padding tokens and time; the first step of each batch shape is compile time.

    Args:
        model: the model in training.
        examples: its training examples.
        config: a `TrainConfig`.
    """

    def __init__(self, model: keras.Model, examples: Examples, config: TrainConfig):
        self.examples, self.config = examples, config
        self._seen: set = set()
        self._pending: collections.deque = collections.deque()  # counts of batches not yet trained on
        self._flops = FlopCounter(model)
        self._in_total: collections.Counter = collections.Counter()
        self._product_rate: float | None = None
        self._total = config.updates
        self.restart()
        self.bar = progress_bar(
            TextColumn("update"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
        )  # fmt: skip
        self.task: Any = None

    @contextlib.contextmanager
    def shown(self, update: int) -> Any:
        """Show progress on standard error, starting at `update`: a bar on a terminal, else occasional lines."""
        self._last_note = time.monotonic()
        with self.bar:
            self.task = self.bar.add_task("", total=self._total, completed=update, rate="")
            yield self

    def expect(self, updates: int) -> None:
        """Show progress towards another number of updates."""
        self._total = updates
        if self.task is not None:
            self.bar.update(self.task, total=updates)

    def seconds_of_update(self, updates: int, seconds: float) -> float | None:
        """Return the seconds of an update without compilation; None if each was compiled.

        Args:
            updates: number of updates since the last `restart`.
            seconds: that they took.
        """
        left = updates - self._since_restart["compiled"] / self.config.accumulate_batches
        return (seconds - self._since_restart["compiling"]) / left if left > 0 else None

    def restart(self) -> None:
        """Reset the counts of `figures` and `rate`."""
        self._since_restart: collections.Counter = collections.Counter()

    def watched(self, batches: Iterator[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
        """Yield batches, and record the time and size of each."""
        self._pending.clear()  # drop what an earlier stream prefetched
        while True:
            began = time.monotonic()
            batch = next(batches)
            texts = [batch[name] for name in TOKEN_ARRAYS if name in batch]
            self._pending.append({
                "making": time.monotonic() - began,
                "operations": self._flops.of(batch),
                "places": sum(text.size for text in texts),
                "padding": sum(text.size - np.count_nonzero(text) for text in texts),
            })  # fmt: skip
            yield batch

    def is_new(self, number: int) -> bool:
        """Return whether batch `number` has a shape that was not counted yet: its update is compiled first."""
        return self.examples.shape(number) not in self._seen

    def count(self, number: int, seconds: float) -> None:
        """Count batch `number`, which took `seconds`."""
        pending_counts, shape = self._pending.popleft(), self.examples.shape(number)
        if shape in self._seen:
            counts = pending_counts | {"tokens": self.examples.tokens(number), "seconds": seconds}
        else:
            self._seen.add(shape)
            counts = {"compiling": seconds, "compiled": 1}
        self._since_restart.update(counts)
        self._in_total.update(counts)
        if self.task is not None:
            update, rate = (number + 1) // self.config.accumulate_batches, f"{self.rate:,.0f} tokens/s"
            self.bar.update(self.task, completed=update, rate=rate)
            if self.bar.disable and time.monotonic() - self._last_note >= NOTE_INTERVAL:
                note(f"update {update:6d} of {self._total}  {rate}")
                self._last_note = time.monotonic()

    @property
    def rate(self) -> float:
        """Non-padding tokens per second (translation: target), without compilation."""
        return _ratio(self._since_restart, "tokens", "seconds")

    @property
    def update_seconds(self) -> float:
        """Seconds of all updates so far, without compilation."""
        return self._in_total["seconds"]

    @property
    def counted(self) -> bool:
        """Whether anything but compilation was counted."""
        return bool(self._in_total["tokens"])

    def figures(self) -> dict[str, Any]:
        """Return the figures for the log, counted since the last `restart`.

        Called between updates. It measures the machine's matrix product rate again and keeps the highest: on a shared
        machine one measurement may be half of that.
        """
        rate = product_rate(self.config.precision)
        if rate:  # of one device, or of the cores of one process
            devices = backend.training_devices(self.config.devices)
            rate *= devices if backend.device() != "cpu" else backend.process_count()
        self._product_rate = max(self._product_rate or 0.0, rate) if rate else None
        return self._figures(self._since_restart)

    def summary(self) -> str:
        """Return one line that summarises all counts."""
        figures = self._figures(self._in_total)
        machine = ""
        if "mfu" in figures and self._product_rate:
            machine = f"{figures['mfu']:.0%} of the machine's {self._product_rate / 1e9:,.0f} GFLOP/s, "
        return (
            f"{figures['tokens_per_second']:,.0f} tokens/s, {figures['padding_share']:.1%} padding, {machine}"
            f"{figures['data_share']:.1%} of the time making batches, {figures['compile_seconds']:.0f} s "
            f"compiling, peak memory {figures['peak_memory_gib']:.2f} GiB"
        )

    def _figures(self, counts):
        figures = {
            "compile_seconds": round(counts["compiling"], 2), "peak_memory_gib": round(peak_memory() / 2**30, 3),
        }  # fmt: skip
        if not counts["tokens"]:  # nothing but compile time so far: no rate yet
            return figures
        figures |= {
            "tokens_per_second": round(_ratio(counts, "tokens", "seconds"), 1),
            "padding_share": round(_ratio(counts, "padding", "places"), 4),
            "data_share": round(_ratio(counts, "making", "seconds"), 4),
        }
        if self._product_rate:
            figures["mfu"] = round(_ratio(counts, "operations", "seconds") / self._product_rate, 4)
        return figures


def _ratio(counts, one, other):
    return counts[one] / counts[other] if counts[other] else 0.0
