"""Scores: counts add up, intervals cover the true score, and only runs that were scored alike are compared."""

import dataclasses
import importlib.metadata
import json
import shutil

import numpy as np
import pytest
import sacrebleu

import heedful
from heedful import workflows
from heedful.config import Config, DecodeConfig
from heedful.config.settings import override
from heedful.core.errors import InputError
from heedful.core.plugins import find_metric
from heedful.data.tokenizer import Tokenizer
from heedful.runs.run import Run
from heedful.runs.scores.bleu_tokenizer import bleu_tokenizer
from heedful.runs.scores.comparison import _with_defaults, compare
from heedful.runs.scores.metrics import BLEU, CHRF, bleu_counts, draws, interval, p_value, sample_scores
from heedful.runs.scores.provenance import counts_of, provenance, read
from heedful.training.evaluation import score_text
from heedful.workflows import Training
from tests.conftest import PAIRS, quiet, write_recipe

pytestmark = pytest.mark.any_backend

HYPOTHESES = ["the cat drinks milk in the house .", "a dog , a man and a bird", "nothing", "", "the king sees the cow"]
REFERENCES = [
    "the cat drinks the milk in a house .",
    "a dog and a bird",
    "something else",
    "yes",
    "the king sees a cow",
]


def test_bleu_from_summed_sentence_counts_equals_sacrebleu():
    for hypotheses, references in ((HYPOTHESES, REFERENCES), (HYPOTHESES[3:4], REFERENCES[3:4])):
        units = bleu_counts(hypotheses, references)
        want = sacrebleu.BLEU().corpus_score(hypotheses, [references]).score
        assert BLEU.score(units.sum(0)) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("lowercase", [False, True])
def test_chrf_from_summed_sentence_counts_equals_sacrebleu(lowercase):
    """Also where a sentence is shorter than the longest n-gram, empty, or has no match."""
    words = "the Cat sees a king, who drinks milk . É água".split()
    random = np.random.default_rng(5)
    hypotheses, references = ([" ".join(random.choice(words, n)) for n in random.integers(0, 8, 60)] for _ in range(2))
    for made, wanted in ((hypotheses, references), (HYPOTHESES, REFERENCES), (HYPOTHESES[3:4], REFERENCES[3:4])):
        want = sacrebleu.CHRF(lowercase=lowercase).corpus_score(made, [wanted]).score
        assert CHRF.score(CHRF.count_texts(made, wanted, lowercase).sum(0)) == pytest.approx(want, abs=1e-9)


@pytest.mark.slow
def test_a_model_with_a_lowercase_tokenizer_is_scored_without_case(recipe, cli):
    assert score_text(["the cat"], ["The cat"])["exact"] == 0
    same = score_text(["THE cat drinks milk"], ["The Cat drinks milk"], lowercase=True)
    assert same["bleu"] == pytest.approx(100)
    assert same["exact"] == 1
    assert "case:lc" in same["signatures"]["bleu"]
    hypotheses, references = [line.lower() for line in HYPOTHESES], [line.title() for line in REFERENCES]
    want = sacrebleu.BLEU(lowercase=True).corpus_score(hypotheses, [references]).score
    units = bleu_counts(hypotheses, references, lowercase=True)
    assert BLEU.score(units.sum(0)) == pytest.approx(want, abs=1e-12)
    for lowercase in (True, False):
        assert Tokenizer.train(["The cat"], "word", 20, lowercase).lowercase is lowercase
    assert cli("train", recipe, "--run", "run", "--tokenizer.lowercase", "true").returncode == 0
    scores = json.loads(cli("evaluate", "run", "--json").stdout)
    assert "case:lc" in scores["signatures"]["bleu"]


def test_older_scores_get_the_default_of_a_newer_setting():
    now = dataclasses.asdict(DecodeConfig(beam_size=4, precision="float32"))
    before = {name: value for name, value in now.items() if name != "precision"}
    assert _with_defaults({"decode": before}) == _with_defaults({"decode": now}) == {"decode": now}
    assert _with_defaults({"loss": 1.0}) == {"loss": 1.0}


