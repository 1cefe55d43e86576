"""From what is asked for to the `Plan` of a distillation, and to the folder that holds it."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful import workflows
from heedful.config import Config, DecodeConfig, settings
from heedful.config.languages import languages_of
from heedful.core.errors import InputError
from heedful.core.plugins import find_task
from heedful.runs.run import Run
from heedful.workflows.distillation.endpoint import openai_library
from heedful.workflows.distillation.plan import FOLDER, PLAN, Plan, TeacherPlan, export_of
from heedful.workflows.distillation.student import config_like, with_text
from heedful.workflows.distillation.teachers import MODEL, model_teacher
from heedful.workflows.distillation.texts import has_references, require_texts

TEXT = "text"  # folder of the student's text
CANDIDATES = 5  # of each text with a reference, the closest of which is chosen
BEAM = 5  # of a teacher whose run searches greedily
ENDPOINT_SETTINGS = {"sample", "temperature", "top_p", "seed", "n_best"}  # that an endpoint takes


def run_of(teacher: TeacherPlan) -> Run | None:
    """Return the run of a teacher, the first one of an ensemble; None for any other teacher."""
    if not teacher.paths or (Path(teacher.paths[0]) / MODEL).is_file():
        return None
    return Run.open(teacher.paths[0]).of_task("translate")


def student_config(
    teacher: TeacherPlan, recipe: str | Path | None = None, overrides: Sequence[str] = (), back: bool = False
) -> tuple[Config, dict[str, str]]:
    """Return the config of a student, and where its settings came from.

    Args:
        teacher: the teacher.
        recipe: path of the student's recipe; None: the config is like that of the teacher's run.
        overrides: `--section.key value` arguments.
        back: whether the teacher translates from the student's target language.

    Raises:
        InputError: there is neither a recipe nor a run in the direction of the student; or a setting is wrong.
    """
    if recipe:
        return settings.of_recipe(recipe, overrides), settings.origins(recipe, overrides)
    run = None if back else run_of(teacher)
    if not run:
        raise InputError("The student needs a recipe: give --recipe, with its validation text.")
    config = settings.override(config_like(run), overrides)
    return config, dict.fromkeys(settings.flat(config), f"teacher {run.path}") | settings.origins(None, overrides)


def teacher_search(
    teacher: TeacherPlan, run: Run | None, given: Mapping[str, Any], has_references: bool
) -> DecodeConfig:
    """Return how a teacher searches: as given, otherwise as its run, with a beam.

    Args:
        teacher: the teacher.
        run: its run, if it is one.
        given: settings of `DecodeConfig`, by their names.
        has_references: whether its candidates are compared with references: then it has several.

    Raises:
        InputError: a setting has a wrong value, would have no effect, or an endpoint does not support it.
    """
    if teacher.endpoint and (unused := set(given) - ENDPOINT_SETTINGS):
        raise InputError(f"An endpoint has no --{sorted(unused)[0].replace('_', '-')}: it searches as it likes.")
    decode = run.config.decode if run else DecodeConfig()
    if given.get("sample"):
        decode = dataclasses.replace(decode, beam_size=1, n_best=1)
    elif decode.beam_size == 1 and not decode.sample and not teacher.endpoint and "beam_size" not in given:
        decode = dataclasses.replace(decode, beam_size=BEAM)
    decode = settings.with_values(decode, given)
    decode.refuse_idle(given)
    if has_references and not decode.sample and not teacher.endpoint and "n_best" not in given:
        decode = dataclasses.replace(decode, n_best=min(CANDIDATES, decode.beam_size))
    # Pairs are learned as they are, and several candidates of a line are not split into sentences anyway.
    return dataclasses.replace(decode, split="never") if decode.n_best > 1 else decode


def begin(
    teacher: TeacherPlan,
    config: Config,
    path: str | Path,
    search: Mapping[str, Any] | None = None,
    real_weight: float | None = None,
    origins: Mapping[str, str] | None = None,
    **options: Any,
) -> None:
    """Create the folder of a distillation.

    Args:
        teacher: the teacher.
        config: of the student; the teacher translates its training text, unless `options` name other text.
        path: run folder of the student.
        search: settings of the teacher's search, see `teacher_search`.
        real_weight: how often real pairs are read too; None: 1 beside back-translations, otherwise 0.
        origins: where settings of the student came from, by their full names.
        options: further fields of a `Plan`.

    Raises:
        InputError: there is a run, or a distillation, already; text or teacher is missing, or does not fit.
    """
    if not find_task(config.task).translates:
        raise InputError(f"A student translates; {config.name} is a recipe of task {config.task!r}.")
    path = Path(path)
    options["origins"] = tuple(f"{name}={origin}" for name, origin in (origins or {}).items())
    plan = _plan(teacher, config, search or {}, real_weight, options)
    if (path / FOLDER / PLAN).exists():
        raise InputError(
            f"{path} holds a distillation already. Continue it with --resume {path}, or choose another --run."
        )
    workflows.require_free(path)
    require_texts(plan, config)
    with_text(config, path / FOLDER / TEXT, plan)
    for name in plan.exports:
        form, _ = export_of(name)
        if form.computes:
            form.computes.require(config.model)
    if not teacher.endpoint:
        model_teacher(teacher, plan.decode)  # refuses a missing one
    else:
        openai_library()
        if not (teacher.system_prompt or all(languages_to_translate(config, plan.back))):
            raise InputError(
                "The system prompt needs the languages: set data.source_language and data.target_language, or give "
                "--system-prompt."
            )
    (path / FOLDER).mkdir(parents=True, exist_ok=True)
    plan.save(path / FOLDER, config)


def _plan(teacher, config, search, real_weight, options):
    run = run_of(teacher)
    text, back = options.get("text", ()), options.get("back", False)
    if run:
        _require_direction(run, config, back)
    if back and not text:
        raise InputError("Name the texts to translate back with --text.")
    scored = not text or has_references(text, options.get("references", ()))
    return Plan(
        teacher=teacher,
        decode=teacher_search(teacher, run, search, scored),
        real_weight=float(back) if real_weight is None else real_weight,
        **options,
    )


def languages_to_translate(config: Config, back: bool) -> tuple[str, str]:
    """Return the languages from which and into which the teacher of a student translates; `""` if unknown."""
    source, target = languages_of(config)
    return (target, source) if back else (source, target)


def _require_direction(run, config, back):
    """Raise `InputError` if a teacher translates other languages than its student should learn from."""
    theirs, ours, wanted = languages_of(run.config), languages_of(config), languages_to_translate(config, back)
    if all(theirs) and all(wanted) and theirs != wanted:
        raise InputError(
            f"{run.path} translates {'-'.join(theirs)}, and the student {'-'.join(ours)}: "
            + ("leave out --back." if back else "only --back takes a teacher of the other direction.")
        )
