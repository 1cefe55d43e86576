"""The steps of a distillation. Each is whole or absent, so that one that was killed anywhere continues."""

import dataclasses
import functools
import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from heedful import workflows
from heedful.config import Config
from heedful.config.data import BUILT_IN
from heedful.config.languages import languages_of
from heedful.core.errors import InputError, counted
from heedful.core.output import output_file
from heedful.core.plugins import find_task
from heedful.core.progress import progress_bar
from heedful.core.storage import locked, write_text
from heedful.data.corpus import Corpus, resolve_all
from heedful.data.doctor.rows import Rows
from heedful.data.text_files import read_lines
from heedful.inference.bulk.records import JsonRecords, Record
from heedful.inference.bulk.shares import Bulk, Share
from heedful.inference.predictor import ScoredText
from heedful.interop.export.folders import exported_weights
from heedful.interop.export.parity import export_checked
from heedful.runs.run import CONFIG as RUN_CONFIG
from heedful.runs.run import Run
from heedful.runs.scores.comparison import Comparison, System, rows_of
from heedful.runs.scores.metrics import text_counts
from heedful.tasks.translation_scores import bleu_tokenizer_of
from heedful.workflows.distillation import selection
from heedful.workflows.distillation.endpoint import EndpointTeacher, instruction
from heedful.workflows.distillation.plan import BACK_TAG, FOLDER, PLAN, Plan, export_of
from heedful.workflows.distillation.selection import ENDS, REAL, read_records, write_pairs
from heedful.workflows.distillation.student import PART_FILES, with_text
from heedful.workflows.distillation.teachers import Teacher, json_candidates, json_line, model_teacher

Report = Callable[[str], Any]
TEXT = "text"  # folder of the student's text
WANTED, TRANSLATED = "texts.jsonl", "translations.jsonl"  # the texts to translate, and with their translations
VALID_WANTED, VALID_TRANSLATED = "valid.jsonl", "valid_translations.jsonl"
ANSWERS = "answers.jsonl"  # of an endpoint, until all texts are translated
TRAINED = "trained"  # says that the training has ended
COMPARED = "comparison.json"
VALIDATED = 1000  # validation texts that the teacher translates at most
TRIED = 500  # ... on which exports are compared
ROUNDED = 4  # decimal places of scores


