"""What is counted while training - tokens, time, compilation - and the progress bar that shows it."""

import contextlib
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SILENCE = 60.0  # seconds; in a log file, where a bar would be no help, a line comes after so many


class Meter:
    """Counts real tokens (padding is none) and time; the first step of each shape is compile time."""

    def __init__(self, trainer):
        self.trainer = trainer
        self._seen = set()
        self.restart()
        console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("update"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal,
        )  # fmt: skip
        self.task = None

    @contextlib.contextmanager
    def shown(self):
        """Show the progress while open, on standard error: a bar on a terminal, elsewhere a line from time to time."""
        self._told = time.monotonic()
        with self.bar:
            total = self.trainer.config.updates
            self.task = self.bar.add_task("", total=total, completed=self.trainer.update, rate="")
            yield self

    def restart(self):
        """Count anew."""
        self.tokens, self.seconds, self.compile_seconds = 0, 0.0, 0.0

    def count(self, number, seconds):
        """Count batch `number`, which took `seconds`."""
        shape = self.trainer.examples.shape(number)
        if shape in self._seen:
            self.tokens += self.trainer.examples.tokens(number)
            self.seconds += seconds
        else:
            self._seen.add(shape)
            self.compile_seconds += seconds
        if self.task is not None:
            update, rate = (number + 1) // self.trainer.config.accumulate, f"{self.rate:,.0f} tokens/s"
            self.bar.update(self.task, completed=update, rate=rate)
            if self.bar.disable and time.monotonic() - self._told >= SILENCE:
                print(f"update {update:6d} of {self.trainer.config.updates}  {rate}", file=sys.stderr, flush=True)
                self._told = time.monotonic()

    @property
    def rate(self):
        """Real tokens (of the target, in translation) per second, compilations left out."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def figures(self):
        """Return what goes into the log."""
        return {
            "tokens_per_second": round(self.rate, 1),
            "compile_seconds": round(self.compile_seconds, 2),
        }
