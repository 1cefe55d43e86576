"""Training data of one-sided models: windows, packed documents, masked tokens and labels."""

import numpy as np
import pytest

from heedful.core.errors import InputError, InputWarning
from heedful.data.corpus import Corpus, hold_out
from heedful.data.documents import encode_texts, read_documents
from heedful.data.encoded import Ragged
from heedful.data.examples import plan_pieces
from heedful.data.labels import LabelledExamples, label_numbers, read_labelled, require_labels
from heedful.data.language import PackedDocuments, Windows, as_stream
from heedful.data.masking import MaskedExamples, in_pieces
from heedful.data.packing import pack
from heedful.data.tokenizer import Tokenizer

pytestmark = pytest.mark.any_backend


def test_every_epoch_reads_each_window_once_and_batches_are_reproducible():
    stream = np.arange(4, 120)
    windows = Windows(stream, 7, 4, seed=3)
    read = [windows.batch(n) for n in range(12)]
    rows = np.concatenate([batch["ids"] for batch in read])
    for epoch in range(3):
        mine = rows[epoch * windows.windows : (epoch + 1) * windows.windows]
        assert len(np.unique(mine)) == mine.size  # no token twice
    assert (rows[0] != rows[windows.windows]).any()
    for batch, labels in ((batch["ids"], batch["labels"]) for batch in read):
        np.testing.assert_array_equal(batch + 1, labels)
    again = Windows(stream, 7, 4, seed=3)
    np.testing.assert_array_equal(again.batch(9)["ids"], read[9]["ids"])
    assert (Windows(stream, 7, 4, seed=4).batch(9)["ids"] != read[9]["ids"]).any()


@pytest.mark.parametrize("size", [8, 9, 36, 37, 50])
def test_validation_predicts_every_token_once(size):
    stream = np.arange(4, 4 + size)
    batches = list(Windows(stream, 7, 2).one_pass())
    labels = np.concatenate([batch["labels"][batch["weights"] > 0] for batch in batches])
    assert sorted(labels) == list(stream[1:])


def test_packing_keeps_every_piece_and_wastes_little_room(rng):
    sizes = rng.integers(1, 65, 3000).tolist()
    rows = pack(sizes, 64)
    assert sorted(piece for row in rows for piece in row) == list(range(3000))
    assert all(sum(sizes[piece] for piece in row) <= 64 for row in rows)
    assert len(rows) <= np.ceil(sum(sizes) / 64) * 1.02


@pytest.fixture
def tokenizer(corpus):
    return Tokenizer.train((source for source, _ in corpus), "wordpiece", 45, mask=True)


def encoded(texts, tokenizer):
    return encode_texts(Corpus(lambda: texts, "x", "texts"), tokenizer)


def test_packed_documents_keep_every_token_and_end_once(tokenizer):
    texts = encoded(["o gato bebe", "", "a vaca come " * 9], tokenizer)
    assert texts.empty == 1
    packed = PackedDocuments(texts, 8, 3)
    seen = []
    for batch in packed.one_pass():
        for ids, labels, segments, positions in zip(
            *(batch[name] for name in ("ids", "labels", "segments", "positions")), strict=True
        ):
            for segment in range(1, segments.max() + 1):
                here = segments == segment
                np.testing.assert_array_equal(positions[here], np.arange(here.sum()))
                np.testing.assert_array_equal(ids[here][1:], labels[here][:-1])
                seen.extend(labels[here])
    assert sorted(seen) == sorted([*texts.ids.flat, 3, 3])
    assert packed.tokens(0) == (packed.batch(0)["segments"] > 0).sum()
    stream = as_stream(texts)
    assert list(stream) == [*texts.ids[0], 3, *texts.ids[1], 3]


