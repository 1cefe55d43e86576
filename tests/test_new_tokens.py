"""New tokens: appended to the vocabulary of a trained run, and initialised with what spelled them before."""

import json

import numpy as np
import pytest

from heedful import workflows
from heedful.config import Config, DecodeConfig
from heedful.config.protected import SLOTS, Protection
from heedful.core.errors import InputError
from heedful.core.storage import read_checked
from heedful.data.sentences import SentenceSplitter
from heedful.data.tokenizer import TOKENIZER_KINDS, Tokenizer
from heedful.inference.line_reader import LineReader, token_counter
from heedful.inference.translator import Translator
from heedful.interop.export.huggingface import export
from heedful.runs.run import Run
from heedful.workflows import Training
from tests.conftest import PAIRS, change, quiet

TEXTS = [text for pair in PAIRS for text in pair]
APART = ["--tokenizer.joint", "false", "--model.tie"]
TOKENS = '["<br>", "naïve-☂"]'


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_text_with_new_tokens_is_read_and_restored(kind):
    before = Tokenizer.train(TEXTS, kind, 300)
    after = before.with_tokens(["<br>", "naïve-☂"])
    assert len(after) == len(before) + 2
    assert [after.lookup(token) for token in ("<br>", "naïve-☂")] == [len(before), len(before) + 1]
    text = "the cat <br> the naïve-☂ dog"
    ids = after.encode(text)
    assert ids.count(len(before)) == ids.count(len(before) + 1) == 1
    assert after.encode("the cat") == before.encode("the cat")
    assert "<br>" in after.decode(ids)
    assert "naïve-☂" in after.decode(ids)
    assert Tokenizer.from_json(after.to_json()).encode(text) == ids


@pytest.mark.parametrize(
    ("tokens", "message"),
    [([" "], "blank or given twice"), (["x1", "x1"], "blank or given twice"), (["[END]"], "in the vocabulary already")],
)
def test_useless_new_tokens_are_refused(tokens, message):
    with pytest.raises(InputError, match=message):
        Tokenizer.train(TEXTS, "word", 60).with_tokens(tokens)
    with pytest.raises(InputError, match=message):
        Tokenizer.train(TEXTS, "word", 60, new_tokens=tokens)


@pytest.mark.parametrize("tag", ["<2en>", "<en>"])
def test_a_tag_counts_for_all_sentences_of_a_line(tag):
    """Also one that looks like a tag of XML, which would be markup elsewhere."""
    tokenizer = Tokenizer.train(TEXTS, "bpe", 300, new_tokens=[tag])
    splitter = SentenceSplitter("en", token_counter(tokenizer), 50, by_default=True)
    reader = LineReader(splitter, Protection(), tags=[tag])
    read = reader.reading(DecodeConfig())
    line = read(f"{tag} A cat sleeps. A <b>dog</b> sees {{x}}. {tag} It runs.", "line 1")
    assert [text[: len(tag) + 2] for text in line.pieces.texts] == [f"{tag} A"] * 2 + [f"{tag} {tag[0]}"]
    assert read("A cat sleeps. A dog runs.", "line 1").pieces.texts == ["A cat sleeps.", "A dog runs."]
    other = LineReader(splitter, Protection(), tags=["<br>", "kubectl", SLOTS[0]]).reading(DecodeConfig())
    assert other("kubectl is it. It runs.", "line 1").pieces.texts == ["kubectl is it.", "It runs."]
    assert other("<br>A cat. It runs.", "line 1").marked.marked.tags
    assert reader.reading(DecodeConfig(split="never"))(f"{tag} A b.", "line 1").pieces.texts == [f"{tag} A b."]
    words = SentenceSplitter("en", lambda texts: [len(text.split()) for text in texts], 7, by_default=True)
    long = LineReader(words, Protection(), tags=[tag]).reading(DecodeConfig())(f"{tag} {'a ' * 30}", "line 1")
    assert words.count_tokens(long.pieces.texts) == [7] * 5  # with the tag


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_new_vocabulary_has_the_tokens_that_are_asked_for(kind):
    """The vocabulary is the one learned from the text without them, and no larger than asked for."""
    tagged = [f"<2en> {line}" for line in TEXTS]
    tokenizer = Tokenizer.train(tagged, kind, 300, new_tokens=["<2en>", "<2pt>"])
    plain = Tokenizer.train([f" {line}" for line in TEXTS], kind, 298)
    assert len(tokenizer) <= 300
    assert [tokenizer.lookup(token) for token in ("<2en>", "<2pt>")] == [len(plain), len(plain) + 1]
    if kind != "unigram":  # its training is not deterministic
        assert [tokenizer.lookup(i) for i in range(len(plain))] == [plain.lookup(i) for i in range(len(plain))]
    ids = tokenizer.encode(tagged[0])
    assert ids[0] == len(plain)
    assert ids.count(len(plain)) == 1


