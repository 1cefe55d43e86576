"""The steps of a distillation. Each is atomic, so a distillation that was killed at any point can be resumed."""

import dataclasses
import functools
import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from heedful import workflows
from heedful.config import Config
from heedful.config.data import BUILT_IN
from heedful.core.errors import counted
from heedful.core.output import output_file
from heedful.core.progress import Report, progress_bar
from heedful.core.storage import locked, whole_folder, write_text
from heedful.data.doctor.repeats import normal_form
from heedful.inference.bulk.shares import Bulk, Share
from heedful.inference.predictor import ScoredText, Warn
from heedful.interop.export.folders import exported_weights
from heedful.interop.export.parity import export_checked
from heedful.interop.export.shortlist import parallel_text
from heedful.runs.run import CONFIG as RUN_CONFIG
from heedful.runs.run import Run
from heedful.runs.scores.comparison import Comparison, System, rows_of
from heedful.runs.scores.metrics import text_counts
from heedful.tasks.translation_scores import bleu_tokenizer_of
from heedful.workflows.distillation.endpoint import EndpointTeacher, system_prompt_for
from heedful.workflows.distillation.plan import BACK_TAG, DEFAULT_EXPORTS, FOLDER, Plan, TeacherPlan, export_of
from heedful.workflows.distillation.planning import TEXT, begin, languages_to_translate, student_config
from heedful.workflows.distillation.records import ENDS, REAL, CandidateRecords, json_line, read_records, write_pairs
from heedful.workflows.distillation.selection import Selection
from heedful.workflows.distillation.student import with_text
from heedful.workflows.distillation.teachers import Teacher, model_teacher
from heedful.workflows.distillation.texts import (
    SCORED,
    corpus_of,
    key_of,
    real_pairs,
    scored_texts,
    texts_to_translate,
)  # fmt: skip

Paths = str | Path | Sequence[str | Path]
TEXTS, TRANSLATED = "texts.jsonl", "translations.jsonl"  # the texts to translate, and with their translations
VALID_TEXTS, VALID_TRANSLATED = "valid.jsonl", "valid_translations.jsonl"
ANSWERS = "answers.jsonl"  # of an endpoint, until all texts are translated
TRAINED = "trained"  # says that the training has ended
COMPARED = "comparison.json"
VALIDATED = 1000  # validation texts that the teacher translates at most
EXPORT_TEXTS = 500  # validation texts on which exports are compared at most
MAX_SHARES = 200  # of the texts to translate


