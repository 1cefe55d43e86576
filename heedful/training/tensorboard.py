"""TensorBoard files, written without TensorFlow."""

import importlib.util
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path


def tensorboard_writer(folder: Path) -> "TensorBoardWriter | None":
    """Return the writer of a folder; None if TensorBoard is not installed."""
    return TensorBoardWriter(folder) if importlib.util.find_spec("tensorboard") else None


class TensorBoardWriter:
    """Writes scalars per update to a folder for `tensorboard --logdir`.

    TensorBoard's own event file writer would import TensorFlow if installed, which takes seconds and 400 MB.
    """

    def __init__(self, folder: Path):
        from tensorboard.summary.writer.record_writer import RecordWriter

        Path(folder).mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{platform.node()}.{os.getpid()}"
        self._writer = RecordWriter((Path(folder) / name).open("wb"))
        self._write(file_version="brain.Event:2")

    def write(self, update: int, scalars: Mapping[str, float]) -> None:
        """Add one value for each name."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in scalars.items()]
        self._write(step=update, summary=Summary(value=values))

    def _write(self, **content):
        from tensorboard.compat.proto.event_pb2 import Event

        self._writer.write(Event(wall_time=time.time(), **content).SerializeToString())
        self._writer.flush()

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()
