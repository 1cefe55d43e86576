"""Corpora, encoding, batches: order, filters, and batch n as a pure function of (seed, n)."""

import bz2
import gzip
import itertools
import lzma

import numpy as np
import pytest

from heedful.core.errors import InputError
from heedful.core.special_tokens import END_ID, START_ID
from heedful.data import batches, packing, ragged
from heedful.data.batches import BatchPlan, _best_bands, cut_into_buckets
from heedful.data.corpus import Corpus, read_pairs, resolve_all
from heedful.data.encoded import Ragged, encode
from heedful.data.examples import teacher_forcing_batch
from heedful.data.packing import pack
from heedful.data.text_files import read_lines
from heedful.data.tokenizer import Tokenizer

pytestmark = pytest.mark.any_backend


def test_plain_and_gzipped_files_give_the_same_lines(tmp_path):
    """Only the line feed ends a line: other separators must not shift one side against the other."""
    text = "eins\u2028zwei\nb\x0bc\r\n\nlast"
    (tmp_path / "a.txt").write_bytes(text.encode())
    (tmp_path / "a.gz").write_bytes(gzip.compress(text.encode()))
    assert list(read_lines(tmp_path / "a.txt")) == ["eins\u2028zwei", "b\x0bc", "", "last"]
    (tmp_path / "b.GZ").write_bytes(gzip.compress(text.encode()))
    assert (
        list(read_lines(tmp_path / "a.gz"))
        == list(read_lines(tmp_path / "a.txt"))
        == list(read_lines(tmp_path / "b.GZ"))
    )


def test_a_leading_byte_order_mark_is_not_part_of_the_text(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffeins\n\ufeffzwei".encode())
    assert list(read_lines(tmp_path / "a.txt")) == ["eins", "\ufeffzwei"]


def test_bad_files_are_named_with_their_line(tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(InputError, match=r"bad.txt is not UTF-8: line 2, byte 3 \(0xe9\)"):
        list(read_lines(bad))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"text" * 100)[:-9])
    with pytest.raises(InputError, match=r"not a whole .gz file"):
        list(read_lines(tmp_path / "cut.gz"))
    with pytest.raises(InputError, match=r"no\.txt does not exist"):
        list(read_lines(tmp_path / "no.txt"))


def test_a_tilde_before_an_unknown_user_stays_in_the_file_name():
    with pytest.raises(InputError, match=r"Missing text: .*~nobody is called so/a\.txt"):
        resolve_all(["~nobody is called so/a.txt"])


def test_sides_of_different_length_are_refused_with_both_counts(tmp_path):
    (tmp_path / "a").write_text("1\n2\n3\n4\n5\n")
    (tmp_path / "b").write_text("1\n2\n3\n")
    with pytest.raises(InputError, match=r"a has 5 lines, .*b has 3"):
        list(read_pairs([tmp_path / "a", tmp_path / "b"]))
    with pytest.raises(InputError, match=r"b has 3 lines, .*a has 5"):
        list(read_pairs([tmp_path / "b", tmp_path / "a"]))


@pytest.mark.parametrize("ending", ["bz2", "xz"])
def test_other_compressions_are_read_and_checked(tmp_path, ending):
    compress = {"bz2": bz2.compress, "xz": lzma.compress}[ending]
    path = tmp_path / f"a.{ending}"
    path.write_bytes(compress(b"eins\nzwei\n"))
    assert list(read_lines(path)) == ["eins", "zwei"]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=rf"a.{ending} is not a whole .{ending} file"):
        list(read_lines(path))
    path.write_bytes(b"eins\n")
    with pytest.raises(InputError, match=rf"a.{ending} is not a whole .{ending} file"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bz2.compress(b"eins"), "is compressed with bzip2: its name has to end in .bz2"),
        (b"\x28\xb5\x2f\xfd\x04\xff", "is compressed with Zstandard, which heedful does not read"),
        ("eins\n".encode("utf-16"), "is UTF-16: convert it with iconv"),
        (b"eins\rzwei\r", "ends its lines with carriage returns alone"),
    ],
)
def test_other_formats_are_named(tmp_path, content, message):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_lines(tmp_path / "a.txt"))


def test_a_tsv_file_gives_pairs_of_two_columns(tmp_path):
    (tmp_path / "a.tsv").write_text("um\tone\ndois\ttwo\n")
    assert list(read_pairs([tmp_path / "a.tsv"])) == [("um", "one"), ("dois", "two")]
    (tmp_path / "b.tsv").write_text("um\tone\ndois two\n")
    with pytest.raises(InputError, match=r"b.tsv, line 2: .* found 1 column"):
        list(read_pairs([tmp_path / "b.tsv"]))


@pytest.fixture
def words(corpus):
    return Tokenizer.train(itertools.chain.from_iterable(corpus), "word", 60)