class Distillation:
    """The steps from a teacher to a trained and exported student.

    Args:
        path: run folder of the student; the files of a `Plan` lie in its folder `FOLDER`.
        report: called with lines for the user.
        warn: called with a message for each text that is truncated.
    """

    def __init__(self, path: str | Path, report: Report = print, warn: Warn | None = None):
        self.path, self.folder, self.report, self.warn = Path(path), Path(path) / FOLDER, report, warn
        self.plan, config = Plan.load(self.folder)
        self.given = config  # before it names the text that the teacher has translated
        self.config = with_text(config, self.folder / TEXT, self.plan)

    def run(self) -> Run:
        """Do all steps that are not done yet; return the student.

        Raises:
            InputError: another process works on it; the teacher fails, or its translations cannot be used; the training
                or an export failed. What is done is kept.
        """
        with locked(self.folder):
            for step in (self._collect, self._translate, self._select, self._train, self._compare, self._export):
                step()
        return Run.open(self.path)

    @functools.cached_property
    def teacher(self) -> Teacher:
        """The teacher; its model is loaded when it translates."""
        plan = self.plan.teacher
        if not plan.endpoint:
            return model_teacher(plan, self.plan.decode, self.warn)
        if not plan.system_prompt:
            plan = dataclasses.replace(
                plan, system_prompt=system_prompt_for(languages_to_translate(self.given, self.plan.back))
            )
        return EndpointTeacher(plan, self.plan.decode, self.folder / ANSWERS, self.report)

    def _collect(self) -> None:
        """Write the texts to translate, each once, and the beginning of the validation text.

        Texts that are also in the validation or test text are left out: a student must not learn from them.
        """
        if not (self.folder / TEXTS).exists():
            scored = scored_texts(self.given, int(self.plan.back))
            seen, left_out = set[bytes](), 0
            with output_file(self.folder / TEXTS) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
                for one in texts_to_translate(self.plan, self.given):
                    key = key_of(one["text"])
                    if key_of(normal_form(one["text"])) in scored:
                        left_out += 1
                    elif one["text"].strip() and key not in seen:
                        seen.add(key)
                        file.write(json_line(one))
            self.report(f"{counted(len(seen), 'text')} to translate")
            if left_out:
                self.report(f"{counted(left_out, 'text')} left out: also in the validation or test text")
        if not self.plan.back and not (self.folder / VALID_TEXTS).exists():
            corpus = corpus_of(self.given, "valid")
            lines = (
                {"text": pair[0], "reference": pair[1], "file": corpus.name, "line": number}
                for number, pair in enumerate(itertools.islice(corpus, VALIDATED), start=1)
            )
            write_text(self.folder / VALID_TEXTS, "".join(map(json_line, lines)))

    def _translate(self) -> None:
        """Let the teacher translate, in shares that are kept."""
        pairs = [(TEXTS, TRANSLATED), (VALID_TEXTS, VALID_TRANSLATED)][: 1 if self.plan.back else 2]
        todo = [(self.folder / name, self.folder / into) for name, into in pairs if not (self.folder / into).exists()]
        if todo:
            self.teacher.announce(lambda: (one["text"] for path, _ in todo for one in read_records(path)))
        for path, out in todo:
            records = CandidateRecords(path, "text", "candidates")
            bulk = Bulk(records, out, self.teacher.identity, self.teacher.window)
            with progress_bar() as bar:
                self._translate_shares(
                    bulk, functools.partial(bar.advance, bar.add_task(path.name, total=records.count()))
                )
        for _, into in pairs:
            shutil.rmtree(self.folder / f"{into}.shares", ignore_errors=True)
        (self.folder / ANSWERS).unlink(missing_ok=True)

    def _translate_shares(self, bulk: Bulk, advance: Callable[[], Any]) -> None:
        """Translate the shares of a file that are not translated yet, and join them; call `advance` for each line."""
        total, began, lines = min(bulk.windows(), MAX_SHARES), time.monotonic(), 0

        def candidates(texts: Iterable[str], first: int) -> Iterator[list[ScoredText]]:
            for each in self.teacher.candidates(texts, first):
                advance()
                yield each

        for number in range(1, total + 1):
            if done := bulk.compute(Share(number, total), candidates):
                lines += done
                rate = lines / (time.monotonic() - began)
                self.report(f"{bulk.out.name}: {number} of {total} parts are translated, {rate:.0f} lines/s")
        bulk.gather(total)

    def _select(self) -> None:
        """Choose the training text; write it, and what else the student reads from its own folder."""
        folder = self.folder / TEXT
        if folder.exists():
            return
        selection = Selection(lambda: read_records(self.folder / TRANSLATED))
        selection.drop_worst(self.plan.drop)
        with whole_folder(folder) as aside:
            for part in SCORED if self.given.data.corpus in BUILT_IN else ():
                write_pairs(corpus_of(self.given, part), [aside / f"{part}{end}" for end in ENDS])
            selection.write(aside, BACK_TAG if self.plan.back else "", self.plan.back, self.report)
            if self.plan.real_weight:
                pairs = real_pairs(self.plan, self.given, lambda: read_records(self.folder / TEXTS))
                count = write_pairs(pairs, [aside / f"{REAL}{end}" for end in ENDS])
                self.report(f"{count:,} real pairs, of weight {self.plan.real_weight:g}")

    def _train(self) -> None:
        """Train the student, from the start or from its last state."""
        if (self.folder / TRAINED).exists():
            return
        if (self.path / RUN_CONFIG).is_file():
            workflows.resume(self.path, self.report)
        else:
            origins = dict(one.split("=", 1) for one in self.plan.origins)
            workflows.train(self.config, self.path, self.report, origins=origins)
        write_text(self.folder / TRAINED, "")

    def _compare(self) -> None:
        """Compare student and teacher on the validation text, with the same search."""
        if self.plan.back or (self.folder / COMPARED).exists():
            return
        run = Run.open(self.path)
        rows = list(read_records(self.folder / VALID_TRANSLATED))
        normalized, lowercase = run.target_tokenizer.normalized, run.target_tokenizer.lowercase
        references = [normalized(one["reference"]) for one in rows]
        tokenize = bleu_tokenizer_of(run.config, references)
        theirs = [normalized(one["candidates"][0][0]) if one["candidates"] else "" for one in rows]
        search = dataclasses.replace(run.config.decode, beam_size=self.plan.decode.beam_size, n_best=1)
        candidates = run.task.predictor([run], search).predict([one["text"] for one in rows], self.warn)
        ours = [best.text for best, *_ in candidates]
        metric = run.config.train.select_by if run.config.train.select_by in ("bleu", "chrf") else "bleu"
        systems = [
            System(name, (), [text_counts(texts, references, lowercase, tokenize=tokenize)[metric]])
            for name, texts in ((str(self.plan.teacher), theirs), (str(self.path), ours))
        ]
        name = f"validation text, {counted(len(rows), 'line')}, beam {search.beam_size}"
        comparison = Comparison(metric, name, len(rows), rows_of(metric, systems))
        for line in comparison.lines():
            self.report(line)
        content = comparison.as_dict() | {"decode": dataclasses.asdict(search)}
        write_text(self.folder / COMPARED, json.dumps(content, indent=2) + "\n")

    def _export(self) -> None:
        """Write the forms that are asked for, each of which must compute what the student does."""
        run = Run.open(self.path)
        for name in self.plan.exports:
            form, quantization = export_of(name)
            folder = self.path / name.partition(":")[0]
            if folder.is_dir() and exported_weights(folder) == run.weights_fingerprint():
                continue
            shortlist_text = parallel_text(run) if self.plan.shortlist else None
            pairs = list(itertools.islice(run.task.find_corpora(run.config)["valid"], EXPORT_TEXTS))
            texts, references = ([pair[side] for pair in pairs if pair[0].strip()] for side in (0, 1))
            export_checked(run, form, folder, texts, references, quantization, self.report, shortlist_text)


