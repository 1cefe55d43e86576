"""The verb that scores a run of any task."""

import json

from heedful import settings
from heedful.cache import keep_compilations
from heedful.errors import InputError
from heedful.plugins import find_metric
from heedful.run import Run
from heedful.scores.comparison import compare as compare_runs
from heedful.verbs import lines


def evaluate(options):
    """Score a run."""
    run = Run.open(options.run)
    corpus, task, engine = test_corpus(run, options.files), run.task, None
    keep_compilations()
    lines.note_idle_devices()
    if task.decodes_to_score:
        engine = task.predictor([run])
        engine.decode = settings.given_options(run.config, "decode", options)
    elif any(name.startswith("decode.") and value is not None for name, value in vars(options).items()):
        raise InputError(f"Nothing is decoded to score a run of task {task.name!r}: leave the settings out.")
    scores = task.evaluate(run, corpus, engine)
    if options.json:
        print(json.dumps(scores, ensure_ascii=False))
        return
    for name, score in scores.items():
        if isinstance(score, (int, float)):
            print(f"{name:26s}{score:.4f}" if isinstance(score, float) else f"{name:26s}{score:,}")
    for name, signature in scores.get("signatures", {}).items():
        print(f"{name + ' signature':26s}{signature}")
    print(task.describe(scores))


def compare(options):
    """Compare runs."""
    if options.metric:
        find_metric(options.metric)  # or the error would come after the runs were read
    if len({path.resolve() for path in options.runs}) < len(options.runs):
        raise InputError("A run is named twice.")
    comparison = compare_runs([Run.open(path) for path in options.runs], options.metric)
    if options.json:
        print(json.dumps(comparison.as_dict(), ensure_ascii=False))
        return
    for line in comparison.lines():
        print(line)


def test_corpus(run, files):
    """Return the text in `files`, as the run's task reads it, or the test text of the run."""
    if files:
        return run.task.open_text(run.config, files)
    if run.config.data.corpus == "files" and not run.config.data.train:
        raise InputError(f"{run.path} names no text: give the files to score it on.")
    return run.task.text_to_score(run.task.find_corpora(run.config))
