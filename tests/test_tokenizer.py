"""Tokenizers: round trips, special ids, files in and out."""

import itertools
import json
import unicodedata

import pytest
import tokenizers
from tokenizers import normalizers

from heedful.core.errors import InputError
from heedful.core.special_tokens import END, PAD, SPECIAL, START, UNKNOWN
from heedful.data.normalization import normalized, normalizer
from heedful.data.tokenizer import BYTE_LEVEL, TOKENIZER_KINDS, Tokenizer
from heedful.inference.token_stream import new_text

pytestmark = pytest.mark.any_backend

STRANGE = [
    "Olá, mundo!",
    "  two  spaces ",
    "日本語 🙂👩‍👩‍👧",
    "\ufeffa\x00\x7f\tb",
    "e\u0301 \u200f \u2028",
    "[END] [PAD]",
    "ſ ﬁ",
]


@pytest.fixture(params=TOKENIZER_KINDS)
def tokenizer(request, corpus):
    return Tokenizer.train(itertools.chain.from_iterable(corpus), request.param, 400)


def test_special_ids_have_names_and_never_come_from_text(tokenizer):
    """Guards against a source line that contains [END] and ends the sentence."""
    ids = tokenizer.pad_id, tokenizer.unknown_id, tokenizer.start_id, tokenizer.end_id
    assert ids == (0, 1, 2, 3)
    assert [tokenizer.lookup(i) for i in ids] == list(SPECIAL)
    for text in ("[END]", "a [PAD] b", "[START][UNK]"):
        assert not {0, 2, 3} & set(tokenizer.encode(text))
        assert tokenizer.encode_batch([text]) == [tokenizer.encode(text)]


def test_a_text_has_the_same_ids_alone_and_among_others(tokenizer):
    """Guards `SHORT`: one short text is encoded in another way."""
    texts = [*STRANGE, "", " a", "o gato vê a menina. " * 100]
    assert [tokenizer.encode(text) for text in texts] == tokenizer.encode_batch(texts)


def test_known_text_survives_a_round_trip(tokenizer):
    assert tokenizer.decode(tokenizer.encode("o gato vê a menina")) == "o gato vê a menina"
    assert tokenizer.decode([2, *tokenizer.encode("o gato"), 3, 0, 0]) == "o gato"
    assert tokenizer.encode("") == []


def test_a_loaded_tokenizer_encodes_like_the_saved_one(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "t.json")
    loaded = Tokenizer.load(tmp_path / "t.json")
    assert len(loaded) == len(tokenizer) <= 400
    for text in STRANGE:
        assert loaded.encode(text) == tokenizer.encode(text)


@pytest.mark.parametrize("prefix_space", [False, True])
@pytest.mark.parametrize("kind", BYTE_LEVEL)
@pytest.mark.parametrize("text", [*STRANGE, "", " a", " "])
def test_byte_level_tokenizers_restore_any_text(kind, text, prefix_space, corpus):
    tokenizer = Tokenizer.train(itertools.chain.from_iterable(corpus), kind, 400, prefix_space=prefix_space)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", BYTE_LEVEL)