def distil(
    teacher: Run | Sequence[Run] | Paths | TeacherPlan,
    path: str | Path,
    config: Config | None = None,
    report: Report = print,
    *,
    text: Paths = (),
    references: Paths = (),
    back: bool = False,
    real_weight: float | None = None,
    drop: float = Plan.drop,
    exports: Sequence[str] = DEFAULT_EXPORTS,
    shortlist: bool = False,
    search: Mapping[str, Any] | None = None,
) -> Run:
    """Train a small translator on the translations of a larger one (Kim and Rush 2016), and return its run.

    `heedful.workflows.distillation.steps.Distillation(path).run()` continues one that was interrupted.

    Args:
        teacher: a `Run` or its folder, several as an ensemble, the folder of a CTranslate2 model with its SentencePiece
            models, or a `TeacherPlan`, such as one with an `endpoint`.
        path: run folder of the student.
        config: of the student; None: that of the teacher's run, with at most 6 and 2 blocks.
        report: called with lines for the user.
        text: files of the texts to translate, lines or tables (.tsv) with references; none: the training text of the
            student.
        references: files with a translation of each of them: the candidate that is closest to it is chosen.
        back: whether the teacher translates from the student's target language: back-translation.
        real_weight: how often real pairs are read too, relative to the translations; None: 1 with `back`, otherwise 0.
        drop: share of the translations to drop: the least similar to their references, or with the lowest scores.
        exports: forms of the student: FORMAT or FORMAT:QUANTIZATION.
        shortlist: whether they consider only likely translations of the tokens of a text.
        search: settings of the teacher's search by their names in `DecodeConfig`, such as `{"beam_size": 4}`.

    Raises:
        InputError: there is a run already; text or teacher is missing, or cannot be used.
    """
    if not isinstance(teacher, TeacherPlan):
        teacher = TeacherPlan(paths=_names(teacher))
    origins: dict[str, str] = {}
    if config is None:
        config, origins = student_config(teacher, back=back)
    begin(
        teacher, config, path, search, real_weight, origins, text=_names(text), references=_names(references),
        back=back, drop=drop, exports=tuple(exports), shortlist=shortlist,
    )  # fmt: skip
    return Distillation(path, report).run()


def _names(paths):
    several = [paths] if isinstance(paths, (str, Path, Run)) else paths
    return tuple(str(one.path) if isinstance(one, Run) else str(one) for one in several)
