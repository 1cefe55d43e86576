"""Files translated as a whole and in shares: the same bytes, nothing half-written, nothing computed twice."""

import datetime
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heedful.core.errors import InputError
from heedful.inference.bulk import records
from heedful.inference.bulk.shares import Bulk, Share
from tests.conftest import PAIRS

pytestmark = pytest.mark.any_backend

SOURCES = [source for source, _ in PAIRS]


@pytest.mark.parametrize(
    ("count", "window", "total"), [(10, 2, 3), (0, 5, 2), (7, 3, 8), (200_000, 3200, 20), (5, 1, 5)]
)
def test_shares_cover_all_records_once_and_begin_at_windows(count, window, total):
    bounds = [Share(number, total).bounds(count, window) for number in range(1, total + 1)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == count
    for (_, end), (start, _) in itertools.pairwise(bounds):
        assert end == start
        assert end % window == 0 or end == count
    sizes = [end - start for start, end in bounds]
    assert max(sizes) - min(sizes) <= 2 * window


@pytest.mark.parametrize("text", ["0/3", "4/3", "a/3", "3", "1/0", "-1/3"])
def test_shares_that_do_not_exist_are_refused(text):
    with pytest.raises(ValueError, match="is not a share"):
        Share.parse(text)


@pytest.fixture
def many(tmp_path):
    """A file of 300 lines, some of them empty or twice there."""
    lines = [SOURCES[n % 20] if n % 7 else "" for n in range(300)]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    return tmp_path / "in.txt"


SMALL_BATCHES = ("--batch-size", 1)  # windows of 50 lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [(), pytest.param(("--sample", "--temperature", 2), marks=pytest.mark.slow)], ids=["greedy", "sampled"]
)
def test_gathered_shares_equal_the_whole_to_the_last_byte(run, many, cli, tmp_path, options):
    options = (*SMALL_BATCHES, *options)
    assert cli("translate", "run", "in.txt", "--out", "whole.txt", *options).returncode == 0
    whole = (tmp_path / "whole.txt").read_bytes()
    assert whole.count(b"\n") == 300
    assert cli("translate", "run", "in.txt", *options).stdout == whole
    for number in (3, 1, 4, 2):
        done = cli("translate", "run", "in.txt", "--out", "out.txt", "--share", f"{number}/4", *options)
        assert done.returncode == 0, done.stderr
        assert not (tmp_path / "out.txt").exists()
    again = cli("translate", "run", "in.txt", "--out", "out.txt", "--share", "2/4", *options)
    assert b"share 2/4 is finished" in again.stdout + again.stderr
    gathered = cli("translate", "run", "in.txt", "--out", "out.txt", "--gather", 4, *options)
    assert gathered.returncode == 0, gathered.stderr
    assert (tmp_path / "out.txt").read_bytes() == whole
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.slow
def test_every_device_translates_a_share(run, many, tmp_path):
    def translated(name, devices):
        command = [sys.executable, "-m", "heedful", "translate", "run", "in.txt", "--out", name, *SMALL_BATCHES]
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
        command = list(map(str, [*command, "--sample", "--temperature", 2]))
        return subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True
        )

    done = [translated(name, devices) for name, devices in (("one.txt", 1), ("two.txt", 2))]
    assert [one.returncode for one in done] == [0, 0], done
    assert (tmp_path / "one.txt").read_bytes() == (tmp_path / "two.txt").read_bytes()
    assert done[1].stdout == "two.txt: 300 lines\n"
    assert not (tmp_path / "two.txt.shares").exists()


@pytest.mark.slow
def test_shares_of_something_else_are_not_gathered(run, many, cli, tmp_path):
    def call(*arguments):
        return cli("translate", "run", "in.txt", "--out", "out.txt", *arguments, *SMALL_BATCHES)

    assert call("--share", "1/2").returncode == 0
    missing = call("--gather", 2)
    assert missing.returncode == 2
    assert b"1 of 2 shares are not finished: 2/2" in missing.stderr
    assert call("--share", "2/2").returncode == 0
    other = call("--gather", 2, "--beam-size", 2)
    assert b"does not fit: another decode.beam_size. Gather it with what" in other.stderr
    part = tmp_path / "out.txt.shares" / "00001-of-00002.txt"
    part.write_bytes(part.read_bytes()[:-5])
    damaged = call("--gather", 2).stderr
    assert b"does not fit: 00001-of-00002.txt is damaged" in damaged
    assert b"delete 00001-of-00002.manifest.json and" in damaged
    assert not (tmp_path / "out.txt").exists()
    assert b": 150 lines" in call("--share", "1/2").stdout  # computed again, since it is damaged
    many.write_text(many.read_text().replace(SOURCES[1], SOURCES[2]))
    assert b"does not fit: another input. Gather" in call("--gather", 2).stderr
    many.write_text("".join(f"{source}\n" for source in SOURCES))
    assert b"share 1/2: 0 lines" in call("--share", "1/2").stdout  # one window for all lines
    assert b"share 1/2 is finished" in call("--share", "1/2").stdout


def test_shares_of_another_field_are_not_gathered(run, cli, tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"a": text, "b": text}) + "\n" for text in SOURCES))
    call = ("translate", "run", "in.jsonl", "--out", "out.jsonl")
    assert cli(*call, "--field", "a", "--share", "1/1").returncode == 0
    assert b": 20 lines" in cli(*call, "--field", "b", "--share", "1/1").stdout
    gathered = cli(*call, "--field", "a", "--gather", 1).stderr
    assert b"does not fit: another field. Gather" in gathered