@pytest.mark.parametrize("lowercase", [False, True])
def test_prefix_space_encodes_the_first_word_like_any_other(kind, lowercase, corpus, tmp_path):
    """Guards against two embeddings for a word, one of them learned only from the beginnings of lines."""
    learn = {"kind": kind, "vocab_size": 400, "lowercase": lowercase}
    trained = Tokenizer.train(itertools.chain.from_iterable(corpus), **learn, prefix_space=True)
    trained.save(tmp_path / "t.json")
    for tokenizer in (trained, Tokenizer.load(tmp_path / "t.json")):
        gato, vaca = tokenizer.encode("gato"), tokenizer.encode("vaca")
        assert tokenizer.encode("gato vaca") == gato + vaca
        assert tokenizer.pieces(tokenizer.encode("gato vaca")) == tokenizer.pieces(gato) + tokenizer.pieces(vaca)
        assert tokenizer.pieces(vaca)[0].startswith(" ")
        assert tokenizer.prefix_space
        assert tokenizer.lowercase is lowercase
    usual = Tokenizer.train(itertools.chain.from_iterable(corpus), **learn)
    assert not usual.prefix_space
    assert usual.encode("gato vaca") != usual.encode("gato") + usual.encode("vaca")


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_vocabulary_never_exceeds_its_size(kind):
    """The text has more letters than fit, and WordPiece stores each letter twice."""
    letters = [chr(0x4E00 + i) for i in range(500)]
    lines = [" ".join(letters), "".join(letters), "the cat"]
    assert len(Tokenizer.train(lines, kind, 300)) <= 300


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "word", "char"])
def test_the_same_text_always_gives_the_same_vocabulary(kind):
    """The library's hash tables are ordered differently each time, and rare letters are dropped."""
    lines = [f"{chr(0x430 + i % 32)}{chr(0x3B1 + i % 24)}{chr(0x561 + i % 38)} {i:x}{i * 7919:x}" for i in range(300)]
    made = [Tokenizer.train(iter(lines), kind, 290 if kind == "bpe" else 150) for _ in range(4)]
    assert len({json.dumps([tokenizer.lookup(i) for i in range(len(tokenizer))]) for tokenizer in made}) == 1
    assert len({json.dumps(tokenizer.encode_batch(lines)) for tokenizer in made}) == 1


def test_a_wordpiece_vocabulary_can_be_saved_and_loaded(corpus, tmp_path):
    tokenizer = Tokenizer.train(itertools.chain.from_iterable(corpus), "wordpiece", 90, lowercase=True)
    tokenizer.save_vocab(tmp_path / "vocab.txt")
    loaded = Tokenizer.from_vocab(tmp_path / "vocab.txt")
    assert loaded.encode("O GATO vê, águas?") == tokenizer.encode("o gato vê, aguas?")
    assert loaded.decode(loaded.encode("o gato")) == "o gato"


def test_a_vocabulary_file_is_split_at_line_feeds_only(tmp_path):
    """The vocabulary of Chinese BERT has a line separator among its tokens."""
    tokens = ["[PAD]", "[UNK]", "[START]", "[END]", "a", "\u2028", "b"]
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    tokenizer = Tokenizer.from_vocab(tmp_path / "vocab.txt")
    assert tokenizer.encode("a b") == [4, 6]
    assert len(tokenizer) == 7


def test_lookup_maps_ids_to_tokens_and_back(tokenizer):
    first = tokenizer.encode("gato")[0]
    assert tokenizer.lookup(tokenizer.lookup(first)) == first
    assert tokenizer.lookup("never seen, this one") is None


def test_bad_input_is_explained(tmp_path):
    with pytest.raises(InputError, match="no text"):
        Tokenizer.train(["", " "], "word", 50)
    with pytest.raises(InputError, match="needs more than 260"):
        Tokenizer.train(["a"], "bpe", 200)
    with pytest.raises(InputError, match="Unknown tokenizer 'bpee'"):
        Tokenizer.train(["a"], "bpee", 500)
    with pytest.raises(InputError, match="prefix_space is for bpe and unigram"):
        Tokenizer.train(["a"], "word", 50, prefix_space=True)
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(InputError, match=r"t\.json: not a tokenizer"):
        Tokenizer.load(tmp_path / "t.json")


