"""Each command end to end on twenty sentences, and one clear line for each mistake."""

import dataclasses
import errno
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings

import numpy as np
import pytest
import safetensors.numpy

from heedful.commands.train import stoppable
from heedful.config import TokenizerConfig
from heedful.core import progress
from heedful.core.errors import InputError
from heedful.core.progress import warn
from heedful.core.storage import with_checksum
from heedful.data.text_files import one_line
from heedful.inspection.figures import draw_positions
from heedful.inspection.positions import position_encoding
from heedful.runs.run import Run
from heedful.runs.scores.provenance import read as read_scores
from tests.conftest import change, talk

pytestmark = pytest.mark.any_backend


def complaint(result):
    """Return the one line that a failed command printed, without a traceback."""
    error = result.stderr.decode()
    lines = [line for line in error.splitlines() if line.startswith("heedful: ")]
    assert result.returncode == 2, error
    assert "Traceback" not in error
    assert len(lines) == 1, error
    return lines[0]


def test_translate_gives_a_line_for_each_line(cli, run):
    result = cli("translate", run, stdin="o gato bebe\n\na vaca come\n")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.decode().split("\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""


@pytest.mark.slow
def test_no_progress_bar_mixes_with_translations(run, tmp_path):
    """Standard error is a terminal, which shows a progress bar, and standard output is a file."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with (tmp_path / "out").open("wb") as out:
        code = [sys.executable, "-m", "heedful", "translate", str(run)]
        process = subprocess.Popen(code, stdin=subprocess.PIPE, stdout=out, stderr=theirs)
        process.communicate(b"o gato bebe\n\n")
    os.close(theirs)
    os.close(ours)
    assert process.returncode == 0
    assert (tmp_path / "out").read_bytes().count(b"\n") == 2


@pytest.mark.slow
def test_options_may_come_before_or_after_arguments(cli, run, text_files):
    behind = cli("translate", run, text_files[0], "--batch-size", 3)
    for arguments in (("translate", run, "--batch-size", 3, text_files[0]), ("translate", "--batch-size", 3, run)):
        result = cli(*arguments, stdin=text_files[0].read_text(encoding="utf-8"))
        assert (result.returncode, result.stdout) == (0, behind.stdout)
    assert (
        b"unrecognized arguments: --batch" in cli("translate", run, "--batch", 3, text_files[0], "--batchsize").stderr
    )


def test_arguments_after_two_dashes_are_not_options(cli, run):
    for arguments in (("--batch-size", 3, "--", run, "--x"), (run, "--batch-size", 3, "--", "--x")):
        assert "--x does not exist" in complaint(cli("translate", *arguments))
    # They also end the values of an option.
    missing = complaint(cli("doctor", "--valid", "v", "w", "--", "-a", "b"))
    assert re.search(r"Missing text: \S*-a, \S*b\.", missing)


def test_named_pipes_are_read(cli, run, text_files, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(text_files[0].read_bytes()))
    writer.start()
    assert cli("translate", run, pipe).stdout == cli("translate", run, text_files[0]).stdout
    writer.join()
    assert "is a folder, not a text file" in complaint(cli("translate", run, tmp_path))


@pytest.mark.slow
def test_the_batch_size_does_not_change_translations(cli, run, text_files):
    whole = cli("translate", run, text_files[0])
    single = cli("translate", run, text_files[0], "--batch-size", 1)
    assert whole.stdout == single.stdout
    assert whole.stdout.count(b"\n") == 20


def test_translate_warns_about_long_lines(cli, run):
    result = cli("translate", run, stdin="o gato\n" + "gato " * 99 + "\n")
    assert result.returncode == 0
    assert result.stdout.count(b"\n") == 2
    assert b"line 2 has a sentence that is longer than any in training (19 tokens)" in result.stderr


@pytest.mark.slow
def test_translate_follows_its_decoding_options(cli, run, tmp_path):
    """Settings of section [decode], scores separated by tabs, prefixes, several runs, and mistakes in them."""
    lines = "o gato bebe\na vaca come\n"
    result = cli("translate", run, "--beam-size", 3, "--n-best", 2, "--scores", stdin=lines)
    assert result.returncode == 0, result.stderr
    rows = [line.split("\t") for line in result.stdout.decode().splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "2"]
    assert float(rows[0][1]) >= float(rows[1][1])
    (tmp_path / "begun").write_text("the king\n\n")
    begun = cli("translate", run, "--prefixes", tmp_path / "begun", "--min-length", 4, stdin=lines)
    assert begun.stdout.decode().startswith("the king")
    few = cli("translate", run, "--prefixes", tmp_path / "begun", "--min-length", 4, stdin=lines * 2)
    assert "There are fewer prefixes (2) than lines." in complaint(few)
    assert cli("translate", run, "--beam-size", 2, "--n-best", 2, stdin="o gato\n").stdout.startswith(b"1\t-")
    sampled = cli("translate", run, "--sample", "--seed", 5, stdin=lines)
    assert sampled.stdout == cli("translate", run, "--sample", "--seed", 5, "--batch-size", 1, stdin=lines).stdout
    assert cli("translate", run, "--with", run, stdin=lines).stdout == cli("translate", run, stdin=lines).stdout
    (run.parent / "lines.txt").write_text(lines)  # a file after the other run is a file
    assert (
        cli("translate", run, "--with", run, run.parent / "lines.txt").stdout
        == cli("translate", run, stdin=lines).stdout
    )
    assert b'"beam_size": 2' in cli("evaluate", run, "--beam-size", 2, "--json").stdout

    assert "beam_size (600) must be below" in complaint(cli("translate", run, "--beam-size", 600, stdin=lines))
    assert "top_k applies to sampling only" in complaint(cli("translate", run, "--top-k", 5, stdin=lines))
    many = cli("translate", run, "--prefixes", tmp_path / "begun", "--min-length", 4, stdin="o gato bebe\n")
    assert b"warning: there are more prefixes than lines (1)." in many.stderr
    contradiction = cli("translate", run, "--min-length", 9, "--max-length", 3, stdin=lines)
    assert "min_length (9) cannot exceed max_length (3)" in complaint(contradiction)
    forbidden = cli("translate", run, "--forbidden", "wolf", stdin=lines)
    assert "'wolf' is not a token of the vocabulary" in complaint(forbidden)
    long = cli("translate", run, "--prefixes", tmp_path / "begun", "--max-length", 2, stdin=lines)
    assert "The prefix of line 1 has 2 tokens; this source's translation may have at most 2" in complaint(long)
    assert "holds no CTranslate2 model" in complaint(cli("translate", run, "--engine", "ctranslate2", stdin=lines))


def test_an_exported_run_translates_the_same_with_ctranslate2(cli, run):
    pytest.importorskip("ctranslate2")
    result = cli("export", run, "--to", "ctranslate2")
    assert result.returncode == 0, result.stderr
    assert b"greedy: 100.00% of 20 texts are identical" in result.stdout
    lines = "o gato bebe\n\na vaca come\n"
    other = cli("translate", run, "--engine", "ctranslate2", stdin=lines)
    assert other.stdout == cli("translate", run, stdin=lines).stdout


@pytest.mark.filterwarnings("default::heedful.core.errors.InputWarning")
@pytest.mark.parametrize("form", ["onnx", "huggingface", "ctranslate2"])
def test_an_export_is_checked_on_blank_and_on_long_sources(cli, run, tmp_path, form):
    """Guards against a traceback of the other library for a source that is longer than its model."""
    for library in ("onnxruntime", "transformers", "torch", "ctranslate2"):
        pytest.importorskip(library)
    (tmp_path / "in").write_text("o gato bebe\n\n" + "o gato come " * 30 + "\n")
    (tmp_path / "out").write_text("the cat drinks\n\nthe cat eats\n")
    done = cli("export", run, "--to", form, "--files", tmp_path / "in", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert b"greedy: 100.00% of 2 texts are identical" in done.stdout


def test_each_line_is_answered_before_the_next_one_arrives(run):
    """Guards a client that sends its next line only after an answer: it would wait forever."""
    assert all(answer.endswith("\n") for answer in talk(["translate", run], ["o gato bebe", "a vaca come"]))


@pytest.mark.parametrize("ending", [pytest.param("mistake", marks=pytest.mark.slow), "signal"])
def test_exit_is_clean_while_standard_input_stays_open(run, ending):
    """Guards against a thread that blocks on a file object that Python closes at exit."""
    options = ["--beam-size", "600"] if ending == "mistake" else []
    command = [sys.executable, "-X", "faulthandler", "-m", "heedful", "translate", str(run), *options]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        # If the process hangs, faulthandler prints its stack.
        (alarm := threading.Timer(200, process.send_signal, [signal.SIGABRT])).start()
        process.stdin.write(b"o gato bebe\n")
        process.stdin.flush()
        if ending == "signal":
            assert process.stdout.readline()
            process.send_signal(signal.SIGINT)
        code, error = process.wait(), process.stderr.read()
        alarm.cancel()
    assert code == (2 if ending == "mistake" else 130), error.decode()
    assert b"Fatal" not in error


def test_output_is_utf_8_and_closed_streams_are_reported(cli, run):
    (prefixes := run / "prefixes").write_text("água\n", encoding="utf-8")
    made = cli("translate", run, "--prefixes", prefixes, stdin="o gato bebe\n", PYTHONIOENCODING="ascii")
    assert made.returncode == 0, made.stderr
    command = [sys.executable, "-m", "heedful", "explain", "train.seed"]
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, check=False)
    assert closed.returncode == 2
    assert closed.stderr == b"heedful: There is no standard output to write to.\n"
    command = [sys.executable, "-m", "heedful", "translate", str(run)]
    closed = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *command], capture_output=True, check=False)
    assert closed.stderr == b"heedful: There is no standard input to read.\n"


def test_an_unknown_backend_is_refused(run):
    command = [sys.executable, "-m", "heedful", "translate", str(run)]
    told = subprocess.run(command, env=os.environ | {"KERAS_BACKEND": "foo"}, capture_output=True, check=False)
    assert told.returncode == 2
    assert told.stderr == b"heedful: KERAS_BACKEND = foo is not one of jax, tensorflow, torch.\n"
    command = [sys.executable, "-c", "import heedful.backend; print(heedful.backend.NAME)"]
    told = subprocess.run(command, env=os.environ | {"KERAS_BACKEND": ""}, capture_output=True, check=True)
    assert told.stdout == b"jax\n"


def test_sampling_set_by_a_run_can_be_turned_off(cli, run):
    config = json.loads((run / "config.json").read_text())
    config["decode"]["sample"] = True
    (run / "config.json").write_text(json.dumps(config))
    assert "Sampling has no beam" in complaint(cli("translate", run, "--beam-size", 2, stdin="o gato\n"))
    assert cli("translate", run, "--no-sample", "--beam-size", 2, stdin="o gato\n").returncode == 0


def test_evaluate_reports_truncated_sentences(cli, run, tmp_path):
    for name, text in (("x.pt", "o gato bebe\n" + "o gato " * 40 + "\n"), ("x.en", "the cat drinks\nthe cat\n")):
        (tmp_path / name).write_text(text)
    told = cli("evaluate", run, "x.pt", "x.en").stdout
    assert b"on 2 sentences, 1 of them with a source that is too long; the perplexity excludes 1" in told
    scores = json.loads((run / "scores.json").read_text())[-1]
    assert (scores["sentences"], scores["sources_cut"], scores["sentences_of_loss"]) == (2, 1, 1)


def test_a_broken_pipe_ends_quietly(run, tmp_path):
    command = f"yes 'o gato bebe' | {sys.executable} -m heedful translate {run} --batch-size 1 | head -1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, timeout=300, check=False)
    assert result.stdout.count(b"\n") == 1
    assert b"Traceback" not in result.stderr
    assert b"BrokenPipe" not in result.stderr
    assert b"heedful:" not in result.stderr


@pytest.mark.slow
def test_training_continues_when_its_output_pipe_is_closed(recipe, tmp_path):
    for kept, told in (("", 1), ("2>&1", 0)):
        command = f"{sys.executable} -m heedful train {recipe} --run {tmp_path / 'unread'} --force {kept} | head -1"
        result = subprocess.run(["bash", "-c", command], capture_output=True, timeout=300, check=False)
        assert result.stdout.count(b"\n") == 1
        assert result.stderr.count(b"standard output is closed; the work continues.") == told
        assert read_scores(Run.open(tmp_path / "unread"))


@pytest.fixture
def terminal():
    """A function that returns a stream to a new terminal, and one that closes the terminal."""
    pty = pytest.importorskip("pty", reason="Windows has no pseudo-terminals")
    streams = []

    def opened():
        ours, theirs = pty.openpty()
        streams.append(os.fdopen(theirs, "w"))
        return streams[-1], lambda: os.close(ours)

    yield opened
    for stream in streams:
        stream.close()


def test_progress_of_a_closed_terminal_is_dropped(terminal, monkeypatch):
    """Guards trainings that the end of the terminal does not reach (`nohup`): showing progress must not end them."""
    stream, close = terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    bar = progress.progress_bar()
    assert not bar.disable
    with bar:
        task = bar.add_task("training", total=2)
        bar.update(task, completed=1, refresh=True)
        close()
        bar.update(task, completed=2, refresh=True)
    stream, close = terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    close()
    warn("nobody reads this")
    warn("nor this")
    with pytest.raises(OSError, match="No space"), progress.dropped_if_closed(stream):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.slow
def test_warnings_do_not_mix_with_translations_if_standard_error_is_closed(run, tmp_path):
    (tmp_path / "long.txt").write_text("o gato " * 40 + "\no gato bebe\n")
    command = f"{sys.executable} -m heedful translate {run} {tmp_path / 'long.txt'} 2>&-"
    made = subprocess.run(["bash", "-c", command], capture_output=True, timeout=300, check=True)
    assert made.stdout.count(b"\n") == 2


def test_file_names_need_not_be_utf_8(cli, run, tmp_path):
    name = os.fsdecode(b"te\xff.txt")
    for side, text in (("pt", "o gato bebe\n"), ("en", "the cat drinks\n")):
        (tmp_path / f"{side}{name}").write_text(text)
    result = cli("evaluate", run, f"pt{name}", f"en{name}")
    assert result.returncode == 0, result.stderr
    assert name in json.loads((run / "scores.json").read_text())[-1]["data"]


def test_evaluate_prints_and_keeps_scores(cli, run, text_files):
    result = cli("evaluate", run, *text_files, "--json")
    assert result.returncode == 0, result.stderr
    scores = json.loads(result.stdout)
    assert scores["sentences"] == 20
    assert scores == json.loads((run / "scores.json").read_text())[-1]
    assert b"bleu" in cli("evaluate", run, *text_files).stdout


@pytest.mark.filterwarnings("default::heedful.core.errors.InputWarning")
def test_a_read_only_run_can_be_evaluated(cli, run, text_files, monkeypatch):
    def refuse(path, content):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    before = (run / "scores.json").read_text()
    monkeypatch.setattr("heedful.runs.scores.provenance.write_atomically", refuse)
    result = cli("evaluate", run, *text_files)
    assert result.returncode == 0
    assert b"bleu" in result.stdout
    assert b"heedful: warning: the scores are not kept: Permission denied: " in result.stderr
    assert (run / "scores.json").read_text() == before


@pytest.mark.filterwarnings("default::heedful.core.errors.InputWarning")
def test_translate_works_without_a_usable_cache_folder(cli, run, tmp_path):
    (tmp_path / "file").write_text("")
    result = cli("translate", run, stdin="o gato bebe\n", HEEDFUL_CACHE=str(tmp_path / "file"))
    assert result.returncode == 0
    assert result.stdout.count(b"\n") == 1
    if os.environ["KERAS_BACKEND"] == "jax":
        assert result.stderr.startswith(b"heedful: warning: compiled programs are not kept; HEEDFUL_CACHE may name")


def test_usage_puts_options_last(cli):
    assert cli("translate", "--help").stdout.startswith(b"usage: heedful translate RUN [FILE ...] [options]\n")
    assert b"the following arguments are required: run\n" in cli("translate").stderr


def test_inspect_draws_every_requested_figure(cli, run, tmp_path):
    result = cli("inspect", run, "o gato bebe", "--positions", "--schedule", "--out", tmp_path / "figures")
    assert result.returncode == 0, result.stderr
    drawn = {path.name for path in (tmp_path / "figures").iterdir()}
    assert drawn == {"positions.png", "schedule.png", "encoder-self-layer1.png", "decoder-self-layer1.png",
                     "cross-layer1.png"}  # fmt: skip
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "figures").iterdir())


def test_inspect_draws_a_layer_of_the_sides_that_have_it(cli, config, whole, tmp_path):
    config = change(config, "--model.encoder_layers", "2", "--model.decoder_layers", "1")
    run = Run.create(tmp_path / "deep", config, whole.source_tokenizer, whole.target_tokenizer)
    run.save_model(run.build_model())
    command = ("inspect", run.path, "o gato bebe", "--layer", 2, "--out", tmp_path / "figures")
    assert cli(*command).returncode == 0
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["encoder-self-layer2.png"]
    assert "no layer 2: cross has layers 1 to 1" in complaint(cli(*command, "--kind", "cross"))


def test_drawn_positions_are_those_of_the_model(config, whole, tmp_path):
    drawn = []
    for positions in ("sinusoidal", "learned"):
        own = change(config, "--model.positions", positions)
        run = Run.create(tmp_path / positions, own, whole.source_tokenizer, whole.target_tokenizer)
        run.save_model(run.build_model())
        drawn.append(draw_positions(tmp_path / f"{positions}.png", position_encoding(run)).read_bytes())
    assert drawn[0] != drawn[1]
    rotary = Run(tmp_path, change(config, "--model.positions", "rotary"), whole.source_tokenizer)
    with pytest.raises(InputError, match="they turn queries and keys"):
        position_encoding(rotary)


def test_plan_prints_and_does_not_train(cli, recipe, tmp_path):
    result = cli("train", recipe, "--plan")
    assert b"padding" in result.stdout
    assert b"20 of 20 pairs kept" in result.stdout
    assert not (tmp_path / "runs").exists()


def test_mistakes_in_training_are_explained(cli, recipe, run, tmp_path, text_files):
    assert "not one of the recipes" in complaint(cli("train", "nothing.toml"))
    assert "already holds a run" in complaint(cli("train", recipe, "--run", run))
    assert "did you mean 'updates'" in complaint(cli("train", recipe, "--train.updatez", 3))
    assert "try 10 or 15" in complaint(cli("train", recipe, "--model.d_model", 12, "--model.num_heads", 5))
    assert "Missing text: " in complaint(cli("train", "multi30k-de-en", HEEDFUL_DATA=str(tmp_path / "none")))
    assert "multi30k/dataset" in complaint(cli("train", "multi30k-de-en", HEEDFUL_DATA=str(tmp_path / "none")))
    own_text = ("--data.valid", f'["{text_files[0]}", "{text_files[1]}"]')
    assert "brings its own text, and data.valid names files" in complaint(cli("train", "reverse", *own_text))
    assert "holds another run" in complaint(cli("quickstart", "--run", run))
    longer = Run.open(shutil.copytree(run, tmp_path / "longer"))
    longer.config = dataclasses.replace(longer.config, name="quickstart")
    (longer.path / "config.json").write_text(longer.config.to_json())
    longer.add_origins({"train.updates": "command line"})
    assert "holds another run" in complaint(cli("quickstart", "--run", longer.path))
    own = tmp_path / "own" / "model.safetensors"
    own.parent.mkdir()
    own.write_bytes(b"mine")
    assert "holds no run, but model.safetensors" in complaint(cli("quickstart", "--run", own.parent))
    assert own.read_bytes() == b"mine"
    assert "Name a recipe" in complaint(cli("train"))
    assert "has no name: choose another --run" in complaint(cli("train", recipe, "--seeds", 1, 2, "--run", "/"))
    assert "There is no run folder" in complaint(cli("train", "--resume", tmp_path / "none"))
    for option in (["--plan"], ["--force"], ["--run", tmp_path / "other"]):
        assert "--resume continues in the folder that it names" in complaint(cli("train", "--resume", run, *option))
    text_files[1].write_text("one line\n")
    assert "has 20 lines" in complaint(cli("train", recipe))
    text_files[1].write_bytes(b"caf\xe9\n" * 20)
    assert "not UTF-8: line 1" in complaint(cli("train", recipe))
    for path in text_files:
        path.write_text("")
    assert "no text" in complaint(cli("train", recipe))
    for path in text_files:
        path.write_text("gato " * 50 + "\n")
    assert "No pair of" in complaint(cli("train", recipe))
    assert not (tmp_path / "runs" / "small" / "model.safetensors").exists()


def test_mistakes_in_run_folders_are_explained(cli, run, tmp_path):
    assert "A run is named twice" in complaint(cli("compare", run, run))
    changed = cli("train", "--resume", run, "--verify", "--train.updates", 9)
    assert "change none in the same call" in complaint(changed)
    missing = complaint(cli("evaluate", run, "none.pt", "none.en"))
    assert "Missing text: " in missing
    assert "is not a file, but a folder" in complaint(cli("evaluate", run, tmp_path, tmp_path))
    assert "There is no run folder" in complaint(cli("translate", tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    assert "not a complete run folder: config.json" in complaint(cli("translate", tmp_path / "empty"))
    weights, config, tokenizer = (run / name for name in ("model.safetensors", "config.json", "source.tokenizer.json"))

    def damaged(path, content, *arguments, stdin="o gato\n"):
        before = path.read_bytes()
        path.write_bytes(content)
        try:
            return complaint(cli(*(arguments or ("translate", run)), stdin=stdin))
        finally:
            path.write_bytes(before)

    assert "has format 9" in damaged(config, b'{"format": 9, "later": 1}')
    assert "is not valid JSON" in damaged(config, b"{")
    assert "model.safetensors is damaged" in damaged(weights, weights.read_bytes()[:-10])
    arrays = safetensors.numpy.load(weights.read_bytes())
    name = max(arrays)
    assert "lacks 1 weights" in damaged(weights, with_checksum({k: v for k, v in arrays.items() if k != name}, {}))
    wrong = arrays | {"target_embedding/embeddings": arrays["target_embedding/embeddings"][:-1].copy()}
    assert "does not fit the run's config or tokenizer" in damaged(weights, with_checksum(wrong, {}))
    broken = arrays | {name: np.full_like(arrays[name], np.nan)}
    assert f"{name} holds values that are not numbers" in damaged(weights, with_checksum(broken, {}))
    assert "it carries no checksum" in damaged(weights, safetensors.numpy.save(arrays), "compare", run)
    assert "not a tokenizer" in damaged(tokenizer, b"{}")
    assert "standard input is not UTF-8: line 2" in complaint(cli("translate", run, stdin=b"o gato\n\xff\n"))
    assert "nothing.txt does not exist" in complaint(cli("translate", run, "nothing.txt"))
    for option in ("layer", "head"):
        refused = cli("inspect", run, "o gato", "--positions", f"--{option}", 9)
        assert f"no {option} 9" in complaint(refused)
        assert not refused.stdout  # nothing is computed first
    assert "empty sentence" in complaint(cli("inspect", run, " "))
    assert "Give a sentence" in complaint(cli("inspect", run))
    assert "say what to draw of a sentence" in complaint(cli("inspect", run, "--positions", "--layer", 1))
    weights.unlink()
    assert "has no model.safetensors yet" in complaint(cli("translate", run))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_training_can_be_resumed_after_a_signal(name, recipe, tmp_path, cli):
    """A signal to a real process saves a state and prints how to resume; `benchmarks/kills.py` tries every moment."""
    number = getattr(signal, name, None)
    if number is None or signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip(f"no {name} here: this is Windows, or nohup")
    slow = ["--train.updates", "100000", "--train.validate_every", "20", "--train.validate_sentences", "0",
            "--train.select_by", "loss", "--train.tensorboard", "false"]  # fmt: skip
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "heedful", "train", str(recipe), "--run", str(folder), *slow]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=os.environ)
    until = time.monotonic() + 200
    while len(list(folder.glob("state/*.safetensors"))) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    _, error = process.communicate(timeout=100)
    assert process.returncode == 128 + number
    assert f"Continue with: heedful train --resume {folder}" in error.decode()
    states = sorted(int(path.stem) for path in folder.glob("state/*.safetensors"))
    result = cli("train", "--resume", folder, "--train.updates", states[-1] + 2)
    assert result.returncode == 0, result.stderr.decode()
    assert f"resuming at update {states[-1]}" in result.stdout.decode()


def test_a_training_that_is_stopped_before_it_replaces_a_run_says_so(run, capsys):
    """Guards against the advice to resume the run that was to be replaced."""

    def stopped():
        raise KeyboardInterrupt

    for resumes, message in ((False, "is as it was"), (True, f"Continue with: heedful train --resume {run}")):
        assert stoppable(stopped, run, resumes) == 130
        assert message in capsys.readouterr().err


def test_the_version_is_printed(cli):
    assert cli("--version").stdout.decode().split() == ["heedful", importlib.metadata.version("heedful")]


def test_help_lists_commands_and_settings(cli):
    assert b"quickstart" in cli("--help").stdout
    assert b"--train.warmup_updates" in cli("train", "--help").stdout
    result = cli("translate", "--nonsense", "x")
    assert result.returncode == 2
    assert b"unrecognized arguments: --nonsense" in result.stderr


def test_explain_says_meaning_default_and_value(recipe, cli):
    done = cli("explain", "train.learning_rate", recipe)
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "train.learning_rate: float | None, by default None"
    assert lines[1].strip().startswith("Peak learning rate")
    assert lines[2].endswith("translate.toml: 0.01, recipe translate.toml")
    assert cli("explain", "train.seed", recipe).stdout.decode().splitlines()[-1].endswith(": 1, the default")
    section = cli("explain", "tokenizer").stdout
    assert section.count(b"by default") == len(dataclasses.fields(TokenizerConfig))
    assert cli("explain", "task", recipe).stdout.decode().endswith("translate.toml: 'translate', the default\n")
    wrong = cli("explain", "train.learning_rat")
    assert wrong.returncode == 2
    assert b"did you mean train.learning_rate" in wrong.stderr


@pytest.mark.slow
def test_explain_says_where_the_value_of_a_run_came_from(recipe, cli):
    assert cli("train", recipe, "--run", "run", "--train.seed", 5, "--train.updates=3").returncode == 0
    told = {}
    for name in (
        "train.seed",
        "train.updates",
        "train.learning_rate",
        "train.clip_norm",
        "model.d_ff",
        "train.select_by",
    ):
        told[name] = cli("explain", name, "run").stdout.decode().splitlines()[-1].split("in run: ")[1]
    assert told == {
        "train.seed": "5, command line",
        "train.updates": "3, command line",
        "train.learning_rate": "0.01, recipe translate.toml",
        "train.clip_norm": "0.0, the default",
        "model.d_ff": "24, recipe translate.toml",
        "train.select_by": "'bleu', set by the run itself",
    }
    assert cli("train", "--resume", "run", "--train.updates", 4).returncode == 0
    assert cli("explain", "train.updates", "run").stdout.decode().endswith("in run: 4, command line, on resuming\n")


def test_diff_lists_what_differs(recipe, cli):
    assert cli("diff", recipe, recipe).stdout == b"no difference\n"
    done = cli("diff", "sst2", "trec").stdout.decode().splitlines()
    assert any(line.startswith("data.train ") and "->" in line for line in done)
    assert not any(line.startswith("task") for line in done)
    assert b"not one of the recipes" in cli("diff", "sst2", "nowhere").stderr


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("translate", "run", "--beam_size", "4"), "(did you mean --beam-size?)"),
        (("train", "quikstart"), "Did you mean 'quickstart'?"),
        (("serve", "run", "--port", "80000"), "'80000' is not a port: a number from 0 to 65535"),
    ],
)
def test_misspelt_options_get_a_suggestion(cli, run, arguments, advice):
    done = cli(*arguments)
    assert done.returncode == 2
    assert advice in done.stderr.decode()


def test_what_ends_a_line_for_other_readers_does_not_end_ours():
    text = "a\rb\x85c\u2028d\u2029e\x1cf\r\ng\nh"
    assert one_line(text) == "a b c d e f g h"
    assert len(one_line(text).splitlines()) == 1


@pytest.mark.parametrize(("arguments", "message"), [
    (["dta", "get"], b"did you mean 'data'?"), (["translate", "RUNN"], b"Did you mean "),
    (["train", "quickstart", "--trian.updates", "3"], b"did you mean --train.updates?"),
])  # fmt: skip
def test_misspelt_commands_runs_and_sections_get_a_suggestion(cli, run, arguments, message):
    names = {"RUNN": run.with_name(f"{run.name}n")}
    assert message in cli(*(names.get(word, word) for word in arguments)).stderr


def test_an_error_without_a_reason_is_reported(cli, run, monkeypatch):
    """Guards against "heedful: None"."""
    monkeypatch.setattr(Run, "open", lambda path: (_ for _ in ()).throw(OSError("a pipe of a library")))
    assert cli("translate", run).stderr == b"heedful: a pipe of a library\n"


def test_a_cache_that_cannot_be_written_is_named_once(cli, run, monkeypatch):
    """Guards against one warning of JAX for each program."""

    def open_and_warn(path):
        for program in ("one", "two"):
            text = f"Error writing persistent compilation cache entry for '{program}': OSError: No space left"
            warnings.warn(text, UserWarning, stacklevel=2)
        raise InputError("enough")

    monkeypatch.setattr(Run, "open", open_and_warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = cli("translate", run).stderr.splitlines()
    assert said == [b"heedful: warning: compiled programs are not kept: OSError: No space left", b"heedful: enough"]


def completions(line):
    """Return what the shell offers for a command line, asked as argcomplete's script for bash asks."""
    asking = {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1", "COMP_LINE": line,
        "COMP_POINT": str(len(line)), "COMP_TYPE": "9",
    }  # fmt: skip
    with tempfile.NamedTemporaryFile("r") as answers:
        asking["_ARGCOMPLETE_STDOUT_FILENAME"] = answers.name
        subprocess.run([sys.executable, "-m", "heedful"], env=os.environ | asking, check=False)
        return answers.read().split("\n")


def test_the_shell_completes_commands_options_and_settings():
    assert completions("heedful tr") == ["train", "translate"]
    assert completions("heedful data ")[-3:] == ["list", "info", "get"]
    assert completions("heedful translate run --beam") == ["--beam-size"]
    assert "--train.learning_rate" in completions("heedful train quickstart --train.l")
    assert "--task" in completions("heedful train --ta")


def test_quiet_commands_write_results_only(cli, run, recipe, tmp_path):
    aligned = cli("align", run, "--choose", "-q")
    assert (aligned.stdout, aligned.stderr) == (b"", b"")
    assert (run / "alignment.json").is_file()
    assert cli("align", run, "--choose", "-q", stdin="o gato\tthe cat\n").stdout.count(b"\n") == 1
    assert cli("translate", run, "-q", stdin="o gato bebe\n").stdout.strip()
    failed = cli("translate", tmp_path / "nowhere", "-q")
    assert b"There is no run folder" in failed.stderr


def test_verbose_errors_say_where_they_arose(cli, tmp_path):
    done = cli("translate", tmp_path / "nowhere", "--verbose")
    assert b"InputError: There is no run folder" in done.stderr
    assert b"translate.py" in done.stderr
