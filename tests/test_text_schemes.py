"""Texts of the hub, of sacrebleu and in tables, downloaded from a local server."""

import io
import json

import pytest

from heedful.config import DataConfig
from heedful.config import named_texts as registry
from heedful.core.errors import InputError
from heedful.data.corpus import read_pairs, resolve
from heedful.data.text_files import read_lines
from heedful.data.text_pairs import text_pairs
from heedful.data.texts import preparation
from tests.conftest import PAIRS
from tests.test_texts import server, zipped  # noqa: F401

pytestmark = pytest.mark.any_backend

HUB = "/huggingface.co"
BOOKS = "hf:Helsinki-NLP/opus_books@main/de-en"


def parquet(rows, names=None):
    """Return rows as the bytes of a Parquet file, with the names of the classes as `datasets` stores them."""
    arrow = pytest.importorskip("pyarrow")
    table = arrow.Table.from_pylist(rows)
    if names:
        features = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
    buffer = io.BytesIO()
    arrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def publish(server, owner, files, revision="main", **facts):  # noqa: F811
    """Serve a data set of the hub."""
    siblings = [{"rfilename": name} for name in files]
    answer = {"siblings": siblings, "cardData": {"license": "cc0-1.0"}, **facts}
    server.files[f"{HUB}/api/datasets/{owner}/revision/{revision}"] = json.dumps(answer).encode()
    for name, content in files.items():
        server.files[f"{HUB}/datasets/{owner}/resolve/{revision}/{name}"] = content


def translations(pairs):
    return [{"id": str(n), "translation": {"de": source, "en": target}} for n, (source, target) in enumerate(pairs)]


@pytest.fixture(scope="module", autouse=True)
def arrow():
    import pyarrow.parquet

    return pyarrow.parquet


def test_pairs_of_the_hub(server):  # noqa: F811
    rows = translations([*PAIRS, ("zwei\nZeilen", "two\tlines")])
    parts = {"de-en/train-00000-of-00002": rows[:2], "de-en/train-00001-of-00002": rows[2:],
             "de-en/validation-00000-of-00001": rows[:1], "fr-en/train-00000-of-00001": rows[:1]}  # fmt: skip
    files = {"README.md": b""} | {f"{name}.parquet": parquet(part) for name, part in parts.items()}
    publish(server, "Helsinki-NLP/opus_books", files)
    with pytest.raises(InputError, match=r"is not downloaded yet: heedful data get hf:Helsinki-NLP/opus_books@main"):
        DataConfig(corpus=BOOKS)
    lines = []
    preparation.get(BOOKS, lines.append)
    assert "licence: cc0-1.0" in lines
    data = DataConfig(corpus=BOOKS)
    assert data.train == (f"{BOOKS}/train.de", f"{BOOKS}/train.en")
    assert data.test == ()
    found = list(read_pairs([resolve(path) for path in data.train]))
    assert found == [*PAIRS, ("zwei Zeilen", "two lines")]
    assert registry.licence_of(BOOKS) == "cc0-1.0"
    assert text_pairs(BOOKS, "valid") == [PAIRS[0]]
    with pytest.raises(
        InputError, match=r"has several parts: choose one, such as hf:.*@main/de-en \(of de-en, fr-en\)"
    ):
        preparation.get("hf:Helsinki-NLP/opus_books@main")
    with pytest.raises(InputError, match="has no Parquet files of de-en, fr-en with a split"):
        preparation.get("hf:Helsinki-NLP/opus_books@main/it-en")


def test_rows_in_which_something_is_missing_are_left_out(server):  # noqa: F811
    pairs = [*translations([*PAIRS, ("Hut", None)]), {"id": "9", "translation": None}]
    labelled = [{"text": "a", "label": 1}, {"text": None, "label": 0}, {"text": "b", "label": -1}]
    publish(server, "some/pairs", {"de-en/train.parquet": parquet(pairs)})
    publish(server, "some/labels", {"plain/train.parquet": parquet(labelled, ["bad", "good"])})
    for name in ("hf:some/pairs@main/de-en", "hf:some/labels@main/plain"):
        preparation.get(name)
    assert text_pairs("hf:some/pairs@main/de-en") == PAIRS
    [path] = DataConfig(corpus="hf:some/labels@main/plain").train
    assert resolve(path).read_text(encoding="utf-8") == "good\ta\n"


def test_a_revision_may_have_slashes(server):  # noqa: F811
    """The hub keeps data sets of scripts in a branch of its own, with a folder for each split."""
    files = {
        "de-en/train/0000.parquet": parquet(translations(PAIRS)),
        "de-en/partial-validation/0000.parquet": parquet(translations(PAIRS[:1])),
        "fr-en/train/0000.parquet": parquet(translations(PAIRS[:1])),
    }  # fmt: skip
    publish(server, "Helsinki-NLP/opus_books", files, revision="refs%2Fconvert%2Fparquet")
    name = "hf:Helsinki-NLP/opus_books@refs/convert/parquet/de-en"
    preparation.get(name)
    assert text_pairs(name) == PAIRS
    assert text_pairs(name, "valid") == PAIRS[:1]


