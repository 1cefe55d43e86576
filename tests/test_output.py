"""Files that the user names: input that can be read only once, and output that is no regular file, or a link."""

import contextlib
import json
import os
import stat
import subprocess
import sys
import threading

import pytest

from heedful.core.output import is_replaceable, output_file, write_output
from tests.conftest import PAIRS

pytestmark = pytest.mark.any_backend

LINES = "".join(f"{source}\n" for source, _ in PAIRS[:3])


@pytest.fixture
def translate(run, tmp_path):
    """A function that runs `heedful translate` in a process, and what it writes for `LINES`."""

    def call(*arguments, text="", stdout=subprocess.PIPE):
        command = [sys.executable, "-m", "heedful", "translate", str(run), *map(str, arguments)]
        return subprocess.run(
            command, cwd=tmp_path, input=text, text=True, stdout=stdout, stderr=subprocess.PIPE, check=False
        )

    return call, call(text=LINES).stdout


@pytest.mark.slow
def test_input_that_can_be_read_only_once_is_translated_whole(translate, tmp_path):
    """Guards against an empty file and exit code 0: the lines were counted first, and then there were none."""
    call, expected = translate
    assert expected.count("\n") == 3
    assert call("/dev/stdin", "--out", "out.txt", text=LINES).returncode == 0
    assert (tmp_path / "out.txt").read_text() == expected
    os.mkfifo(tmp_path / "in.txt")
    writer = threading.Thread(target=(tmp_path / "in.txt").write_text, args=(LINES,))
    writer.start()
    assert call("in.txt", "--out", "out2.txt").returncode == 0
    writer.join()
    assert (tmp_path / "out2.txt").read_text() == expected


@pytest.mark.slow
def test_standard_output_receives_the_translations(translate, tmp_path):
    call, expected = translate
    (tmp_path / "in.txt").write_text(LINES)
    assert call("in.txt", "--out", "/dev/stdout").stdout == expected
    with (tmp_path / "all.txt").open("a") as file:
        file.write("before\n")
        file.flush()
        assert call("in.txt", "--out", "/dev/stdout", stdout=file).returncode == 0
    assert (tmp_path / "all.txt").read_text() == f"before\n{expected}"


@pytest.fixture
def reader(tmp_path):
    """A pipe, and a function that returns what was written to it."""
    path, received = tmp_path / "pipe", []
    os.mkfifo(path)
    thread = threading.Thread(target=lambda: received.append(path.read_bytes()), daemon=True)
    thread.start()

    def result():
        thread.join(60)
        return received[0]

    return path, result


def test_a_pipe_receives_the_content_and_stays_a_pipe(reader):
    path, result = reader
    assert not is_replaceable(path)
    write_output(path, b"content")
    assert result() == b"content"
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_device_stays_a_device():
    with pytest.raises(OSError, match="No space left"):
        write_output("/dev/full", b"content")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_link_stays_a_link_and_a_file_keeps_its_mode(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to("target")
    write_output(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    dangling = tmp_path / "dangling"
    dangling.symlink_to("later")
    write_output(dangling, b"first")
    assert (tmp_path / "later").read_bytes() == b"first"


def test_an_error_leaves_the_old_content(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")

    with contextlib.suppress(KeyError), output_file(path) as aside:
        aside.write_text("half")
        raise KeyError
    assert [one.name for one in tmp_path.iterdir()] == ["out"]
    assert path.read_text() == "old"


def test_a_page_and_figures_are_written_through_links(cli, run, tmp_path):
    (tmp_path / "page.html").symlink_to("real.html")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "positions.png").symlink_to(tmp_path / "real.png")
    assert cli("page", run, "page.html", "--checkpoints", 0).returncode == 0
    assert cli("inspect", run, "--positions", "--out", "figures").returncode == 0
    assert (tmp_path / "page.html").is_symlink()
    assert (tmp_path / "real.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "figures" / "positions.png").is_symlink()
    assert (tmp_path / "real.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("in.txt", "--out", "."), ". is a folder: name a file."),
        ((".", "--out", "out.txt"), ". is a folder, not a text file."),
        (("in.txt", "--out", "/dev/null", "--share", "1/2"), "/dev/null is no regular file"),
    ],
)
def test_folders_and_shares_of_devices_are_refused(cli, run, tmp_path, arguments, message):
    (tmp_path / "in.txt").write_text(LINES)
    done = cli("translate", run, *arguments)
    assert done.returncode == 2
    assert message in done.stderr.decode()


def test_a_lone_surrogate_in_another_field_is_kept(cli, run, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "o gato bebe", "other": "\\ud800"}\n')
    assert cli("translate", run, "in.jsonl", "--out", "out.jsonl").returncode == 0
    assert json.loads((tmp_path / "out.jsonl").read_text())["other"] == "\ud800"
