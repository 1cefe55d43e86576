"""Untrusted files: no code in them runs, nothing outside their folder is read, and their size bounds the memory.

The payloads rebuild published vulnerabilities of Keras' own loader in a harmless form: those that run code would write
a canary, others would read a file or a terabyte. A test shows that payloads do fire in the installed Keras when it is
asked to trust the file.
"""

import base64
import io
import json
import marshal
import os
import resource
import shutil
import subprocess
import sys
import zipfile

import h5py
import keras
import numpy as np
import pytest
import safetensors.numpy

from heedful.core.errors import InputError
from heedful.core.storage import plain_file, read_checked, with_checksum
from heedful.core.validation import parse_json
from heedful.data.tokenizer import Tokenizer
from heedful.inspection.nearest_pairs import NearestPairs
from heedful.inspection.page.sentences import example_texts, scored_sentences
from heedful.models import CausalLM
from heedful.runs.run import FOLDERS, Run
from tests.conftest import fast

pytestmark = pytest.mark.any_backend


@pytest.fixture
def canary(tmp_path):
    return tmp_path / "canary"


def archive(path, config, weights=b""):
    """Write a .keras file with any config."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("metadata.json", json.dumps({"keras_version": keras.__version__, "date_saved": "2026"}))
        file.writestr("config.json", json.dumps(config))
        file.writestr("model.weights.h5", weights or hdf5(lambda file: None))
    return path


def hdf5(fill):
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        fill(file)
    return content.getvalue()


def sequential(*layers):
    """Return the config of a Sequential model, as Keras writes it."""
    first = {"module": "keras.layers", "class_name": "InputLayer", "config": {"batch_shape": [None, 1]}}
    config = {"name": "m", "layers": [first, *layers]}
    return {"module": "keras", "class_name": "Sequential", "config": config, "registered_name": None}


def layer(name, **config):
    return {"module": "keras.layers", "class_name": name, "config": {"name": "l"} | config, "registered_name": None}


def function(module, name):
    return {"module": module, "class_name": "function", "config": name, "registered_name": name}


def bytecode(canary):
    """A Lambda with bytecode (CVE-2024-3660)."""
    code = compile(f"lambda x: (open({str(canary)!r}, 'w').write('sung'), x)[1]", "l", "eval").co_consts[0]
    encoded = base64.b64encode(marshal.dumps(code)).decode()
    body = {"class_name": "__lambda__", "config": {"code": encoded, "defaults": None, "closure": None}}
    return archive(canary.parent / "a.keras", sequential(layer("Lambda", function=body, output_shape=[1])))


def any_function(canary):
    """A config that names an arbitrary function and its arguments (CVE-2025-1550)."""
    call = {"module": "os", "class_name": "function", "config": "system", "registered_name": "system"}
    arguments = {"command": f"touch {canary}"}
    return archive(canary.parent / "a.keras", sequential(layer("Lambda", function=call, arguments=arguments)))


def download(canary):
    """The download function of Keras itself, used as a gadget (CVE-2025-8747)."""
    origin = canary.parent / "origin"
    origin.write_text("sung")
    arguments = {"fname": str(canary), "origin": f"file://{origin}", "cache_dir": str(canary.parent)}
    call = function("keras.utils", "get_file")
    return archive(canary.parent / "a.keras", sequential(layer("Lambda", function=call, arguments=arguments)))


def unsafe_switch(canary):
    """A config that switches safe mode off before it loads bytecode (CVE-2025-9906)."""
    off = {"module": "keras.config", "class_name": "enable_unsafe_deserialization", "config": {}}
    code = compile(f"lambda x: open({str(canary)!r}, 'w').write('sung')", "l", "eval").co_consts[0]
    body = {"class_name": "__lambda__", "config": {"code": base64.b64encode(marshal.dumps(code)).decode()}}
    return archive(canary.parent / "a.keras", sequential(off, layer("Lambda", function=body)))


def vocabulary_path(canary):
    """A vocabulary given as a path: the model would contain another file's text (CVE-2025-12058)."""
    secret = canary.parent / "secret.txt"
    secret.write_text("secret\n")
    return archive(canary.parent / "a.keras", sequential(layer("StringLookup", vocabulary=str(secret))))