def test_the_precision_of_decoding_is_compared_as_it_was_used():
    """Guards against two runs decoded "as_trained", one of them in bfloat16, that pass as decoded alike."""
    scores = {"decode": {"precision": "as_trained"}, "precision": "bfloat16"}
    assert _with_defaults(scores)["decode"]["precision"] == "bfloat16"
    assert _with_defaults(scores | {"precision": "float32"})["decode"]["precision"] == "float32"


def test_bootstrap_samples_are_drawn_with_replacement():
    drawn = list(draws(7))
    assert all(times.sum() == 7 for times in drawn)
    np.testing.assert_array_equal(drawn, list(draws(7)))  # all runs are scored on the same samples
    units = np.stack([np.arange(7.0), np.ones(7)], 1)
    sampled = sample_scores("accuracy", units)
    assert sampled[3] == pytest.approx(sum(count * value for count, value in zip(drawn[3], range(7), strict=True)) / 7)
    assert interval("accuracy", units) is None  # seven are too few


def test_intervals_cover_the_true_score(rng):
    """About 95 % of the intervals of 200 random samples contain the true score."""
    hits = 0
    for _ in range(200):
        right = rng.random(200) < 0.7
        low, high = interval("accuracy", np.stack([right, np.ones(200)], 1).astype(float))
        hits += low <= 0.7 <= high
    assert 0.88 <= hits / 200 <= 0.99


@pytest.mark.slow
def test_p_values_separate_chance_from_a_real_difference(rng):
    """Without a difference, p is below 0.05 in about one case in twenty; a real difference is found."""
    small, found = 0, 0
    for _ in range(100):
        hard = rng.random(300)
        one, same, better = (hard + 0.5 * rng.random(300) < bound for bound in (0.8, 0.8, 0.95))
        sampled = [sample_scores("accuracy", np.stack([x, np.ones(300)], 1).astype(float)) for x in (one, same, better)]
        small += p_value(same.mean() - one.mean(), sampled[1] - sampled[0]) < 0.05
        found += p_value(better.mean() - one.mean(), sampled[2] - sampled[0]) < 0.05
    assert small / 100 < 0.13
    assert found / 100 > 0.9


@pytest.fixture(scope="module")
def variants(tmp_path_factory):
    """Train three runs of one recipe; `one` and `two` differ only in the seed."""
    folder = tmp_path_factory.mktemp("scores")
    recipe = write_recipe(folder, pairs=PAIRS * 2)  # enough for an interval
    config = override(Config.from_toml(recipe), ["--train.updates", "9"])
    changes = {"one": [], "two": ["--train.seed", "2"], "other": ["--train.learning_rate", "0.03"]}
    return {name: workflows.train(override(config, change), folder / name, quiet) for name, change in changes.items()}


def test_scores_record_their_units_interval_weights_and_seed(variants):
    scores = read(variants["one"])[-1]
    units = counts_of(variants["one"], scores)
    assert BLEU.score(units["bleu"].sum(0)) == pytest.approx(scores["bleu"], abs=1e-9)
    low, high = scores["intervals"]["bleu"]
    assert low <= scores["bleu"] <= high
    assert scores["weights_fingerprint"] != read(variants["two"])[-1]["weights_fingerprint"]
    assert scores["train_seed"] == 1


def test_the_fingerprint_is_that_of_the_loaded_weights(whole):
    """Guards against a training that saves better weights while the old ones are being scored."""
    Run.open(whole.path).load_model()
    model, reading = whole.load_model(), whole.weights_fingerprint()
    other = Run.open(whole.path)
    model.weights[0].assign(model.weights[0] * 2)
    other.save_model(model)
    assert whole.weights_fingerprint() == reading != other.weights_fingerprint()
    whole.load_model()
    assert whole.weights_fingerprint() == other.weights_fingerprint()