@pytest.mark.slow
def test_the_recipe_of_iwslt14_trains_on_its_text(server, cli, tmp_path):  # noqa: F811
    """The data set has this form: a branch of its own, a folder for each split."""
    pairs = [(f"Die {source}!", f"The {target}!") for source, target in PAIRS]
    files = {f"de-en/{part}/0000.parquet": parquet(translations(pairs)) for part in ("train", "validation", "test")}
    publish(server, "bbaaaa/iwslt14-de-en", files, "refs%2Fconvert%2Fparquet", cardData={"license": "cc-by-nc-nd-4.0"})
    small = (
        "--model.d_model", 16, "--model.d_ff", 16, "--model.num_layers", 1, "--tokenizer.vocab_size", 300,
        "--train.updates", 2, "--train.validate_every", 2, "--train.check", "false", "--run", "run",
    )  # fmt: skip
    done = cli("train", "iwslt14-de-en", *small)
    assert done.returncode == 2
    name = "hf:bbaaaa/iwslt14-de-en@refs/convert/parquet/de-en"
    assert f"heedful data get {name}" in done.stderr.decode()
    assert cli("data", "get", name).returncode == 0
    done = cli("train", "iwslt14-de-en", *small)
    assert done.returncode == 0, done.stderr.decode()
    assert b"on 20 sentences" in done.stdout


def test_labels_and_documents_of_the_hub(server):  # noqa: F811
    rows = [{"text": "good\nfilm", "label": 1}, {"text": "bad", "label": 0}]
    publish(server, "me/reviews", {"data/train-00000-of-00001.parquet": parquet(rows, ["neg", "pos"])})
    folder = preparation.get("hf:me/reviews@main", lambda line: None)
    assert list(read_lines(folder / "train.tsv")) == ["pos\tgood film", "neg\tbad"]
    assert registry.find("hf:me/reviews@main").layout == "labelled"
    publish(server, "me/stories", {"train-0.parquet": parquet([{"text": "one\ntwo\n"}, {"text": "three"}])})
    folder = preparation.get("hf:me/stories@main", lambda line: None)
    assert list(read_lines(folder / "train.txt")) == ["one", "two", "", "three", ""]
    hidden = [{"text": "unknown", "label": -1}]  # as GLUE hides the labels of its test text
    files = {"data/train-0.parquet": parquet([*rows, {"text": " ", "label": 1}], ["neg", "pos"]),
             "data/test-0.parquet": parquet(hidden, ["neg", "pos"])}  # fmt: skip
    publish(server, "me/glue", files)
    folder = preparation.get("hf:me/glue@main", lambda line: None)
    assert list(read_lines(folder / "train.tsv")) == ["pos\tgood film", "neg\tbad"]
    assert registry.find("hf:me/glue@main").paths("test") == ()
    publish(server, "me/numbers", {"train-0.parquet": parquet([{"x": 1}])})
    with pytest.raises(InputError, match="The columns x are neither a translation"):
        preparation.get("hf:me/numbers@main", lambda line: None)
    assert not registry.find("hf:me/numbers@main").is_prepared


def test_a_gated_data_set_needs_consent(server, cli):  # noqa: F811
    publish(server, "me/secret", {"train-0.parquet": parquet([{"text": "a"}])}, gated="manual")
    refused = cli("data", "get", "hf:me/secret@main")
    assert refused.returncode == 2
    assert b"licence: cc0-1.0" in refused.stderr
    assert b"add --accept-licence" in refused.stderr
    assert not registry.find("hf:me/secret@main").is_prepared
    assert cli("data", "get", "hf:me/secret@main", "--accept-licence").returncode == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [("hf:books", "is not hf:OWNER/NAME@REVISION"), ("sacrebleu:wmt24", "is not sacrebleu:SET/SOURCE-TARGET"),
     ("hf:me/none@main", "404"), ("sacrebleu:wmt24/en-xx", "wmt24 has no en-xx: it has"),
     ("sacrebleu:wmt99/en-de", "has no test set 'wmt99'")],
)  # fmt: skip
def test_names_that_are_wrong(server, name, message):  # noqa: F811
    with pytest.raises(InputError, match=message):
        preparation.get(name, lambda line: None)