def test_the_vocabularies_of_a_training_have_the_tags(config, tmp_path):
    config = change(config, "--tokenizer.new_tokens", '["<2en>"]')
    for tokenizer in Training.prepared(config, tmp_path / "run", quiet).run.tokenizers():
        tag = tokenizer.lookup("<2en>")
        assert tag == len(tokenizer) - 1
        assert tokenizer.encode("<2en> o gato")[0] == tag


@pytest.mark.slow
@pytest.mark.any_backend
@pytest.mark.parametrize("options", [
    [], pytest.param([*APART, "target"], marks=pytest.mark.slow),
    pytest.param([*APART, "none", "--model.output_bias", "true"], marks=pytest.mark.slow),
])  # fmt: skip
def test_a_translator_learns_new_tokens(config, tmp_path, options):
    base = workflows.train(change(config, "--train.updates", "3", *options), tmp_path / "base", quiet)
    lines = []
    further = change(
        Config.from_json(base.path / "config.json"), "--train.init_from", str(base.path), "--tokenizer.new_tokens",
        TOKENS, "--train.learning_rate", "1e-9", "--train.updates", "1", "--train.select_by", "loss",
    )  # fmt: skip
    run = workflows.train(further, tmp_path / "further", lines.append)
    assert "2 new tokens" in lines
    before, after = (read_checked(each.weights_path())[0] for each in (base, run))
    grown = [name for name in before if before[name].shape != after[name].shape]
    assert grown
    for name in grown:
        side = 0 if name.startswith("source_") else 1
        tokenizer = base.tokenizers()[side if len(base.tokenizers()) > 1 else 0]
        assert after[name].shape[0] == before[name].shape[0] + 2
        np.testing.assert_allclose(after[name][:-2], before[name], atol=1e-6)
        for row, token in ((-2, "<br>"), (-1, "naïve-☂")):
            spelled = tokenizer.encode(token)
            np.testing.assert_allclose(after[name][row], before[name][spelled].mean(0), atol=1e-6)
    assert [len(tokenizer) for tokenizer in run.tokenizers()] == [len(each) + 2 for each in base.tokenizers()]
    opened = Run.open(run.path)
    assert Translator.from_run(opened).translate(["o gato"])
    resumed = workflows.resume(run.path, quiet, change(opened.config, "--train.updates", "2"))
    assert resumed.log.read()[-1]["update"] == 2


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--train.freeze_weights", '["target_embedding/*"]'),
            r"train\.freeze_weights freezes target_embedding/embeddings",
        ),
        (("--train.freeze", "true"), r"train\.freeze freezes them"),
    ],
)
def test_new_tokens_need_trained_tables(config, tmp_path, options, message):
    base = workflows.train(change(config, "--train.updates", "1"), tmp_path / "base", quiet)
    with pytest.raises(InputError, match=rf"tokenizer\.new_tokens needs trained tables, and {message}"):
        workflows.train(
            change(config, "--train.init_from", str(base.path), "--tokenizer.new_tokens", TOKENS, *options),
            tmp_path / "further", quiet,
        )  # fmt: skip


@pytest.mark.any_backend
@pytest.mark.slow
@pytest.mark.parametrize("task", ["generate", "classify"])
def test_other_tasks_learn_new_tokens(task, recipe_of, tmp_path):
    config = Config.from_toml(recipe_of(task))
    before = {"generate": "generate", "classify": "fill"}[task]  # the second starts from an encoder
    base = workflows.train(
        change(Config.from_toml(recipe_of(before)), "--train.updates", "3"), tmp_path / "base", quiet
    )
    run = workflows.train(
        change(config, "--train.init_from", str(base.path), "--tokenizer.new_tokens", TOKENS), tmp_path / "run", quiet
    )
    assert len(run.tokenizer) == len(base.tokenizer) + 2
    assert run.load_model().embedding.vocab_size == len(base.tokenizer) + 2


@pytest.mark.slow
def test_an_export_has_the_new_tokens(config, tmp_path):
    transformers = pytest.importorskip("transformers")
    options = ("--train.updates", "3", "--model.norm_position", "pre", "--tokenizer.kind", "bpe",
               "--tokenizer.vocab_size", "300")  # fmt: skip
    base = workflows.train(change(config, *options), tmp_path / "base", quiet)
    further = change(
        Config.from_json(base.path / "config.json"), "--train.init_from", str(base.path), "--tokenizer.new_tokens",
        TOKENS, "--train.updates", "1",
    )  # fmt: skip
    run = workflows.train(further, tmp_path / "further", quiet)
    export(run, tmp_path / "out")
    text = "o gato <br> naïve-☂"
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(text)["input_ids"]
    assert theirs[:-1] == run.source_tokenizer.encode(text)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == len(base.source_tokenizer) + 2
