"""Tuning: balanced draws, successive halving that can be killed, and a winning recipe that says why."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from heedful.cli import main
from heedful.commands import tune as command
from heedful.config import Config, read_recipe, settings
from heedful.config.idle_settings import refuse_idle
from heedful.config.recipes import find_recipe
from heedful.core.errors import InputError
from heedful.core.storage import locked
from heedful.training.schedule import training_schedule
from heedful.workflows.tuning import halving, trials
from heedful.workflows.tuning.halving import tune
from heedful.workflows.tuning.outcome import effects, write_outcome
from heedful.workflows.tuning.planning import plan_tuning
from heedful.workflows.tuning.space import draw_trials, search_space
from heedful.workflows.tuning.state import Tuning, with_peak_rate
from heedful.workflows.tuning.trials import (
    BAD_INPUT,
    LOWER_IS_BETTER,
    PER_CHARACTER,
    RefusedRecipe,
    Round,
    Trial,
    first_settings,
    train_trial,
)
from tests.conftest import change, quiet

pytestmark = pytest.mark.any_backend


@pytest.fixture
def space(config):
    sizes = ("--model.d_model", "128", "--model.num_heads", "4")
    return search_space(change(config, *sizes, "--tokenizer.kind", "bpe", "--data.batch_sentences", "0"), 20_000)


def test_adapters_are_not_tuned_with_muon(config):
    """Guards against trials that the config refuses."""
    adapters = change(config, "--train.init_from", "runs/x", "--train.lora_rank", "4")
    assert "optimizer" in search_space(config, 5000)
    assert "optimizer" not in search_space(adapters, 5000)


def scored(settings):
    """Return a score that depends on the settings as if 256 was the best width, and muon better than adam."""
    width = {64: 1.0, 128: 2.0, 256: 4.0}.get(settings.get("model.d_model"), 0.0)
    return 10 * width + 5 * (settings.get("train.optimizer") == "muon") + 0.01 * settings.get("train.seed", 0)


@pytest.fixture
def pretend(monkeypatch):
    """Replace the training of a trial by the function above; trials that begin are listed, and may be interrupted."""
    begun, interrupted = [], set()

    def train(trial, folder, recipe, config, until):
        begun.append((int(folder.name), until.updates))
        if len(begun) in interrupted:
            raise KeyboardInterrupt
        if trial.settings.get("model.dropout") == 0.3:
            trial.failure = "out of memory"
            return
        score = scored(trial.settings) * until.updates
        trial.scores.append(-score if until.metric in LOWER_IS_BETTER else score)
        trial.updates.append(until.updates)

    monkeypatch.setattr(halving, "train_trial", train)
    return begun, interrupted


def planned(config, folder, count=22):
    folder.mkdir()
    sizes = ("--model.d_model", "128", "--model.num_heads", "4", "--train.updates", "90")
    return plan_tuning(change(config, *sizes), folder, 0, count, 20_000)


@pytest.mark.parametrize("start", [(), ("--train.init_from", "runs/some")])
@pytest.mark.parametrize("recipe", ["multi30k-de-en", "shakespeare-char-cpu", "trec", "trec-fill"])
def test_trials_of_every_task_have_settings_of_that_task(recipe, start):
    """Guards against trials that `heedful train` refuses: for three tasks of four all of them failed."""
    config = settings.of_recipe(find_recipe(recipe), start)
    drawn = draw_trials(search_space(config, 5000), 8, 1, config)
    for trial in [Trial({}), *map(Trial, drawn)]:
        given = first_settings(trial, config, Round(updates=9))
        arguments = [part for name, value in given.items() for part in (f"--{name}", str(value).lower())]
        refuse_idle(change(config, *arguments), given)
        assert not start or not {"model.d_model", "model.num_layers", "tokenizer.vocab_size"} & set(given)


def test_every_choice_is_tried_equally_often(space, config):
    trials = draw_trials(space, 21, 3, config)
    assert {"depth", "vocabulary", "width", "batch", "passes"} <= space.keys()
    for name in ("model.d_model", "train.optimizer", "model.encoder_layers"):
        counts = Counter(trial[name] for trial in trials)
        assert sum(counts.values()) == 21
    for question, choices in space.items():
        if question not in ("rate", "depth"):
            counts = Counter(str({name: trial[name] for name in choices[0]}) for trial in trials)
            assert len(counts) == len(choices)
            assert max(counts.values()) - min(counts.values()) <= 1
    assert {trial["train.learning_rate"] / config.train.learning_rate for trial in trials} == {0.5, 1, 2}
    assert draw_trials(space, 21, 3, config) == trials != draw_trials(space, 21, 4, config)


def test_the_better_third_of_the_trials_goes_on(config, tmp_path, pretend):
    tuning = planned(config, tmp_path / "tuning")
    tune(tuning, tmp_path / "recipe", config, quiet)
    begun, _ = pretend
    by_round = Counter(updates for _, updates in begun)
    failed = sum(bool(trial.failure) for trial in tuning.trials)
    assert failed
    assert by_round == {10: 22, 30: -(-(22 - failed) // 3), 90: -(-by_round[30] // 3)}
    best = tuning.trials[tuning.best()].settings
    assert (best["model.d_model"], best["train.optimizer"]) == (256, "muon")


@pytest.mark.parametrize("moments", [{1}, {3, 9}, {2, 5, 12, 24, 30}])
def test_a_killed_tuning_goes_on_to_the_same_table(config, space, tmp_path, pretend, moments):
    begun, interrupted = pretend
    whole = planned(config, tmp_path / "whole")
    tune(whole, tmp_path / "recipe", config, quiet)
    begun.clear()
    interrupted |= moments
    planned(config, tmp_path / "parts").save()
    for _ in range(len(moments) + 1):
        parts = Tuning.load(tmp_path / "parts")
        try:
            tune(parts, tmp_path / "recipe", config, quiet)
        except KeyboardInterrupt:
            continue
    tables = [write_outcome(each, config, {}, space)[1].read_bytes() for each in (whole, parts)]
    assert tables[0] == tables[1]
    assert len(tables[0].splitlines()) == 23


def test_the_winning_recipe_is_a_recipe_and_gives_reasons(config, space, tmp_path, recipe, pretend):
    tuning = planned(config, tmp_path / "tuning", 42)
    tune(tuning, recipe, config, quiet)
    found = {effect.question: effect for effect in effects(tuning, space)}
    assert found["width"].matters
    assert found["width"].chosen == "256"
    assert not found["smoothing"].matters
    path, table, picture = write_outcome(tuning, config, read_recipe(recipe), space)
    won = Config.from_toml(path)
    assert (won.model.d_model, won.train.optimizer, won.train.updates) == (256, "muon", 90)
    assert won.data.train == config.data.train
    assert won.train.schedule == "cosine"
    text = path.read_text()
    assert "# width: 128: " in text
    assert "within chance" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert table.read_text().splitlines()[1].split("\t")[0] == str(tuning.best())


CHOSEN = {
    "data.pack_tokens": (16, "short pairs"), "data.max_shapes": (5, "as in another recipe"),
    "model.norm_position": ("pre", "as in another recipe"), "model.dropout": (0.15, "read often"),
    "train.schedule": ("cosine", "falls"), "train.warmup_updates": (2, "few updates"), "train.average": (5, "steady"),
}  # fmt: skip


def test_trials_have_what_is_chosen_for_the_text(config, space, tmp_path, recipe, pretend):
    (tmp_path / "tuning").mkdir()
    tuning = plan_tuning(change(config, "--train.updates", "90"), tmp_path / "tuning", 0, 9, 20_000, chosen=CHOSEN)
    assert [trial.settings for trial in tuning.trials[:2]] == [{}, {"train.seed": config.train.seed + 1}]
    assert tuning.trials[2].settings == {"data.pack_tokens": 16, "model.norm_position": "pre", "model.dropout": 0.15}
    shapes = [first_settings(tuning.trials[index], config, Round(updates=9))["data.max_shapes"] for index in (0, 2)]
    assert shapes == [min(config.data.max_shapes, 3), 1]
    assert all(trial.settings["model.norm_position"] == "pre" for trial in tuning.trials[3:])
    assert [tuning.describe(index) for index in range(3)] == [
        "the settings that are in the recipe", "seed 2", "the settings that are chosen for the text"
    ]  # fmt: skip
    assert "dropout 0." in tuning.describe(3)
    assert "norm_position" not in tuning.describe(3)
    tuning.save()
    assert Tuning.load(tuning.folder) == tuning
    tune(tuning, recipe, config, quiet)
    table = {name: read_recipe(recipe)[name] for name in ("data", "model")}
    won = Config.from_toml(write_outcome(tuning, config, table, space)[0])
    assert (won.train.schedule, won.train.warmup_updates, won.train.average) == ("cosine", 90 // 5, 5)
    assert (won.model.norm_position, won.train.updates, won.data.max_shapes) == ("pre", 90, 5)
    assert "# as in another recipe" in (tuning.folder / "best.toml").read_text()


@pytest.mark.parametrize(("rounds", "updates"), [(3, 14_000), (1, 126_000)])
def test_a_winner_of_minutes_has_room_for_as_many_updates_as_it_would_do(
    rounds, updates, config, space, tmp_path, recipe
):
    """Also that of a tuning that was interrupted after the first round, a ninth of the time."""
    (tmp_path / "tuning").mkdir()
    tuning = plan_tuning(change(config, "--train.minutes", "3"), tmp_path / "tuning", 60, 0, 1000)
    tuning.trials[3].scores, tuning.trials[3].updates = [1.0] * rounds, [7000] * rounds
    won = Config.from_toml(write_outcome(tuning, config, read_recipe(recipe), space)[0])
    assert (won.train.minutes, won.train.updates, won.train.schedule) == (3, updates, "cosine")


def test_translations_are_compared_by_loss_until_the_last_round(config, tmp_path):
    """Guards against chrF of 17 for noise: models that could not translate were ranked by it, in minutes a trial."""
    tuning = plan_tuning(change(config, "--train.updates", "90"), tmp_path, 0, 4, 1000)
    assert [each.metric for each in tuning.rounds] == [PER_CHARACTER, PER_CHARACTER, "chrf"]
    sentences = [each.settings["train.validate_sentences"] for each in tuning.rounds]
    assert sentences == [0, 0, 300]
    tuning.trials[1].scores, tuning.trials[2].scores = [1.5, 1.4, 20.0], [1.2, 1.1, 30.0]
    assert tuning.ranked(0) == tuning.ranked(2) == [2, 1]
    assert tuning.best() == 2


def test_losses_of_different_vocabularies_are_compared_by_character(config, whole, tmp_path, monkeypatch):
    """The loss of a token grows with its length: the score of a trial is that of all tokens, for each character."""
    folder = tmp_path / "0"
    shutil.copytree(whole.path, folder)
    monkeypatch.setattr(trials, "_run", lambda command, output: 0)
    trial = Trial({})
    train_trial(trial, folder, tmp_path / "recipe.toml", config, Round(updates=9, metric=PER_CHARACTER))
    targets = [target for _, target in whole.task.find_corpora(whole.config)["valid"]]
    tokens = sum(len(whole.target_tokenizer.encode(target)) + 1 for target in targets)
    loss = whole.log.read()[-1]["valid_loss"]
    assert trial.scores == [pytest.approx(loss * tokens / len("".join(targets)))]
    assert 0 < trial.scores[0] < loss


def test_a_tuning_of_an_older_version_has_one_metric(config, tmp_path):
    tuning = plan_tuning(config, tmp_path, 0, 4, 1000)
    tuning.save()
    state = json.loads((tmp_path / "tuning.json").read_text())
    for each in state["rounds"]:
        del each["metric"]
    (tmp_path / "tuning.json").write_text(json.dumps(state | {"metric": "chrf"}))
    assert {each.metric for each in Tuning.load(tmp_path).rounds} == {"chrf"}


@pytest.mark.parametrize(("seconds", "left"), [(100, 24), (400, 9)])
def test_trials_are_left_out_when_they_take_longer_than_planned(config, tmp_path, seconds, left, monkeypatch):
    """On a slow machine starting and compiling a trial took more than its training, and the hour was exceeded."""
    clock = itertools.accumulate(itertools.cycle([0, 70, 0, seconds]))
    # Not the module `time` itself: servers of other tests run in threads of this process.
    monkeypatch.setattr(halving, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    def train(trial, *_):
        trial.scores.append(0.5)
        trial.updates.append(9)

    monkeypatch.setattr(halving, "train_trial", train)
    (tmp_path / "tuning").mkdir()
    tuning = plan_tuning(change(config, "--train.minutes", "3"), tmp_path / "tuning", 60, 0, 1000)
    tune(tuning, tmp_path / "recipe", config, quiet)
    assert Tuning.load(tuning.folder) == tuning
    assert len(tuning.trials) == left
    besides = (70 + seconds) / 2 - 20  # of a trial in the first round, of 20 s
    entering = [len([trial for trial in tuning.trials if len(trial.scores) > number]) for number in range(3)]
    assert sum(trials * (each + besides) for trials, each in zip(entering, (20, 40, 120), strict=True)) < 3600


def test_a_tuning_that_exceeds_its_minutes_says_so(config, tmp_path, monkeypatch):
    clock, said = itertools.accumulate(itertools.cycle([0, 3000])), []
    monkeypatch.setattr(halving, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(halving, "train_trial", lambda trial, *_: (trial.scores.append(0.5), trial.updates.append(9)))
    (tmp_path / "tuning").mkdir()
    tuning = plan_tuning(change(config, "--train.minutes", "3"), tmp_path / "tuning", 60, 0, 1000)
    tune(tuning, tmp_path / "recipe", config, said.append)
    assert len(tuning.trials) == 4
    assert said.count("  4 trials, the fewest that are compared, take longer than 60 minutes") == 1


def test_a_tuning_of_an_older_version_keeps_its_trials(config, tmp_path):
    """Their seconds are not known, so the first one that is trained now decides how many more fit."""
    tuning = plan_tuning(change(config, "--train.minutes", "3"), tmp_path, 60, 0, 1000)
    for trial in tuning.trials[:12]:
        trial.scores, trial.updates = [1.0], [9]
    tuning.trials[11].seconds = [900.0]
    assert halving._trials_that_fit(tuning, 15.0, quiet) == 12


def test_a_factor_of_the_papers_schedule_becomes_a_peak_with_the_same_rates(config):
    paper = change(config, "--train.schedule", "paper", "--train.learning_rate", "2", "--train.warmup_updates", "7")
    peak = with_peak_rate(paper)
    assert peak.train.learning_rate < 1
    one, other = (training_schedule(each.train, config.model.d_model) for each in (paper, peak))
    for update in (0, 3, 6, 7, 50):
        assert float(one(update)) == pytest.approx(float(other(update)), rel=1e-6)
    assert with_peak_rate(config) is config


def test_minutes_decide_how_many_trials_there_are(config, tmp_path):
    few, many = (plan_tuning(config, tmp_path, minutes, 0, 1000) for minutes in (30, 60))
    assert [each.minutes for each in few.rounds] == pytest.approx([5 / 9, 5 / 3, 5])
    assert 8 < len(few.trials) < len(many.trials)
    longer = plan_tuning(change(config, "--train.minutes", "5"), tmp_path, 60, 0, 1000)
    assert len(longer.trials) > len(many.trials)
    with pytest.raises(InputError, match="too few for trials"):
        plan_tuning(change(config, "--train.minutes", "30"), tmp_path, 10, 0, 1000)
    with pytest.raises(InputError, match="at least 4 trials"):
        plan_tuning(config, tmp_path, 0, 3, 1000)
    with pytest.raises(InputError, match=r"set train\.updates instead"):
        plan_tuning(change(config, "--train.epochs", "3"), tmp_path, 0, 4, 1000)


def test_a_winner_of_minutes_has_no_epochs(config, space, tmp_path, recipe):
    """Epochs would replace its updates."""
    (tmp_path / "tuning").mkdir()
    tuning = plan_tuning(change(config, "--train.epochs", "3"), tmp_path / "tuning", 60, 0, 1000)
    tuning.trials[3].scores, tuning.trials[3].updates = [1.0] * 3, [7000] * 3
    table = read_recipe(recipe)
    table["train"]["epochs"] = 3
    won = Config.from_toml(write_outcome(tuning, change(config, "--train.epochs", "3"), table, space)[0])
    assert (won.train.epochs, won.train.updates) == (0, 14_000)


def test_arguments_that_contradict_each_other_are_refused(cli, recipe, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    for arguments, message in (
        ([recipe], "--minutes, or --trials"), ([recipe, "--minutes", 5, "--trials", 5], "--minutes, or --trials"),
        ([], "Name a recipe"), (["--resume", tmp_path], "holds no tuning"), (["quickstart", "--trials", 5], "built in"),
        ([recipe, "--trials", 5, "--run", tmp_path / "full"], "not empty"),
        (["--resume", tmp_path, "--minutes", 5], "leave out the other arguments"),
    ):  # fmt: skip
        done = cli("tune", *arguments)
        assert done.returncode == 2
        assert message in done.stderr.decode()
    assert command.TAKES_SETTINGS


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no SIGKILL")
def test_a_trial_ends_with_its_tuning_even_if_that_is_killed(tmp_path):
    """Guards against a training that outlives its tuning and keeps its folder locked, so that `--resume` fails."""
    trial = (
        "import time; from heedful.core.distributed.parent import end_with_parent; from heedful.core.storage import "
        "locked; end_with_parent(); folder = locked('trial'); folder.__enter__(); print('trains', flush=True); "
        "time.sleep(30); print('ended by itself')"
    )
    (tmp_path / "trial").mkdir()
    code = f"""
        import sys
        from heedful.workflows.tuning import trials
        trials._run([sys.executable, "-c", {trial!r}], open("output.txt", "w"))
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path) as process:
        while not (tmp_path / "output.txt").is_file() or not (tmp_path / "output.txt").read_text():
            assert process.poll() is None
            time.sleep(0.05)
        with pytest.raises(InputError, match="in use"), locked(tmp_path / "trial"):
            pass
        process.kill()
        with locked(tmp_path / "trial", wait=True):
            assert (tmp_path / "output.txt").read_text() == "trains\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