class Distillation:
    """A student with everything that it is made of.

    Args:
        path: run folder of the student; the files of a `Plan` lie in its folder `FOLDER`.
        report: called with lines for the user.
        warn: called with warnings.
    """

    def __init__(self, path: Path, report: Report, warn: Report):
        self.path, self.folder, self.report, self.warn = path, path / FOLDER, report, warn
        self.plan, config = Plan.load(self.folder)
        self.asked = config
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
        if not plan.instruction:
            languages = languages_of(self.config)
            plan = dataclasses.replace(plan, instruction=instruction(languages[::-1] if self.plan.back else languages))
        return EndpointTeacher(plan, self.plan.decode, self.folder / ANSWERS, self.report)

    def _collect(self) -> None:
        """Write the texts to translate, each once, and the beginning of the validation text."""
        if not (self.folder / WANTED).exists():
            with output_file(self.folder / WANTED) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
                seen: set[str] = set()
                for one in self._texts():
                    if one["text"].strip() and one["text"] not in seen:
                        seen.add(one["text"])
                        file.write(json_line(one))
            self.report(f"{counted(len(seen), 'text')} to translate")
        if not (self.folder / VALID_WANTED).exists():
            corpus = corpus_of(self.asked, "valid")
            pairs = itertools.islice(enumerate(corpus, start=1), VALIDATED)
            source, target = (1, 0) if self.plan.back else (0, 1)
            lines = (
                {"text": pair[source], "reference": pair[target], "file": corpus.name, "line": n} for n, pair in pairs
            )
            write_text(self.folder / VALID_WANTED, "".join(map(json_line, lines)))

    def _texts(self) -> Iterator[dict[str, Any]]:
        """Yield the texts to translate, with their references if there are any."""
        if not self.plan.text:
            corpus = corpus_of(self.asked, "train")
            for number, pair in enumerate(corpus, start=1):
                yield {"text": pair[0], "reference": pair[1], "file": corpus.name, "line": number}
            return
        sources, references = resolve_all(self.plan.text), resolve_all(self.plan.references)
        if references and len(sources) != len(references):
            raise InputError(f"{counted(len(sources), 'file')} of text came with {len(references)} of references.")
        for source, reference in itertools.zip_longest(sources, references):
            sides = [read_lines(path) for path in (source, reference) if path]
            for number, lines in enumerate(itertools.zip_longest(*sides), start=1):
                if None in lines:
                    raise InputError(f"{source} and {reference} differ in length, at line {number}.")
                names = ("text", "reference") if reference else ("text",)
                yield dict(zip(names, lines, strict=True)) | {"file": str(source), "line": number}

    def _translate(self) -> None:
        """Let the teacher translate, in shares that are kept."""
        pairs = (WANTED, TRANSLATED), (VALID_WANTED, VALID_TRANSLATED)
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
        total, began, lines = bulk.windows(), time.monotonic(), 0

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
        choices = [selection.choose(one) for one in read_records(self.folder / TRANSLATED)]
        selection.drop_worst(choices, self.plan.drop)
        with selection.whole_folder(folder) as aside:
            others = {part: self._rows(part, aside) for part in PART_FILES if has_part(self.asked, part)}
            selection.write_taught(
                choices, aside, others, BACK_TAG if self.plan.back else "", self.plan.back, self.report
            )
            if self.plan.real_weight:
                count = write_pairs(self._real_pairs(), [aside / f"{REAL}{end}" for end in ENDS])
                self.report(f"{count:,} real pairs, of weight {self.plan.real_weight:g}")

    def _rows(self, part: str, folder: Path) -> Rows:
        """Return the validation or test text; a built-in one is written into a folder, where the student finds it."""
        if self.asked.data.corpus not in BUILT_IN:
            return Rows.of_pairs(getattr(self.asked.data, part))
        files = [folder / f"{part}{end}" for end in ENDS]
        write_pairs(corpus_of(self.asked, part), files)
        return Rows.of_pairs(files)

    def _real_pairs(self) -> Iterable[tuple[str, str]]:
        """Return the real pairs: the references of the texts, or the training text of the recipe."""
        if self.plan.references and not self.plan.back:
            return ((one["text"], one["reference"]) for one in read_records(self.folder / WANTED))
        return corpus_of(self.asked, "train")

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
        """Compare student and teacher on the validation text."""
        if (self.folder / COMPARED).exists():
            return
        run = Run.open(self.path)
        rows = list(read_records(self.folder / VALID_TRANSLATED))
        if self.plan.back:  # the teacher translates in the other direction
            self.report("the teacher translates in the other direction: there is nothing to compare")
            write_text(self.folder / COMPARED, "{}\n")
            return
        form, lowercase = run.target_tokenizer.normalized, run.target_tokenizer.lowercase
        references = [form(one["reference"]) for one in rows]
        tokenize = bleu_tokenizer_of(run.config, references)
        theirs = [form(one["candidates"][0][0]) if one["candidates"] else "" for one in rows]
        ours = run.task.predictor([run]).predict([one["text"] for one in rows], self.warn)
        metric = run.config.train.select_by if run.config.train.select_by in ("bleu", "chrf") else "bleu"
        systems = [
            System(name, (), [text_counts(texts, references, lowercase, tokenize=tokenize)[metric]])
            for name, texts in (
                (str(self.plan.teacher), theirs), (str(self.path), [candidates[0].text for candidates in ours]),
            )
        ]  # fmt: skip
        comparison = Comparison(metric, "validation text", len(rows), rows_of(metric, systems))
        for line in comparison.lines():
            self.report(line)
        write_text(self.folder / COMPARED, json.dumps(comparison.as_dict(), indent=2) + "\n")

    def _export(self) -> None:
        """Write the forms that are asked for, each of which must compute what the student does."""
        run = Run.open(self.path)
        for name in self.plan.exports:
            form, quantization = export_of(name)
            folder = self.path / name.partition(":")[0]
            if folder.is_dir() and exported_weights(folder) == run.weights_fingerprint():
                continue
            pairs = list(itertools.islice(run.task.find_corpora(run.config)["valid"], TRIED))
            texts, references = ([pair[side] for pair in pairs if pair[0].strip()] for side in (0, 1))
            export_checked(run, form, folder, texts, references, quantization, self.report)


class CandidateRecords(JsonRecords):
    """Objects with a text, which get the candidates of its translation."""

    def result(self, record: Record, result: list[ScoredText]) -> str:  # type: ignore[override]
        return json_line(record.content | {self.into: json_candidates(result)}).rstrip("\n")


def has_part(config: Config, part: str) -> bool:
    """Return whether a config has a part of a text: train, valid or test."""
    return config.data.corpus in BUILT_IN or bool(getattr(config.data, part))


def corpus_of(config: Config, part: str) -> Corpus:
    """Return a part of the text of a config, whatever other parts it has.

    Raises:
        InputError: it has none, or files are missing.
    """
    if not has_part(config, part):
        raise InputError(f"data.{part} must name text files.")
    if config.data.corpus in BUILT_IN:
        return find_task(config.task).find_corpora(config)[part]
    return Corpus.from_files(getattr(config.data, part), config.data.origin)


def begin(plan: Plan, config: Config, path: Path) -> None:
    """Create the folder of a distillation.

    Raises:
        InputError: there is a run, or a distillation, already; or text or teacher is missing.
    """
    folder = path / FOLDER
    if (folder / PLAN).exists():
        raise InputError(
            f"{path} holds a distillation already. Continue it with --resume {path}, or choose another --run."
        )
    workflows.require_free(path)
    resolve_all([*plan.text, *plan.references])
    if not plan.teacher.endpoint:
        model_teacher(plan.teacher, plan.decode, print)  # refuses a missing one
    corpus_of(config, "valid")
    if not plan.text or (plan.real_weight and (plan.back or not plan.references)):
        corpus_of(config, "train")
    folder.mkdir(parents=True, exist_ok=True)
    plan.save(folder, config)
