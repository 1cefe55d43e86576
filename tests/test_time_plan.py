"""Trainings with a limit in minutes run as many updates as fit, and their schedule ends in time."""

import shutil
from collections import Counter
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from heedful import backend, workflows
from heedful.cli import main
from heedful.config import Config, settings
from heedful.core.errors import InputError
from heedful.core.storage import read_checked
from heedful.runs.run import Run
from heedful.tasks.translate import Translate, TranslationValidator
from heedful.training import clock as training_clock
from heedful.training import cost_estimate, monitor, trainer
from heedful.training.checkpoints import Checkpoints
from heedful.training.monitor import Monitor
from heedful.training.pace import SHARE, Pace, updates_within
from heedful.training.trainer import Trainer
from heedful.workflows import Training, time_plan
from heedful.workflows.time_plan import continued_within_minutes
from tests.conftest import change, quiet

pytestmark = pytest.mark.any_backend

COSINE = (
    "--train.schedule", "cosine", "--train.updates", "1000000", "--train.minutes", "0.25", "--train.validate_every",
    "20", "--train.validate_sentences", "2", "--train.warmup_updates", "30", "--model.dropout", "0",
)  # fmt: skip


def seconds_of(updates, update, validation, validate_every):
    return updates * update + -(-updates // validate_every) * validation


@pytest.mark.parametrize("seconds", [0.5, 3.0, 10.0, 59.0, 60.0, 61.0, 1000.0])
@pytest.mark.parametrize(("update", "validation", "every"), [(0.1, 2.0, 100), (0.7, 0.0, 3), (0.02, 30.0, 1000)])
def test_planned_updates_are_the_most_that_fit(seconds, update, validation, every):
    found = updates_within(seconds, update, validation, every)
    costs = (update, validation, every)
    assert found == 1 or seconds_of(found, *costs) <= seconds * (1 + 1e-9)
    # one more interval would take too long, and so would one more update without a validation
    assert seconds_of(found + every, *costs) > seconds
    if found % every:
        assert seconds_of(found + 1, *costs) > seconds * (1 - 1e-9)


@pytest.fixture
def known_costs(monkeypatch):
    """Plan with updates of 4 s and validations of 2 s; the real ones are far faster."""
    monkeypatch.setattr(time_plan, "update_costs", lambda *arguments: (4.0, 3.0))
    monkeypatch.setattr(time_plan, "_validation_seconds", lambda *arguments: 2.0)


@pytest.fixture
def clock(monkeypatch):
    """A clock of the training loop that advances by `update` seconds an update, and `validation` a validation."""
    # Its times are long past for `backend.finish`, which reads the real clock, however young the machine is.
    clock = SimpleNamespace(now=-1e6, update=4.0, validation=2.0, monotonic=lambda: clock.now)
    for module in (trainer, monitor, training_clock):
        monkeypatch.setattr(module, "time", clock)

    def advancing(function, name):
        def wrapped(self, *arguments, **options):
            clock.now += getattr(clock, name)
            return function(self, *arguments, **options)

        return wrapped

    monkeypatch.setattr(Monitor, "on_train_batch_begin", advancing(Monitor.on_train_batch_begin, "update"))
    monkeypatch.setattr(TranslationValidator, "__call__", advancing(TranslationValidator.__call__, "validation"))
    return clock


@pytest.mark.slow
def test_a_cosine_ends_at_the_planned_update(config, tmp_path, known_costs, clock):
    """Guards the final learning rate: in heedful 0.1.0 the minutes cut the schedule off near its peak."""
    said = []
    config = change(config, *COSINE, "--train.minutes", "2")
    training = Training.create(config, tmp_path / "run", said.append)
    planned = training.config.train.updates
    assert 20 < planned <= 26  # of 114 s: 3 to compile, the time to build a model, 2 for each of 2 validations
    assert any(line.startswith(f"planned {planned:,} of at most 1,000,000 updates for 2 minutes") for line in said)
    run = training.train()
    last = run.log.read()[-1]
    assert Run.open(run.path).config.train.updates == planned
    assert planned <= last["update"] <= planned + 3  # the time that is left is known better after a validation
    assert last["learning_rate"] < 1e-3 * config.train.learning_rate
    assert run.origins()["train.updates"] == "planned, to fit into train.minutes"


@pytest.mark.parametrize(
    ("update", "fewest", "most"), [(8.0, 10, 14), pytest.param(1.0, 50, 80, marks=pytest.mark.slow)]
)
def test_the_schedule_ends_in_time_at_another_speed(config, tmp_path, known_costs, clock, update, fewest, most):
    """Guards against a machine that becomes busy, or was measured while it was."""
    said = []
    config = change(config, *COSINE, "--train.minutes", "2", "--train.validate_every", "4")
    training = Training.create(config, tmp_path / "run", said.append)
    planned = training.config.train.updates
    clock.update, began = update, clock.now
    log = training.train().log.read()
    assert fewest <= log[-1]["update"] <= most
    assert not fewest <= planned <= most
    assert clock.now - began <= 120
    assert log[-1]["learning_rate"] < 1e-3 * config.train.learning_rate
    assert any(line.startswith(f"planned {log[-1]['update']:,} updates now") for line in said)
    rates = [entry["learning_rate"] for entry in log]
    falling = rates[rates.index(max(rates)) :]
    assert falling == sorted(falling, reverse=True)  # without a jump upwards


def test_a_new_pace_has_no_jump_and_ends_where_the_schedule_does():
    pace = Pace(100, 1000).ending_at(60, 20, 100).ending_at(200, 40, 100)
    assert Pace(100, 1000).position_of(20) == Pace(100, 1000).ending_at(60, 20, 100).position_of(20) == 20.0
    assert (pace.position_of(40), pace.position_of(200)) == (60.0, pytest.approx(100.0))
    assert pace.replanned(40, 100, 165.0, 1.0, 0.0, 10) is pace  # 197 updates: hardly another number
    assert pace.replanned(40, 100, 1e6, 1.0, 0.0, 10).updates == 1000
    assert pace.replanned(40, 100, -5.0, 1.0, 0.0, 10).updates == 41


def test_a_pace_of_an_older_state_is_read():
    old = {"updates": 60, "most": 1000, "since": 20, "place": 20.0, "step": 2.0}
    assert Pace.from_saved(old) == Pace(100, 1000).ending_at(60, 20, 100)


@pytest.mark.slow
def test_a_resumed_training_keeps_its_pace(config, tmp_path, known_costs, clock):
    """The pace belongs to the state: a training that was killed after a validation ends with the same bits."""
    config = change(config, *COSINE, "--train.minutes", "2", "--train.validate_every", "4")
    Training.create(config, tmp_path / "one", quiet)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    clock.update = 8.0
    whole = workflows.resume(tmp_path / "one", quiet)
    states = sorted((tmp_path / "one" / "state").glob("*.safetensors"))
    assert len(states) > 2
    shutil.rmtree(tmp_path / "two")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for state in sorted((tmp_path / "two" / "state").glob("*.safetensors"))[-2:]:
        state.unlink()
    again = workflows.resume(tmp_path / "two", quiet)
    assert again.log.read()[-1]["update"] == whole.log.read()[-1]["update"]
    ours, theirs = (read_checked(run.checkpoints.paths()[-1])[0] for run in (whole, again))
    assert all((ours[name] == theirs[name]).all() for name in ours)
    longer = change(again.config, "--train.updates", "40")  # another schedule begins, whose pace is kept too
    continued = workflows.resume(tmp_path / "two", quiet, longer)
    assert continued.checkpoints.read(continued.checkpoints.paths()[-1])[1]["pace"]["planned"] == 40


def test_a_training_resumed_without_minutes_has_the_schedule_of_its_updates(config, tmp_path, known_costs, clock):
    """Guards against the pace of a deadline, which would end it at once."""
    config = change(config, *COSINE, "--train.minutes", "2", "--train.validate_every", "4")
    Training.create(config, tmp_path / "run", quiet)
    clock.update = 8.0
    run = workflows.resume(tmp_path / "run", quiet)
    planned, done = run.config.train.updates, run.log.read()[-1]["update"]
    assert done < planned
    longer = workflows.resume(tmp_path / "run", quiet, change(run.config, "--train.minutes", "0"))
    assert longer.log.read()[-1]["update"] == planned
    assert "pace" not in longer.checkpoints.read(longer.checkpoints.paths()[-1])[1]


def test_warm_up_takes_at_most_half_of_the_planned_updates(config, tmp_path, known_costs):
    config = change(config, *COSINE, "--train.minutes", "1", "--train.warmup_updates", "1000")
    train = Training.create(config, tmp_path / "run", quiet).config.train
    assert 5 < train.updates < 14
    assert train.warmup_updates == train.updates // 2


@pytest.mark.slow
def test_a_training_ends_within_its_minutes(config, tmp_path):
    run = workflows.train(change(config, *COSINE, "--train.minutes", "1"), tmp_path / "run", quiet)
    last = run.log.read()[-1]
    assert last["learning_rate"] < 1e-3 * run.config.train.learning_rate
    assert 30 < last["seconds"] <= 60


def test_planned_updates_do_not_change_on_resume(config, tmp_path, monkeypatch, known_costs):
    whole = Training.create(change(config, *COSINE, "--train.minutes", "2"), tmp_path / "run", quiet)
    planned = whole.config.train.updates
    monkeypatch.setattr(Trainer, "train", lambda self: setattr(Trainer, "seen", self.config.updates))
    monkeypatch.setattr(Translate, "evaluate", lambda *arguments: {"bleu": 0.0})
    monkeypatch.setattr(Translate, "describe", lambda *arguments: "")
    monkeypatch.setattr("heedful.workflows.training.require_success", lambda *arguments: None)
    monkeypatch.setattr("heedful.workflows.training.load_weights", lambda *arguments: None)
    monkeypatch.setattr("heedful.workflows.training.read_checked", lambda *arguments: [None])
    workflows.resume(tmp_path / "run", quiet)
    assert Trainer.seen == planned


def test_changed_minutes_are_planned_by_the_speed_so_far(config):
    config = change(config, *COSINE, "--train.minutes", "10")
    log = [{"update": 100, "seconds": 60.0}, {"update": 500, "seconds": 300.0}]
    assert continued_within_minutes(config, log).train.updates == 500 + int(SHARE * 500)


def test_the_speed_so_far_does_not_include_compilation(config):
    """Guards against 242 of 600 seconds that stayed unused."""
    config = change(config, *COSINE, "--train.minutes", "10")
    log = [
        {"update": 100, "seconds": 160.0, "compile_seconds": 100.0, "validation_seconds": 0.0},
        {"update": 500, "seconds": 400.0, "compile_seconds": 0.0, "validation_seconds": 0.0},
    ]
    assert continued_within_minutes(config, log).train.updates == 500 + int(SHARE * (200 - 100) / 0.6)
    assert continued_within_minutes(config, log[:1]).train.updates == 100 + int(SHARE * (440 - 100) / 0.6)


def test_one_slow_validation_does_not_shorten_the_plan(monkeypatch):
    seconds = iter([0.0, 9.0, 9.0, 23.8, 23.8, 24.3])  # begin and end of three validations; the first one compiles
    monkeypatch.setattr(time_plan, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    validator = Mock()
    assert time_plan._validation_seconds(validator, 30.0) == pytest.approx(0.5)
    assert validator.call_count == validator.samples.call_count == 3  # samples are compiled too


def test_one_slow_batch_does_not_shorten_the_plan(config, tmp_path, monkeypatch):
    training = Training.prepared(config, tmp_path, quiet)
    monkeypatch.setattr(cost_estimate, "_seconds", lambda *arguments: [[3.0, *[0.1] * 11, 9.0]])
    update, _ = cost_estimate.update_costs(training.run, None, training.examples, 12)
    assert update < 0.2


def test_a_shape_that_was_compiled_to_plan_is_not_counted_again(config, tmp_path, monkeypatch):
    training = Training.prepared(config, tmp_path, quiet)
    monkeypatch.setattr(cost_estimate, "_seconds", lambda *arguments: [[3.1, *[0.1] * 12]])
    shapes = Counter({training.examples.shape(0): 8, (1, 20, 20): 2, (1, 30, 30): 1})
    monkeypatch.setattr(cost_estimate, "_count_shapes", lambda examples: shapes)
    compiling = {}
    for keeps in (False, True):
        monkeypatch.setattr(backend, "keeps_compilations", lambda keeps=keeps: keeps)
        _, compiling[keeps] = cost_estimate.update_costs(training.run, None, training.examples, 12)
    assert compiling[False] == pytest.approx(3.0 * len(shapes))
    assert compiling[True] == pytest.approx(3.0 * (len(shapes) - 1))


def test_minutes_without_room_for_updates_are_refused(config, tmp_path, known_costs):
    with pytest.raises(InputError, match=r"train.minutes = 0.25 has room for \d updates? only"):
        Training.create(change(config, *COSINE), tmp_path / "run", quiet)
    assert not (tmp_path / "run").exists()


def test_a_schedule_without_an_end_is_not_planned(config, tmp_path):
    job = Training.create(change(config, "--train.minutes", "1"), tmp_path / "run", quiet)
    assert job.config.train.schedule == "constant"
    assert job.config.train.updates == 6


@pytest.mark.slow
def test_minutes_of_updates_alone_leave_time_for_compiling_and_validating(config, tmp_path, clock):
    """Trials of a tuning are compared after the same time of training, whatever their models take to compile."""
    arguments = ["--train.minutes", "2", "--train.updates", "60", "--train.validate_every", "3"]
    clock.validation = 30.0
    updates, runs = {}, {}
    for part in ("all", "updates"):
        given = change(config, *arguments, "--train.minutes_of", part)
        runs[part] = workflows.train(given, tmp_path / part, quiet)
        updates[part] = runs[part].log.read()[-1]["update"]
    run, compiled = runs["updates"], sum(entry["compile_seconds"] for entry in runs["updates"].log.read())
    assert updates["all"] <= 12
    assert compiled > 0
    assert updates["updates"] == (120 + compiled) / 4
    again = workflows.resume(run.path, quiet, change(run.config, "--train.minutes", "3"))
    compiled = sum(entry["compile_seconds"] for entry in again.log.read())
    assert again.log.read()[-1]["update"] == (180 + compiled) / 4
    with pytest.raises(InputError, match="cannot be used with the schedule 'cosine'"):
        change(config, *COSINE, "--train.minutes_of", "updates")


def test_a_state_between_validations_has_the_time_of_its_updates(config, tmp_path, clock, monkeypatch):
    """Guards against a killed trial that trains longer than the others once it is resumed."""
    states = {}
    save = Checkpoints.save

    def saved(self, progress, *arrays):
        states[progress["update"]] = progress.get("update_seconds", 0.0)
        return save(self, progress, *arrays)

    monkeypatch.setattr(Checkpoints, "save", saved)
    arguments = ["--train.save_minutes", "0.1", "--train.updates", "9", "--train.validate_every", "9"]
    workflows.train(change(config, *arguments), tmp_path / "run", quiet)
    between = {update: seconds for update, seconds in states.items() if 0 < update < 9}
    assert len(between) > 1
    assert sorted(between.values()) == list(between.values())
    assert 0 < max(between.values()) <= states[9]


@pytest.mark.slow
def test_all_seeds_run_the_updates_planned_for_the_first(recipe, tmp_path, capsys, known_costs):
    """Guards against seeds that differ in their updates, which `compare` would not average."""
    arguments = [*COSINE, "--train.minutes", "2", "--train.validate_every", "50"]
    assert main(["train", str(recipe), "--run", str(tmp_path / "run"), "--seeds", "1", "2", *arguments]) == 0
    assert capsys.readouterr().out.count("of at most 1,000,000 updates") == 1
    one, two = (Config.from_json(tmp_path / f"run-seed{seed}" / "config.json") for seed in (1, 2))
    assert one.train.updates < 200
    assert list(settings.changed(one, two)) == ["train.seed"]
