"""Pairs of built-in and named texts in memory."""

import pytest

import heedful
from heedful.core.errors import InputError

pytestmark = pytest.mark.any_backend


def test_built_in_texts():
    assert heedful.text_pairs("phrasebook", "unseen", 3) == heedful.text_pairs("phrasebook", "unseen", 5)[:3]
    assert len(heedful.text_pairs("reverse", "test", 7)) == 7
    assert not set(heedful.text_pairs(count=500)) & set(heedful.text_pairs(part="valid", count=500))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("phrasebook", "tests"), "has no part 'tests': choose one of train, valid, test, unseen"),
        (("reverse", "unseen"), "choose one of train, valid, test."),
        (("trec", "train"), "consists of labelled, not of pairs"),
        (("ted_hrlr:pt-en", "unseen"), "has no part 'unseen'"),
        (("multi30k:de-en", "train"), "heedful data get multi30k:de-en"),
        (("multi30k:de-fr", "train"), "did you mean 'multi30k:de-en'"),
    ],
)
def test_bad_requests_get_one_line(arguments, message, monkeypatch, tmp_path):
    monkeypatch.setenv("HEEDFUL_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=message):
        heedful.text_pairs(*arguments)
