"""Files are read bit for bit as they were written, or refused."""

import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from heedful.core import storage
from heedful.core.errors import InputError
from heedful.core.storage import locked, read_checked, whole_folder, with_checksum, write_atomically

pytestmark = pytest.mark.any_backend

FLIPS = 2_000


@pytest.fixture
def arrays(rng):
    return {
        "weights": rng.normal(size=(3, 5)).astype("float32"),
        "seed": np.array([7, 2**31], "uint32"),
        "count": np.array(3, "int32"),
        "empty": np.zeros((0, 4), "float32"),
        "view": rng.normal(size=(4, 6)).T[::2],  # not contiguous: safetensors alone would scramble it
    }


@pytest.fixture
def path(tmp_path, arrays):
    path = tmp_path / "state.safetensors"
    write_atomically(path, with_checksum(arrays, {"progress": '{"update": 3}'}))
    return path


def test_arrays_and_metadata_are_read_as_they_were_written(path, arrays):
    found, metadata = read_checked(path)
    assert metadata == {"progress": '{"update": 3}'}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_a_file_truncated_anywhere_is_refused(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="is damaged"):
            read_checked(path)


def test_a_flipped_bit_is_found(path, rng):
    """The bit may be anywhere in the file."""
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
    """A file that takes the first `room` bytes, then fails as on a full disk."""

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
def test_a_short_write_keeps_the_old_file(path, arrays, monkeypatch, room):
    short = lambda *rest, **more: Short(open(*rest, **more), room)  # noqa: E731, SIM115
    monkeypatch.setattr(storage, "open", short, raising=False)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, with_checksum(arrays, {"progress": "later"}))
    monkeypatch.undo()
    assert read_checked(path)[1] == {"progress": '{"update": 3}'}
    assert [left.name for left in path.parent.iterdir()] == [path.name]


def test_a_folder_is_replaced_as_a_whole(tmp_path, monkeypatch):
    folder = tmp_path / "v0.2"
    for text in ("first", "second"):
        with whole_folder(folder) as new:
            (new / text).write_text(text)
        assert [path.name for path in folder.iterdir()] == [text]
    with contextlib.suppress(ZeroDivisionError), whole_folder(folder) as new:
        (new / "third").write_text(f"{1 / 0}")
    rename = Path.rename

    def refused(path, target):
        if path.name.endswith(".new"):
            raise PermissionError("in use")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(PermissionError), whole_folder(folder) as new:
        (new / "third").write_text("third")
    assert [path.name for path in tmp_path.iterdir()] == ["v0.2"]
    assert (folder / "second").read_text() == "second"


def test_a_folder_whose_replacement_was_killed_comes_back(tmp_path):
    (tmp_path / ".text.old").mkdir()
    (tmp_path / ".text.old" / "kept").write_text("kept")
    (tmp_path / ".text.new").mkdir()
    with locked(tmp_path):
        pass
    with pytest.raises(ValueError, match="fails"), whole_folder(tmp_path / "text"):
        raise ValueError("fails")
    assert (tmp_path / "text" / "kept").exists()
    with whole_folder(tmp_path / "text") as new:
        (new / "made").write_text("made")
    assert sorted(path.name for path in tmp_path.glob("*text*")) == ["text"]
    assert (tmp_path / "text" / "made").exists()


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace")])
def test_a_failed_flush_or_rename_keeps_the_old_file(path, arrays, monkeypatch, owner, name):
    monkeypatch.setattr(owner, name, full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, with_checksum(arrays, {"progress": "later"}))
    monkeypatch.undo()
    assert read_checked(path)[1] == {"progress": '{"update": 3}'}
    assert [left.name for left in path.parent.iterdir()] == [path.name]


def test_a_failed_flush_of_the_folder_leaves_a_whole_file(path, arrays, monkeypatch):
    """After this last step fails, a power cut may undo the rename, but the file is whole either way."""
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


def test_a_file_without_a_checksum_is_refused(tmp_path, arrays):
    path = tmp_path / "model.safetensors"
    path.write_bytes(save(arrays, {"format": "1"}))
    with pytest.raises(InputError, match="carries no checksum"):
        read_checked(path)


def test_a_locked_folder_cannot_be_locked_again(tmp_path):
    again = pytest.raises(InputError, match=rf"is in use by process {os.getpid()} on ")
    with locked(tmp_path), again, locked(tmp_path):
        pass
    with locked(tmp_path):
        pass  # the first lock is released


def test_a_killed_process_leaves_no_lock(tmp_path):
    code = "import os, sys, heedful.core.storage as s\nwith s.locked(sys.argv[1]): os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert done.returncode == -9
    with locked(tmp_path):
        pass


def test_locking_removes_partial_files_of_a_killed_process(tmp_path):
    (tmp_path / "state").mkdir()
    part = tmp_path / "state" / ".00000003.safetensors.99.part"
    part.write_bytes(b"half")
    foreign = tmp_path / "state" / ".film.part"
    foreign.write_bytes(b"another program's")
    with locked(tmp_path):
        assert not part.exists()
        assert foreign.exists()


def test_types_that_numpy_lacks_are_reported(tmp_path):
    header = json.dumps({"x": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    with pytest.raises(InputError, match=r"x\.safetensors has an array that NumPy cannot hold"):
        storage.read_arrays(path)
