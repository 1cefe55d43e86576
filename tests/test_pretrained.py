"""Models of `transformers` with random weights give the same numbers and text after they are imported."""

import io
import json
import logging
import warnings

import numpy as np
import pytest
import safetensors.numpy

import heedful
from heedful.core.errors import InputError
from heedful.data.phrasebook import phrasebook
from heedful.interop.pretrained import import_model
from heedful.runs.run import Run
from heedful.workflows.selfcheck.check import check
from heedful.workflows.selfcheck.random_batch import random_batch

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
logging.getLogger("transformers").setLevel(logging.ERROR)

pytestmark = pytest.mark.any_backend

WORDS = "the cat king cow girl sees drinks eats milk bread a and".split()


def write_tokenizer(path, model, special, normalizer=None):
    inner = tokenizers.Tokenizer(model)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    inner.normalizer = normalizer
    inner.add_special_tokens(special)
    inner.save(str(path / "tokenizer.json"))


@pytest.fixture
def bert(tmp_path):
    """Return a small BERT; its special tokens have other ids than ours."""
    folder = tmp_path / "bert"
    tokens = ["[PAD]", "[unused1]", "the", "cat", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS[2:], "\u2028", "##s"]
    config = transformers.BertConfig(
        vocab_size=len(tokens), hidden_size=24, num_hidden_layers=2, num_attention_heads=6, intermediate_size=20,
        max_position_embeddings=19, hidden_act="gelu",
    )  # fmt: skip
    model = randomised(transformers.BertForMaskedLM(config))
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return folder, model, tokens


@pytest.fixture
def gpt2(tmp_path):
    folder = tmp_path / "gpt2"
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate([*alphabet, "th", "the", "<|endoftext|>"])}
    config = transformers.GPT2Config(
        vocab_size=len(vocab), n_embd=24, n_layer=2, n_head=6, n_positions=19, bos_token_id=258, eos_token_id=258
    )
    model = randomised(transformers.GPT2LMHeadModel(config))
    model.save_pretrained(folder)
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("t", "h"), ("th", "e")]))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens(["<|endoftext|>"])
    inner.save(str(folder / "tokenizer.json"))
    return folder, model, inner


@pytest.fixture
def qwen3(tmp_path):
    """Return a Qwen3 as published: heads wider than hidden_size / heads, and another token for padding than the end."""
    folder = tmp_path / "qwen3"
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocab = {token: index for index, token in enumerate([*alphabet, "th", "the", *special])}
    config = transformers.Qwen3Config(
        vocab_size=len(vocab) + 3, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        head_dim=8, intermediate_size=20, max_position_embeddings=19, rope_theta=1e6, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=vocab["<|im_end|>"], pad_token_id=vocab["<|endoftext|>"],
    )  # fmt: skip
    model = randomised(transformers.Qwen3ForCausalLM(config))
    model.save_pretrained(folder)
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("t", "h"), ("th", "e")]))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens(special)
    inner.save(str(folder / "tokenizer.json"))
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None, "unk_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder, model, inner


@pytest.fixture
def marian(tmp_path):
    folder = tmp_path / "marian"
    pieces = [("</s>", 0.0), ("<unk>", 0.0), *((f"\u2581{word}", -2.0) for word in WORDS), ("s", -3.0), ("<pad>", 0.0)]
    model = small_marian(len(pieces), 19)
    model.final_logits_bias.copy_(torch.randn(1, len(pieces)))
    model.save_pretrained(folder)
    inner = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 1))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    inner.decoder = tokenizers.decoders.Metaspace()
    inner.save(str(folder / "tokenizer.json"))
    return folder, model, inner


