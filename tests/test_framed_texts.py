"""Models whose sources and targets begin with a token of their own, as those of BART and mBART-50 do."""

import copy
import dataclasses
import json
import shutil

import pytest

from heedful.core.errors import InputError
from heedful.core.special_tokens import PAD_ID, START_ID, UNKNOWN_ID
from heedful.data.tokenizer import Tokenizer
from heedful.inference.translator import Translator
from heedful.inspection.translation import TranslationInspection
from heedful.interop.export import ctranslate2, onnx
from heedful.interop.export.huggingface import export, generation_config
from heedful.interop.export.parity import export_checked
from heedful.interop.export.plain_search import plain_search
from heedful.interop.pretrained import import_model
from heedful.interop.pretrained.vocabulary import template
from heedful.runs.run import Run
from heedful.runs.weights import weights_by_name
from heedful.serve.engine import Engine
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


@pytest.fixture(scope="module")
def mbart(tmp_path_factory):
    """Return a small mBART with the tokenizer of mBART-50: `de_DE text </s>`, and `pt_XX text </s>` for targets."""
    folder = tmp_path_factory.mktemp("mbart")
    words = {word for pair in PAIRS for text in pair for word in text.split()}
    found = ["\u2581", *(f"\u2581{word}" for word in sorted(words)[::2]), *sorted(set("".join(words)))]
    pieces = [(special, 0.0) for special in ("<unk>", "<s>", "</s>")]
    pieces += [(piece, -1 - 0.01 * place) for place, piece in enumerate(found)]
    tokenizer = transformers.MBart50Tokenizer(vocab=pieces, src_lang="de_DE", tgt_lang="pt_XX")
    tokenizer.save_pretrained(folder)
    config = transformers.MBartConfig(
        vocab_size=len(tokenizer), d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=6,
        decoder_attention_heads=6, encoder_ffn_dim=20, decoder_ffn_dim=20, max_position_embeddings=40,
        scale_embedding=True, tie_word_embeddings=False, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(4)
    model = randomised(transformers.MBartForConditionalGeneration(config))
    with torch.no_grad():  # transformers 5 ties all tables or none
        model.model.encoder.embed_tokens.weight.copy_(model.model.decoder.embed_tokens.weight)
        model.model.shared.weight.copy_(model.model.decoder.embed_tokens.weight)
        model.final_logits_bias[0, 1] = -100  # a trained model never writes padding
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


def translator_of(run):
    """Return a greedy translator."""
    return Translator.from_run(run, dataclasses.replace(plain_search(run), max_length=12, max_ratio=1e6))


def translated(run):
    """Return our greedy translations."""
    return translator_of(run).translate(SOURCES)


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
    assert model.generation_config.suppress_tokens == [PAD_ID, START_ID]
    assert tokenizer("o gato")["input_ids"] == [*run.tokenizer.encode("o gato"), run.tokenizer.end_id]
    assert texts_of(model, tokenizer, prefix) == translated(run)
    again = import_model(tmp_path / "out", tmp_path / "again")
    assert again.tokenizer.to_json() == run.tokenizer.to_json()
    one, other = (weights_by_name(which.load_model()) for which in (run, again))
    for name, array in one.items():
        assert (array == other[name]).all(), name


@pytest.mark.slow
def test_an_mbart_translates_between_its_languages_like_the_original(mbart, tmp_path):
    folder, model = mbart
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = {}
    for language in ("pt_XX", "ro_RO"):  # tgt_lang, and another
        named = {} if language == "pt_XX" else {"target_language": language}
        run = Run.open(import_model(folder, tmp_path / language, **named).path)
        begun = [[run.tokenizer.lookup("de_DE")], [run.tokenizer.lookup(language)]]
        assert [side.prefix_ids for side in run.tokenizers()] == begun
        assert run.config.tokenizer.joint
        found[language] = translated(run)
        assert found[language] == texts_of(model, tokenizer, tokenizer.convert_tokens_to_ids(language))
        assert len(set(found[language])) > 5
    assert found["pt_XX"] != found["ro_RO"]
    tokenizer.src_lang = "ja_XX"
    run = import_model(folder, tmp_path / "japanese", source_language="ja_XX")
    assert translated(run) == texts_of(model, tokenizer, tokenizer.convert_tokens_to_ids("pt_XX")) != found["pt_XX"]


def test_an_mbart_is_exported_and_imported(mbart, tmp_path):
    run = import_model(mbart[0], tmp_path / "run")
    export(run, tmp_path / "out")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert isinstance(model, transformers.MBartForConditionalGeneration)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert texts_of(model, tokenizer, model.generation_config.forced_bos_token_id) == translated(run)
    again = import_model(tmp_path / "out", tmp_path / "again")
    for before, after in zip(run.tokenizers(), again.tokenizers(), strict=True):
        assert after.to_json() == before.to_json()
    one, other = (weights_by_name(which.load_model()) for which in (run, again))
    for name, array in one.items():
        assert (array == other[name]).all(), name


def test_tables_that_transformers_does_not_tie_are_all_imported(mbart, tmp_path):
    folder, tied = mbart
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, tmp_path)
    model = copy.deepcopy(tied)
    with torch.no_grad():
        model.model.encoder.embed_tokens.weight.mul_(-1.5)
    model.save_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs = texts_of(model, tokenizer, tokenizer.convert_tokens_to_ids("pt_XX"))
    run = import_model(tmp_path, tmp_path / "run")
    assert run.config.model.tie == "none"
    assert translated(run) == theirs != translated(import_model(folder, tmp_path / "tied"))


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ({"target_language": "pt_PT"}, "'pt_PT' is no language of .*; did you mean 'pt_XX'"),
        ({"source_language": "</s>"}, "'</s>' is no language of .*; its languages are ar_AR"),
        ({"source_language": "\u2581o"}, "is no language of"),
    ],
)
def test_an_unknown_language_is_refused(mbart, tmp_path, languages, message):
    with pytest.raises(InputError, match=message):
        import_model(mbart[0], tmp_path / "run", **languages)


