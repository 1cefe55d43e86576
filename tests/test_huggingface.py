"""Exports to the Hugging Face layout, and imports of classes of `transformers`: outputs, round trips, texts."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

import heedful
from heedful import backend
from heedful.config import Config, DataConfig, ModelConfig, TokenizerConfig
from heedful.core.errors import InputError, InputWarning
from heedful.core.special_tokens import START_ID
from heedful.data.tokenizer import Tokenizer
from heedful.interop.export import parity
from heedful.interop.export.huggingface import FORMAT, export, generation_config
from heedful.interop.export.parity import compare, export_checked, passes
from heedful.interop.pretrained import import_model
from heedful.runs.run import Run
from heedful.runs.weights import weights_by_name
from tests.conftest import PAIRS, fast, quiet

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

pytestmark = pytest.mark.any_backend

SIZES = {"num_layers": 2, "d_model": 24, "num_heads": 6, "d_ff": 20, "max_length": 40, "dropout": 0.0}
MARIAN = {"norm_position": "post", "positions": "sinusoidal", "tie": "all", "output_bias": True}
BERT = {
    "norm_position": "post", "positions": "learned", "embedding_norm": True, "activation": "gelu",
    "embedding_scale": False, "norm_epsilon": 1e-5,
}  # fmt: skip
GPT2 = {"norm_position": "pre", "positions": "learned", "activation": "gelu_tanh", "embedding_scale": False}
LLAMA = {
    "norm_position": "pre", "positions": "rotary", "norm": "rms", "bias": False, "activation": "swiglu",
    "embedding_scale": False,
}  # fmt: skip
SOURCES = [source for source, _ in PAIRS[:8]]
# Task, class of transformers, and options that this class has itself: a round trip changes no bit.
EXACT = [
    ("translate", "MarianMTModel", MARIAN | {"positions": "sinusoidal_concatenated"}),
    ("translate", "MarianMTModel", MARIAN | {"positions": "sinusoidal_concatenated", "tie": "none"}),
    ("translate", "MarianMTModel", MARIAN | {"positions": "sinusoidal_concatenated", "tie": "target"}),
    ("translate", "MarianMTModel", MARIAN | {"positions": "sinusoidal_concatenated", "tie": "inputs"}),
    ("translate", "PegasusForConditionalGeneration",
     MARIAN | {"positions": "sinusoidal_concatenated", "norm_position": "pre", "activation": "gelu"}),
    ("translate", "BartForConditionalGeneration", MARIAN | {"positions": "learned", "embedding_norm": True}),
    ("translate", "MBartForConditionalGeneration",
     MARIAN | {"positions": "learned", "norm_position": "pre", "embedding_norm": True}),
    ("translate", "BlenderbotForConditionalGeneration", MARIAN | {"positions": "learned", "norm_position": "pre"}),
    ("generate", "GPT2LMHeadModel", GPT2),
    ("generate", "GPT2LMHeadModel", GPT2 | {"tie": "none", "activation": "relu"}),
    ("generate", "LlamaForCausalLM", LLAMA | {"num_kv_heads": 2, "rotary_base": 300.0}),
    ("generate", "LlamaForCausalLM", LLAMA | {"tie": "none", "bias": True, "head_dim": 6, "activation": "geglu"}),
    ("generate", "Qwen3ForCausalLM", LLAMA | {"qk_norm": True, "num_kv_heads": 2, "head_dim": 6}),
    ("fill", "BertForMaskedLM", BERT | {"output_bias": True}),
    ("fill", "BertForMaskedLM", BERT | {"output_bias": True, "tie": "none"}),
    ("classify", "BertForSequenceClassification", BERT | {"pooling": "first"}),
    ("classify", "DistilBertForSequenceClassification",
     BERT | {"pooling": "first", "pooler_activation": "relu", "norm_epsilon": 1e-12}),
]  # fmt: skip
# Options that are rewritten for the class: interleaved sines, shared heads, scaled embeddings, missing biases.
REWRITTEN = [
    ("translate", "MarianMTModel", MARIAN),
    ("translate", "PegasusForConditionalGeneration", MARIAN | {"norm_position": "pre", "num_kv_heads": 2}),
    ("translate", "MarianMTModel", MARIAN | {"bias": False, "output_bias": False, "embedding_scale": False}),
    ("translate", "MarianMTModel", MARIAN | {"encoder_layers": 3, "decoder_layers": 1}),
    ("generate", "GPT2LMHeadModel", GPT2 | {"embedding_scale": True, "num_kv_heads": 3, "bias": False}),
    ("generate", "LlamaForCausalLM", LLAMA | {"embedding_scale": True}),
    ("generate", "Qwen3ForCausalLM", LLAMA | {"qk_norm": True, "embedding_scale": True}),
    ("fill", "BertForMaskedLM", BERT | {"embedding_scale": True, "num_kv_heads": 2}),
]


def random_run(folder, task, options):
    """Return a run with random weights; norms and biases are unlike their initial values."""
    joint = options.get("tie") in ("all", "inputs")
    labels = ("bad", "good", "none") if task == "classify" else ()
    config = Config(
        task=task, model=ModelConfig(**SIZES | options), data=DataConfig(max_tokens=30, labels=labels),
        tokenizer=TokenizerConfig(joint=joint),
    )  # fmt: skip
    sides = [[text for pair in PAIRS for text in pair]] if joint or task != "translate" else zip(*PAIRS, strict=True)
    made = [Tokenizer.train(texts, "bpe", 280 + 10 * number, mask=task == "fill") for number, texts in enumerate(sides)]
    tokenizer_pair = made * 2 if joint else made
    run = Run.create(folder / "run", config, *tokenizer_pair)
    model = run.build_model()
    noise = np.random.default_rng(5)
    for weight in model.trainable_weights:
        weight.assign(backend.to_numpy(weight) + noise.normal(size=weight.shape) * 0.2)
    if task == "translate" and options.get("start_vector") == "zero":  # as training keeps it
        table = backend.to_numpy(model.target_embedding.embeddings).copy()
        table[START_ID] = 0
        model.target_embedding.embeddings.assign(table)
    run.save_model(model)
    return run


def opened(folder):
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    return name, model.eval()


def logits_of_both(run, model, numpy):
    """Return the logits of our model and of one of transformers for the same ids."""
    ours = run.load_model()
    random = np.random.default_rng(2)
    ids, target = (random.integers(4, 250, (3, length)).astype("int32") for length in (9, 7))
    ids[:, -1] = 3
    ids[1, 6:] = 0
    ids[1, 5] = 3
    real = torch.tensor(ids != 0)
    with torch.no_grad():
        if run.config.task == "translate":
            target[:, 0] = 2
            theirs = model(torch.tensor(ids), attention_mask=real, decoder_input_ids=torch.tensor(target)).logits
            return numpy(ours((ids, target))), theirs.numpy()
        theirs = model(torch.tensor(ids), attention_mask=real).logits.numpy()
    found = numpy(ours(ids))
    if run.config.task != "classify":
        found, theirs = found[ids != 0], theirs[ids != 0]
    return found, theirs


@pytest.mark.parametrize("case", fast(EXACT + REWRITTEN, 1))
def test_transformers_computes_the_same_with_an_export(case, tmp_path, numpy):
    task, name, options = case
    run = random_run(tmp_path, task, options)
    export(run, tmp_path / "out")
    found, model = opened(tmp_path / "out")
    assert found == name
    ours, theirs = logits_of_both(run, model, numpy)
    np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("case", fast(EXACT, 1))
def test_an_export_is_imported_bit_by_bit(case, tmp_path):
    task, _, options = case
    run = random_run(tmp_path, task, options)
    export(run, tmp_path / "out")
    again = import_model(tmp_path / "out", tmp_path / "again")
    assert again.config.data.labels == run.config.data.labels
    before, after = (weights_by_name(one.load_model()) for one in (run, again))
    for table, array in before.items():
        np.testing.assert_array_equal(after.pop(table), array)
    assert all(name.endswith("/bias") and not np.any(bias[4:]) for name, bias in after.items())
    for own, imported in zip(run.tokenizers(), again.tokenizers(), strict=True):
        assert imported.encode_batch(SOURCES) == own.encode_batch(SOURCES)
        assert imported.decode(own.encode(SOURCES[0])) == own.decode(own.encode(SOURCES[0]))


def test_a_classifier_with_several_labels_is_exported_and_imported(tmp_path):
    run = random_run(tmp_path, "classify", BERT | {"pooling": "first"})
    table = json.loads((run.path / "config.json").read_text())
    table["data"]["several_labels"] = True
    (run.path / "config.json").write_text(json.dumps(table))
    export(Run.open(run.path), tmp_path / "out")
    again = import_model(tmp_path / "out", tmp_path / "again")
    assert again.config.data.several_labels
    assert again.config.data.labels == run.config.data.labels


@pytest.mark.parametrize("case", fast(REWRITTEN, 1))
def test_an_export_with_rewritten_options_is_imported_as_an_equal_model(case, tmp_path, numpy):
    task, _, options = case
    run = random_run(tmp_path, task, options)
    export(run, tmp_path / "out")
    again = import_model(tmp_path / "out", tmp_path / "again")
    ours, theirs = logits_of_both(again, opened(tmp_path / "out")[1], numpy)
    keep = slice(4, None)  # an import keeps special tokens from being written
    np.testing.assert_allclose(ours[..., keep], theirs[..., keep], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("number", fast([0, 1, 8, 10, 12, 14], 1))
def test_the_gate_passes_and_finds_a_wrong_weight(number, tmp_path):
    task, _, options = EXACT[number]
    run, said = random_run(tmp_path, task, options), []
    results = export_checked(run, FORMAT, tmp_path / "out", SOURCES, report=said.append)
    assert results[0].get("identical", 1.0) == 1.0
    assert results[0].get("output_difference", 0.0) < 1e-3
    assert json.loads((tmp_path / "out" / "parity.json").read_text()) == results
    wrong = random_run(tmp_path / "other", task, options | {"num_layers": 1})
    (compared,) = compare(wrong, FORMAT.open(wrong, tmp_path / "out", "float32"), SOURCES)
    assert compared.get("identical", 0.0) < 0.99
    assert compared.get("output_difference", 1.0) > 1e-3
    assert not passes(compared)


def test_what_no_class_expresses_is_refused_by_name(tmp_path):
    run = random_run(tmp_path, "translate", MARIAN | {"positions": "rotary", "norm": "rms"})
    with pytest.raises(InputError, match=r"the nearest one, \w+, lacks .*model\.norm = 'rms'.*") as refused:
        export(run, tmp_path / "out")
    assert "model.positions = 'rotary'" in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_prompts_that_are_too_long_are_cut(tmp_path):
    """Guards a file of long lines: they were left out, and there seemed to be no text."""
    run = random_run(tmp_path, "generate", EXACT[8][2])
    long = " ".join(SOURCES * 20)
    [result] = export_checked(run, FORMAT, tmp_path / "out", [long, "".join(SOURCES * 20)], report=quiet)
    assert (result["texts"], result["identical"]) == (2, 1.0)
    words = parity._beginning(run.tokenizer, long, 5).split(" ")
    assert words == long.split(" ")[: len(words)]
    assert 0 < len(run.tokenizer.encode(" ".join(words))) <= 5


def test_a_gate_without_texts_does_not_pass(tmp_path, cli):
    run = random_run(tmp_path, "fill", BERT)
    with pytest.raises(InputError, match="There is no text to check the export with"):
        export_checked(run, FORMAT, tmp_path / "out", [], report=quiet)
    assert not (tmp_path / "out").exists()
    refused = cli("export", run.path, "--to", "huggingface", "--quantization", "int8")
    assert refused.returncode == 2
    assert b"Exports for transformers have --quantization float32, not 'int8'" in refused.stderr


def test_an_export_never_replaces_other_files(tmp_path):
    run = random_run(tmp_path, "fill", BERT)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("keep me")
    with pytest.raises(InputError, match=r"contains letter\.txt, which heedful did not export"):
        export(run, tmp_path / "out")
    export(run, tmp_path / "other")
    export(run, tmp_path / "other")  # an earlier export is replaced
    (tmp_path / "other" / "my-config.json").write_text("keep me")
    with pytest.raises(InputError, match=r"contains my-config\.json, which heedful did not export"):
        export(run, tmp_path / "other")
    assert "pipeline_tag: fill-mask" in (tmp_path / "other" / "README.md").read_text()


def test_pipelines_open_exports(tmp_path):
    """As a stranger would: no code of heedful."""
    run = random_run(tmp_path, "classify", BERT | {"pooling": "first"})
    export(run, tmp_path / "out")
    found = transformers.pipeline("text-classification", model=str(tmp_path / "out"))(SOURCES[0])
    label, probability = heedful.load(run.path).predict([SOURCES[0]])[0][:2]
    assert found[0]["label"] == label
    assert found[0]["score"] == pytest.approx(probability, abs=1e-4)


def encoder_tokenizer(folder):
    """Write a byte-level tokenizer with the special tokens of RoBERTa; return it as `transformers` opens it."""
    inner = tokenizers.ByteLevelBPETokenizer()
    inner.train_from_iterator(SOURCES, 290, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    inner.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    roles = {"cls_token": "<s>", "sep_token": "</s>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
             "unk_token": "<unk>", "mask_token": "<mask>"}  # fmt: skip
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=inner._tokenizer, **roles)
    whole.save_pretrained(folder)
    return whole


ENCODERS = [
    ("RobertaForMaskedLM", {}), ("RobertaForSequenceClassification", {"num_labels": 3}),
    ("XLMRobertaForMaskedLM", {}), ("DistilBertForMaskedLM", {}),
    ("DistilBertForSequenceClassification", {"num_labels": 2}), ("BertForSequenceClassification", {"num_labels": 4}),
    ("RobertaModel", {}), ("DistilBertModel", {}),
]  # fmt: skip


@pytest.mark.parametrize("case", fast(ENCODERS, 1))
def test_imported_encoders_compute_what_transformers_does(case, tmp_path, numpy):
    name, more = case
    config_class = getattr(transformers, name).config_class
    tokenizer = encoder_tokenizer(tmp_path / "theirs")
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": 1, "max_position_embeddings": 42}
    if "Distil" in name:
        sizes |= {"dim": 24, "n_layers": 2, "n_heads": 6, "hidden_dim": 20}
    else:
        sizes |= {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 20}
    model = randomised(getattr(transformers, name)(config_class(**sizes, **more)))
    model.save_pretrained(tmp_path / "theirs")
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    order = [tokenizer.convert_tokens_to_ids(foreign(run.tokenizer.lookup(i))) for i in range(len(run.tokenizer))]
    ours = run.load_model()
    for text in SOURCES:
        ids = run.tokenizer([text])["ids"]
        encoded = tokenizer(text, return_tensors="pt")
        np.testing.assert_array_equal(np.take(order, ids), encoded["input_ids"].numpy())
        with torch.no_grad():
            theirs = model(input_ids=encoded["input_ids"])[0].numpy()
        if name.endswith("Model"):
            found = numpy(ours.encode(ids))
        elif name.endswith("MaskedLM"):
            found, theirs = numpy(ours(ids)), theirs[..., order]
        else:
            found = numpy(ours(ids))
            assert len(run.config.data.labels) == more["num_labels"]
        np.testing.assert_allclose(found, theirs, atol=1e-4)
    if name == "RobertaForMaskedLM":
        export_checked(run, FORMAT, tmp_path / "back", SOURCES, report=quiet)


def foreign(token):
    return {"[PAD]": "<pad>", "[UNK]": "<unk>", "[START]": "<s>", "[END]": "</s>", "[MASK]": "<mask>"}.get(token, token)


def randomised(model):
    """Add noise to all weights, norms and biases included."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.eval()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_in_several_shards_is_read(dtype, tmp_path):
    run = random_run(tmp_path, "generate", LLAMA)
    export(run, tmp_path / "out")
    model = opened(tmp_path / "out")[1].to(getattr(torch, dtype))
    model.save_pretrained(tmp_path / "out", max_shard_size="20KB")
    (tmp_path / "out" / "model.safetensors").unlink()
    assert (tmp_path / "out" / "model.safetensors.index.json").exists()
    again = weights_by_name(import_model(tmp_path / "out", tmp_path / "again").load_model())
    for name, array in weights_by_name(run.load_model()).items():
        np.testing.assert_allclose(again[name], array, rtol=1e-2, atol=1e-3)
    next((tmp_path / "out").glob("model-00002-of-*")).unlink()
    with pytest.raises(InputError, match=r"model-00002-of-.* is missing"):
        import_model(tmp_path / "out", tmp_path / "third")
    for wrong in ('["a"]', '{"a": 3}', "null"):
        (tmp_path / "out" / "model.safetensors.index.json").write_text(f'{{"weight_map": {wrong}}}')
        with pytest.raises(InputError, match="weight_map must name the file of each tensor"):
            import_model(tmp_path / "out", tmp_path / "third")


