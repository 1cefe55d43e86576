"""Models whose sources and targets begin with a token of their own, as those of BART do."""

import dataclasses
import json

import pytest

from heedful.data.tokenizer import Tokenizer
from heedful.errors import InputError
from heedful.export.greedy import plain_greedy
from heedful.export.huggingface import export
from heedful.inference.translator import Translator
from heedful.pretrained import import_model
from heedful.pretrained.vocabulary import template
from heedful.weights import weights_by_name
from tests.conftest import PAIRS
from tests.test_pretrained import randomised

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

pytestmark = pytest.mark.any_backend
SOURCES = [source for source, _ in PAIRS]


@pytest.fixture(scope="module")
def bart(tmp_path_factory):
    """Return a small BART with a tokenizer as that of facebook/bart-base: byte-level, `<s> text </s>`."""
    folder = tmp_path_factory.mktemp("bart")
    inner = tokenizers.ByteLevelBPETokenizer()
    inner.train_from_iterator(
        [text for pair in PAIRS for text in pair], vocab_size=300,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    )  # fmt: skip
    inner._tokenizer.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    inner.save(str(folder / "tokenizer.json"))
    settings = {
        "bos": "<s>",
        "cls": "<s>",
        "pad": "<pad>",
        "eos": "</s>",
        "sep": "</s>",
        "unk": "<unk>",
        "mask": "<mask>",
    }
    named = {f"{role}_token": token for role, token in settings.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps(named | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    config = transformers.BartConfig(
        vocab_size=inner.get_vocab_size(), d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=6,
        decoder_attention_heads=6, encoder_ffn_dim=20, decoder_ffn_dim=20, max_position_embeddings=40,
        forced_eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(3)
    model = randomised(transformers.BartForConditionalGeneration(config))
    model.save_pretrained(folder)
    return folder, model


def texts_of(model, tokenizer, forced):
    """Return greedy translations by transformers."""
    inputs = tokenizer(SOURCES, return_tensors="pt", padding=True)
    kept = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        ids = model.generate(
            **kept, num_beams=1, do_sample=False, max_new_tokens=12, forced_bos_token_id=forced,
            suppress_tokens=[model.config.pad_token_id],
        )  # fmt: skip
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


def translated(run):
    """Return our greedy translations."""
    decode = dataclasses.replace(plain_greedy(run), max_length=12, max_ratio=1e6)
    return Translator.from_run(run, decode).translate(SOURCES)


def test_a_bart_translates_like_the_original(bart, tmp_path):
    folder, model = bart
    run = import_model(folder, tmp_path / "run")
    assert run.tokenizer.prefix_ids == [run.tokenizer.lookup("<s>")]
    assert run.tokenizer.encode("") == []
    assert run.tokenizer.decode(run.tokenizer.encode("o gato")) == "o gato"
    theirs = texts_of(model, transformers.AutoTokenizer.from_pretrained(folder), forced=0)
    found = translated(run)
    assert found == theirs
    assert len(set(found)) > 5


def test_a_run_with_a_prefix_is_exported_and_imported(bart, tmp_path):
    run = import_model(bart[0], tmp_path / "run")
    export(run, tmp_path / "out")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    [prefix] = run.tokenizer.prefix_ids
    assert model.generation_config.forced_bos_token_id == prefix
    assert tokenizer("o gato")["input_ids"] == [*run.tokenizer.encode("o gato"), run.tokenizer.end_id]
    ours = [text.replace("<s>", "") for text in texts_of(model, tokenizer, prefix)]  # an ordinary token there
    assert ours == translated(run)
    again = import_model(tmp_path / "out", tmp_path / "again")
    assert again.tokenizer.to_json() == run.tokenizer.to_json()
    one, other = (weights_by_name(which.load_model()) for which in (run, again))
    for name, array in one.items():
        assert (array == other[name]).all(), name


def test_a_target_that_begins_otherwise_is_refused(bart, tmp_path):
    folder = tmp_path / "changed"
    folder.mkdir()
    for path in bart[0].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"forced_bos_token_id": 7}))
    with pytest.raises(InputError, match="each target begins with the token 7"):
        import_model(folder, tmp_path / "run")


def test_a_tokenizer_that_adds_something_after_a_text_has_no_prefix():
    """Such as one that heedful has exported for transformers."""
    tokenizer = Tokenizer.train(SOURCES, "bpe", 300)
    assert tokenizer.prefix_ids == []
    data = json.loads(tokenizer.to_json())
    for before, found in (([], []), (["[START]"], [tokenizer.start_id])):
        data["post_processor"] = template(before, ["[END]"], tokenizer.lookup)
        assert Tokenizer.from_json(json.dumps(data)).prefix_ids == found
