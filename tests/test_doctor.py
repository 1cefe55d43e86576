"""The doctor finds what is wrong with a text, leaves alone what is right, and writes a cleaned copy."""

import gzip
import json

import numpy as np
import pytest

from heedful.core.errors import InputError
from heedful.data.corpus import read_pairs
from heedful.data.doctor.alignment import Associations, _words, stretches
from heedful.data.doctor.characters import CHARACTERS, count_kinds, fix_mojibake, without_unseen
from heedful.data.doctor.cleaning import clean
from heedful.data.doctor.examination import examine
from heedful.data.doctor.repeats import Repeats
from heedful.data.doctor.rows import Rows
from heedful.data.doctor.vocabulary import fits
from heedful.data.phrasebook import phrasebook
from heedful.data.tokenizer import Tokenizer

pytestmark = pytest.mark.any_backend

SPANISH = ["Los niños juegan en la calle con una pelota azul", "Ella siempre bebe café muy caliente por las mañanas"]


@pytest.fixture(scope="module")
def good():
    """Pairs without faults or duplicates. In shorter sentences too few words speak for a pair in so small a text."""
    pairs = {source: target for source, target in phrasebook("train", 6000) if len(source.split()) >= 6}
    return [(source, target) for target, source in {target: source for source, target in pairs.items()}.items()][:1200]


def write(folder, rows, names=("text.pt", "text.en")):
    paths = [folder / name for name in names]
    for side, path in enumerate(paths):
        content = b"".join(
            row[side] + b"\n" if isinstance(row[side], bytes) else f"{row[side]}\n".encode() for row in rows
        )
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return paths


def examined(folder, rows, others=None):
    return examine(Rows.of_pairs(write(folder, rows)), others)


def kinds(examination):
    return {finding.kind: finding.rows.tolist() for finding in examination.findings}


def test_a_good_text_has_no_findings(good, tmp_path):
    examination = examined(tmp_path, good)
    assert kinds(examination) == {}
    assert examination.rows == len(good)
    assert examination.scripts == {"source": ["Latin"], "target": ["Latin"]}
    assert examination.lines()[1] == "nothing found"


def test_each_fault_is_found_where_it_is(good, tmp_path):
    """One faulty row of each kind: no other row is reported."""
    rows = list(good)
    rows[10] = rows[10][0], ""
    rows[20] = rows[20][1], rows[20][1]
    rows[30] = rows[5]
    rows[40] = rows[40][0], "Мальчик читает книгу"
    rows[50] = rows[50][0], rows[50][1] + " \u200b"
    rows[60] = rows[60][0].encode() + b"\xe9", rows[60][1]
    rows[70] = rows[70][0], rows[70][1] + " caf\u00c3\u00a9"
    rows[80] = rows[80][0] + " \ufffd", rows[80][1]
    rows[90] = rows[90][0], " ".join([rows[90][1]] * 12)
    rows[100] = rows[100][0], good[700][0]
    test = write(tmp_path, [good[200], (good[300][0], good[301][1])], ("test.pt", "test.en"))
    found = kinds(examined(tmp_path, rows, {"test": Rows.of_pairs(test)}))
    expected = {
        "empty": [10], "untranslated": [20], "duplicate": [30], "script": [40], "unseen": [50], "not UTF-8": [60],
        "mangled": [70], "lost": [80], "length": [90], "language": [100], "overlap": [200], "leak": [300],
    }  # fmt: skip
    assert found == expected


def test_shifted_stretches_are_found(good, tmp_path):
    """Targets one row late, and one row early at the very end."""
    rows = list(good)
    for start, end, step in ((200, 230, 1), (1160, 1200, -1)):
        targets = np.roll(np.array([target for _, target in rows[start:end]], object), step)
        rows[start:end] = [(source, target) for (source, _), target in zip(rows[start:end], targets, strict=True)]
    found = kinds(examined(tmp_path, rows))
    assert found.keys() == {"misaligned"}
    wanted = {*range(200, 230), *range(1160, 1200)}
    assert len(wanted & set(found["misaligned"])) >= 66
    assert len(set(found["misaligned"]) - wanted) <= 2