@pytest.mark.parametrize("moved", [("[START]", 4), ("[END]", 5), ("[UNK]", None)])
def test_special_tokens_with_other_ids_are_refused(moved, corpus, tmp_path):
    """Guards against silently wrong results: heedful 0.1.0 opened such a vocabulary and used ids 2 and 3 anyway."""
    token, index = moved
    tokens = ["[PAD]", "[UNK]", "[START]", "[END]", "the", "cat"]
    tokens.remove(token)
    if index:
        tokens.insert(index, token)
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    found = rf"gives the id {index} to \{token}" if index else rf"has no \{token}"
    with pytest.raises(InputError, match=found):
        Tokenizer.from_vocab(tmp_path / "vocab.txt")
    good = Tokenizer.train(itertools.chain.from_iterable(corpus), "word", 60)
    data = json.loads(good.to_json())
    swapped = {"[START]": "[END]", "[END]": "[START]"}
    data["model"]["vocab"] = {swapped.get(token, token): index for token, index in data["model"]["vocab"].items()}
    for entry in data["added_tokens"]:
        entry["content"] = swapped.get(entry["content"], entry["content"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=r"tokenizer.json: This tokenizer gives the id 3 to \[START\]"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_wordpiece_keeps_spaces_before_punctuation_when_asked(tmp_path):
    """The sentence is from the tutorial on Keras' high-level API and has a space before each punctuation mark."""
    text = (
        "and when you improve searchability , you actually take away the one advantage of print , "
        "which is serendipity ."
    )
    plain = Tokenizer.train([text] * 3, "wordpiece", 60)
    ids = plain.encode(text)
    assert len(ids) > len(text.split())  # words in pieces
    assert plain.decode(ids) == text.replace(" ,", ",").replace(" .", ".")
    assert plain.decode([2, *ids, 3, 0], clean_up_spaces=False) == text
    kept = Tokenizer.train([text] * 3, "wordpiece", 60, clean_up_spaces=False)
    kept.save(tmp_path / "tokenizer.json")
    kept = Tokenizer.load(tmp_path / "tokenizer.json")
    assert kept.decode(kept.encode(text)) == text
    assert kept.decode(kept.encode(text), clean_up_spaces=True) == plain.decode(ids)


def test_a_call_pads_and_truncates_one_or_several_texts():
    tokenizer = Tokenizer.train(["a b c d e f"], "word", 20)
    a, b, c, d = tokenizer.encode("a b c d")
    batch = tokenizer(["a b c d", "a", ""])
    assert batch["ids"].tolist() == [[2, a, b, c, d, 3], [2, a, 3, 0, 0, 0], [2, 3, 0, 0, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1] * 6, [1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0]]
    assert batch["ids"].dtype == batch["attention_mask"].dtype == "int32"
    assert tokenizer("a b c d", max_length=4, truncation=True)["ids"].tolist() == [[2, a, b, 3]]
    assert tokenizer("a b", max_length=5, padding="max_length")["ids"].tolist() == [[2, a, b, 3, 0]]
    assert tokenizer("a b", special_tokens=False, max_length=1, truncation=True)["ids"].tolist() == [[a]]
    assert tokenizer([])["ids"].shape == (0, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 3}, "Text 2 has 4 tokens; max_length is 3. Shorten it or set truncation."),
        ({"padding": "max_length"}, "needs a max_length"),
        ({"padding": "left"}, "Unknown padding 'left'"),
        ({"original_ids": True}, "has no original ids"),
    ],
)
def test_a_call_refuses_what_it_cannot_do(options, message):
    tokenizer = Tokenizer.train(["a b c d e f"], "word", 20)
    with pytest.raises(InputError, match=message):
        tokenizer(["a", "a b"], **options)


def test_rules_that_panic_are_reported(corpus):
    """Guards against an exception of the library that is no `Exception`, which would end the threads of a server."""
    table = json.loads(Tokenizer.train((target for _, target in corpus), "bpe", 300).to_json())
    table["pre_tokenizer"] = {
        "type": "Split", "pattern": {"Regex": "(a|a|aa)+$"}, "behavior": "Isolated", "invert": False,
    }  # fmt: skip
    tokenizer = Tokenizer.from_json(json.dumps(table))
    assert tokenizer.encode("the cat")
    with pytest.raises(InputError, match=r"The tokenizer fails on a text: .*retry-limit-in-match over"):
        tokenizer.encode("a" * 40 + "!")
    table["pre_tokenizer"] = {"type": "FixedLength", "length": 0}
    with pytest.raises(InputError):
        Tokenizer.from_json(json.dumps(table)).encode("the cat")


FORMS = {
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "double spaces": lambda text: text.replace(" ", "  "),
    "no-break spaces": lambda text: text.replace(" ", "\u00a0"),
    "spaces at the ends": lambda text: f" {text}\u3000",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "word", "char"])
