"""heedful bench classify: compare recipes of task classify with a support vector machine."""

import json
from pathlib import Path

from heedful.commands.arguments import add_json, whole_number

TAKES_SETTINGS = True


def add_arguments(parser):
    """Add the arguments of the command."""
    parser.add_argument("recipes", nargs="*", default=["trec", "sst2"], help="recipes (default: trec sst2)")
    parser.add_argument("--seeds", nargs="+", type=whole_number, default=[1, 2, 3], help="seeds (default: 1 2 3)")
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/bench-classify"),
        help="where the runs are kept; finished ones are not trained again (default: runs/bench-classify)",
    )  # fmt: skip
    add_json(parser)
    parser.epilog = (
        "Settings as in `heedful train`: --SECTION.KEY VALUE. ECE is the expected calibration error on the test text, "
        "before (raw) and after the temperature is applied. Minutes are those of the training, validation included."
    )


def run(options):
    """Run the command."""
    from heedful import settings
    from heedful.bench import classification
    from heedful.commands.terminal import report_progress
    from heedful.errors import InputError
    from heedful.plugins import find_task
    from heedful.recipes import find_recipe

    classification.require_svm()
    found = {}
    for recipe in options.recipes:
        path = find_recipe(recipe)
        configs = [settings.of_recipe(path, [*options.overrides, f"--train.seed={seed}"]) for seed in options.seeds]
        task = find_task(configs[0].task)
        if "labelled" not in task.text_layout(configs[0].data) or configs[0].data.several_labels:
            raise InputError(f"{recipe} does not classify texts with one label each.")
        report_progress(f"{recipe}: {classification.SVM}")
        found[f"{recipe}: {classification.SVM}"] = [classification.svm_result(task.find_corpora(configs[0]))]
        for config in configs:
            name = f"{config.name}-{config.train.seed}"
            report_progress(f"{recipe}: seed {config.train.seed}")
            result = classification.own_result(config, options.folder / name, report_progress)
            found.setdefault(recipe, []).append(result)
            report_progress(classification.row(name, [result]))
    if options.json:
        print(json.dumps({name: [result._asdict() for result in results] for name, results in found.items()}))
        return
    print(classification.TITLE)
    for name, results in found.items():
        print(classification.row(name, results))
