"""Kill trainings at random moments, resume them, and compare with trainings that were never killed.

    python benchmarks/kills.py [--kills 200] [--seed 1]

Trainings of every family, with accumulation, averaging, early stopping, packed documents and a frozen encoder, are
killed with SIGKILL - when a program is compiled, in an update, while validating, at four points of each file's
writing, at an interval's end - and resumed, until they are complete. Then SIGTERM is sent in each phase, and the time
until the process exits is measured. The last line counts the trainings whose final weights, optimizer, seeds, progress,
log or samples differ in their SHA-256 from those of a training that was never killed, and gives the most updates that a
kill has cost.

Each training runs in a process of its own, forked from one that has imported the libraries but not used them.
"""

import argparse
import collections
import hashlib
import mmap
import os
import random
import signal
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # shorter compilation

from heedful import cli
from heedful.core import storage
from heedful.core.plugins import find_task, task_names
from heedful.data.phrasebook import phrasebook
from heedful.runs.run import Run
from heedful.tasks.classify import ClassValidator
from heedful.tasks.fill import TokenValidator
from heedful.tasks.generate import GenerationValidator
from heedful.tasks.translate import TranslationValidator
from heedful.training import checkpoints as checkpoints_module
from heedful.training.monitor import Monitor
from heedful.workflows import training as training_module
from heedful.workflows.selfcheck import check  # noqa: F401 - loaded before the fork

EVERY = 3  # updates between states
MOMENTS = ("compiling", "update", "validating", "writing", "interval's end")
PHASES = ("examining", "checking", "compiling", "update", "validating", "writing", "scoring")
BASE = """
name = "killed"
[model]
size = "toy"
num_layers = 1
d_model = 16
num_heads = 2
d_ff = 24
dropout = 0.2
max_length = 24
[tokenizer]
kind = "word"
vocab_size = 200
"""
TRAIN = """
[train]
updates = 12
schedule = "constant"
learning_rate = 1e-2
warmup_updates = 2
validate_every = {every}
validate_sentences = 4
check = false
tensorboard = false
"""
PAIRS = (
    '[data]\ntrain = ["{text}"]\nvalid = ["{text}"]\nmax_tokens = 20\nbatch_sentences = 5\nmax_shapes = 1\n'
    "[decode]\nmax_ratio = 1.0\n"
)
LINES = (
    '[data]\ntrain = ["{text}"]\nheld_out = 0.2\ndocuments = "{documents}"\nmax_tokens = 16\nbatch_sentences = 4\n'
    "max_shapes = 1\n"
)
# For each training: task, data, and more settings of [train].
TRAININGS = {
    "translation, accumulated and averaged": ("translate", PAIRS, "accumulate_batches = 2\naverage = 2\nkeep = 3\n"),
    "translation, stopping early": (
        "translate", PAIRS,
        'patience = 2\nselect_by = "loss"\nschedule = "inverse_square_root"\nsave_minutes = 1e-5\n',
    ),
    "language model, stream": ("generate", LINES.replace("{documents}", "whole"), 'schedule = "cosine"\n'),
    "language model, packed": ("generate", LINES.replace("{documents}", "lines") + 'packing = "documents"\n', ""),
    "masked tokens": ("fill", LINES.replace("{documents}", "labelled"), "clip_norm = 1.0\nweight_decay = 0.01\n"),
    "classes": ("classify", LINES.replace("{documents}", "whole"), "accumulate_batches = 2\n"),
    "classes, frozen encoder": ("classify", LINES.replace("{documents}", "whole"), "freeze = true\n"),
}  # fmt: skip


class Shared:
    """Memory shared with the parent: how many updates a killed process has run, and when it was sent a signal."""

    def __init__(self):
        self._memory = mmap.mmap(-1, 64)

    def write(self, index, value):
        """Store a number at `place`."""
        struct.pack_into("d", self._memory, 8 * index, value)

    def read(self, index):
        """Return the number at `place`."""
        return struct.unpack_from("d", self._memory, 8 * index)[0]


UPDATES, SENT = range(2)