@pytest.fixture
def opus(tmp_path):
    """Return a Marian in the layout of opus-mt: a SentencePiece model for each side, and a joint vocab.json."""
    folder = tmp_path / "opus"
    pieces = write_sentencepiece(folder)
    vocab = {token: index for index, token in enumerate(["</s>", "<unk>", ">>eng<<", *sorted(pieces), "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    model = small_marian(len(vocab), 64)
    model.save_pretrained(folder)
    with warnings.catch_warnings(action="ignore"):  # it recommends sacremoses, which is not needed here
        tokenizer = transformers.MarianTokenizer(*(str(folder / name) for name in (*SPM, "vocab.json")))
    return folder, model, tokenizer


def small_marian(size, length):
    """Return a Marian for texts of `length` tokens; id 0 is the end token and `size - 1` is padding."""
    config = transformers.MarianConfig(
        vocab_size=size, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=6,
        decoder_attention_heads=6, encoder_ffn_dim=20, decoder_ffn_dim=20, max_position_embeddings=length,
        pad_token_id=size - 1, eos_token_id=0, decoder_start_token_id=size - 1, forced_eos_token_id=None,
        activation_function="swish", scale_embedding=True,
    )  # fmt: skip
    return randomised(transformers.MarianMTModel(config))


SPM = ("source.spm", "target.spm")


def write_sentencepiece(folder, **options):
    """Train a SentencePiece model of each side of the phrasebook; return the pieces of both."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder.mkdir(exist_ok=True)
    pieces = set()
    for name, lines in zip(SPM, zip(*phrasebook("train", 400), strict=True), strict=True):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False, minloglevel=2,
            **{"vocab_size": 150} | options,
        )  # fmt: skip
        (folder / name).write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        pieces |= {processor.id_to_piece(i) for i in range(3, len(processor))}
    return pieces


def randomised(model):
    """Add noise to all weights, norms and biases included, large enough that every mistake shows."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # not Marian's sinusoidal positions
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.eval()


def foreign_ids(run, lookup, names, tokenizer=None):
    """Return the original's id for each of our ids."""
    tokenizer = tokenizer or run.tokenizer
    tokens = map(tokenizer.lookup, range(len(tokenizer)))
    return [lookup(names.get(token, token)) for token in tokens]


def test_an_imported_bert_fills_gaps_like_the_original(bert, tmp_path, numpy):
    folder, original, tokens = bert
    run = import_model(folder, tmp_path / "run")
    filler = heedful.load(run.path)
    ours = foreign_ids(run, {token: i for i, token in enumerate(tokens)}.get, {"[START]": "[CLS]", "[END]": "[SEP]"})
    ids = np.array([[2, 7, 9, 4, 8, 3], [2, 6, 4, 3, 0, 0]])
    theirs = torch.tensor(np.take(ours, ids))
    with torch.no_grad():
        output = original(theirs, attention_mask=torch.tensor(ids != 0), output_hidden_states=True)
    hidden, logits = output.hidden_states[-1].numpy(), output.logits.numpy()[..., ours]
    real = ids != 0
    np.testing.assert_allclose(numpy(filler.model.encode(ids))[real], hidden[real], atol=1e-4)
    np.testing.assert_allclose(numpy(filler.model(ids))[real], logits[real], atol=1e-4)
    text, gaps = filler.fill("The cat [MASK] the KING", count=3)
    reference = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    with torch.no_grad():
        scores = original(**reference("The cat [MASK] the KING", return_tensors="pt")).logits[0, 3]
    allowed = [
        i
        for i in scores.argsort(descending=True).tolist()
        if tokens[i] not in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    ]
    assert [token for token, _ in gaps[0]] == [tokens[i] for i in allowed[:3]]
    assert text.split()[:2] == ["The", "cat"]  # unchanged


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["marian", "bert", "gpt2", "qwen3"])
def test_an_imported_model_passes_the_self_check(kind, request, tmp_path):
    """The check uses random tokens, because an imported model has no text."""
    run = import_model(request.getfixturevalue(kind)[0], tmp_path / "run")
    findings = check(run, random_batch(run), trained=True)
    assert [str(finding) for finding in findings if not finding.passed] == []
    assert len(findings) > 9


def test_an_imported_gpt2_generates_like_the_original(gpt2, tmp_path, numpy):
    folder, original, inner = gpt2
    run = import_model(folder, tmp_path / "run")
    generator = heedful.load(run.path)
    prompt = "the cat"
    theirs = torch.tensor([inner.encode(prompt).ids])
    ids = np.array([run.tokenizer.encode(prompt)])
    assert ids.shape == theirs.shape
    order = foreign_ids(run, inner.token_to_id, {"[END]": "<|endoftext|>"})[3:]
    with torch.no_grad():
        output = original(theirs, output_hidden_states=True)
    np.testing.assert_allclose(numpy(generator.model(ids))[..., 3:], output.logits.numpy()[..., order], atol=1e-4)
    features = numpy(generator.model.features({"ids": ids}))
    np.testing.assert_allclose(features, output.hidden_states[-1].numpy(), atol=1e-4)
    count = 12
    with torch.no_grad():
        written = original.generate(theirs, max_new_tokens=count, do_sample=False, pad_token_id=258)[0].tolist()
    assert generator.generate(prompt, max_length=count) == inner.decode([i for i in written if i != 258])


def test_an_imported_qwen3_generates_like_the_original(qwen3, tmp_path, numpy):
    folder, original, inner = qwen3
    run = import_model(folder, tmp_path / "run")
    generator, prompt = heedful.load(run.path), "the cat"
    assert (run.config.model.qk_norm, run.config.model.head_dim, run.config.model.rotary_base) == (True, 8, 1e6)
    theirs, ids = torch.tensor([inner.encode(prompt).ids]), np.array([run.tokenizer.encode(prompt)])
    with torch.no_grad():
        output = original(theirs, output_hidden_states=True)
    features = numpy(generator.model.features({"ids": ids}))
    np.testing.assert_allclose(features, output.hidden_states[-1].numpy(), atol=1e-4)
    with torch.no_grad():
        suppressed = inner.token_to_id("<|endoftext|>")  # heedful never writes padding
        written = original.generate(theirs, max_new_tokens=8, do_sample=False, suppress_tokens=[suppressed])[0]
    assert generator.generate(prompt, max_length=8) == inner.decode(written.tolist())


@pytest.mark.parametrize(
    ("setting", "value"),
    [("attention_bias", True), ("use_sliding_window", True), ("rope_parameters", {"rope_type": "yarn", "factor": 4.0})],
)
def test_a_qwen3_with_other_options_is_refused(qwen3, tmp_path, setting, value):
    config = json.loads((qwen3[0] / "config.json").read_text())
    (qwen3[0] / "config.json").write_text(json.dumps(config | {setting: value}))
    with pytest.raises(InputError, match=rf"{setting} = .* is not supported"):
        import_model(qwen3[0], tmp_path / "run")


def test_an_imported_marian_translates_like_the_original(marian, tmp_path, numpy):
    folder, original, inner = marian
    run = import_model(folder, tmp_path / "run")
    translator = heedful.load(run.path)
    lines = ["the cat sees the king", "a girl", "the cows and the girl eats bread and milk"]
    names = {"[END]": "</s>", "[PAD]": "<pad>", "[UNK]": "<unk>", "[START]": "<pad>"}
    order = foreign_ids(run, inner.token_to_id, names)
    for line in lines:
        theirs = torch.tensor([[*inner.encode(line).ids, 0]])
        ids = np.array([[*run.tokenizer.encode(line), 3]])
        np.testing.assert_array_equal(np.take(order, ids), theirs.numpy())
        target = np.array([[2, 6, 7, 5, 9]])
        with torch.no_grad():
            output = original(theirs, decoder_input_ids=torch.tensor(np.take(order, target)), output_hidden_states=True)
            made = original.generate(theirs, max_length=18, num_beams=1, do_sample=False)[0].tolist()
        memory = numpy(translator.model.encode(ids)[0])
        np.testing.assert_allclose(memory, output.encoder_last_hidden_state.numpy(), atol=1e-4)
        found = numpy(translator.model((ids, target)))
        keep = [i for i in range(len(order)) if i not in (0, 2)]  # padding and start are never generated
        np.testing.assert_allclose(found[..., keep], output.logits.numpy()[..., np.take(order, keep)], atol=1e-4)
        want = inner.decode([i for i in made[1:] if i not in (0, len(order) - 2)])
        assert translator.translate(line, max_length=17, max_ratio=100.0) == want


UNUSUAL = [
    "", "   ", "  two   spaces ",
    "e\u0301 \ufb01n \uff21\uff22 \u00bd", "tab\tand\nline", "a\u00a0b\u200bc", "\u4e2d\u56fd",
    ">>eng<< the cat", ">>eng<<the cat", "a" * 80,
]  # fmt: skip


def test_an_imported_sentencepiece_tokenizer_matches_the_original(opus, tmp_path):
    folder, _, original = opus
    run = import_model(folder, tmp_path / "run")
    names = {"[END]": "</s>", "[PAD]": "<pad>", "[UNK]": "<unk>", "[START]": None}
    sides = zip(("text", "text_target"), run.tokenizers(), zip(*phrasebook("test", 200), strict=True), strict=True)
    for side, ours, lines in sides:
        order = foreign_ids(run, original.get_vocab().get, names, ours)
        for line in [*lines, *UNUSUAL]:
            theirs = original(**{side: line}).input_ids[:-1]  # without the end token
            ids = ours.encode(line)
            assert [order[i] for i in ids] == theirs
            if side == "text_target" and 1 not in ids:  # ours drops unknown tokens
                assert ours.decode(ids) == original.decode(theirs, use_source_tokenizer=False)


def test_special_tokens_written_in_a_text_are_plain_text(opus, tmp_path):
    run = import_model(opus[0], tmp_path / "run")
    assert run.source_tokenizer.lookup("[") is None
    for tokenizer in run.tokenizers():
        assert {0, 2, 3}.isdisjoint(tokenizer.encode("[PAD] o gato[END][START]the [MASK]"))


@pytest.mark.slow
def test_an_imported_opus_model_translates_like_the_original(opus, tmp_path):
    """Texts for which the original's random weights choose a special token are left out: heedful never writes one."""
    folder, original, tokenizer = opus
    translator = heedful.load(import_model(folder, tmp_path / "run").path)
    compared = 0
    for line in [source for source, _ in phrasebook("test", 12)] + [">>eng<< a rainha"]:
        inputs = tokenizer(line, return_tensors="pt")
        with torch.no_grad():
            made = original.generate(**inputs, max_length=18, num_beams=1, do_sample=False)[0]
        never = {tokenizer.unk_token_id, tokenizer.pad_token_id, tokenizer.convert_tokens_to_ids(">>eng<<")}
        if not never & set(made[1:].tolist()):
            want = tokenizer.decode(made, skip_special_tokens=True, use_source_tokenizer=False)
            assert translator.translate(line, max_length=17, max_ratio=100.0) == want
            compared += 1
    assert compared >= 3


def test_unsupported_sentencepiece_models_are_refused(opus, tmp_path):
    folder = opus[0]
    vocabulary = (folder / "vocab.json").read_text()
    (folder / "vocab.json").write_text(json.dumps({"</s>": 0, "<unk>": 2}))
    with pytest.raises(InputError, match=r"vocab\.json does not number its tokens from 0 on"):
        import_model(folder, tmp_path / "run")
    (folder / "vocab.json").write_text(vocabulary)
    for options, message in (
        ({"model_type": "bpe"}, r"source\.spm is not a unigram model, which is not supported"),
        ({"byte_fallback": True, "vocab_size": 400}, r"source\.spm falls back to bytes"),
        ({"user_defined_symbols": "<sep>"}, r"source\.spm has user-defined tokens"),
        ({"treat_whitespace_as_suffix": True}, r"source\.spm puts white space after words"),
    ):
        write_sentencepiece(folder, **options)
        with pytest.raises(InputError, match=message):
            import_model(folder, tmp_path / "run")
    (folder / "source.spm").write_bytes(b"\xff" * 9)
    with pytest.raises(InputError, match=r"source\.spm is no SentencePiece model"):
        import_model(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_bert_with_gamma_and_beta_in_its_norms_is_imported(bert, tmp_path):
    def rename(arrays):
        for name in list(arrays):
            if "LayerNorm" in name:
                arrays[name.replace("weight", "gamma").replace("bias", "beta")] = arrays.pop(name)

    change_tensors(bert[0], rename)
    assert import_model(bert[0], tmp_path / "run").load_model().num_layers == 2


def test_a_bert_keeps_its_mask_whose_role_is_not_named(bert, tmp_path):
    """As in many published folders, tokenizer_config.json says no more than this."""
    (bert[0] / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    run = import_model(bert[0], tmp_path / "run")
    assert run.tokenizer.mask_id == 4  # among the special tokens
    assert heedful.load(run.path).fill("the cat [MASK] milk")[1]


def change_tensors(folder, change):
    path = folder / "model.safetensors"
    arrays = safetensors.numpy.load_file(path)
    change(arrays)
    safetensors.numpy.save_file(arrays, path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("transformer.h.1.ln_1.bias"), "lacks the tensor 'transformer.h.1.ln_1.bias'"),
        (
            lambda a: a.update({"transformer.h.2.x": np.ones(2)}),
            "a tensor that such a model does not use: 'transformer.h.2.x'",
        ),
        (
            lambda a: a.update({"transformer.ln_f.bias": np.ones(7, "float32")}),
            r"'transformer.ln_f.bias' has the shape \(7,\), expected \(24,\)",
        ),
    ],
)
def test_missing_unknown_and_misshapen_tensors_are_named(gpt2, tmp_path, change, message):
    change_tensors(gpt2[0], change)
    with pytest.raises(InputError, match=message):
        import_model(gpt2[0], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_unsupported_models_and_occupied_folders_are_refused(gpt2, tmp_path, cli):
    folder = gpt2[0]
    config = json.loads((folder / "config.json").read_text())
    result = cli("import", folder, tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert cli("generate", tmp_path / "run", "the", "--max-length", 4).stdout.startswith(b"the")
    assert b"already holds a run" in cli("import", folder, tmp_path / "run").stderr
    with pytest.raises(InputError, match="There is no folder"):
        import_model(tmp_path / "nowhere", tmp_path / "other")
    for changed, message in (
        ({"model_type": "t5"}, "a model of type 't5'; known are bert, distilbert, roberta"),
        ({"activation_function": "tanh"}, "the activation 'tanh' is not one of"),
        ({"add_cross_attention": True}, "add_cross_attention = True is not supported"),
    ):
        (folder / "config.json").write_text(json.dumps(config | changed))
        with pytest.raises(InputError, match=message) as error:
            import_model(folder, tmp_path / "other")
        assert "malformed" not in str(error.value)
    (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "tokenizer.json").write_text("mine")
    with pytest.raises(InputError, match=r"full holds tokenizer\.json, which would be written over"):
        import_model(folder, tmp_path / "full")
    assert (tmp_path / "full" / "tokenizer.json").read_text() == "mine"
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"neither tokenizer\.json nor vocab\.txt"):
        import_model(folder, tmp_path / "other")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model\.bin, a pickle, which can run any code"):
        import_model(folder, tmp_path / "other")


def test_an_import_that_fails_leaves_no_run(gpt2, tmp_path, monkeypatch):
    """Guards against a full disk: a folder without weights would be taken for a run that was never trained."""

    def full(self, values):
        raise OSError("No space left")

    monkeypatch.setattr(Run, "save_weights", full)
    with pytest.raises(OSError, match="No space left"):
        import_model(gpt2[0], tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", '{"tokenizer_class": "BertJapaneseTokenizer"}', "splits words in a way"),
        ("tokenizer_config.json", '{"do_basic_tokenize": false}', "do_basic_tokenize = False splits words in a way"),
        ("config.json", {"vocab_size": "30522"}, "is malformed: TypeError"),
        ("config.json", {"num_hidden_layers": "2"}, "is malformed: TypeError"),
        ("vocab.txt", "café\n".encode("latin-1"), "is malformed: UnicodeDecodeError"),
        ("tokenizer.json", '{"model": {}}', "is malformed: KeyError: 'vocab'"),
        ("tokenizer.json", '{"model": {"vocab": {}}}', "is malformed: ValueError"),
    ],
)
def test_malformed_and_unsupported_files_are_refused(bert, tmp_path, name, content, message):
    path = bert[0] / name
    if isinstance(content, dict):
        content = json.dumps(json.loads(path.read_text(encoding="utf-8")) | content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        import_model(bert[0], tmp_path / "run")