def test_a_third_language_is_found(good, tmp_path):
    rows = list(good)
    places = range(7, 1200, 40)
    for number, place in enumerate(places):
        rows[place] = rows[place][0], f"{SPANISH[number % 2]} {good[number][0].split()[-1]}"
    found = kinds(examined(tmp_path, rows))["language"]
    assert set(found) == set(places)


def test_a_pair_is_not_evidence_for_itself(good):
    """Words that occur together in no other pair are no evidence that the two sides match."""
    source, target = ([pair[side] for pair in good] for side in (0, 1))
    for i, word in ((3, "xyzzy"), (900, "xyzzy")):
        source[i] += f" {word}"
    for i, word in ((3, "plugh"), (901, "plugh")):
        target[i] += f" {word}"
    associations = Associations(source, target)
    counted, alone = (
        associations._scores(*associations._words(["xyzzy"], ["plugh"]), np.array([own])) for own in (0, 1)
    )
    assert counted[0] > 0  # together once, which is unlikely by chance
    assert alone[0] <= 0


def test_the_shift_of_a_misaligned_stretch_is_reported(good, tmp_path):
    """The shift is found by the pairs that it would restore; shuffled targets have none."""
    for late in (1, -2):
        rows = list(good)
        targets = [target for _, target in rows]
        stretch = range(400, 460)
        for i in stretch:
            rows[i] = rows[i][0], targets[i - late]
        (finding,) = (found for found in examined(tmp_path, rows).findings if found.kind == "misaligned")
        count = f"{abs(late)} {'row' if late == 1 else 'rows'} {'late' if late > 0 else 'early'}"
        assert next(iter(finding.notes.values())) == f"from here the target is {count}"
    random = np.random.default_rng(1).permutation(60)
    rows = list(good)
    rows[400:460] = [(rows[400 + i][0], rows[400 + j][1]) for i, j in enumerate(random)]
    (finding,) = (found for found in examined(tmp_path, rows).findings if found.kind == "misaligned")
    assert finding.notes == {}


def test_stretches_are_the_most_probable_path():
    """Compare Viterbi with an exhaustive search over all paths of ten rows."""
    random = np.random.default_rng(3)
    from heedful.data.doctor.alignment import BREAKS, MENDS

    for _ in range(20):
        evidence = random.normal(0, 9, 10).clip(-12, 12)

        def score(course, evidence=evidence):
            total, before = 0.0, 0
            for state, against in zip(course, evidence, strict=True):
                change = (BREAKS, 1 - BREAKS) if before == 0 else (MENDS, 1 - MENDS)
                total += np.log(change[0] if state != before else change[1]) + state * against
                before = state
            return total

        courses = [[(number >> bit) & 1 for bit in range(10)] for number in range(1024)]
        assert stretches(evidence).astype(int).tolist() == max(courses, key=score)


def test_surplus_rows_of_the_longer_side_have_no_partner(good, tmp_path):
    paths = write(tmp_path, good)
    paths[1].write_text("".join(f"{target}\n" for _, target in good[:-3]), encoding="utf-8")
    examination = examine(Rows.of_pairs(paths))
    assert kinds(examination) == {"no partner": [1197, 1198, 1199]}


def test_faults_of_labelled_texts_are_found(tmp_path, good):
    path, test = tmp_path / "train.txt", tmp_path / "test.txt"
    lines = [f"{number % 2} {target}" for number, (_, target) in enumerate(good)]
    lines[7], lines[9], lines[11] = lines[2], "1" + lines[2][1:], "nothing"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    test.write_text(lines[20] + "\n1" + lines[22][1:] + "\n", encoding="utf-8")
    found = kinds(examine(Rows.of_labelled([path]), {"test": Rows.of_labelled([test])}))
    assert found == {"duplicate": [7], "contradiction": [9], "no partner": [11], "overlap": [20], "leak": [22]}


def test_labelled_texts_are_read_as_training_reads_them(tmp_path):
    """Each file has its own separator; a text may have tabs; a blank label or text is refused."""
    tabs, blanks = tmp_path / "tabs.txt", tmp_path / "blanks.txt"
    tabs.write_text("1\thello\tworld\n0\tother\n", encoding="utf-8")
    blanks.write_text("1 hello there\n0 \n", encoding="utf-8")
    rows = Rows.of_labelled([tabs, blanks])
    assert list(rows) == [("1", "hello\tworld"), ("0", "other"), ("1", "hello there"), ("0 ", None)]
    assert clean(rows, examine(rows), tmp_path / "clean") == (3, 0, 1)
    assert (tmp_path / "clean" / "tabs.txt").read_bytes() == tabs.read_bytes()
    assert (tmp_path / "clean" / "blanks.txt").read_text(encoding="utf-8") == "1 hello there\n"