def vocabulary_url(canary):
    """A vocabulary given as a URL: loading it would contact the server."""
    return archive(canary.parent / "a.keras", sequential(layer("IntegerLookup", vocabulary="http://127.0.0.1:9/x")))


def external_link(canary):
    """Weights that are a link into another HDF5 file (CVE-2026-1669)."""
    (canary.parent / "other.h5").write_bytes(hdf5(lambda file: file.create_dataset("w", data=np.ones((1, 1)))))
    weights = hdf5(lambda file: file.__setitem__("layers/dense/vars/0", h5py.ExternalLink("other.h5", "w")))
    return archive(canary.parent / "a.keras", sequential(layer("Dense", units=1)), weights)


def declared_shape(canary):
    """A dataset that declares a terabyte and holds none (CVE-2026-0897)."""
    shape = 2**19, 2**19
    weights = hdf5(lambda file: file.create_dataset("layers/dense/vars/0", shape=shape, dtype="f4", chunks=True))
    return archive(canary.parent / "a.keras", sequential(layer("Dense", units=1)), weights)


def zip_bomb(canary):
    """An archive a thousand times larger than its file."""
    path = canary.parent / "a.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("metadata.json", "{}")
        file.writestr("config.json", json.dumps(sequential(layer("Dense", units=1))))
        with file.open("model.weights.h5", "w", force_zip64=True) as inner:
            for _ in range(512):
                inner.write(bytes(2**20))
    return path


def pickled_weights(canary):
    """Weights as .npz with a pickle in them, which runs when it is read."""
    content = io.BytesIO()
    np.savez(content, weights=np.array([Sings(canary)], object))
    path = canary.parent / "a.keras"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("metadata.json", "{}")
        file.writestr("config.json", json.dumps(sequential(layer("Dense", units=1))))
        file.writestr("model.weights.npz", content.getvalue())
    return path


def nested_saved_model(canary):
    """A layer that is a SavedModel elsewhere, with any graph in it (CVE-2026-1462)."""
    return archive(canary.parent / "a.keras", sequential(layer("TFSMLayer", filepath=str(canary.parent / "saved"))))


def legacy_h5(canary):
    """A Lambda in the old format, where safe mode was ignored (CVE-2025-9905)."""
    code = compile(f"lambda x: open({str(canary)!r}, 'w').write('sung')", "l", "eval").co_consts[0]
    encoded = base64.b64encode(marshal.dumps(code)).decode()
    config = sequential(layer("Lambda", function=[encoded, None, None], function_type="lambda"))
    path = canary.parent / "a.h5"
    path.write_bytes(hdf5(lambda file: file.attrs.__setitem__("model_config", json.dumps(config))))
    return path


