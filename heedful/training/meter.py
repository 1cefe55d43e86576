"""What is counted while training - tokens, time, compilation - and the progress bar that shows it."""

import contextlib

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


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
        """Show the progress bar while open, on stderr and only on a terminal."""
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
            update = (number + 1) // self.trainer.config.accumulate
            self.bar.update(self.task, completed=update, rate=f"{self.rate:,.0f} tokens/s")

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