def test_running_text_may_repeat_itself(tmp_path):
    path = tmp_path / "play.txt"
    path.write_text("ROMEO:\nWhat light?\n\nROMEO:\nIt is the east.\x07\n", encoding="utf-8")
    assert kinds(examine(Rows.of_lines([path], whole=False))) == {"unseen": [4]}
    assert kinds(examine(Rows.of_lines([path]))) == {"empty": [2], "duplicate": [3], "unseen": [4]}


def test_an_empty_text_has_nothing_to_train_on(tmp_path):
    paths = write(tmp_path, [])
    assert examine(Rows.of_pairs(paths)).lines()[1:] == ["nothing to train on"]


def test_nearly_identical_lines_are_not_reported(tmp_path):
    questions = tmp_path / "questions.txt"
    questions.write_text("".join(f"What is the price of item {n}?\n" for n in range(60)), encoding="utf-8")
    assert kinds(examine(Rows.of_lines([questions]))) == {}
    assert kinds(examined(tmp_path, [(f"Rechnung Nummer {n}", f"Invoice number {n}") for n in range(300)])) == {}


def test_a_side_of_white_space_is_empty(tmp_path, good):
    rows = [*good[:50], ("   ", "some words here"), *good[50:]]
    assert kinds(examined(tmp_path, rows)) == {"empty": [50]}


@pytest.mark.parametrize(
    ("text", "kind"),
    [("Grüße", "Latin"), ("Привет", "Cyrillic"), ("東京", "Han"), ("ひらがな", "Kana"), ("한국어", "Hangul"),
     ("שלום", "Hebrew"), ("नमस्ते", "Devanagari"), ("ไทย", "Thai"),
     ("Ωμέγα", "Greek"), ("سلام", "Arabic"), ("123 .,-", ""), ("👍🏽", "")],
)  # fmt: skip
def test_the_script_of_a_text_is_recognized(text, kind):
    counts = count_kinds([text])[0]
    assert CHARACTERS[counts[1:].argmax() + 1 if counts[1:].any() else 0] == kind
    assert counts.sum() == len(text) + 1  # and a line feed


def test_kinds_are_counted_line_by_line():
    counts = count_kinds(["ab", "", "ж\u200b", "c\x00d"])
    assert counts[:, CHARACTERS.index("Latin")].tolist() == [2, 0, 0, 2]
    assert counts[:, CHARACTERS.index("Cyrillic")].tolist() == [0, 0, 1, 0]
    assert counts[:, CHARACTERS.index("invisible")].tolist() == [0, 0, 1, 0]
    assert counts[:, CHARACTERS.index("control")].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    "right",
    [
        "„MENÜ“",
        "«CAFÉ»",
        "CAFÉ…",
        "MENÜ–gut",
        "Il dit « liberté\u00a0»",
        "J’ai été…»",
        "Noé’“",
        "Café™®",
        "até”—",
    ],
)
def test_a_capital_before_punctuation_is_not_mojibake(right):
    assert fix_mojibake(right) == right


@pytest.mark.parametrize(
    "right",
    [
        "café",
        "“naïve” — 5 €",
        "ação",
        "Grüße",
        "žluťoučký",
        "日本語",
        "■ Zutaten",
        "他 说",
        "배 (과일)",
        "♠ Pik",
    ],
)
def test_text_decoded_as_windows_1252_is_repaired(right):
    wrong = "".join(
        character if character.isascii() else bytes(character, "utf-8").decode("cp1252", "replace")
        for character in right
    )
    if "\ufffd" not in wrong:  # Windows-1252 has no character for some bytes: Latin-1 has
        assert fix_mojibake(wrong) == right
    assert fix_mojibake(right) == right
    assert fix_mojibake(right.encode().decode("latin-1")) == right


def test_invisible_characters_are_removed():
    assert without_unseen("a\u200bb\x07c\ufeff\u00add\te\u200c") == "abcd\te\u200c"
    assert without_unseen("\x0cone\u2028two\rthree\x85four\r") == "one two three four"
    for meant in ("\U0001f3f4\U000e0067\U000e0062\U000e007f", "葛\U000e0100"):
        assert without_unseen(meant) == meant


