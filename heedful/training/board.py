"""TensorBoard files, written without TensorFlow."""

import os
import time

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter


class Board:
    """Scalars over updates in a folder that `tensorboard --logdir` shows."""

    def __init__(self, folder):
        self._writer = EventFileWriter(os.fspath(folder))

    def write(self, update, scalars):
        """Add one value for each name."""
        values = [Summary.Value(tag=name, simple_value=float(value)) for name, value in scalars.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=update, summary=Summary(value=values)))
        self._writer.flush()

    def close(self):
        """Finish the file."""
        self._writer.close()