def test_texts_that_look_the_same_have_the_same_ids(corpus, kind, form):
    """Guards against nonsense for text with decomposed letters, or other spaces."""
    texts = ["a vaca bebe água", "o rei vê a vaca", "o rei come pão"]
    plain = [source for source, _ in corpus]
    tokenizer = Tokenizer.train(map(FORMS[form], plain), kind, 320, normalize="nfc")
    assert tokenizer.normalization == "nfc"
    assert tokenizer.encode_batch(map(FORMS[form], texts)) == tokenizer.encode_batch(texts)
    if kind != "unigram":  # which the library trains in an order of its own each time
        assert tokenizer.to_json() == Tokenizer.train(plain, kind, 320, normalize="nfc").to_json()
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.encode_batch(map(FORMS[form], texts)) == tokenizer.encode_batch(texts)
    assert Tokenizer.train(plain, kind, 320).normalization == "none"


def test_compatibility_characters_are_folded_by_nfkc_only(corpus):
    lines = [source for source, _ in corpus]
    for kind, equal in (("nfc", False), ("nfkc", True)):
        tokenizer = Tokenizer.train(lines, "bpe", 300, normalize=kind)
        assert tokenizer.normalization == kind
        assert (tokenizer.encode("ｏ ｇａｔｏ") == tokenizer.encode("o gato")) == equal


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_spaces_beside_added_tokens_stay(corpus, kind):
    tokenizer = Tokenizer.train((source for source, _ in corpus), kind, 320, normalize="nfc").with_tokens(["<t>"])
    ids = tokenizer.encode(" o <t>  gato ")
    assert tokenizer.decode(ids) == "o <t> gato"
    assert ids == tokenizer.encode("o <t> gato")


@pytest.mark.parametrize("text", ["Se\u0301  v\u00a0x ", "", "\u2003\ta\n", "x\ny  z \n", "ﬁ ① 한글", "\u200b a\u0085"])
@pytest.mark.parametrize("kind", ["nfc", "nfkc", "none"])
def test_the_rule_of_the_library_is_the_rule_in_python(text, kind):
    steps = normalizer(kind)
    ours = normalizers.Sequence(steps).normalize_str(text) if steps else text
    assert ours == normalized(text, kind)


@pytest.mark.parametrize(
    ("kind", "lossless"), [("bpe", True), ("unigram", True), ("char", False), ("wordpiece", False), ("word", False)]
)
def test_tokenizers_say_whether_they_are_lossless(corpus, kind, lossless):
    """Guards the round trip that pages promise: only byte-level kinds return every text."""
    tokenizer = Tokenizer.train((target for _, target in corpus), kind, 320)
    assert tokenizer.lossless == lossless
    hard = ["WHAT", "It's 9 o'clock, 25%.", "Où est  la clé ?", "a\ttab"]
    assert all(tokenizer.decode(tokenizer.encode(text)) == text for text in hard) == lossless
    assert not Tokenizer.train((target for _, target in corpus), kind, 320, normalize="nfc").lossless


@pytest.mark.parametrize("kind", ["word", "wordpiece"])
def test_unknown_words_are_kept_if_asked(corpus, kind):
    tokenizer = Tokenizer.train((target for _, target in corpus), kind, 320)
    ids = tokenizer.encode("the WHAT cat WHAT")
    assert tokenizer.decode(ids) == "the cat"
    assert tokenizer.decode(ids, keep_unknown=True) == "the [UNK] cat [UNK]"
    assert tokenizer.decode([2, *ids, 3, 0], keep_unknown=True) == "the [UNK] cat [UNK]"


def test_a_stream_of_bytes_is_the_whole_text():
    """Bytes of byte fallback are decoded together: what looks like a character may turn out to be none."""
    smile = [f"<0x{byte:02X}>" for byte in "\N{SLIGHTLY SMILING FACE}".encode()]
    vocabulary = {
        token: number for number, token in enumerate([PAD, UNKNOWN, START, END, *smile, "\u2581cat", "\u2581a"])
    }
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, UNKNOWN))
    decoders = tokenizers.decoders
    inner.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = Tokenizer(inner)
    for tokens in (
        [*smile, "\u2581cat"],
        [*smile, smile[0], "\u2581cat"],
        ["\u2581a", *smile[:2]],
        ["\u2581a", *smile],
    ):
        ids = [vocabulary[token] for token in tokens]
        assert "".join(new_text(tokenizer, ids)) == tokenizer.decode(ids)