def test_documents_are_files_lines_or_paragraphs(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("one\ntwo\n\n\nthree\n", encoding="utf-8")
    assert list(read_documents([path])) == ["one\ntwo\n\n\nthree\n"]
    assert list(read_documents([path], "lines")) == ["one", "two", "", "", "three"]
    assert list(read_documents([path], "paragraphs")) == ["one\ntwo", "three"]
    parts = hold_out(read_documents([path]), 0.25)
    assert [list(part) for part in parts] == [["one\ntwo\n\n\nth"], ["ree\n"]]
    assert parts[0].fingerprint != parts[1].fingerprint
    almost = hold_out(read_documents([path]), 0.2501)
    assert {part.fingerprint for part in almost}.isdisjoint(part.fingerprint for part in parts)
    moved = tmp_path / "moved.txt"
    moved.write_bytes(path.read_bytes())
    assert [part.fingerprint for part in hold_out(read_documents([moved]), 0.25)] == [p.fingerprint for p in parts]
    assert [list(part) for part in hold_out(read_documents([path], "paragraphs"), 0.5)] == [["one\ntwo"], ["three"]]
    unlike = Corpus(lambda: ["short", "a" * 95], "", "a short text and a long one")
    assert [list(part) for part in hold_out(unlike, 0.1)] == [["short", "a" * 85], ["a" * 10]]
    assert [list(part) for part in hold_out(Corpus(lambda: ["a" * 10], "", "one"), 0.5)] == [["a" * 5], ["a" * 5]]
    rest, _ = hold_out(Corpus(lambda: ["a" * 9, "b" * 11], "", "two"), 0.9)
    assert list(rest) in (["a"], ["aa"])
    (tmp_path / "labelled.txt").write_text("1 one two\n0 three\n")
    assert list(read_documents([tmp_path / "labelled.txt"], "labelled")) == ["one two", "three"]
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(InputError, match=r"empty\.txt is empty"):
        encode_texts(read_documents([tmp_path / "empty.txt"]), Tokenizer.train(["a b"], "char", 9))


@pytest.fixture
def masked(tokenizer):
    def make(whole_words=False, share=0.3, seed=1):
        texts = ["o gato vê a menina", "a vaca bebe água", "leite", "o rei come pão", "a menina bebe leite"] * 20
        pieces = in_pieces(encoded(texts, tokenizer).ids, 17)
        plan = plan_pieces(pieces, batch_tokens=400, max_shapes=2, seed=seed)
        return MaskedExamples(pieces, tokenizer, plan, share, whole_words, seed)

    return make


def test_masking_chooses_the_given_share_and_hides_80_percent_of_it(masked, tokenizer):
    examples = masked()
    chosen = hidden = same = 0
    for number in range(40):
        batch = examples.batch(number)
        original = batch["ids"].copy()
        real = batch["weights"] > 0
        rows = np.nonzero(real)[0]
        at = batch["ids"][rows, batch["places"][real]]
        hidden += (at == tokenizer.mask_id).sum()
        same += (at == batch["labels"][real]).sum()
        chosen += real.sum()
        original[rows, batch["places"][real]] = batch["labels"][real]
        lengths = (original != 0).sum(1) - 2
        np.testing.assert_array_equal(original[:, 0], 2)
        np.testing.assert_array_equal(original[np.arange(len(original)), lengths + 1], 3)
        assert not (original == tokenizer.mask_id).any()
        np.testing.assert_array_equal(real.sum(1), np.maximum(1, np.round(0.3 * lengths)))
        assert all(len(set(places[mine])) == mine.sum() for places, mine in zip(batch["places"], real, strict=True))
    assert hidden / chosen == pytest.approx(0.8, abs=0.03)
    assert same / chosen == pytest.approx(0.1, abs=0.03)
    again = masked().batch(7)
    np.testing.assert_array_equal(again["ids"], examples.batch(7)["ids"])
    other = masked(seed=2).batch(7)["ids"]
    assert other.shape != again["ids"].shape or (other != again["ids"]).any()


def test_validation_masks_the_same_places_every_time(masked):
    examples = masked()
    for one, two in zip(examples.one_pass(), examples.one_pass(), strict=True):
        np.testing.assert_array_equal(one["ids"], two["ids"])
    assert sum((batch["ids"][:, 0] == 2).sum() for batch in examples.one_pass()) == 100


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_words_are_masked_as_a_whole_or_not_at_all(kind, corpus):
    """All pieces of a word are masked, or none; the chosen words vary, and their share is near the given one."""
    tokenizer = Tokenizer.train((s for s, _ in corpus), kind, 45 if kind == "wordpiece" else 290, mask=True)
    texts = ["o gato vê a menina", "a vaca bebe água", "o rei come pão", "a menina bebe leite"] * 20
    pieces = in_pieces(encoded(texts, tokenizer).ids, 33)
    examples = MaskedExamples(pieces, tokenizer, plan_pieces(pieces, batch_tokens=900), 0.3, True, 1)
    several, first, chosen, real = 0, set(), 0, 0
    for number in range(10):
        batch = examples.batch(number)
        for ids, places, labels, weights in zip(
            *(batch[name] for name in ("ids", "places", "labels", "weights")), strict=True
        ):
            mine = places[weights > 0]
            whole = ids.copy()
            whole[mine] = labels[weights > 0]
            tokens = [tokenizer.lookup(i) for i in whole]
            begins = [not t.startswith("##") if kind == "wordpiece" else t[0] in "Ġ[" for t in tokens]
            begins[1] = True
            word = np.cumsum(begins)
            for one in set(word[mine]):
                assert set(np.flatnonzero(word == one)) <= set(mine)
                several += (word == one).sum() > 1
            first |= {int(mine.min())}
            chosen, real = chosen + len(mine), real + (whole > 4).sum()
    assert several > 20
    assert len(first) > 3
    assert 0.15 < chosen / real < 0.5


def test_a_long_document_is_encoded_in_slices_with_the_same_ids(monkeypatch, tokenizer):
    from heedful.data import documents

    text = "o gato bebe\n\n  a vaca\ncome pão\n\no rei\nvê " * 9
    for kind in ("bpe", "char", "word", "wordpiece", "unigram"):
        trained = Tokenizer.train([text], kind, 300)
        monkeypatch.setattr(documents, "CHARACTERS", 10)
        assert len(list(documents._slices(text))) > 9
        assert "".join(documents._slices(text)) == text
        for other in (trained, Tokenizer.train([text], kind, 300, normalize="nfc")):  # which strips spaces at the ends
            found = encoded([text, "a", text], other)
            assert [list(ids) for ids in found.ids] == [other.encode(text), other.encode("a"), other.encode(text)]


def test_labelled_lines_are_read_and_bad_ones_are_refused(tmp_path, tokenizer):
    (tmp_path / "tabs.txt").write_text("good\to gato bebe\nbad\ta vaca\n", encoding="utf-8")
    (tmp_path / "spaces.txt").write_text("good o gato bebe\n", encoding="utf-8")
    corpus = read_labelled([tmp_path / "tabs.txt", tmp_path / "spaces.txt"])
    assert list(corpus) == [("good", "o gato bebe"), ("bad", "a vaca"), ("good", "o gato bebe")]
    numbers = label_numbers(corpus, ("bad", "good"))
    assert numbers.tolist() == [1, 0, 1]
    with pytest.raises(InputError, match=r"text 1: the label 'good' is not one of the 2 .* knows: bad, ugly"):
        label_numbers(corpus, ("bad", "ugly"))
    (tmp_path / "broken.txt").write_text("good o gato\ngood\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"broken\.txt, line 2: expected a label, a space and a text; found 'good'"):
        list(read_labelled([tmp_path / "broken.txt"]))
    texts = Ragged.of(tokenizer.encode_batch([text for _, text in corpus]))
    examples = LabelledExamples(texts, numbers, plan_pieces(texts, batch_tokens=64, max_shapes=1))
    seen = [label for batch in examples.one_pass() for label in batch["labels"][batch["weights"] > 0]]
    assert sorted(seen) == [0, 1, 1]
    assert examples.batch(0)["ids"][:, 0].tolist() == [2] * len(examples.batch(0)["ids"])


def test_a_first_column_that_is_no_label_is_refused(tmp_path):
    rows = [(("good", "bad")[number % 2], f"a film, number {number}") for number in range(60)]
    assert require_labels("text", rows) == ["bad", "good"]
    swapped = [(text, label) for label, text in rows]
    with pytest.raises(InputError, match="60 texts have 60 different labels"):
        require_labels("text", swapped)
    with pytest.raises(InputError, match="Are the columns swapped"):
        require_labels("text", swapped * 3)
    with pytest.raises(InputError, match="comma-separated"):
        require_labels("text", [(f"{label},{number}", "film") for number, (label, _) in enumerate(rows)])
    with pytest.warns(InputWarning, match="1 of 3 labels occur only once: odd"):
        assert require_labels("text", [*rows, ("odd", "a film")]) == ["bad", "good", "odd"]
    names = [(f"label {number % 30}", f"text {number % 40}") for number in range(120)]
    assert len(require_labels("text", names)) == 30
    for name, text in (("tabs.tsv", "label\ttext\ngood\ta film\n"), ("spaces.txt", "Label Text\ngood a film\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match="line 1 names the columns"):
            list(read_labelled([tmp_path / name]))