class Sings:
    """An object whose pickle writes a canary."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.system, (f"touch {self.canary}",)


PAYLOADS = [
    bytecode, any_function, download, unsafe_switch, vocabulary_path, vocabulary_url, external_link, declared_shape,
    zip_bomb, pickled_weights, nested_saved_model, legacy_h5,
]  # fmt: skip


def refused(result):
    """Assert that a command was refused in one line; return the line."""
    error = result.stderr.decode()
    assert result.returncode == 2, error
    lines = [line for line in error.splitlines() if line.startswith("heedful: ")]
    assert len(lines) == 1, error
    assert "Traceback" not in error
    return lines[0]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.__name__)
def test_no_payload_runs_without_trust(payload, canary, run, cli, tmp_path):
    """Tries each payload as a file to import, and as the weights, config and tokenizer of a run."""
    path = payload(canary)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "pass --trust" in refused(cli("import", path, tmp_path / "new"))
    weights = (run / "model.safetensors").read_bytes()
    shutil.copy(path, run / "model.safetensors")
    assert "is damaged" in refused(cli("translate", run, stdin="o gato\n"))
    (run / "model.safetensors").write_bytes(weights)
    (tmp_path / "folder").mkdir()
    shutil.copy(path, tmp_path / "folder" / "model.safetensors")
    (tmp_path / "folder" / "config.json").write_text('{"model_type": "bert"}')
    refused(cli("import", tmp_path / "folder", tmp_path / "new"))
    config = zipfile.ZipFile(path).read("config.json") if path.suffix == ".keras" else b'{"class_name": "Sequential"}'
    for name in ("config.json", "source.tokenizer.json"):
        kept = (run / name).read_bytes()
        (run / name).write_bytes(config)
        refused(cli("translate", run, stdin="o gato\n"))
        (run / name).write_bytes(kept)
    assert not canary.exists()
    assert not (tmp_path / "new").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


@pytest.mark.parametrize(
    "payload",
    [pytest.param(one, marks=pytest.mark.slow if one is zip_bomb else ()) for one in PAYLOADS],
    ids=lambda payload: payload.__name__,
)
def test_no_payload_runs_with_trust_either(payload, canary, cli, tmp_path, trained):
    tokenizer = trained / "run" / "source.tokenizer.json"
    message = refused(cli("import", payload(canary), tmp_path / "new", "--trust", "--tokenizer", tokenizer))
    assert "cannot be loaded" in message or "holds a" in message
    assert not canary.exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_payloads_run_when_loaded_without_safe_mode(canary):
    """Guards against payloads that are refused above only because they do not work."""
    path = bytecode(canary)
    code = f"import keras; keras.saving.load_model({str(path)!r}, safe_mode=False)(keras.ops.ones((1, 1)))"
    subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert canary.exists()
    canary.unlink()
    with zipfile.ZipFile(pickled_weights(canary)) as file:
        content = io.BytesIO(file.read("model.weights.npz"))
    np.load(content, allow_pickle=True)["weights"]
    assert canary.exists()


def test_our_own_models_are_imported_with_trust(cli, tmp_path, numpy):
    tokenizer = Tokenizer.train(["the cat drinks milk", "the cow eats"], "word", 40)
    model = CausalLM(len(tokenizer), num_layers=1, d_model=16, num_heads=2, d_ff=24, max_length=16)
    model.save(tmp_path / "mine.keras")
    tokenizer.save(tmp_path / "tokenizer.json")
    keys = "import", tmp_path / "mine.keras", tmp_path / "new", "--trust"
    assert "has no tokenizer in it" in refused(cli(*keys))
    Tokenizer.train(["o gato"], "word", 40).save(tmp_path / "other.json")
    assert "the tokenizers have" in refused(cli(*keys, "--tokenizer", tmp_path / "other.json"))
    assert cli(*keys, "--tokenizer", tmp_path / "tokenizer.json").returncode == 0
    ids = np.array([tokenizer.encode("the cat eats")])
    np.testing.assert_array_equal(numpy(Run.open(tmp_path / "new").load_model()(ids)), numpy(model(ids)))
    none = cli("import", tmp_path / "none.h5", tmp_path / "x", "--trust", "--tokenizer", "t")
    assert "none.h5 does not exist" in refused(none)


@pytest.mark.parametrize("name", ["config.json", "source.tokenizer.json", "model.safetensors"])
def test_nothing_outside_the_folder_is_read(run, cli, tmp_path, name):
    """Relative and absolute links out of the folder are refused; links within it are followed."""
    outside = tmp_path / "outside"
    (run / name).rename(outside)
    for target in (outside, os.path.relpath(outside, run)):
        (run / name).symlink_to(target)
        assert "outside its folder: heedful does not follow" in refused(cli("translate", run, stdin="o gato\n"))
        (run / name).unlink()
    outside.rename(run / "inside")
    (run / name).symlink_to("inside")
    assert cli("translate", run, stdin="o gato\n").returncode == 0
    (run / name).unlink()
    os.mkfifo(run / name)  # reading it would block forever
    refused(cli("translate", run, stdin="o gato\n"))


def test_a_state_outside_the_folder_is_not_read(run, tmp_path):
    newest = Run.open(run).checkpoints.paths()[-1]
    newest.rename(tmp_path / "outside")
    newest.symlink_to(tmp_path / "outside")
    said = []
    Run.open(run).checkpoints.read_last(said.append)
    assert "outside its folder: heedful does not follow" in said[0]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("d_model", 80_000, "such a model has more than"), ("num_layers", 9_000, "such a model has more than"),
     ("d_ff", 900_000, "such a model has more than"), ("d_model", 10**9, "must be at most"),
     ("num_layers", 10**30, "must be at most"), ("max_length", 10**9, "must be at most"),
     ("num_layers", -1, "must be greater than 0"), ("d_model", 16.0, "is not a whole number")],
)  # fmt: skip
def test_impossible_model_sizes_are_refused_without_allocating_memory(run, cli, key, value, message):
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    config["model"][key] = value
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert message in refused(cli("translate", run, stdin="o gato\n"))
    assert message in refused(cli("train", "--resume", run))
    (run / "model.safetensors").unlink()
    assert message in refused(cli("check", run))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


@pytest.mark.parametrize(
    ("text", "message"),
    [('{"a": 1, "a": 2}', "the key 'a' is repeated"), ('{"a": NaN}', "NaN is not allowed"),
     ("[" * 100_000, "too deeply"),
     ('{"a": ' + "9" * 5000 + "}", "Exceeds the limit"), ("", "Expecting value"), ('{"a": -Infinity}', "allowed")],
)  # fmt: skip
def test_json_is_strict(text, message, run, cli):
    with pytest.raises(InputError, match=message):
        parse_json(text, "text")
    for name in ("config.json", "source.tokenizer.json"):
        kept = (run / name).read_bytes()
        (run / name).write_text(text)
        assert "JSON" in refused(cli("translate", run, stdin="o gato\n"))
        (run / name).write_bytes(kept)


@pytest.mark.parametrize("name", fast(["samples.txt", "log.jsonl"], 1))
def test_nothing_outside_the_folder_is_written(run, tmp_path, cli, name):
    """A resumed training must neither append to a file elsewhere nor create one."""
    (run / name).unlink()
    (run / name).symlink_to(tmp_path / "elsewhere")
    result = cli("train", "--resume", run, "--train.updates", 9)
    if name == "samples.txt":  # the log is rewritten, which replaces the link
        assert "outside its folder: heedful does not follow" in refused(result)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", FOLDERS)
def test_subfolders_that_link_out_of_a_run_are_refused(run, recipe, tmp_path, cli, name):
    """The target may belong to another run: nothing in it may be renamed, deleted or overwritten."""
    (run / name).mkdir(exist_ok=True)
    (run / name).rename(tmp_path / "outside")
    (tmp_path / "outside" / "mine").write_text("mine")
    before = {path.name: path.read_bytes() for path in (tmp_path / "outside").iterdir()}
    (run / name).symlink_to(tmp_path / "outside")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / name).symlink_to(tmp_path / "outside")
    new = ["train", recipe, "--run", tmp_path / "new"]
    for arguments in (["translate", run], ["train", "--resume", run], new, [*new, "--force"]):
        assert "outside its folder: heedful does not follow" in refused(cli(*arguments))
    assert {path.name: path.read_bytes() for path in (tmp_path / "outside").iterdir()} == before


def test_links_are_not_written_through(run, tmp_path, cli):
    notes = tmp_path / "notes"
    notes.write_text("mine")
    (run / "figures").mkdir()
    (run / "figures" / "positions.png").symlink_to(notes)
    assert cli("inspect", run, "--positions").returncode == 0  # replaces the link
    assert (run / "figures" / "positions.png").read_bytes().startswith(b"\x89PNG")
    (run / ".lock").unlink(missing_ok=True)
    (run / ".lock").symlink_to(notes)
    assert ".lock" in refused(cli("train", "--resume", run, "--train.updates", 9))
    (run / "figures" / f".positions.png.{os.getpid()}.part").symlink_to(notes)
    assert "positions.png" in refused(cli("inspect", run, "--positions"))
    (run / "state").rename(run / "states")
    (run / "state").symlink_to("state")
    refused(cli("inspect", run, "--positions"))
    assert notes.read_text() == "mine"


@pytest.mark.parametrize("progress", ["{}", "[]", '{"update": 3}', "[" * 100_000])
def test_states_with_malformed_progress_are_not_resumed(run, progress, cli):
    for state in Run.open(run).checkpoints.paths():
        state.write_bytes(with_checksum(read_checked(state)[0], {"progress": progress}))
    assert "holds no training state to resume from" in refused(cli("train", "--resume", run, "--train.updates", 9))


def test_inconsistent_safetensors_headers_are_refused(tmp_path):
    """Covers arrays beyond the file, overlaps, holes, duplicate names and a huge header."""
    path = tmp_path / "x.safetensors"

    def write(header, size=8):
        text = header if isinstance(header, str) else json.dumps(header)
        path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + bytes(size))

    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    for header in (
        {"a": entry | {"shape": [2**40]}},
        {"a": entry | {"data_offsets": [0, 2**40], "shape": [2**38]}},
        {"a": entry, "b": entry},
        {"a": entry | {"shape": [1], "data_offsets": [4, 8]}},
        {"a": entry | {"dtype": "O"}},
        json.dumps({"a": entry})[:-1] + ', "a": ' + json.dumps(entry | {"shape": [1], "data_offsets": [0, 4]}) + "}",
    ):
        write(header)
        with pytest.raises(InputError, match="is damaged"):
            read_checked(path)
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    with pytest.raises(InputError, match="is damaged"):
        read_checked(path)


def test_pickled_weights_are_refused_under_any_name(tmp_path, canary, cli):
    import pickle

    for name in ("pytorch_model.bin", "model.safetensors"):
        folder = tmp_path / name.replace(".", "")
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "bert"}')
        (folder / name).write_bytes(pickle.dumps(Sings(canary)))
        refused(cli("import", folder, tmp_path / "new"))
    assert not canary.exists()


def test_own_file_accepts_only_plain_files_in_the_folder(tmp_path):
    (tmp_path / "a").write_text("x")
    assert plain_file(tmp_path, "a") == tmp_path / "a"
    with pytest.raises(InputError, match="does not exist"):
        plain_file(tmp_path, "b")
    with pytest.raises(InputError, match="outside its folder"):
        plain_file(tmp_path, "../a")
    with pytest.raises(InputError, match="not a plain file"):
        plain_file(tmp_path, ".")


def test_infinite_weights_are_refused(run, cli):
    arrays = safetensors.numpy.load((run / "model.safetensors").read_bytes())
    name = min(arrays)
    arrays[name] = np.full_like(arrays[name], np.inf)
    (run / "model.safetensors").write_bytes(with_checksum(arrays, {}))
    assert "values that are not numbers" in refused(cli("translate", run, stdin="o gato\n"))


@pytest.mark.parametrize("named", [False, True])
def test_a_run_shows_no_text_from_elsewhere(run, tmp_path, monkeypatch, named):
    """Guards against a run folder whose config names a file of the server: its lines were shown to clients."""
    secret = tmp_path / "elsewhere" / "secret.tsv"
    secret.parent.mkdir()
    secret.write_text("o gato bebe\ta secret line\n" * 3)
    (run / "samples.jsonl").unlink()
    config = json.loads((run / "config.json").read_text())
    config["data"] |= {part: [str(secret)] for part in ("train", "valid", "test")}
    (run / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("HEEDFUL_DATA", str(tmp_path / "data"))
    opened = Run.open(run).with_text([secret.parent] if named else [])
    if named:
        assert NearestPairs.of(opened)("o gato bebe")[0].target == "a secret line"
        assert example_texts(opened) == ["o gato bebe"]
        return
    with pytest.raises(InputError, match=r"secret.tsv, a text of .*, is not below HEEDFUL_DATA: name it with --text"):
        NearestPairs.of(opened)
    assert example_texts(opened) == []
    assert scored_sentences(opened) is None
    monkeypatch.setenv("HEEDFUL_DATA", str(secret.parent))
    assert example_texts(opened) == ["o gato bebe"]