@pytest.mark.parametrize("framed", ["[START] $A [END]", "$A [END] [START]"])
def test_sources_with_more_than_an_end_token_are_refused(framed, tmp_path):
    run = random_run(tmp_path, "translate", EXACT[5][2])
    export(run, tmp_path / "out")
    path = tmp_path / "out" / "tokenizer.json"
    data = json.loads(path.read_text())
    ids = {"[START]": 2, "[END]": 3}
    template = tokenizers.processors.TemplateProcessing(framed, special_tokens=list(ids.items()))
    data["post_processor"] = json.loads(template.__getstate__())
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match="we support an end token after it, and one other token before it"):
        import_model(tmp_path / "out", tmp_path / "again")


@pytest.mark.any_backend
def test_generation_config_keeps_limits_and_min_p(whole):
    """Guards settings that were lost on the way to transformers."""
    decode = {"min_length": 2, "max_length": 7, "sample": True, "min_p": 0.1, "temperature": 0.7}
    whole.config = dataclasses.replace(whole.config, decode=dataclasses.replace(whole.config.decode, **decode))
    settings = generation_config(whole)
    assert {name: settings[name] for name in ("min_new_tokens", "max_length", "min_p", "temperature")} == {
        "min_new_tokens": 2, "max_length": 8, "min_p": 0.1, "temperature": 0.7,
    }  # fmt: skip


