"""Exports to Marian and Bergamot: vocabularies that split alike, Marian's equations, and the engine of Firefox."""

import json
import os
import shutil
import subprocess
import types
from pathlib import Path

import numpy as np
import pytest

from heedful.config import DecodeConfig, ModelConfig
from heedful.core.errors import InputError, InputWarning
from heedful.data.phrasebook import phrasebook
from heedful.data.tokenizer import Tokenizer
from heedful.interop.engines import MARIAN
from heedful.interop.export import bergamot, marian
from heedful.interop.export.marian import MarianExport, marian_arrays, model_options, vocabularies
from heedful.interop.export.marian_model import MarianModel
from heedful.interop.export.sentencepiece_vocabulary import sentencepiece_vocabulary
from heedful.runs.run import Run
from tests.conftest import fast, served_folder
from tests.test_engines import CASES, SMALL, logits, refused
from tests.test_huggingface import random_run

sentencepiece = pytest.importorskip("sentencepiece")
pytestmark = pytest.mark.any_backend

FITTING = {"positions": "sinusoidal_marian", "start_vector": "zero"}
TEXTS = ["O gato bebe.", "  zwei  Räume ", "naïve café, 中文 – «ok» 😀", "", "12 345,67 €", "don't"]


@pytest.mark.parametrize("prefix_space", [False, True])
def test_a_sentencepiece_vocabulary_splits_and_joins_alike(prefix_space):
    lines = [side for pair in phrasebook("train", 400) for side in pair]
    new = [] if prefix_space else ["<back>"]
    tokenizer = Tokenizer.train(lines, "bpe", 600, prefix_space=prefix_space, normalize="nfc", new_tokens=new)
    vocabulary = sentencepiece_vocabulary(tokenizer)
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.content)
    assert len(vocabulary.ids) % 8 == 0
    for text in [*lines[:200], *TEXTS, *(f"{token} O gato" for token in new)]:
        ids = processor.encode(text)
        assert [vocabulary.ids[i] for i in ids] == tokenizer.encode(text), text
        assert processor.decode(ids) == tokenizer.decode(tokenizer.encode(text)).lstrip(" "), text
    assert [processor.id_to_piece(i) for i in (0, 1)] == ["</s>", "<unk>"]
    written = [number for number, is_written in zip(vocabulary.ids, vocabulary.written, strict=True) if is_written]
    assert len(set(written)) == len(written)  # no token has two pieces that a model may write


@pytest.mark.parametrize("options", [{"kind": "unigram"}, {"kind": "word"}, {"lowercase": True},
                                     {"prefix_space": True, "new_tokens": ["<back>"]}])  # fmt: skip
def test_vocabularies_that_sentencepiece_lacks_are_refused(options):
    tokenizer = Tokenizer.train(["the cat drinks"], **{"kind": "bpe", "vocab_size": 300} | options)
    with pytest.raises(InputError, match="A SentencePiece vocabulary"):
        sentencepiece_vocabulary(tokenizer)


VARIED = [{}, *(options for task, options in CASES if task == "translate")]


@pytest.mark.parametrize("options", fast(VARIED, 3))
def test_marian_computes_the_same_or_names_the_misfit(tmp_path, options, rng):
    run = random_run(tmp_path, "translate", SMALL | FITTING | {"tie": "all"} | options)
    if misfits := MARIAN.misfits(run.config.model):
        refused(lambda: marian_arrays(run, vocabularies(run)), misfits)
        return
    sides = vocabularies(run)
    model = MarianModel(marian_arrays(run, sides), model_options(run.config.model, sides))
    source, target = rng.integers(258, len(sides[0].ids) - 8, 6), rng.integers(258, len(sides[1].ids) - 8, 5)
    of_marian = model.logits(model.encode([*source, 0]), target)
    ids = [[sides[side].ids[i] for i in row] for side, row in enumerate((source, target))]
    expected = logits(run.load_model(), np.array([[*ids[0], 3]]), np.array([[2, *ids[1]]]))[0][:, sides[1].ids]
    np.testing.assert_allclose(of_marian[:, sides[1].written], expected[:, sides[1].written], atol=1e-3)


@pytest.mark.parametrize("form", [marian, bergamot])
def test_what_is_written_is_read_back(tmp_path, form):
    run = random_run(tmp_path, "translate", SMALL | FITTING | {"tie": "target"})
    (tmp_path / "out").mkdir()
    form.write(run, tmp_path / "out", "float32")
    engine = form.FORMAT.open(run, tmp_path / "out", "float32")
    assert isinstance(engine, MarianExport)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        form.MODEL, form.CONFIG, "source.spm", "target.spm", "heedful.json",
    }  # fmt: skip
    sides = vocabularies(run)
    for name, array in marian_arrays(run, sides).items():
        np.testing.assert_array_equal(engine.model.arrays[name], array)
    assert engine.model.options == model_options(run.config.model, sides)
    assert "relative-paths: true" in (tmp_path / "out" / form.CONFIG).read_text()


