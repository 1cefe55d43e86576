"""TER, chrF++, metrics of other programs, and the scores of each sentence."""

import json
import sys

import pytest
import sacrebleu

from heedful.core.errors import InputError
from heedful.core.plugins import find_metric
from heedful.runs.scores.further import command_scores
from heedful.runs.scores.metrics import unit_scores

pytestmark = pytest.mark.any_backend

HYPOTHESES = ["the cat drinks (the milk)", "a Dog eats .", "", "bread", "O gato, preto"]
REFERENCES = ["the cat drinks milk", "the dog eats.", "something", "bread", "o gato preto!"]
MORE = ["a cat (drank) the milk today", "a dog eats", "nothing", "the bread", "gato preto"]
# Says how many characters the translation has.
LENGTHS = f'{sys.executable} -c "import sys; [print(len(l.rstrip(chr(10)).split(chr(9))[1])) for l in sys.stdin]"'


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("more", [False, True])
def test_summed_counts_and_sentence_scores_equal_sacrebleu(lowercase, more):
    references = [REFERENCES, MORE] if more else [REFERENCES]
    options = {"more_references": [(one,) for one in MORE]} if more else {}
    theirs = {
        "ter": sacrebleu.TER(case_sensitive=not lowercase), "chrf": sacrebleu.CHRF(lowercase=lowercase),
        "chrf++": sacrebleu.CHRF(lowercase=lowercase, word_order=2),
        "bleu": sacrebleu.BLEU(lowercase=lowercase, effective_order=True),
    }  # fmt: skip
    for name, their in theirs.items():
        metric = find_metric(name)
        counts = metric.count_texts(HYPOTHESES, REFERENCES, lowercase, **options)
        want = their.corpus_score(HYPOTHESES, references)
        assert metric.score(counts.sum(0)) == pytest.approx(want.score, abs=1e-9), name
        sentences = [
            their.sentence_score(text, list(group)).score
            for text, group in zip(HYPOTHESES, zip(*references, strict=True), strict=True)
        ]
        assert unit_scores(name, counts) == pytest.approx(sentences, abs=1e-9), name
        if name != "bleu":
            assert metric.signature(lowercase, **options) == str(their.get_signature())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-program", "cannot be started"), ("false", "exit code 1"), ("cat", "must write a number"),
        ("echo 1 2", "it wrote 2 numbers"), ("echo nan 1 2", "finite number"), ("'", "cannot be started"),
        (f"{sys.executable} -c \"raise SystemExit('no model')\"", "no model"),
    ],
)  # fmt: skip
def test_a_metric_command_that_fails_is_one_clear_line(command, message):
    with pytest.raises(InputError, match=message) as error:
        command_scores(command, [("a", "b")] * 3, ["c"] * 3)
    assert "\n" not in str(error.value)


def test_a_metric_command_reads_tabs_and_lines_as_spaces():
    assert command_scores(LENGTHS, [("a", "b", "c"), ("d", "e", "f")], ["x\ty", "zzzz"]).tolist() == [3, 4]


def test_further_metrics_are_kept_compared_and_written_for_each_sentence(cli, run, text_files, tmp_path):
    source, target = text_files
    link, target_of_link = tmp_path / "sentences.tsv", tmp_path / "elsewhere.tsv"
    link.symlink_to(target_of_link)
    done = cli(
        "evaluate", run, source, target, "--metric", "ter", "--metric", "chrf++", "--metric-command",
        f"length={LENGTHS}", "--sentences", tmp_path / "sentences.tsv", "--json",
    )  # fmt: skip
    scores = json.loads(done.stdout)
    assert {"bleu", "chrf", "ter", "chrf++", "external.length"} <= scores.keys()
    assert scores["signatures"]["ter"].startswith("nrefs:1|")
    head, *rows = [line.split("\t") for line in (tmp_path / "sentences.tsv").read_text().splitlines()]
    assert link.is_symlink()
    assert target_of_link.is_file()
    assert len(rows) == scores["sentences"]
    assert head[-3:] == ["source", "reference", "translation"]
    lengths = [float(row[head.index("external.length")]) for row in rows]
    assert lengths == [len(row[-1]) for row in rows]
    assert scores["external.length"] == pytest.approx(sum(lengths) / len(lengths))
    for metric in ("external.length", "ter"):
        compared = json.loads(cli("compare", run, "--metric", metric, "--json").stdout)
        assert compared["rows"][0]["score"] == pytest.approx(scores[metric])
    done = cli("evaluate", run, source, target, "--metric", "bleurt")
    assert b"There is no metric 'bleurt'" in done.stderr
    done = cli("evaluate", run, source, target, "--metric-command", "comet")
    assert b"NAME=COMMAND" in done.stderr
