"""The cache of encoded text: whatever happens to an entry, it is found damaged and made anew."""

import itertools
import os
import shutil
import time

import numpy as np
import pytest

from heedful.core.errors import InputError, InputWarning
from heedful.data.corpus import Corpus
from heedful.data.documents import encode_texts
from heedful.data.encoded import encode
from heedful.data.tokenizer import Tokenizer
from tests.conftest import PAIRS

pytestmark = pytest.mark.any_backend

OTHER = [(target, source) for source, target in PAIRS]


@pytest.fixture
def words(corpus):
    return Tokenizer.train(itertools.chain.from_iterable(corpus), "word", 60)


def pairs_of(words, cache, pairs=PAIRS):
    """Return all numbers of the encoded pairs."""
    encoded = encode(Corpus.from_pairs(pairs, "pairs"), words, words, 20, cache)
    sides = [np.asarray(array).tolist() for side in (encoded.source, encoded.target) for array in vars(side).values()]
    return sides, encoded.filtered


def texts_of(words, cache, pairs=PAIRS):
    """Return all numbers of the encoded sources."""
    corpus = Corpus(lambda: [source for source, _ in pairs], str(pairs), "texts")
    encoded = encode_texts(corpus, words, cache)
    return [np.asarray(array).tolist() for array in vars(encoded.ids).values()], encoded.text_bytes, encoded.empty


def flip(path, rng):
    content = bytearray(path.read_bytes())
    content[rng.integers(len(content))] ^= 1 << rng.integers(8)
    path.write_bytes(content)


def cut(path, rng):
    path.write_bytes(path.read_bytes()[: rng.integers(path.stat().st_size)])


def zero(path, rng):
    path.write_bytes(bytes(path.stat().st_size))


def swap(path, rng):
    others = sorted(other for other in path.parent.iterdir() if other != path)
    content = path.read_bytes()
    other = others[rng.integers(len(others))]
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


def remove(path, rng):
    path.unlink()


def as_folder(path, rng):
    path.unlink()
    path.mkdir()


def add(path, rng):
    path.with_name(f"{path.name}.more").write_bytes(b"1")


@pytest.mark.parametrize("encoded", [pairs_of, texts_of])
@pytest.mark.parametrize("damage", [flip, cut, zero, swap, remove, as_folder, add], ids=lambda one: one.__name__)
def test_an_entry_with_a_damaged_file_is_encoded_again(words, tmp_path, encoded, damage, rng):
    right = encoded(words, tmp_path)
    [entry] = tmp_path.iterdir()
    for name in sorted(path.name for path in entry.iterdir()):
        damage(entry / name, rng)
        with pytest.warns(InputWarning, match=f"{entry.name} is damaged .*; the text is encoded again"):
            assert encoded(words, tmp_path) == right
        assert encoded(words, tmp_path) == right  # without a warning
    assert list(tmp_path.iterdir()) == [entry]


@pytest.mark.parametrize("encoded", [pairs_of, texts_of])
def test_files_of_another_entry_are_not_used(words, tmp_path, encoded):
    right = encoded(words, tmp_path)
    [entry] = tmp_path.iterdir()
    encoded(words, tmp_path / "other", OTHER)
    [other] = (tmp_path / "other").iterdir()
    unlike = [path.name for path in other.iterdir() if path.read_bytes() != (entry / path.name).read_bytes()]
    for names in [*([name] for name in unlike), unlike]:
        for name in names:
            shutil.copy(other / name, entry / name)
        with pytest.warns(InputWarning, match="is damaged"):
            assert encoded(words, tmp_path) == right


@pytest.mark.parametrize("kind", ["file", "link", "empty"])
def test_what_is_no_entry_is_replaced(words, tmp_path, kind):
    right = pairs_of(words, tmp_path)
    [entry] = tmp_path.iterdir()
    shutil.move(entry, tmp_path.parent / f"{tmp_path.name}.moved")
    if kind == "file":
        entry.write_text("nothing")
    elif kind == "link":
        entry.symlink_to(tmp_path.parent / f"{tmp_path.name}.moved")
    else:
        entry.mkdir()
    with pytest.warns(InputWarning, match="is damaged"):
        assert pairs_of(words, tmp_path) == right


def test_a_cache_that_cannot_be_written_is_not_used(words, tmp_path):
    right = pairs_of(words, None)
    (tmp_path / "cache").write_text("a file")
    with pytest.warns(InputWarning, match="encoded text is not kept: .*HEEDFUL_CACHE"):
        assert pairs_of(words, tmp_path / "cache") == right


def test_a_full_cache_is_not_used(words, tmp_path, monkeypatch):
    right = pairs_of(words, None)
    from heedful.data import text_cache

    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(text_cache, "write_text", full)
    with pytest.warns(InputWarning, match="encoded text is not kept: No space left on device"):
        assert pairs_of(words, tmp_path) == right
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_has_left_is_removed(words, tmp_path):
    for name, age in (("unfinished-old", 10), ("unfinished-new", 1)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, times=(time.time() - age * 24 * 3600,) * 2)
    pairs_of(words, tmp_path)
    assert {path.name for path in tmp_path.glob("unfinished-*")} == {"unfinished-new"}


def test_errors_of_the_text_are_not_errors_of_the_cache(words, tmp_path):
    def read():
        raise PermissionError(13, "Permission denied", "/somewhere/text.pt")

    with pytest.raises(PermissionError):
        encode(Corpus(read, "forbidden", "forbidden"), words, words, 20, tmp_path)
    with pytest.raises(InputError, match="is empty"):
        encode(Corpus.from_pairs([], "nothing"), words, words, 9, tmp_path)
    assert not list(tmp_path.iterdir())