@pytest.mark.parametrize("quantization", ["float32", "int8"])
def test_the_binary_file_is_aligned_and_read_back(tmp_path, rng, quantization):
    arrays = {"Wemb": rng.normal(size=(5, 3)), "encoder_l1_self_Wq": rng.normal(size=(3, 4)), "a_b": np.ones((1, 4))}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    options = np.frombuffer(b"x: 1\n\0", np.int8)
    items = [bergamot.item(name, array, quantization) for name, array in arrays.items()]
    content = bergamot.binary([*items, bergamot.item(marian.OPTIONS, options)])
    assert len(content) % 256 == 0
    assert all(content.index(one.content) % 256 == 0 for one in items)
    (tmp_path / bergamot.MODEL).write_bytes(content)
    read = bergamot.read_binary(tmp_path)
    assert list(read) == [*arrays, marian.OPTIONS]
    np.testing.assert_array_equal(read[marian.OPTIONS], options)
    for name, array in arrays.items():
        step = np.abs(array).max() / 127 if quantization == "int8" and "W" in name else 0
        np.testing.assert_allclose(read[name], array, atol=step / 2 + 1e-9)
    if quantization == "int8":  # a column of the matrix is a row of the file
        assert items[1].content[:3] == np.rint(arrays["encoder_l1_self_Wq"][:, 0] * 127 / np.abs(
            arrays["encoder_l1_self_Wq"]).max()).astype(np.int8).tobytes()  # fmt: skip
    (tmp_path / bergamot.MODEL).write_bytes(b"\2" + content[1:])
    with pytest.raises(InputError, match="no binary model"):
        bergamot.read_binary(tmp_path)


@pytest.mark.slow
def test_a_trained_student_is_exported_and_checked(recipe, cli, tmp_path):
    settings = ["--model.positions", "sinusoidal_marian", "--model.start_vector", "zero", "--tokenizer.kind", "bpe",
                "--tokenizer.vocab_size", 300, "--train.updates", 30]  # fmt: skip
    assert cli("train", recipe, "--run", tmp_path / "run", *settings).returncode == 0
    done = cli("export", tmp_path / "run", "--to", "bergamot", "--quantization", "int8")
    assert done.returncode == 0, done.stderr.decode()
    assert "100.00% of 20 texts are identical" in done.stdout.decode()
    assert json.loads((tmp_path / "run" / "bergamot" / "parity.json").read_text())[0]["identical"] == 1.0


def test_what_marian_lacks_is_named():
    assert set(MARIAN.misfits(ModelConfig(**SMALL))) == {
        "model.positions = 'sinusoidal'", "model.start_vector = 'learned'",
    }  # fmt: skip


def test_settings_of_the_search_that_marian_lacks_are_named():
    decode = DecodeConfig(min_length=3, no_repeat_ngram=2, beam_size=4)
    run = types.SimpleNamespace(config=types.SimpleNamespace(decode=decode))
    with pytest.warns(
        InputWarning, match=r"Marian ignores decode.no_repeat_ngram = 2, decode.min_length = 3: it has no"
    ):
        assert marian.decoder_options(run)["beam-size"] == 4


SCRIPT = Path(__file__).parent.parent / "benchmarks" / "bergamot.mjs"


IN_A_PAGE = """async (lines) => {
  const { TranslatorBacking } = await import("/node_modules/@browsermt/bergamot-translator/translator.js");
  const { translate } = await import("/bergamot.mjs");
  const read = async (name) => {
    const answer = await fetch(`/run/bergamot/${name}`);
    return answer.ok ? answer.arrayBuffer() : null;
  };
  return (await translate(TranslatorBacking, read, lines)).texts;
}"""


@pytest.mark.slow
def test_the_engine_of_firefox_translates_alike(recipe, cli, tmp_path, browser):
    """Its WebAssembly build, of npm, in Node and in Chromium; its sentences are those of the export's own check."""
    if not all(map(shutil.which, ("node", "npm", "chromium"))):
        pytest.skip("node, npm or chromium is not installed")
    settings = ["--model.positions", "sinusoidal_marian", "--model.start_vector", "zero", "--tokenizer.kind", "bpe",
                "--tokenizer.vocab_size", 300, "--train.updates", 200]  # fmt: skip
    assert cli("train", recipe, "--run", tmp_path / "run", *settings).returncode == 0
    assert cli("export", tmp_path / "run", "--to", "bergamot").returncode == 0
    lines = list(dict.fromkeys((tmp_path / "text.pt").read_text().splitlines()))
    sources = "".join(f"{line}\n" for line in lines)
    ours = cli("translate", tmp_path / "run", stdin=sources).stdout.decode()
    subprocess.run(["npm", "install", "--silent", "@browsermt/bergamot-translator@0.4.9"], cwd=tmp_path, check=True)

    def in_node(text=sources):
        command = ["node", SCRIPT, tmp_path / "run" / "bergamot"]
        return subprocess.run(command, input=text.encode(), cwd=tmp_path, check=True, stdout=subprocess.PIPE,
                              timeout=200, env=os.environ).stdout.decode()  # fmt: skip

    assert in_node() == ours
    assert cli("export", tmp_path / "run", "--to", "bergamot", "--shortlist").returncode == 0
    assert in_node() == ours
    folder = tmp_path / "run" / "bergamot"
    saved = (folder / "lex.bin").read_bytes()
    lists = bergamot.read_shortlist(folder)
    (folder / "lex.bin").write_bytes(bergamot.shortlist_bytes([lists[0][:12], *(one[:1] for one in lists[1:])]))
    opened = bergamot.open_export(Run.open(tmp_path / "run"), folder, "float32")
    expected = [opened.write([line], 60, 1)[0][0] for line in lines[:5]]
    assert [in_node(f"{line}\n") for line in lines[:5]] == [f"{text}\n" for text in expected]
    assert expected != ours.splitlines()[:5]
    (folder / "lex.bin").write_bytes(saved)
    shutil.copy(SCRIPT, tmp_path)
    (tmp_path / "index.html").write_text("<!doctype html><title>Bergamot</title>", encoding="utf-8")
    with served_folder(tmp_path) as address, browser.new_page() as page:
        page.goto(address)
        texts = page.evaluate(IN_A_PAGE, lines)
    assert "".join(f"{text}\n" for text in texts) == ours