def test_a_killed_share_leaves_nothing_behind(run, many, tmp_path):
    many.write_text(many.read_text() * 40)
    command = [sys.executable, "-m", "heedful", "translate", "run", "in.txt", "--out", "out.txt", "--share", "1/1",
               "--batch-size", "1"]  # fmt: skip
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        folder, began = tmp_path / "out.txt.shares", time.monotonic()
        while not list(folder.glob(".*.part")) and time.monotonic() - began < 120:
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGKILL)
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == []


def test_endings_of_names_may_be_in_capitals():
    assert [records.format_of(Path(name)) for name in ("A.JSONL", "b.Tsv.GZ", "c.TXT")] == ["jsonl", "tsv", "text"]


@pytest.mark.parametrize("ending", ["txt", "tsv", "jsonl", "parquet"])
def test_every_format_keeps_what_is_beside_the_text(ending, tmp_path):
    texts = ["um", "dois\u2028três", "quatro, cinco", "", "sete"]
    path, whole, parts = (tmp_path / f"{name}.{ending}" for name in ("in", "whole", "parts"))
    rows = [{"id": number, "text": text, "more": [number]} for number, text in enumerate(texts)]
    if ending == "parquet":
        rows = [row | {"when": datetime.datetime(2026, 1, 1, 0, 0, number)} for number, row in enumerate(rows)]
    if ending == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        import pyarrow

        parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)
    else:
        line = {"txt": "{text}", "tsv": "{text}\t{id}"}.get(ending)
        path.write_text("".join((line.format(**row) if line else json.dumps(row)) + "\n" for row in rows))
    found = records.opened(path)

    def translate(lines, first):
        for number, text in enumerate(lines, start=first):
            yield f"{number}:{text.upper()}"

    bulk = Bulk(found, whole, {"weights": "w"}, 2)
    assert bulk.whole(translate) == 5
    shared = Bulk(found, parts, {"weights": "w"}, 2)
    assert [shared.compute(Share(number, 3), translate) for number in (1, 2, 3)] == [2, 2, 1]
    assert [shared.compute(Share(number, 3), translate) for number in (1, 2, 3)] == [None, None, None]
    assert shared.gather(3) == 5
    results = [f"{number}:{text.upper()}" for number, text in enumerate(texts, start=1)]
    if ending == "parquet":
        assert parquet.read_table(parts).to_pylist() == parquet.read_table(whole).to_pylist()
        expected = [row | {"translation": result} for row, result in zip(rows, results, strict=True)]
        assert parquet.read_table(parts).to_pylist() == expected
        return
    assert parts.read_bytes() == whole.read_bytes()
    lines = whole.read_text().split("\n")[:-1]
    if ending != "jsonl":  # a text is one line there
        results = [result.replace("\u2028", " ") for result in results]
    if ending == "txt":
        assert lines == results
    elif ending == "tsv":
        assert lines == [f"{row['text']}\t{row['id']}\t{result}" for row, result in zip(rows, results, strict=True)]
    else:
        assert list(map(json.loads, lines)) == [
            row | {"translation": result} for row, result in zip(rows, results, strict=True)
        ]


def test_numbers_beside_a_text_keep_their_spelling(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "x", "a": 1.10, "b": 1e400, "c": "\\u00e9" }\n{"text": "y", "t": 1}\n')
    again = records.opened(tmp_path / "in.jsonl", into="b")
    assert again.result(next(again.read(0, 1)), "z") == '{"text": "x", "a": 1.10, "b": "z", "c": "\\u00e9" }'
    records_of_file = records.opened(tmp_path / "in.jsonl", into="t")
    first, second = records_of_file.read(0, 2)
    assert records_of_file.result(first, "é") == '{"text": "x", "a": 1.10, "b": 1e400, "c": "\\u00e9", "t": "é"}'
    assert records_of_file.result(second, "z") == '{"text": "y", "t": "z"}'


@pytest.mark.parametrize(
    ("name", "content", "field", "message"),
    [
        ("a.tsv", "x\ty\nz\n", "2", "a.tsv, line 2: there is no column 2"),
        ("a.tsv", "x\n", "text", "is a number from 1 on, not 'text'"),
        (
            "a.jsonl",
            '{"text": "x"}\n{"other": 1}\n',
            None,
            "line 2: expected an object with a text in the field 'text'",
        ),
        ("a.jsonl", "no\n", None, "a.jsonl, line 1"),
        ("a.jsonl", '{"text": "a \\ud83d"}\n', None, "line 1: the text has half a character"),
        ("a.txt", "x\n", "1", "is plain text and has no fields"),
        ("a.parquet", "x\n", None, "is not a Parquet file"),
        ("missing.txt", None, None, "does not exist"),
    ],
)
def test_records_that_are_not_what_they_should_be_are_named(tmp_path, name, content, field, message):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=message):
        list(records.opened(path, field).read(0, 10))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("in.txt", "--share", "1/2"), b"needs one input file and --out"),
        (("in.txt", "in.txt", "--out", "o.txt"), b"needs one input file and --out"),
        (("in.txt", "--out", "o.jsonl"), b"must have the same file extension as in.txt"),
        (("in.txt", "--out", "o.txt.gz"), b"leave out .gz"),
        (("in.txt", "--out", "in.txt"), b"is the input file"),
        (("in.txt", "--out", "o.txt", "--share", "1/2", "--gather", "2"), b"give one of them"),
        (("in.txt", "--field", "text"), b"--field is for a whole file"),
        (("in.txt", "--out", "o.txt", "--share", "3/2"), b"'3/2' is not a share"),
        (("in.txt", "--out", "o.txt", "--n-best", "2", "--beam-size", "2"), b"set --n-best 1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(run, many, cli, arguments, message):
    done = cli("translate", "run", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