def test_repeats_refer_to_the_first_occurrence():
    with Repeats() as repeats:
        repeats.add(["leaked text"], [-1])
        repeats.add(["one", "two words", "three"], [0, 1, 2])
        repeats.add(["two words", "leaked text", "four", "one", "one"], [3, 4, 5, 6, 7])
        assert repeats.pairs().tolist() == [[3, 1], [4, -1], [6, 0], [7, 0]]


def test_duplicates_are_compared_column_by_column(tmp_path):
    """Case and white space are ignored, but a word moved across the tab is a difference."""
    path = tmp_path / "text.tsv"
    path.write_text("New York\tcity\nNew\tYork city\nnew  YORK\tCity\n", encoding="utf-8")
    found = kinds(examine(Rows.of_pairs([path])))
    assert found["duplicate"] == [2]


def test_a_single_side_is_refused_as_a_parallel_text(cli, tmp_path):
    """Guards against leaks that are not found because nothing was compared."""
    names = [tmp_path / name for name in ("a.de", "a.en", "b.tsv", "c.tsv")]
    for name in names:
        name.write_text("ein Satz\n" if name.suffix != ".tsv" else "ein Satz\ta sentence\n", encoding="utf-8")
    alone = cli("doctor", *names[:2], "--test", names[0])
    assert alone.returncode == 2
    assert b"has no tab in its first 1 line: a parallel text is two files" in alone.stderr
    assert b"examine one at a time" in cli("doctor", *names[2:]).stderr


def test_the_sample_is_spread_over_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr("heedful.data.doctor.rows.SAMPLE", 10)
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"{number}\n" for number in range(101)))
    sample, step, count = Rows.of_lines([path]).sample()
    assert (step, count) == (16, 101)
    assert [int(row[0]) for row in sample] == list(range(0, 101, 16))


def test_a_vocabulary_that_does_not_fit_is_reported(good, tmp_path):
    english, russian = tmp_path / "en", tmp_path / "ru"
    english.write_text("".join(f"{target}\n" for _, target in good), encoding="utf-8")
    russian.write_text("Мальчик читает книгу\n", encoding="utf-8")
    tokenizer = Tokenizer.train((target for _, target in good), "word", 4000)
    found = fits({"train": Rows.of_lines([english]), "test": Rows.of_lines([russian])}, [tokenizer])
    assert [fit.fits for fit in found] == [True, False]
    assert found[1].unknown == 1.0
    assert "does not fit" in str(found[1])


@pytest.mark.parametrize("names", [("a.pt", "a.en"), ("a.pt.gz", "a.en.gz")])
def test_the_cleaned_copy_is_clean(good, tmp_path, names):
    rows = list(good[:600])
    rows[3], rows[5], rows[8] = rows[2], (rows[5][0], ""), (rows[8][0] + "\u200b", rows[8][1])
    rows[11] = rows[11][0] + " pa\u00c3\u00ads don\u00e2\u0080\u0099t", rows[11][1]
    text = Rows.of_pairs(write(tmp_path, rows, names))
    out = tmp_path / "clean"
    assert clean(text, examine(text), out) == (596, 2, 2)
    copy = Rows.of_pairs([out / name for name in names])
    wanted = [row for number, row in enumerate(good[:600]) if number not in (3, 5)]
    wanted[9] = wanted[9][0] + " país don\u2019t", wanted[9][1]
    assert list(copy) == wanted
    assert kinds(examine(copy)) == {}
    report = (out / "report.tsv").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[:3] for line in report] == [
        ["4", "removed", "duplicate"], ["6", "removed", "empty"], ["9", "repaired", "unseen"],
        ["12", "repaired", "mangled, unseen"],
    ]  # fmt: skip
    ignoring = examine(text)
    ignoring.findings = [found for found in ignoring.findings if found.kind != "unseen"]
    assert clean(text, ignoring, tmp_path / "again") == (597, 1, 2)
    assert list(Rows.of_pairs([tmp_path / "again" / name for name in names]))[6] == rows[8]  # left as it was
    with pytest.raises(InputError, match="exists already"):
        clean(text, examine(text), out)