def test_encoding_filters_reports_and_caches(words, tmp_path):
    pairs = [("o gato", "the cat"), ("", "the cow"), ("o gato", ""), ("o gato vê a vaca", "the cat"), ("a", "the")]
    reads = []

    def read():
        reads.append(1)
        return pairs

    made = Corpus(read, "one", "pairs")
    encoded = encode(made, words, words, 4, tmp_path)
    assert (encoded.filtered.kept, encoded.filtered.too_long, encoded.filtered.empty) == (2, 1, 2)
    assert str(encoded.filtered).startswith("2 of 5 pairs kept (60.00% dropped")
    again = encode(made, words, words, 4, tmp_path)
    assert len(reads) == 1
    for side in ("source", "target"):
        np.testing.assert_array_equal(getattr(again, side).flat, getattr(encoded, side).flat)
    encode(made, words, words, 5, tmp_path)
    assert len(reads) == 2  # another limit is another result


def test_a_corpus_without_usable_pairs_is_refused(words):
    with pytest.raises(InputError, match="is empty"):
        encode(Corpus.from_pairs([], "nothing"), words, words, 9)
    with pytest.raises(InputError, match=r"is left: 1 have 3 tokens or more on a side, .* 0 have an empty side"):
        encode(Corpus.from_pairs([("o gato vê", "the cat sees")], "long"), words, words, 3)


def test_teacher_forcing_shifts_by_one(words):
    pairs = encode(Corpus.from_pairs([("o gato", "the cat drinks"), ("a", "the")], "two"), words, words, 9)
    batch = teacher_forcing_batch(pairs, [0, 1, -1], (4, 5))
    the, cat, drinks = words.encode("the cat drinks")
    assert batch["labels"].tolist() == [[the, cat, drinks, END_ID, 0], [the, END_ID, 0, 0, 0], [0] * 5]
    assert batch["target"].tolist() == [
        [START_ID, the, cat, drinks, 0],
        [START_ID, the, 0, 0, 0],
        [START_ID, 0, 0, 0, 0],
    ]
    assert batch["weights"].tolist() == [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [0] * 5]
    assert batch["source"].tolist() == [
        [*words.encode("o gato"), END_ID, 0],
        [*words.encode("a"), END_ID, 0, 0],
        [0] * 4,
    ]


def test_ragged_sequences_are_padded(rng):
    sequences = [list(rng.integers(1, 9, n)) for n in (3, 0, 5)]
    ragged = Ragged.of(sequences)
    assert ragged.lengths.tolist() == [3, 0, 5]
    assert ragged.padded([2, -1, 0], 6).tolist() == [[*sequences[2], 0], [0] * 6, [*sequences[0], 0, 0, 0]]


@pytest.fixture
def lengths(rng):
    source = rng.integers(2, 41, 1009)
    return source, np.clip(source + rng.integers(-5, 6, 1009), 2, None)


def plan(lengths, seed=3, **options):
    return BatchPlan(*lengths, **({"batch_tokens": 257, "max_shapes": 7, "seed": seed} | options))


def test_batch_n_depends_on_seed_and_n_only(lengths):
    """Guards exact resuming: a new plan gives the same batches, in whatever order they are requested."""
    first, second = plan(lengths), plan(lengths)
    for number in (977, 0, 31, 5000):
        (shape, rows), (other_shape, other_rows) = first.batch(number), second.batch(number)
        assert shape.lengths == other_shape.lengths
        np.testing.assert_array_equal(rows, other_rows)
    assert any((plan(lengths, seed=4).batch(n)[1].tolist() != first.batch(n)[1].tolist()) for n in range(3))


def test_every_sentence_is_seen_equally_often(lengths):
    made = plan(lengths)
    epochs = 6
    seen = np.zeros(1009, int)
    for number in range(round(made.batches_per_epoch * epochs)):
        shape, rows = made.batch(number)
        assert len(rows) == shape.sentences
        assert lengths[0][rows].max() <= shape.source_length
        assert lengths[1][rows].max() <= shape.target_length
        seen += np.bincount(rows, minlength=1009)
    assert seen.min() >= epochs - 2
    assert seen.max() <= epochs + 2
    assert seen.mean() == pytest.approx(epochs, rel=0.02)


def test_the_first_batch_of_each_shape_is_found(lengths):
    made = plan(lengths, batch_tokens=4001)  # a few shapes do not fill a batch in an epoch
    first = {}
    for number in range(200):
        first.setdefault(made.shapes.index(made.batch(number)[0]), number)
    assert max(first.values()) > made.batches_per_epoch
    assert made.first_of_each_shape() == [first[index] for index in range(len(made.shapes))]


def test_order_changes_from_epoch_to_epoch(lengths):
    made = plan(lengths)
    per_epoch = round(made.batches_per_epoch)
    assert [made.batch(n)[0].lengths for n in range(per_epoch)] != [
        made.batch(n)[0].lengths for n in range(per_epoch, 2 * per_epoch)
    ]


def test_one_pass_gives_every_pair_once(lengths):
    rows = np.concatenate([rows for _, rows in plan(lengths).one_pass()])
    assert sorted(rows[rows >= 0]) == list(range(1009))