def test_scores_record_the_version_without_package_metadata(whole, corpus, monkeypatch):
    def none(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", none)
    assert provenance(whole, corpus)["version"] == heedful.__version__


def test_runs_that_differ_only_in_the_seed_share_a_row(variants):
    comparison = compare([variants["other"], variants["one"], variants["two"]])
    assert [row.seeds for row in comparison.rows] == [(1,), (1, 2)]
    scores = [read(variants[name])[-1]["bleu"] for name in ("one", "two")]
    assert comparison.rows[1].score == pytest.approx(np.mean(scores))
    assert comparison.rows[1].deviation == pytest.approx(np.std(scores, ddof=1))
    assert comparison.rows[0].difference is None
    assert comparison.rows[1].difference == pytest.approx(np.mean(scores) - read(variants["other"])[-1]["bleu"])
    assert 0 < comparison.rows[1].p <= 1
    assert len(comparison.lines()) == 4


def test_a_copy_of_a_run_is_no_second_training(variants, tmp_path):
    copy = Run.open(shutil.copytree(variants["one"].path, tmp_path / "copy"))
    with pytest.raises(InputError, match=r"one and .*copy have the same weights: a copy is not a second training"):
        compare([variants["one"], copy])


def test_a_run_compared_with_itself_shows_no_difference(variants):
    again = Run.open(variants["one"].path)
    again.config = dataclasses.replace(again.config, model=dataclasses.replace(again.config.model, dropout=0.3))
    row = compare([variants["one"], again]).rows[1]
    assert (row.difference, row.p) == (0.0, 1.0)


@pytest.mark.slow
def test_runs_that_were_not_scored_alike_are_not_compared(variants, tmp_path, recipe_of, cli):
    one = variants["one"]
    before = (one.path / "scores.json").read_text(encoding="utf-8")
    try:
        assert cli("evaluate", one.path, "--beam-size", 2).returncode == 0
        with pytest.raises(InputError, match=r"not scored alike: decode.beam_size is 2 and 1"):
            compare([one, variants["two"]])
        other = tmp_path / "other.pt", tmp_path / "other.en"
        for path in other:
            path.write_text("o gato\n", encoding="utf-8")
        lone = workflows.train(
            override(one.config, ["--data.test", json.dumps([str(path) for path in other])]), tmp_path / "lone", quiet
        )
        with pytest.raises(InputError, match="not scored on the same text"):
            compare([variants["two"], lone])
    finally:
        (one.path / "scores.json").write_text(before, encoding="utf-8")
    classes = workflows.train(Config.from_toml(recipe_of("classify")), tmp_path / "classes", quiet)
    with pytest.raises(InputError, match="different tasks"):
        compare([one, classes])
    with pytest.raises(InputError, match="was scored by accuracy, not by 'bleu'"):
        compare([classes], "bleu")
    (classes.path / "scores.json").unlink()
    with pytest.raises(InputError, match=r"no scores for its current weights: run `heedful evaluate"):
        compare([classes])


@pytest.mark.slow
def test_seeds_are_trained_and_compared_on_the_command_line(cli, recipe, tmp_path):
    done = cli("train", recipe, "--run", tmp_path / "r", "--seeds", 3, 4)
    assert done.returncode == 0, done.stderr
    table = done.stdout.decode().splitlines()[-2:]
    assert table[0].split() == ["run", "seeds", "bleu", "95", "%", "difference", "p"]
    assert "r-seed3 and 1 more  3 4" in table[1]
    runs = tmp_path / "r-seed3", tmp_path / "r-seed4"
    assert Run.open(runs[1]).config.train.seed == 4
    told = json.loads(cli("compare", *runs, "--json").stdout)
    assert told["rows"][0]["seeds"] == [3, 4]
    assert b"--seeds takes different seeds" in cli("train", recipe, "--seeds", 3, 3).stderr
    assert b"seed (5000000000) must" in cli("train", recipe, "--seeds", 3, 5_000_000_000).stderr
    taken = cli("train", recipe, "--run", tmp_path / "r", "--seeds", 5, 4)
    assert b"r-seed4 already holds a run" in taken.stderr
    assert not (tmp_path / "r-seed5").exists()  # refused before the first training starts
    for arguments, message in (
        ([*runs, "--metric", "elo"], b"no metric 'elo'"), ([tmp_path / "nowhere"], b"There is no run folder"),
    ):  # fmt: skip
        wrong = cli("compare", *arguments)
        assert wrong.returncode == 2
        assert message in wrong.stderr


@pytest.mark.parametrize(
    ("task", "metric"), [("generate", "bits_per_byte"), ("fill", "loss"), ("classify", "accuracy")]
)
def test_units_of_every_task_add_up_to_its_scores(recipe_of, tmp_path, task, metric):
    run = workflows.train(Config.from_toml(recipe_of(task)), tmp_path / task, quiet)
    scores = read(run)[-1]
    for name, units in counts_of(run, scores).items():
        assert find_metric(name).score(units.sum(0)) == pytest.approx(scores[name], rel=1e-6), name
    comparison = compare([run])
    assert comparison.metric == metric
    assert comparison.rows[0].score == pytest.approx(scores[metric], rel=1e-6)


@pytest.mark.slow
def test_masked_tokens_of_a_test_text_do_not_depend_on_batch_size_or_seed(recipe_of, tmp_path):
    config = override(Config.from_toml(recipe_of("fill")), ["--train.updates", "1"])
    runs = [
        workflows.train(
            override(config, ["--data.batch_sentences", size, "--train.seed", size]), tmp_path / size, quiet
        )
        for size in ("4", "7")
    ]
    asked = [counts_of(run, read(run)[-1])["loss"][:, 1] for run in runs]
    np.testing.assert_array_equal(*asked)


@pytest.mark.slow
def test_batches_of_different_pieces_of_text_are_not_paired(recipe_of, tmp_path, monkeypatch):
    monkeypatch.setattr("heedful.runs.scores.comparison.MIN_UNITS", 2)
    config = override(Config.from_toml(recipe_of("generate")), ["--train.updates", "1"])
    changes = {"a": ["--model.d_model", "16"], "b": ["--model.d_model", "8"], "c": ["--data.max_tokens", "12"]}
    runs = [workflows.train(override(config, change), tmp_path / name, quiet) for name, change in changes.items()]
    _, paired, unpaired = compare(runs).rows
    assert paired.p is not None
    assert unpaired.p is None
    assert unpaired.difference == pytest.approx(unpaired.score - compare(runs[:1]).rows[0].score)


JAPANESE = ["猫がミルクを飲みます。", "少女は庭でパンを食べました。", "王様は山の上の町を見る。"]
CHINESE = ["猫喝牛奶。", "女孩在花园里吃面包。", "国王看见山上的城市。"]
KOREAN = ["고양이가 우유를 마십니다.", "소녀는 정원에서 빵을 먹었습니다.", "왕은 산 위의 도시를 본다."]
THAI = ["แมวดื่มนม", "เด็กหญิงกินขนมปังในสวน", "พระราชาเห็นเมืองบนภูเขา"]
PORTUGUESE = ["O gato bebe leite.", "A menina comeu pão no jardim.", "O rei vê a cidade."]


@pytest.mark.parametrize(
    ("references", "language", "tokenizer"),
    [
        (JAPANESE, "", "ja-mecab"), (CHINESE, "", "zh"), (KOREAN, "", "ko-mecab"), (THAI, "", "char"),
        (PORTUGUESE, "", "13a"), ([], "", "13a"), (["123"], "", "13a"), (["漢字"], "ja", "ja-mecab"),
        (PORTUGUESE, "zh-TW", "zh"), (CHINESE, "cmn", "zh"), (THAI, "Thai", "char"),
        (JAPANESE, "pt", "13a"), (["ボブ and the cat drink milk"] * 3, "", "13a"),
    ],
)  # fmt: skip
def test_the_tokenizer_of_bleu_follows_language_or_script(references, language, tokenizer, monkeypatch):
    assert bleu_tokenizer(references, "auto", language) == tokenizer
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert bleu_tokenizer(references, "auto", language) == ("char" if "mecab" in tokenizer else tokenizer)
    assert bleu_tokenizer(references, "none", language) == "none"
    with pytest.raises(InputError, match=r"'ja-mecab' needs a package: pip install 'heedful\[mecab\]'"):
        bleu_tokenizer(references, "ja-mecab", language)


@pytest.mark.parametrize("text", [JAPANESE, CHINESE, KOREAN, THAI, PORTUGUESE], ids=["ja", "zh", "ko", "th", "pt"])
def test_bleu_and_chrf_of_every_script_equal_sacrebleu(text):
    hypotheses = [*text[1:], text[0]]
    hypotheses[0] = text[0][:-2] + hypotheses[0][-2:]
    tokenizer = bleu_tokenizer(text)
    scores = score_text(hypotheses, text, tokenize=tokenizer)
    bleu, chrf = sacrebleu.BLEU(tokenize=tokenizer), sacrebleu.CHRF()
    assert scores["bleu"] == pytest.approx(bleu.corpus_score(hypotheses, [text]).score, abs=1e-9)
    assert scores["chrf"] == pytest.approx(chrf.corpus_score(hypotheses, [text]).score, abs=1e-9)
    assert scores["signatures"] == {"bleu": str(bleu.get_signature()), "chrf": str(chrf.get_signature())}


def test_several_references_score_as_in_sacrebleu():
    hypotheses, first = ["the cat drinks the milk", "a dog eats"], ["the cat drinks milk", "the dog is eating"]
    second = ["a cat drank the milk today", "a dog eats"]
    scores = score_text(hypotheses, first, more_references=[(one,) for one in second])
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    assert scores["bleu"] == pytest.approx(bleu.corpus_score(hypotheses, [first, second]).score, abs=1e-9)
    assert scores["chrf"] == pytest.approx(chrf.corpus_score(hypotheses, [first, second]).score, abs=1e-9)
    assert scores["exact"] == 0.5
    assert scores["signatures"]["bleu"] == str(bleu.get_signature())
    assert "nrefs:2" in scores["signatures"]["chrf"]


def test_a_text_without_a_pair_that_fits_is_scored_all_the_same(cli, run, tmp_path):
    """Only the loss is missing: hours of translation must not be thrown away."""
    for side, word in (("pt", "gato"), ("en", "cat")):
        (tmp_path / f"long.{side}").write_text(" ".join([word] * 200) + "\n")
    result = cli("evaluate", run, "long.pt", "long.en")
    assert result.returncode == 0, result.stderr
    assert b"BLEU" in result.stdout
    assert b"perplexity 0" not in result.stdout
    assert b"the perplexity excludes 1 that" in result.stdout
    scores = json.loads(cli("evaluate", run, "long.pt", "long.en", "--json").stdout)
    assert "loss" not in scores
    assert scores["sentences"] == 1


def test_evaluate_reads_further_references_and_another_tokenizer(cli, run, text_files, tmp_path):
    source, target = text_files
    (tmp_path / "other.en").write_text(target.read_text().replace("the", "a"))
    one = json.loads(cli("evaluate", run, source, target, "--json").stdout)
    two = json.loads(cli("evaluate", run, source, target, "other.en", "--json").stdout)
    assert two["bleu"] >= one["bleu"]
    assert two["signatures"]["bleu"].startswith("nrefs:2|")
    assert one["data_fingerprint"] != two["data_fingerprint"]
    assert one["loss"] == two["loss"]
    characters = json.loads(cli("evaluate", run, source, target, "--tokenize", "char", "--json").stdout)
    assert "|tok:char|" in characters["signatures"]["bleu"]
    refused = cli("evaluate", run, source, target, "--tokenize", "mecab")
    assert b"bleu_tokenizer = 'mecab' is " in refused.stderr
    (tmp_path / "other.en").write_text("too short\n")
    assert b"differ in length, at line 2" in cli("evaluate", run, source, target, "other.en").stderr


@pytest.mark.parametrize(
    ("pairs", "score"),
    [
        ([(source, target) for source, target in PAIRS], "bleu"),
        ([(source, target.split()[1]) for source, target in PAIRS], "chrf"),  # one word has no 4-gram
        ([(source, JAPANESE[i % 3]) for i, (source, _) in enumerate(PAIRS)], "chrf"),
    ],
    ids=["sentences", "words", "Japanese"],
)
def test_the_selecting_score_follows_the_text(tmp_path, pairs, score):
    config = Config.from_toml(write_recipe(tmp_path, "translate", pairs))
    assert config.train.select_by is None
    training = Training.prepared(config, tmp_path / "run", quiet)
    assert training.config.train.select_by == score
