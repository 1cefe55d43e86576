"""heedful distil: train a small model on the translations of a larger one."""

import argparse
import dataclasses
import signal
from pathlib import Path

from heedful.commands.arguments import add_engine, count, whole_number
from heedful.config import settings
from heedful.config.recipes import find_recipe, recipe_names
from heedful.core.errors import InputError

TAKES_SETTINGS = True
MAY_CHANGE = ("budget", "parallel")  # when a distillation is continued


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "teacher", nargs="*", type=Path, metavar="TEACHER",
        help="a run folder, several as an ensemble, or the folder of a CTranslate2 model with its SentencePiece models",
    )  # fmt: skip
    parser.add_argument("--run", type=Path, metavar="STUDENT", help="run folder of the student")
    parser.add_argument("--resume", type=Path, metavar="STUDENT", help="continue a distillation that was stopped")
    parser.add_argument(
        "--text", nargs="+", default=[], metavar="FILE",
        help="texts to translate, one on each line, or tables (.tsv) of texts and references (default: the training "
        "text of the student's recipe, with its references)",
    )  # fmt: skip
    parser.add_argument(
        "--references", nargs="+", default=[], metavar="FILE",
        help="translations of the lines of --text; of the candidates of the teacher, the closest one is kept",
    )  # fmt: skip
    parser.add_argument(
        "--recipe", help=f"recipe of the student: a TOML file, or one of {', '.join(recipe_names())} (default: that of "
        "the teacher, with at most 6 encoder and 2 decoder blocks)",
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, help="minutes to train the student: train.minutes")
    parser.add_argument(
        "--back", action="store_true",
        help="back-translation: the teacher translates from the target language of the student, which learns from its "
        "translations, marked by a tag, and from the training text of --recipe",
    )  # fmt: skip
    parser.add_argument(
        "--real-weight", type=float, metavar="WEIGHT",
        help="weight of the real pairs relative to the translations (default: 0; with --back 1)",
    )  # fmt: skip
    parser.add_argument(
        "--drop", type=float, metavar="SHARE",
        help="share of the translations to drop: the least similar to their references, or with the lowest scores "
        "(default: 0.05)",
    )  # fmt: skip
    parser.add_argument(
        "--to", nargs="+", metavar="FORMAT:QUANTIZATION",
        help="exports of the student (default: ctranslate2:int8), or none",
    )  # fmt: skip
    parser.add_argument(
        "--shortlist", action="store_true", help="add a shortlist to exports, see heedful export --help"
    )
    _add_teacher_arguments(parser)
    parser.epilog = (
        "Settings of the student are --SECTION.KEY VALUE, as for heedful train. Everything is kept in STUDENT: the "
        "translations and their provenance in the folder distillation."
    )


def _add_teacher_arguments(parser):
    teacher = parser.add_argument_group("teacher")
    add_engine(teacher, "that runs the teacher")
    teacher.add_argument(
        "--endpoint", default="", metavar="URL",
        help="instead of TEACHER: an OpenAI-compatible API, such as http://localhost:8000/v1; its key is read from "
        "OPENAI_API_KEY",
    )  # fmt: skip
    teacher.add_argument("--model", default="", help="name of the model that the endpoint serves")
    teacher.add_argument("--system-prompt", default="", metavar="TEXT", help="replaces the request for a translation")
    teacher.add_argument("--parallel", type=count, metavar="N", help="requests at the same time (default: 4)")
    teacher.add_argument(
        "--budget", type=whole_number, metavar="TOKENS",
        help="stop after this many tokens, read and written together (default: 0, any number)",
    )  # fmt: skip
    settings.add_options(parser, "decode", without=("split", "markup"))


def run(options: argparse.Namespace) -> int:
    """Run the command; return 0, or after a signal the exit code that shells expect."""
    from heedful.commands.terminal import report_progress, termination_interrupts, warn
    from heedful.core.progress import note
    from heedful.training.signals import Interrupted
    from heedful.workflows.distillation.steps import Distillation

    if bool(options.run) == bool(options.resume):
        raise InputError("Name the student's folder with --run, or a distillation after --resume.")
    if options.resume:
        _update(options)
    else:
        _begin(options)
    path = options.run or options.resume
    distillation = Distillation(path, report_progress, warn)
    with termination_interrupts() as received:
        try:
            distillation.run()
        except InputError as error:
            advice = f"heedful: what is done is kept. Continue with: heedful distil --resume {path}"
            raise InputError(f"{error}\n{advice}") from error
        except (KeyboardInterrupt, Interrupted) as stop:
            number = stop.signal_number if isinstance(stop, Interrupted) else (received or [signal.SIGINT])[0]
            note(f"heedful: stopped. Continue with: heedful distil --resume {path}")
            return 128 + number
    report_progress(f"The student is in {path}.")
    return 0


def _update(options):
    """Change what may change when a distillation is continued: how fast, and how much, an endpoint is asked."""
    from heedful.workflows.distillation.plan import FOLDER, Plan

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = [name for name, value in vars(parser.parse_args([])).items() if getattr(options, name) != value]
    if options.overrides or set(given) - {"resume", *MAY_CHANGE}:
        names = " and ".join(f"--{name}" for name in MAY_CHANGE)
        raise InputError(f"--resume continues a distillation as it was planned: it takes {names} only.")
    plan, config = Plan.load(options.resume / FOLDER)
    if changed := _given(options, *MAY_CHANGE):
        dataclasses.replace(plan, teacher=dataclasses.replace(plan.teacher, **changed)).save(
            options.resume / FOLDER, config
        )


def _begin(options):
    """Create the folder of a new distillation."""
    from heedful.config.idle_settings import refuse_idle
    from heedful.workflows.distillation.plan import DEFAULT_EXPORTS, NO_EXPORT, TeacherPlan
    from heedful.workflows.distillation.planning import begin, student_config

    teacher = TeacherPlan(
        paths=tuple(map(str, options.teacher)), engine=options.engine, endpoint=options.endpoint, model=options.model,
        system_prompt=options.system_prompt, **_given(options, *MAY_CHANGE),
    )  # fmt: skip
    if options.minutes is not None and "train.minutes" in settings.given_names(options.overrides):
        raise InputError("--minutes is train.minutes: give one of them.")
    minutes = [] if options.minutes is None else ["--train.minutes", str(options.minutes)]
    overrides = [*options.overrides, *minutes]
    recipe = find_recipe(options.recipe) if options.recipe else None
    config, origins = student_config(teacher, recipe, overrides, options.back)
    refuse_idle(config, settings.given_names(overrides))
    exports = DEFAULT_EXPORTS if options.to is None else tuple(name for name in options.to if name != NO_EXPORT)
    begin(
        teacher, config, options.run, settings.option_values("decode", options), options.real_weight, origins,
        text=tuple(options.text), references=tuple(options.references), back=options.back,
        exports=exports, shortlist=options.shortlist, **_given(options, "drop"),
    )  # fmt: skip


def _given(options, *names):
    """Return those of some options that the user has given."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}