def test_a_language_does_not_hide_another_frame(mbart, tmp_path):
    """The first mBART writes `text </s> en_XX`."""
    folder = tmp_path / "changed"
    shutil.copytree(mbart[0], folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    single = tokenizer["post_processor"]["single"]
    tokenizer["post_processor"]["single"] = [*single[1:], single[0]]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(InputError, match="the first mBART does not"):
        import_model(folder, tmp_path / "run", source_language="de_DE", target_language="pt_XX")


def test_a_language_is_for_multilingual_models_only(bart, tmp_path):
    with pytest.raises(InputError, match="do not begin with their language"):
        import_model(bart[0], tmp_path / "run", target_language="<s>")


def test_an_mbart_without_a_target_language_asks_for_it(mbart, tmp_path):
    folder = tmp_path / "changed"
    shutil.copytree(mbart[0], folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tgt_lang": None}))
    with pytest.raises(InputError, match="give --target-language"):
        import_model(folder, tmp_path / "run")


@pytest.mark.slow
def test_every_way_of_decoding_begins_as_targets_do(mbart, tmp_path):
    run = import_model(mbart[0], tmp_path / "run")
    [prefix] = run.target_tokenizer.prefix_ids
    translator = translator_of(run)
    sources = translator.source_tokenizer.encode_batch(SOURCES[:3])
    assert [ids[0] for ids in translator.decode_ids(sources)] == [prefix] * 3
    texts = translator.translate(SOURCES[:3])
    assert ["".join(translator.stream_tokens(source)).strip() for source in SOURCES[:3]] == texts
    assert TranslationInspection.of(translator, SOURCES[0]).translation == texts[0]
    with pytest.raises(InputError, match="The settings leave no room for a translation of line 1"):
        translator.translate(SOURCES[:1], max_length=1)
    engine = Engine(translator, in_slots=True)
    engine.start()
    try:
        assert [engine.translate(source).result().text for source in SOURCES[:3]] == texts
    finally:
        engine.stop()


def test_an_export_does_not_write_what_the_run_forbids(bart, tmp_path):
    run = import_model(bart[0], tmp_path / "run")
    run.config = dataclasses.replace(
        run.config, decode=dataclasses.replace(run.config.decode, forbidden=("[UNK]", "a"))
    )
    assert generation_config(run)["suppress_tokens"] == [PAD_ID, START_ID, UNKNOWN_ID, run.tokenizer.lookup("a")]
    run.config = dataclasses.replace(run.config, decode=dataclasses.replace(run.config.decode, forbidden=("nowhere",)))
    with pytest.raises(InputError, match="'nowhere' is not a token"):
        generation_config(run)


@pytest.mark.parametrize(
    ("library", "form"),
    [("onnxruntime", onnx.FORMAT), pytest.param("ctranslate2", ctranslate2.FORMAT, marks=pytest.mark.slow)],
)
def test_exports_begin_as_targets_do(mbart, tmp_path, library, form):
    pytest.importorskip(library)
    run = import_model(mbart[0], tmp_path / "run")
    for result in export_checked(run, form, tmp_path / "out", SOURCES, report=lambda line: None):
        assert result["identical"] == 1


def test_a_target_that_begins_otherwise_is_refused(bart, tmp_path):
    folder = tmp_path / "changed"
    folder.mkdir()
    for path in bart[0].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"forced_bos_token_id": 7}))
    with pytest.raises(InputError, match="each target begins with"):
        import_model(folder, tmp_path / "run")


def test_a_tokenizer_that_adds_something_after_a_text_has_no_prefix():
    """Such as one that heedful has exported for transformers."""
    tokenizer = Tokenizer.train(SOURCES, "bpe", 300)
    assert tokenizer.prefix_ids == []
    data = json.loads(tokenizer.to_json())
    for before, found in (([], []), (["[START]"], [tokenizer.start_id])):
        data["post_processor"] = template(before, ["[END]"], tokenizer.lookup)
        assert Tokenizer.from_json(json.dumps(data)).prefix_ids == found
