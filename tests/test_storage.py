"""Files: what is loaded is what was written, to the last bit."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from heedful import storage
from heedful.errors import InputError
from heedful.storage import locked, read_checked, with_checksum, write_atomically

pytestmark = pytest.mark.any_backend

FLIPS = 10_000


@pytest.fixture
def arrays(rng):
    return {
        "weights": rng.normal(size=(3, 5)).astype("float32"),
        "seed": np.array([7, 2**31], "uint32"),
        "count": np.array(3, "int32"),
        "empty": np.zeros((0, 4), "float32"),
        "view": rng.normal(size=(4, 6)).T[::2],  # not in one piece: the library alone would write it scrambled
    }


@pytest.fixture
def path(tmp_path, arrays):
    path = tmp_path / "state.safetensors"
    write_atomically(path, with_checksum(arrays, {"progress": '{"update": 3}'}))
    return path


def test_what_was_written_is_read(path, arrays):
    found, metadata = read_checked(path)
    assert metadata == {"progress": '{"update": 3}'}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_a_file_cut_anywhere_is_refused(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="is damaged"):
            read_checked(path)


def test_a_flipped_bit_is_found(path, rng):
    """No file with one bit changed is loaded, wherever it is."""
    whole = path.read_bytes()
    for place in rng.integers(0, 8 * len(whole), FLIPS):
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << (place % 8)
        path.write_bytes(changed)
        with pytest.raises(InputError, match="is damaged"):
            read_checked(path)


def full(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


class Short:
    """A file that takes a part of what is written, and then no more."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, content):
        self.file.write(content[: self.room])
        full()


@pytest.mark.parametrize("room", [0, 1, 100, 400])
def test_a_short_write_leaves_the_file_before(path, arrays, monkeypatch, room):
    short = lambda *rest, **more: Short(open(*rest, **more), room)  # noqa: E731, SIM115
    monkeypatch.setattr(storage, "open", short, raising=False)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, with_checksum(arrays, {"progress": "later"}))
    monkeypatch.undo()
    assert read_checked(path)[1] == {"progress": '{"update": 3}'}
    assert [left.name for left in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace")])
def test_a_failed_flush_or_rename_leaves_the_file_before(path, arrays, monkeypatch, owner, name):
    monkeypatch.setattr(owner, name, full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, with_checksum(arrays, {"progress": "later"}))
    monkeypatch.undo()
    assert read_checked(path)[1] == {"progress": '{"update": 3}'}
    assert [left.name for left in path.parent.iterdir()] == [path.name]


def test_a_failed_flush_of_the_folder_leaves_a_whole_file(path, arrays, monkeypatch):
    """The last step: the new name may or may not survive a power cut, but what it names is whole."""
    flush, calls = os.fsync, []

    def second_fails(descriptor):
        calls.append(descriptor)
        return full() if len(calls) == 2 else flush(descriptor)

    monkeypatch.setattr(os, "fsync", second_fails)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, with_checksum(arrays, {"progress": "later"}))
    monkeypatch.undo()
    assert read_checked(path)[1] == {"progress": "later"}
    assert [left.name for left in path.parent.iterdir()] == [path.name]


def test_what_another_program_wrote_is_refused(tmp_path, arrays):
    path = tmp_path / "model.safetensors"
    path.write_bytes(save(arrays, {"format": "1"}))
    with pytest.raises(InputError, match="carries no checksum"):
        read_checked(path)


def test_two_cannot_work_in_one_folder(tmp_path):
    again = pytest.raises(InputError, match=rf"is in use by process {os.getpid()} on ")
    with locked(tmp_path), again, locked(tmp_path):
        pass
    with locked(tmp_path):
        pass  # the first has left


def test_a_killed_process_leaves_no_lock(tmp_path):
    code = "import os, sys, heedful.storage as s\nwith s.locked(sys.argv[1]): os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert done.returncode == -9
    with locked(tmp_path):
        pass


def test_what_a_killed_process_left_half_written_is_cleared_away(tmp_path):
    (tmp_path / "state").mkdir()
    part = tmp_path / "state" / ".00000003.safetensors.99.part"
    part.write_bytes(b"half")
    foreign = tmp_path / "state" / ".film.part"
    foreign.write_bytes(b"another program's")
    with locked(tmp_path):
        assert not part.exists()
        assert foreign.exists()