def test_real_trials_are_killed_and_go_on_to_the_same_table(number, recipe, tmp_path):
    """Trials with dropout, averages, Muon and two passes, paused twice each and killed five times in all."""
    arguments = ["--trials", "5", "--train.updates", "18", "--data.batch_tokens", "64"]

    def start(*given):
        return subprocess.Popen(
            [sys.executable, "-m", "heedful", "tune", *map(str, given)], env=os.environ | {"KERAS_BACKEND": "jax"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    whole = start(recipe, *arguments, "--run", tmp_path / "whole")
    output, _ = whole.communicate()
    assert whole.returncode == 0, output
    process = start(recipe, *arguments, "--run", tmp_path / "parts")
    for seconds in (9, 21, 14, 17, 25):
        time.sleep(seconds)
        process.send_signal(getattr(signal, number))
        process.communicate()
        process = start("--resume", tmp_path / "parts")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    for name in ("trials.tsv", "best.toml"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_recipe_that_fails_in_a_later_round_is_a_failed_trial(recipe, whole, tmp_path, monkeypatch):
    """Guards against removing all trials because the recipe's own training found the disk full."""
    config, folder = Config.from_toml(recipe), tmp_path / "0"
    monkeypatch.setattr(trials, "_run", lambda command, output: output.write("heedful: No space left\n") and BAD_INPUT)
    trial = Trial({})
    with pytest.raises(RefusedRecipe, match="No space left"):
        train_trial(trial, folder, recipe, config, Round(updates=9))
    shutil.copytree(whole.path, folder, dirs_exist_ok=True)
    (folder / "log.jsonl").unlink()
    train_trial(trial, folder, recipe, config, Round(updates=9))
    assert trial.failure == "heedful: No space left"


def test_a_refused_recipe_leaves_nothing_and_a_tuning_that_runs_stays(recipe, tmp_path, monkeypatch, capsys):
    """A second command on the folder of a tuning that has no score yet must not remove it."""

    def refuse(*_):
        raise RefusedRecipe("no such thing")

    monkeypatch.setattr(halving, "train_trial", refuse)
    folder = tmp_path / "tuning"
    given = [str(recipe), "--trials", "4", "--train.updates", "9", "--run", str(folder)]
    assert main(["tune", *given]) == 2
    assert "no such thing" in capsys.readouterr().err
    assert not folder.exists()
    monkeypatch.setattr(halving, "train_trial", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert main(["tune", *given]) == 143
    with locked(folder):
        assert main(["tune", "--resume", str(folder)]) == 2
    assert "is in use" in capsys.readouterr().err
    assert (folder / "tuning.json").is_file()