def test_a_cleaning_that_is_stopped_leaves_no_copy(good, tmp_path, monkeypatch):
    text = Rows.of_pairs(write(tmp_path, [*good[:600], good[0]], ("a.pt", "a.en")))
    examination = examine(text)

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("heedful.data.doctor.cleaning._treated", stopped)
    with pytest.raises(KeyboardInterrupt):
        clean(text, examination, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    monkeypatch.undo()
    assert clean(text, examination, tmp_path / "out") == (600, 0, 1)


def test_the_command_reports_cleans_and_refuses(cli, good, tmp_path, recipe_of):
    rows = [*good[:600], good[0]]
    paths = write(tmp_path, rows, ("my.pt", "my.en"))
    result = cli("doctor", *paths, "--json")
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert [(found["kind"], found["lines"]) for found in told["findings"]] == [("duplicate", [601])]
    assert told["findings"][0]["notes"] == {"601": "as line 1"}
    assert b"nothing found" in cli("doctor", *paths, "--ignore", "duplicate").stdout
    fixed = cli("doctor", *paths, "--fix", tmp_path / "out")
    assert b"600 rows as they were, 0 repaired, 1 removed" in fixed.stdout
    assert len((tmp_path / "out" / "my.en").read_text(encoding="utf-8").splitlines()) == 600

    paths[0].write_bytes(b"caf\xe9\n" + paths[0].read_bytes())
    broken = cli("doctor", *paths)
    assert broken.returncode == 1  # training would refuse it
    assert b"not UTF-8: 1 row (" in broken.stdout
    assert b"no partner: 1 row (" in broken.stdout
    for task in ("translate", "generate", "fill", "classify"):
        assert cli("doctor", recipe_of(task)).returncode == 0
    (tmp_path / "nothing.en").write_text("")
    empty = cli("doctor", tmp_path / "nothing.en")
    assert (empty.returncode, empty.stdout.splitlines()[1]) == (1, b"nothing to train on")
    for arguments, message in (
        (["nothing"], b"one of the recipes"), (["nothing.txt"], b"Missing text"), ([tmp_path], b"one of the recipes"),
        (["x.tsv", "y.tsv", "z.tsv"], b"examine one at a time"), (["quickstart"], b"names no text of its own"),
        ([*paths, "--ignore", "x"], b"'x' is not one of the kinds"), ([*paths, "third"], b"Missing text"),
        (["trec", "--labelled"], b"A recipe or run names its own texts"),
    ):  # fmt: skip
        wrong = cli("doctor", *arguments)
        assert wrong.returncode == 2
        assert message in wrong.stderr, wrong.stderr
        assert wrong.stderr.count(b"\n") == 1


def test_words_come_in_the_order_of_the_line():
    """Guards against findings that depend on Python's hash seed."""
    line = "one two three four five six seven eight nine ten eleven twelve"
    assert list(_words(f"{line.title()} {line}")) == line.split()


def test_markup_and_headers_are_found_and_mathematics_is_not(good, tmp_path):
    rows = list(good[:600])
    rows[0] = "source", "target"
    rows[10] = rows[10][0] + " <b>agora</b>", rows[10][1]
    rows[20] = rows[20][0], rows[20][1] + " &amp; then"
    rows[30] = rows[30][0] + " a < b", rows[30][1] + " a < b and b > a"
    rows[40] = rows[40][0], rows[40][1] + " AT&T; <3 <me@example.org>"
    path = tmp_path / "pairs.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    text = Rows.of_pairs([path])
    found = kinds(examine(text))
    assert (found["header"], found["markup"]) == ([0], [10, 20])
    clean(text, examine(text), tmp_path / "clean")
    copy = (tmp_path / "clean" / "pairs.tsv").read_text(encoding="utf-8").splitlines()
    assert copy[0] == "\t".join(rows[1])
    assert len(copy) >= 597
    with pytest.raises(InputError, match="line 1 names the columns"):
        list(read_pairs([path]))


def test_rare_labels_are_found(tmp_path):
    path = tmp_path / "labelled.txt"
    path.write_text("".join(f"{label}\ttext {number}\n" for number, label in enumerate(["a", "b", "a", "c", "b"])))
    assert kinds(examine(Rows.of_labelled([path])))["rare label"] == [3]