def watch(tick, shared):
    """Patch this process to call `tick(name)` at every moment of interest."""
    import jax.monitoring

    def around(owner, name, before=None, after=None):
        inner = getattr(owner, name)

        def call(*arguments, **options):
            if before:
                tick(before)
            result = inner(*arguments, **options)
            if after:
                tick(after)
            return result

        setattr(owner, name, call)

    def compiled(event, *rest, **more):
        if "jaxpr_trace" in event or "backend_compile" in event:
            tick("compiling")

    jax.monitoring.register_event_duration_secs_listener(compiled)
    around(training_module, "examine", "examining")
    around(training_module, "require", "checking")
    for name in task_names():
        around(type(find_task(name)), "evaluate", "scoring")
    for kind in (TranslationValidator, GenerationValidator, TokenValidator, ClassValidator):
        around(kind, "__call__", "validating", "validating")
    around(checkpoints_module.Checkpoints, "save", "interval's end", "interval's end")
    around(os, "fsync", "writing", "writing")
    around(Path, "replace", "writing", "writing")

    ended = Monitor.on_train_batch_end

    def on_train_batch_end(self, batch, logs=None):
        tick("update")
        ended(self, batch, logs)
        shared.write(UPDATES, self.number // self.trainer.config.accumulate_batches)
        tick("update")

    Monitor.on_train_batch_end = on_train_batch_end


def run(arguments, shared, number=signal.SIGKILL, moment=None, count=0):
    """Run the command line in a child process, which sends itself signal `number` at the `count`-th `moment`.

    Returns:
        the exit code as a shell gives it, and how often each moment came.
    """
    shared.write(SENT, 0)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if number == signal.SIGKILL or moment:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        seen = collections.Counter()

        def tick(name):
            seen[name] += 1
            if name == moment and seen[name] == count:
                shared.write(SENT, time.monotonic())
                os.kill(os.getpid(), number)

        watch(tick, shared)
        code = 70
        try:
            code = cli.main([str(argument) for argument in arguments])
        finally:
            os.write(writer, ";".join(f"{name}={value}" for name, value in seen.items()).encode())
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code, {name: int(value) for name, value in (part.split("=") for part in told.split(";") if part)}


def fingerprint(folder):
    """Return the SHA-256 of each result of a training."""
    made = Run.open(folder)
    arrays, progress = made.checkpoints.read_last()
    del progress["seconds"]  # the rest is reproducible
    log = [(entry["update"], entry["valid_loss"]) for entry in made.log.read()]
    things = {
        "state": storage.checksum(arrays, {}).encode(),
        "progress": str(sorted(progress.items())).encode(),
        "weights": storage.read_checksum(folder / "model.safetensors").encode(),
        "log": str(log).encode(),
        "samples": (folder / "samples.txt").read_bytes(),
    }
    # The mean loss of an interval covers what came after a kill; those of whole intervals are the same.
    whole = [entry for entry in made.log.read() if (entry["first_update"] - 1) % EVERY == 0]
    losses = {"losses": {entry["update"]: entry["loss"] for entry in whole}}
    return {name: hashlib.sha256(content).hexdigest() for name, content in things.items()} | losses


def differing(one, other):
    """Return the names of the results that differ between two fingerprints."""
    losses = one["losses"], other["losses"]
    unlike = any(losses[0][update] != losses[1][update] for update in losses[0].keys() & losses[1].keys())
    return [name for name in one if name != "losses" and one[name] != other[name]] + ["losses"] * unlike


def recipes(folder):
    """Write a recipe for each training; return their paths by name."""
    labelled, plain, pairs = folder / "labelled.txt", folder / "plain.txt", folder / "pairs.tsv"
    both = list(phrasebook("train", 60))
    targets = [target for _, target in both]
    pairs.write_text("".join(f"{source}\t{target}\n" for source, target in both), encoding="utf-8")
    labelled.write_text("".join(f"{len(target) % 2}\t{target}\n" for target in targets), encoding="utf-8")
    plain.write_text("".join(f"{target}\n" for target in targets), encoding="utf-8")
    commands = {}
    for number, (name, (task, data, more)) in enumerate(TRAININGS.items()):
        given = {line.split(" = ")[0] for line in more.splitlines()}
        train = "\n".join(line for line in TRAIN.format(every=EVERY).splitlines() if line.split(" = ")[0] not in given)
        text = {"translate": pairs, "generate": plain}.get(task, labelled)
        path = folder / f"{number}.toml"
        start = f'init_from = "{folder / "encoder"}"\n' if "freeze" in more else ""
        path.write_text(
            f'task = "{task}"\n{BASE}{data.replace("{text}", str(text))}{train}\n{more}{start}', encoding="utf-8"
        )
        commands[name] = path
    return commands


def kill(recipe, folder, moments, kills, draw, shared):
    """Train in `folder`, killed at most `kills` times; return the number of kills and the most updates lost."""
    arguments, done, lost = ["train", recipe, "--run", folder], 0, 0
    while True:
        moment = draw.choice(MOMENTS)
        # A resumed training is shorter: the moment is drawn from the first half of those of a whole one.
        count = draw.randint(1, max(1, moments.get(moment, 1) // (2 if done else 1))) if done < kills else 0
        shared.write(UPDATES, 0)
        code, _ = run(arguments, shared, signal.SIGKILL, moment, count)
        if code == 0:
            return done, lost
        assert code == -signal.SIGKILL, f"exit code {code} of {arguments}"
        done += 1
        if not (folder / "config.json").exists():
            arguments = ["train", recipe, "--run", folder, "--force"]  # killed before the folder was a run
            continue
        states = Run.open(folder).checkpoints.paths()
        lost = max(lost, shared.read(UPDATES) - (int(states[-1].stem) if states else 0))
        arguments = ["train", "--resume", folder]


def main():
    """Kill, resume and compare; then send SIGTERM in every phase."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw, shared = random.Random(options.seed), Shared()
    kills = trainings = wrong = 0
    lost = 0.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["HEEDFUL_CACHE"] = str(folder / "cache")
        paths = recipes(folder)
        code, _ = run(["train", paths["masked tokens"], "--run", folder / "encoder"], shared)
        assert code == 0
        wholes = {}
        while kills < options.kills:
            for name, recipe in paths.items():
                whole = folder / f"whole-{recipe.stem}"
                if name not in wholes:
                    code, moments = run(["train", recipe, "--run", whole], shared)
                    assert code == 0, f"{name}: exit code {code}"
                    wholes[name] = fingerprint(whole), moments
                    print(f"{name}: {moments}", flush=True)
                killed = folder / f"killed-{trainings}"
                wanted, moments = wholes[name]
                times, max_loss = kill(recipe, killed, moments, min(8, options.kills - kills), draw, shared)
                kills, trainings, lost = kills + times, trainings + 1, max(lost, max_loss)
                different = differing(fingerprint(killed), wanted)
                wrong += bool(different)
                outcome = f"DIFFERENT: {', '.join(different)}" if different else "the same"
                print(f"{name}: killed {times} times, {outcome}; {kills} kills", flush=True)
                if kills >= options.kills:
                    break
        stop_everywhere(paths["translation, accumulated and averaged"], folder, wholes, shared)
    print(
        f"{kills} kills in {trainings} trainings: {wrong} ended differently; "
        f"at most {lost:.0f} updates lost, a state every {EVERY}"
    )
    return int(bool(wrong) or lost > EVERY)


def stop_everywhere(recipe, folder, wholes, shared):
    """Send SIGTERM in every phase; resume, compare, and print the seconds from the signal to the exit."""
    checked = ["--train.check", "true"]
    whole = folder / "whole-checked"
    code, moments = run(["train", recipe, "--run", whole, *checked], shared)
    assert code == 0
    wanted = fingerprint(whole)
    for phase in PHASES:
        seconds = []
        for share in (0.0, 0.6):
            if phase not in moments:
                continue
            stopped = folder / f"stopped-{phase}-{share}"
            count = 1 + int(share * moments[phase])
            code, _ = run(["train", recipe, "--run", stopped, *checked], shared, signal.SIGTERM, phase, count)
            seconds.append(time.monotonic() - shared.read(SENT))
            assert code in (0, 128 + signal.SIGTERM), f"{phase}: exit code {code}"
            made = (stopped / "config.json").exists()  # else it was stopped before the folder was a run
            again = ["--resume", stopped] if made else [recipe, "--run", stopped, *checked, "--force"]
            code, _ = run(["train", *again], shared)
            assert code == 0, f"{phase}: resuming gave exit code {code}"
            assert not differing(fingerprint(stopped), wanted), f"{phase}: another end"
        if seconds:
            print(
                f"SIGTERM {phase}: {len(seconds)} times, whole each time, exit after "
                f"{statistics.median(seconds):.1f} s, at most {max(seconds):.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