def test_buckets_have_the_least_possible_padding(rng):
    """With one target length the cut is one-dimensional, and brute force can check it."""
    source = rng.integers(1, 12, 40)
    target = np.full(40, 5)
    for shapes in (1, 2, 3):
        got = cut_into_buckets(source, target, shapes)
        padded = sum(length * len(rows) for length, _, rows in got)
        best = min(
            sum(min(edge for edge in (*cut, source.max()) if edge >= s) for s in source)
            for cut in itertools.combinations(range(1, 12), shapes - 1)
        )
        assert padded == best
        assert sorted(np.concatenate([rows for *_, rows in got])) == list(range(40))


def test_buckets_are_divided_among_bands_at_the_least_cost(rng):
    size, most = 4, 5
    for _ in range(20):
        bands = itertools.combinations(range(size + 1), 2)
        costs = {band: np.append(np.inf, rng.integers(1, 9, most)) for band in bands}
        chosen = _best_bands(costs, size)
        assert [low for low, *_ in chosen] == [0, *(high for _, high, _ in chosen[:-1])]
        assert chosen[-1][1] == size
        assert sum(buckets for *_, buckets in chosen) <= most
        least = min(
            sum(costs[band][count] for band, count in zip(itertools.pairwise(edges), counts, strict=True))
            for inner in range(size)
            for edges in ((0, *cut, size) for cut in itertools.combinations(range(1, size), inner))
            for counts in itertools.product(range(1, most + 1), repeat=inner + 1)
            if sum(counts) <= most
        )
        assert sum(costs[low, high][buckets] for low, high, buckets in chosen) == least


def test_more_shapes_pad_less_and_a_high_price_allows_only_one(lengths):
    shares = [plan(lengths, max_shapes=n).padding_share for n in (1, 3, 7)]
    assert shares[0] > shares[1] > shares[2]
    assert len(plan(lengths, shape_price=10**9).shapes) == 1


def test_batches_hold_as_many_sentences_as_fit(lengths):
    for shape in plan(lengths).shapes:
        longest = max(shape.lengths)
        assert shape.sentences * longest <= 257 < (shape.sentences + 1) * longest
    assert all(shape.sentences == 64 for shape in plan(lengths, batch_sentences=64).shapes)


@pytest.mark.any_backend
def test_a_corpus_may_be_many_files(tmp_path, monkeypatch):
    monkeypatch.setenv("HEEDFUL_DATA", str(tmp_path))
    for number in (2, 1, 10):
        (tmp_path / f"part-{number:02}.de").write_text(f"ja {number}\n", encoding="utf-8")
        (tmp_path / f"part-{number:02}.en").write_text(f"yes {number}\n", encoding="utf-8")
        (tmp_path / f"both-{number:02}.tsv").write_text(f"ja {number}\tyes {number}\n", encoding="utf-8")
    want = [(f"ja {number}", f"yes {number}") for number in (1, 2, 10)]
    corpus = Corpus.from_files(["part-*.de", "part-*.en"])
    assert list(corpus) == list(corpus) == want
    assert list(Corpus.from_files(["both-*.tsv"])) == want
    assert corpus.name == "part-*.de + part-*.en"
    (tmp_path / "part-02.en").write_text("no\n", encoding="utf-8")
    assert Corpus.from_files(["part-*.de", "part-*.en"]).fingerprint != corpus.fingerprint
    (tmp_path / "part-02.en").unlink()
    with pytest.raises(InputError, match=r"part-\*\.de matches 3 files, and part-\*\.en 2\."):
        Corpus.from_files(["part-*.de", "part-*.en"])
    (tmp_path / "part-11.en").write_text("no\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"part-02\.de and .*part-10\.en differ"):
        Corpus.from_files(["part-*.de", "part-*.en"])
    with pytest.raises(InputError, match=r"Missing text: none-\*\.de, none-\*\.en\."):
        Corpus.from_files(["none-*.de", "none-*.en"])


@pytest.mark.parametrize("most", [40, 300])
def test_length_limits_are_the_distinct_lengths_or_their_quantiles(most, rng):
    lengths = rng.integers(1, most, 5000).astype(np.int32)
    wanted = np.unique(lengths)
    if len(wanted) > batches.EDGES:
        shares = np.linspace(0, 1, batches.EDGES + 1)[1:]
        wanted = np.unique(np.quantile(lengths, shares, method="higher"))
    np.testing.assert_array_equal(batches._edges(lengths), wanted)


def test_planning_in_pieces_changes_no_batch(rng, monkeypatch):
    source, target = (rng.integers(1, 60, 3000).astype(np.int32) for _ in range(2))

    def planned():
        plan = batches.BatchPlan(source, target, batch_tokens=500, max_shapes=5)
        rows = pack(source, 40, target)
        return [plan.batch(number)[1].tolist() for number in range(40)], rows.flat.tolist(), rows.offsets.tolist()

    whole = planned()
    for module in (batches, packing, ragged):
        monkeypatch.setattr(module, "PIECE", 7)
    assert planned() == whole