def test_a_test_set_of_sacrebleu_is_for_scoring_only(server, monkeypatch, tmp_path):  # noqa: F811
    """The archive has the form of the real one: XML with documents, sources and references."""
    from sacrebleu import dataset

    wanted = dataset.DATASETS["wmt24"]
    archive = packed_xml(PAIRS)
    server.files["/wmt24.tar.gz"] = archive
    for name, folder in (("_outdir", tmp_path), ("_rawdir", tmp_path / "raw")):  # not the home folder
        monkeypatch.setattr(wanted, name, str(folder))
    monkeypatch.setattr(wanted, "data", [f"http://127.0.0.1:{server.server_port}/wmt24.tar.gz"])
    monkeypatch.setattr(wanted, "md5", None)
    name = "sacrebleu:wmt24/en-de"
    folder = preparation.get(name, lambda line: None)
    assert list(read_pairs([folder / "test.en", folder / "test.de"])) == [(b, a) for a, b in PAIRS]
    with pytest.raises(InputError, match="is a test set: it has no text to train on"):
        DataConfig(corpus=name)
    with pytest.raises(InputError, match="is not for training"):
        DataConfig(train=(f"{name}/test.en", f"{name}/test.de"))
    assert resolve(f"{name}/test.en") == folder / "test.en"


def packed_xml(pairs):
    """Return a release archive of WMT 2024 with pairs (German, English)."""
    from tests.test_texts import packed

    body = "".join(
        f'<doc id="d{n}" origlang="en"><src lang="en"><p><seg id="1">{english}</seg></p></src>'
        f'<ref lang="de" translator="refA"><p><seg id="1">{german}</seg></p></ref></doc>'
        for n, (german, english) in enumerate(pairs)
    )
    return packed(
        {"xml/wmttest2024.en-de.all.xml": f'<?xml version="1.0"?><dataset id="wmttest2024">{body}</dataset>'.encode()}
    )


def test_a_changed_file_is_noticed_at_a_second_download(server):  # noqa: F811
    """Guards the hash that is recorded when none was published."""
    rows = translations(PAIRS)
    files = {"train-0.parquet": parquet(rows)}
    publish(server, "me/pairs", files)
    folder = preparation.get("hf:me/pairs@main", lambda line: None)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    publish(server, "me/pairs", {"train-0.parquet": parquet(rows[:2])})
    with pytest.raises(InputError, match=r"has the SHA-256 .*, not .*kept as .*\.wrong"):
        preparation.get("hf:me/pairs@main", lambda line: None)
    publish(server, "me/pairs", files)
    assert preparation.get("hf:me/pairs@main", lambda line: None) == folder


def test_columns_of_a_table_become_labels_and_texts(server):  # noqa: F811
    table = b"sentence\tlabel\nhide new secretions \t0\ncontains no wit\t1\n"
    server.files["/dl.fbaipublicfiles.com/glue/data/SST-2.zip"] = zipped(
        {"SST-2/train.tsv": table, "SST-2/dev.tsv": table}
    )
    folder = preparation.get("sst2", lambda line: None)
    assert (folder / "train.tsv").read_text() == "0\thide new secretions\n1\tcontains no wit\n"
    with pytest.raises(InputError, match="is not for training: sst2 publishes it"):
        DataConfig(train=("sst2/dev.tsv",))


def test_opus_100_is_read_from_parquet(server):  # noqa: F811
    base = "/huggingface.co/datasets/Helsinki-NLP/opus-100/resolve/main/de-en"
    for part, count in (("train", 3), ("validation", 2), ("test", 1)):
        server.files[f"{base}/{part}-00000-of-00001.parquet"] = parquet(translations(PAIRS[:count]))
    preparation.get("opus100:de-en", lambda line: None)
    data = DataConfig(corpus="opus100:de-en")
    files = data.train, data.valid, data.test
    assert [len(list(read_pairs([resolve(path) for path in paths]))) for paths in files] == [3, 2, 1]


def test_files_of_the_user_come_before_those_of_a_named_text(server, tmp_path, monkeypatch):  # noqa: F811
    """Guards recipes such as trec: a folder of the same name in HEEDFUL_DATA was overlooked."""
    monkeypatch.setenv("HEEDFUL_DATA", str(tmp_path))
    assert resolve("trec/TREC_10.label") == registry.find("trec").folder / "TREC_10.label"
    (tmp_path / "trec").mkdir()
    (tmp_path / "trec" / "TREC_10.label").write_text("x")
    assert resolve("trec/TREC_10.label") == tmp_path / "trec" / "TREC_10.label"


def test_a_run_opens_where_its_text_has_no_name_any_more():
    data = DataConfig(corpus="gone:de-en", train=("a.de", "a.en"), origin="heedful data get gone:de-en downloads it.")
    assert data.train == ("a.de", "a.en")
    with pytest.raises(InputError, match="There is no text named"):
        DataConfig(corpus="gone:de-en")