def test_generation_config_ends_beams_as_the_run_does(whole):
    for stop, early_stopping in (("attainable", "never"), ("width", True)):
        decode = dataclasses.replace(whole.config.decode, beam_size=4, stop=stop)
        whole.config = dataclasses.replace(whole.config, decode=decode)
        assert generation_config(whole)["early_stopping"] == early_stopping


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"length_penalty": 2.0}, {"stop": "width"}, {"stop": "width", "length_penalty": 0.5}]
)
def test_beams_of_an_export_end_as_those_of_the_run(tmp_path, options):
    run = random_run(tmp_path, "translate", MARIAN)
    decode = dataclasses.replace(run.config.decode, beam_size=4, max_ratio=1e6, max_length=39, **options)
    run.config = dataclasses.replace(run.config, decode=dataclasses.replace(decode, forbidden=("[PAD]", "[START]")))
    with pytest.warns(InputWarning, match=r"transformers ignores decode\.max_ratio"):
        export(run, tmp_path / "out")
    _, model = opened(tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    translator, same = heedful.Translator.from_run(run), 0
    for text in SOURCES:
        with torch.no_grad():
            written = model.generate(**tokenizer(text, return_tensors="pt"))
        same += tokenizer.decode(written[0], skip_special_tokens=True) == translator.translate(text)
    assert same == len(SOURCES)


def test_a_language_model_stays_within_its_positions(tmp_path):
    run = random_run(tmp_path, "generate", GPT2)
    assert generation_config(run)["max_new_tokens"] == 20  # 200 would not fit into 40 positions
    decode = dataclasses.replace(run.config.decode, max_length=12, repetition_penalty=1.5)
    run.config = dataclasses.replace(run.config, decode=decode)
    assert generation_config(run)["max_new_tokens"] == 12
    with pytest.warns(InputWarning, match=r"applies decode\.repetition_penalty in another way"):
        export(run, tmp_path / "out")
    text = transformers.pipeline("text-generation", model=str(tmp_path / "out"))(SOURCES[0])[0]["generated_text"]
    assert text.startswith(SOURCES[0][:5])


def test_an_encoder_keeps_how_it_embeds(tmp_path, numpy):
    for number, options in enumerate(
        [
            {"vector_pooling": "first", "unit_vectors": True},
            {"unit_vectors": True},
            {"vector_pooling": "max"},
        ]
    ):
        folder = tmp_path / str(number)
        run = random_run(folder, "fill", BERT | options)
        export(run, folder / "out")
        again = import_model(folder / "out", folder / "again")
        vectors = (heedful.TextEmbedder.from_run(one).embed(SOURCES) for one in (run, again))
        np.testing.assert_allclose(next(vectors), next(vectors), atol=1e-5)


def test_long_texts_of_a_classifier_are_cut_alike(tmp_path):
    run = random_run(tmp_path, "classify", BERT | {"pooling": "first"})  # max_tokens = 30, max_length = 40
    [result] = export_checked(run, FORMAT, tmp_path / "out", [" ".join(SOURCES)], report=quiet)
    assert passes(result)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "options"),
    [("translate", MARIAN), ("generate", GPT2), ("fill", BERT), ("classify", BERT | {"pooling": "first"})],
)
def test_the_code_of_a_model_card_runs(tmp_path, task, options):
    run = random_run(tmp_path, task, options)
    export(run, tmp_path / "out")
    code = (tmp_path / "out" / "README.md").read_text().split("```python\n")[1].split("```")[0]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "out", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_export_says_which_settings_transformers_ignores(tmp_path):
    run = random_run(tmp_path, "translate", MARIAN)
    run.config = dataclasses.replace(run.config, decode=dataclasses.replace(run.config.decode, min_ratio=0.5))
    with pytest.warns(InputWarning, match=r"transformers ignores decode\.min_ratio = 0\.5: it has no such setting"):
        export(run, tmp_path / "out")
