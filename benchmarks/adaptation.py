"""Adapt a translator to text of another domain: everything, with general text mixed in, and adapters (LoRA).

    python benchmarks/adaptation.py BASE FOLDER [--seeds 1 2 3] [--only lora-8]

BASE is a run of a German-English translator on Multi30k; FOLDER has train, valid and test files of the other domain,
see catalogues.py. Each line gives BLEU on the test text of the domain and of Multi30k, seconds of the training, and
bytes of the adapter. The runs are kept in runs/adaptation; finished ones are not trained again.
"""

import argparse
import dataclasses
import json
import statistics
from pathlib import Path

from heedful import workflows
from heedful.config import Config
from heedful.config.settings import override
from heedful.runs.adapters import FILE as ADAPTER
from heedful.runs.run import Run

RUNS = Path("runs/adaptation")
SHARED = [
    "--train.updates=600", "--train.validate_every=100", "--train.schedule=cosine", "--train.warmup_updates=50",
    "--train.average=0", "--train.minutes=0", "--data.batch_tokens=1536", "--train.tensorboard=false",
    "--train.validate_sentences=300", "--train.general_tolerance=1",
]  # fmt: skip
VARIANTS = {
    "all weights": ["--train.learning_rate=5e-4"],
    "all weights, general text mixed in": ["--train.learning_rate=5e-4", "--data.general_share=0.3"],
    "LoRA, rank 8": ["--train.learning_rate=4e-3", "--train.lora_rank=8"],
    "LoRA, rank 64": ["--train.learning_rate=2e-3", "--train.lora_rank=64"],
    "LoRA, rank 64, general text mixed in": [
        "--train.learning_rate=2e-3", "--train.lora_rank=64", "--data.general_share=0.3"
    ],
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", help="part of a name: only these variants")
    parser.add_argument("--settings", nargs="*", default=[], help="more settings, SECTION.KEY=VALUE")
    options = parser.parse_args()
    base = Run.open(options.base)
    texts = tests_of(base, options.folder)
    scores_of = {"before": [scores(base, texts) | {"seconds": 0.0, "bytes": 0}]}
    print(line("before", scores_of["before"]), flush=True)
    for name, settings in VARIANTS.items():
        if options.only and options.only not in name:
            continue
        for seed in options.seeds:
            more = [*SHARED, *settings, *(f"--{one}" for one in options.settings), f"--train.seed={seed}"]
            scores_of.setdefault(name, []).append(adapted(base, options.folder, name, more, texts))
            print(line(f"{name}, seed {seed}", scores_of[name][-1:]), flush=True)
    print(f"\n{'':44s} {'domain':>7s} {'general':>8s} {'seconds':>8s} {'adapter':>10s}")
    for name, results in scores_of.items():
        print(line(name, results))
    print(json.dumps(scores_of))


def pair(folder, part):
    """Return a setting with the two files of a part."""
    return json.dumps([str(folder.resolve() / f"{part}.{language}.gz") for language in ("de", "en")])


def tests_of(base, folder):
    """Return the test texts by domain."""
    config = base.config
    domain = override(config, [f"--data.test={pair(folder, 'test')}"])
    return {name: base.task.find_corpora(one)["test"] for name, one in (("domain", domain), ("general", config))}


def adapted(base, folder, name, settings, texts):
    """Train a variant, or open its finished run; return its scores."""
    seed = settings[-1].rpartition("=")[2]
    path = RUNS / f"{name.replace(', ', '-').replace(' ', '_')}-{seed}"
    general = {part: json.dumps(list(getattr(base.config.data, part))) for part in ("train", "valid")}
    own = [f"--data.{part}={pair(folder, part)}" for part in ("train", "valid", "test")]
    own += [f"--data.general_valid={general['valid']}", f"--train.init_from={base.path}"]
    if any("general_share" in setting for setting in settings):
        own += [f"--data.general={general['train']}"]
    config = override(Config.from_json(base.path / "config.json"), [*own, *settings])
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, planned_updates=0))
    run = Run.open(path) if (path / "scores.json").exists() else workflows.train(config, path, lambda text: None)
    size = (path / ADAPTER).stat().st_size if (path / ADAPTER).exists() else 0
    return scores(run, texts) | {"seconds": run.log.read()[-1]["seconds"], "bytes": size}


def scores(run, texts):
    """Return BLEU by domain."""
    predictor = run.task.predictor([run])
    return {name: run.task.evaluate(run, corpus, predictor)["bleu"] for name, corpus in texts.items()}


def line(name, results):
    """Return a row of the table: means over seeds."""
    mean = {key: statistics.mean(result[key] for result in results) for key in results[0]}
    return f"{name:44s} {mean['domain']:7.2f} {mean['general']:8.2f} {mean['seconds']:8.0f} {mean['bytes']:10,.0f}"


if __name__ == "__main__":
    main()
