"""Distillation: chosen translations, teachers of three kinds, and steps that can be killed anywhere."""

import contextlib
import dataclasses
import gzip
import json
import os
import subprocess
import sys
import threading
import warnings
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import heedful
from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.core.storage import file_hash
from heedful.data.text_files import read_lines
from heedful.inference.predictor import ScoredText
from heedful.inference.translator import Translator
from heedful.runs.run import Run
from heedful.workflows.distillation import endpoint
from heedful.workflows.distillation.endpoint import EndpointTeacher
from heedful.workflows.distillation.plan import BACK_TAG, Plan, TeacherPlan
from heedful.workflows.distillation.planning import teacher_search
from heedful.workflows.distillation.records import CandidateRecords, read_records
from heedful.workflows.distillation.selection import EMPTY, KEPT, WORST, Selection, choose
from heedful.workflows.distillation.student import config_like
from heedful.workflows.distillation.teachers import SentencePieceTeacher
from heedful.workflows.distillation.texts import texts_to_translate
from tests.conftest import PAIRS, change, fast, quiet
from tests.test_pretrained import opus  # noqa: F401 - a fixture

pytestmark = pytest.mark.any_backend

NEW = [f"{who} {does} {what}" for who in ("o gato", "a vaca", "o rei", "a menina") for does in ("bebe", "come", "vê")
       for what in ("pão", "leite", "água", "o rei") if f"{who} {does} {what}" not in dict(PAIRS)]  # fmt: skip
ENGLISH = dict(zip("o a gato vaca rei menina bebe come vê pão leite água".split(),
                   "the the cat cow king girl drinks eats sees bread milk water".split(), strict=True))  # fmt: skip


def english(text):
    """Return the translation of a text, word for word."""
    return " ".join(ENGLISH[word] for word in text.split())


@pytest.fixture
def text(tmp_path):
    """A file of texts that are in no validation text, and one of their translations."""
    paths = tmp_path / "new.pt", tmp_path / "new.en"
    paths[0].write_text("".join(f"{line}\n" for line in NEW), encoding="utf-8")
    paths[1].write_text("".join(f"{english(line)}\n" for line in NEW), encoding="utf-8")
    return paths


def content(candidates, **more):
    return {"text": "o gato", "file": "a.pt", "line": 3, "candidates": candidates} | more


def test_the_candidate_closest_to_the_reference_is_chosen():
    candidates = [["the dog sleeps", -0.1], ["the cat drinks", -0.2], ["the cat", -0.3]]
    best = choose(content(candidates, reference="the cat drank"))
    assert (best.candidate, best.score) == (2, -0.2)
    assert best.chrf > 50
    assert choose(content([["", -0.1], ["the cat", -0.2]])).candidate == 2  # counted as the teacher gave them
    assert choose(content(candidates)).candidate == 1
    assert choose(content([[" ", -0.1]])).candidate == choose(content([])).candidate == 0


def test_the_worst_are_dropped_among_their_like(tmp_path):
    # The more of its letters a translation shares with its reference, the higher its chrF.
    lines = [content([["ok", -float(n)]], line=n) for n in range(1, 11)]
    lines += [content([["abcdefgh"[: 4 + n], -99.0]], line=n, file="b", reference="abcdefgh") for n in range(5)]
    lines += [content([["fine", 0.0]], line=n, file="c") for n in range(5)]  # without a score
    lines += [content([], file="d")]
    selection = Selection(lambda: iter(lines))
    selection.drop_worst(0.2)
    assert selection.outcomes() == {KEPT: 17, WORST: 3, EMPTY: 1}
    selection.write(tmp_path, report=quiet)
    rows = [row.split("\t") for row in read_lines(tmp_path / "lines.tsv")]
    assert [tuple(row[:2]) for row in rows if row[2] == WORST] == [("a.pt", "9"), ("a.pt", "10"), ("b", "0")]
    assert [row[2] for row in rows if row[0] == "d"] == [EMPTY]


ENDPOINT = ("--endpoint", "http://localhost:1/v1", "--model", "m")
SETTINGS = (
    "--train.updates", 4, "--train.validate_every", 2, "--train.check", "false", "--data.batch_sentences", 5,
    "--model.encoder_layers", 2, "--model.decoder_layers", 1,
)  # fmt: skip


def outcomes(student):
    return [line.split("\t") for line in read_lines(student / "distillation" / "text" / "lines.tsv")][1:]


def test_a_student_learns_from_the_translations_of_a_run(run, text, cli, tmp_path):
    student = tmp_path / "student"
    done = cli(
        "distil", run, "--run", student, "--text", text[0], "--references", text[1], "--drop", 0.1,
        "--to", "ctranslate2:int8", "--shortlist", *SETTINGS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    opened, rows = Run.open(student), outcomes(student)
    assert (opened.config.model.depths, opened.config.model.d_model) == ({"encoder": 2, "decoder": 1}, 16)
    assert [(row[0], int(row[1])) for row in rows] == [(str(text[0]), n + 1) for n in range(len(NEW))]
    assert Counter(row[2] for row in rows)[WORST] == len(NEW) // 10
    kept = [n for n, row in enumerate(rows) if row[2] == KEPT]
    sources, targets = (list(read_lines(path)) for path in opened.config.data.train)
    assert sources == [NEW[n] for n in kept]
    translated = [[one.text for one in best] for best in Translator.from_run(Run.open(run)).n_best(
        NEW, beam_size=5, n_best=5)]  # fmt: skip
    assert targets == [translated[n][int(rows[n][3]) - 1] for n in kept]
    assert (student / "ctranslate2" / "parity.json").is_file()
    assert (student / "ctranslate2" / "vmap.txt").is_file()
    said = done.stdout.decode()
    assert "validation text, 20 lines, beam 5: 20 units" in said
    assert f"The student is in {student}." in said
    before = {path: file_hash(path) for path in student.rglob("*") if path.is_file()}
    assert cli("distil", "--resume", student).returncode == 0
    assert {path: file_hash(path) for path in student.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_student_from_python(run, text, tmp_path):
    lines = []
    config = change(config_like(Run.open(run)), *map(str, SETTINGS))
    student = heedful.distil(
        run, tmp_path / "student", config, lines.append, text=text[0], exports=(), search={"beam_size": 2}
    )
    assert heedful.load(student.path).translate(NEW[:1])
    assert {line.split("\t")[0] for line in read_lines(student.path / "distillation/text/lines.tsv")} == {
        "file", str(text[0]),
    }  # fmt: skip
    assert any("beam 2" in line for line in lines)
    with pytest.raises(InputError, match="holds a distillation already"):
        heedful.distil(run, student.path, config)
    assert Run.open(student.path).config.model.depths == {"encoder": 2, "decoder": 1}
    with pytest.raises(InputError, match="needs a recipe"):
        heedful.distil(Run.open(run), tmp_path / "other", back=True)
    with pytest.raises(InputError, match="needs a recipe"):
        heedful.distil(TeacherPlan(endpoint="http://localhost:1/v1", model="m"), tmp_path / "other")


def test_back_translations_are_tagged_and_mixed_with_real_pairs(run, recipe, text, cli, tmp_path):
    student = tmp_path / "student"
    done = cli(
        "distil", run, "--back", "--run", student, "--text", text[0], "--recipe", recipe, "--drop", 0, "--to", "none",
        *SETTINGS, "--data.batch_sentences", 10, "--data.train", json.dumps([str(text[1]), str(text[0])]),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    opened, folder = Run.open(student), student / "distillation" / "text"
    taught = [list(read_lines(folder / f"train-taught.{side}")) for side in ("source", "target")]
    assert all(line.startswith(f"{BACK_TAG} ") for line in taught[0])
    assert set(taught[1]) <= set(NEW)
    assert [list(read_lines(folder / f"train-real.{side}")) for side in ("source", "target")] == [
        [*map(english, NEW)], NEW,
    ]  # fmt: skip
    assert opened.config.data.weights == ("train-real*=1",)
    assert len(opened.source_tokenizer.encode(BACK_TAG)) == 1
    assert "weight 1" in done.stdout.decode()


class Killed(BaseException):
    """Stands in for SIGKILL."""


@pytest.mark.parametrize("moments", fast([[3], [0, 1, 2, 4, 5, 7, 9]], 1), ids=len)
def test_an_interrupted_step_leaves_nothing_half_done(run, text, cli, tmp_path, monkeypatch, moments):
    arguments = ("--text", text[0], "--to", "none", "--batch-size", 1, "--beam-size", 2, *SETTINGS)
    assert cli("distil", run, "--run", tmp_path / "whole", *arguments).returncode == 0
    killed = tmp_path / "killed"
    for count in moments:
        left = iter(range(count))
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            for name in ("replace", "rename"):
                move = getattr(type(text[0]), name)

                def move_or_die(path, target, move=move, left=left):
                    if next(left, None) is None:
                        raise Killed
                    return move(path, target)

                patch.setattr(type(text[0]), name, move_or_die)
            begun = (killed / "distillation" / "plan.json").exists()
            cli("distil", *(("--resume", killed) if begun else (run, "--run", killed, *arguments)))
    assert cli("distil", "--resume", killed).returncode == 0
    assert results(killed) == results(tmp_path / "whole")


def results(student):
    """Return what a distillation has made, without the names of its folder."""
    folder = student / "distillation"
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("student.json", ".lock")]
    contents = {str(path.relative_to(student)): path.read_bytes() for path in files}
    comparison = contents["distillation/comparison.json"].decode()
    contents["distillation/comparison.json"] = comparison.replace(str(student), "").replace(f'"{student.name}"', '""')
    return contents | {"weights": Run.open(student).weights_fingerprint()}


class Endpoint(BaseHTTPRequestHandler):
    """An interface like OpenAI's that knows the words of `ENGLISH`, or misbehaves."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = request["messages"][-1]["content"]
        self.server.asked.append(text)
        status, body = self.server.answer(text)
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode() if isinstance(body, str) else json.dumps(body).encode())

    def log_message(self, *arguments):
        pass


def completion(text, reason="stop"):
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "words", "choices": [choice],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}  # fmt: skip


@pytest.fixture
def server(monkeypatch):
    """An endpoint; a test may replace its `answer`, and reads in `asked` what it was asked."""
    monkeypatch.setattr(endpoint, "RETRIES", 1)
    monkeypatch.setattr(endpoint, "SECONDS", 5)
    monkeypatch.setattr(endpoint, "WINDOW", 8)
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        server.asked, server.answer = [], lambda text: (200, completion(english(text)))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.url = f"http://127.0.0.1:{server.server_port}/v1"
        yield server
        server.shutdown()


def test_a_model_behind_an_endpoint_teaches(server, text, recipe, cli, tmp_path):
    student = tmp_path / "student"
    lines = [line for line in recipe.read_text().splitlines() if not line.startswith("train =")]
    recipe.write_text("\n".join(lines))  # its training text is not needed
    arguments = (
        "--endpoint", server.url, "--model", "words", "--text", text[0], "--recipe", recipe, "--to", "none",
        "--data.source_language", "pt", "--data.target_language", "en",
    )  # fmt: skip
    calls = 0

    def fails_later(text):
        nonlocal calls
        calls += 1
        return (200, completion(english(text))) if calls <= 20 else (503, {"error": {"message": "overloaded"}})

    server.answer, answer = fails_later, server.answer
    done = cli("distil", *arguments, "--run", student, *SETTINGS)
    assert done.returncode == 2
    assert f"words at {server.url} answers 503" in done.stderr.decode()
    assert f"heedful distil --resume {student}" in done.stderr.decode()
    assert f"{len({*NEW, *dict(PAIRS)})} texts to ask for, about" in done.stdout.decode()
    answered, failed = server.asked[:20], len(server.asked)
    server.answer = answer
    done = cli("distil", "--resume", student)
    assert done.returncode == 0, done.stderr.decode()
    assert not set(answered) & set(server.asked[failed:])
    targets = list(read_lines(student / "distillation" / "text" / "train-taught.target"))
    assert set(targets) <= {english(line) for line in NEW}
    assert len(targets) > len(NEW) // 2


def test_a_slow_endpoint_is_given_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr(endpoint, "SECONDS", 0.2)
    monkeypatch.setattr(endpoint, "RETRIES", 0)
    waiting = threading.Event()
    server.answer = lambda text: (waiting.wait(5) and None) or (200, completion("late"))
    plan = TeacherPlan(endpoint=server.url, model="words", system_prompt="Translate.")
    teacher = EndpointTeacher(plan, DecodeConfig(), tmp_path / "answers.jsonl", quiet)
    with pytest.raises(InputError, match=r"has not answered within 0\.2 seconds"):
        list(teacher.candidates(NEW[:1], 1))
    waiting.set()


def test_half_a_character_in_an_answer_is_replaced(server, tmp_path):
    server.answer = lambda text: (200, completion("the cat \ud83d"))
    plan = TeacherPlan(endpoint=server.url, model="words", system_prompt="Translate.")
    [[one]] = EndpointTeacher(plan, DecodeConfig(), tmp_path / "answers.jsonl", quiet).candidates(NEW[:1], 1)
    assert one.text == "the cat ?"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda text: (401, {"error": {"message": "wrong key"}}), "answers 401: .*wrong key"),
        (lambda text: (200, "<html>busy</html>"), "does not answer with a chat completion"),
        (lambda text: (200, {"choices": None}), "does not answer with a chat completion"),
        (lambda text: (200, []), "does not answer with a chat completion"),
    ],
    ids=["refused", "page", "nothing", "list"],
)
def test_nonsense_is_one_clear_line(server, tmp_path, answer, message):
    server.answer = answer
    plan = TeacherPlan(endpoint=server.url, model="words", system_prompt="Translate.")
    teacher = EndpointTeacher(plan, DecodeConfig(), tmp_path / "answers.jsonl", quiet)
    with pytest.raises(InputError, match=message):
        list(teacher.candidates(NEW[:3], 1))


def test_answers_are_kept_counted_and_limited(server, tmp_path):
    plan = TeacherPlan(endpoint=server.url, model="words", system_prompt="Translate.", budget=95)
    answers = tmp_path / "answers.jsonl"
    reported = []
    teacher = EndpointTeacher(plan, DecodeConfig(), answers, reported.append)
    with pytest.raises(InputError, match="more than --budget 95 allows"):
        teacher.announce(lambda: NEW)
    teacher.announce(lambda: NEW[:4])
    assert reported[-1].startswith(f"words at {server.url}: 4 texts to ask for")
    assert [one.text for [one] in teacher.candidates([*NEW[:4], NEW[0]], 1)] == [
        *map(english, NEW[:4]),
        english(NEW[0]),
    ]
    assert sorted(server.asked) == sorted(NEW[:4])
    assert (teacher.read, teacher.written) == (28, 12)
    answers.write_text(answers.read_text() + '{"text": "o ga', encoding="utf-8")  # killed while writing
    teacher = EndpointTeacher(plan, DecodeConfig(), answers, quiet)
    assert (teacher.read, teacher.written) == (28, 12)
    with pytest.raises(InputError, match=r"tokens are used, more than --budget 95\. 1\d answers are kept"):
        list(teacher.candidates(NEW[:40], 1))
    kept = len(answers.read_text(encoding="utf-8").splitlines())
    assert 10 <= kept < 10 + plan.parallel  # requests under way are answered, and kept
    assert teacher.read + teacher.written == 10 * kept
    server.answer = lambda text: (200, completion("the c", "length"))
    [cut] = EndpointTeacher(TeacherPlan(endpoint=server.url, model="words"), DecodeConfig(), answers, quiet).candidates(
        ["o rei"], 1
    )
    assert cut == []


def test_a_ctranslate2_model_with_its_vocabularies_teaches(opus, tmp_path):  # noqa: F811
    ctranslate2, sentencepiece = map(pytest.importorskip, ("ctranslate2", "sentencepiece"))
    folder, _, tokenizer = opus
    converted = tmp_path / "converted"
    converter = ctranslate2.converters.TransformersConverter(str(folder), copy_files=["source.spm", "target.spm"])
    with warnings.catch_warnings(action="ignore"):  # it recommends sacremoses, which is not needed here
        converter.convert(str(converted))
    teacher = SentencePieceTeacher(converted, DecodeConfig(beam_size=2, n_best=2))
    with pytest.raises(InputError, match=r"CTranslate2 does not support decode\.length_norm"):
        SentencePieceTeacher(converted, DecodeConfig(sample=False, length_norm="gnmt", beam_size=2))
    [[longer]] = SentencePieceTeacher(converted, DecodeConfig(min_length=9, max_length=9)).candidates(["a cow"], 1)
    assert longer.text == "n" * 9  # of all that it may write, likeliest nine times
    results = list(teacher.candidates(["the cat drinks", "", "a cow"], 1))
    assert [len(candidates) for candidates in results] == [2, 2, 2]
    model = ctranslate2.Translator(str(converted))
    pieces = tokenizer.convert_ids_to_tokens(tokenizer("the cat drinks").input_ids)
    [expected] = model.translate_batch(
        [pieces], beam_size=2, num_hypotheses=2, max_decoding_length=len(pieces) * 2 + 10
    )
    target = sentencepiece.SentencePieceProcessor(model_file=str(folder / "target.spm"))
    assert [one.text for one in results[0]] == [target.decode(one) for one in expected.hypotheses]


@pytest.mark.parametrize("back", fast([False, True], 1))
def test_no_text_that_is_scored_is_learned(run, recipe, cli, tmp_path, back):
    """A teacher's translation of a test source differs from the reference, and would still give the test away."""
    mixed = [*NEW, *(source.upper() for source, _ in PAIRS[:10])]
    turned = json.dumps([str(tmp_path / "text.en"), str(tmp_path / "text.pt")])
    swapped = [word for part in ("train", "valid", "test") for word in (f"--data.{part}", turned)] if back else []
    (tmp_path / "mixed.txt").write_text("".join(f"{line}\n" for line in mixed), encoding="utf-8")
    done = cli("distil", run, "--run", tmp_path / "student", "--text", "mixed.txt", "--recipe", recipe, "--to", "none",
               *(("--back",) if back else ()), *swapped, *SETTINGS)  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert "10 texts left out: also in the validation or test text" in done.stdout.decode()
    texts = read_records(tmp_path / "student" / "distillation" / "texts.jsonl")
    assert [one["text"] for one in texts] == NEW


def test_tables_and_compressed_files_are_read(run, text, tmp_path):
    pairs = list(zip(NEW, map(english, NEW), strict=True))
    (tmp_path / "table.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs), encoding="utf-8")
    with gzip.open(tmp_path / "new.pt.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in NEW)
    teacher, config = TeacherPlan(paths=(str(run),)), Run.open(run).config
    [first, *_] = texts_to_translate(Plan(teacher=teacher, text=(str(tmp_path / "table.tsv"),)), config)
    assert first == {"text": NEW[0], "reference": english(NEW[0]), "file": str(tmp_path / "table.tsv"), "line": 1}
    files = {"text": (str(tmp_path / "new.pt.gz"),), "references": (str(text[1]),)}
    assert [
        (one["text"], one["reference"]) for one in texts_to_translate(Plan(teacher=teacher, **files), config)
    ] == pairs


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, (5, 5)), ({"beam_size": 2}, (2, 2)), ({"sample": True}, (1, 1)), ({"n_best": 1}, (5, 1))],
)
def test_the_search_of_a_teacher_fits_together(whole, given, expected):
    decode = teacher_search(TeacherPlan(paths=(str(whole.path),)), whole, given, has_references=True)
    assert (decode.beam_size, decode.n_best) == expected


def test_refused_texts_have_no_translation_and_many_end_the_work(server, tmp_path):
    long = NEW[1]
    refused = 413, {"error": {"message": "too long"}}
    server.answer = lambda text: refused if text == long else (200, completion(english(text)))
    plan = TeacherPlan(endpoint=server.url, model="words", system_prompt="Translate.", parallel=1)
    teacher = EndpointTeacher(plan, DecodeConfig(), tmp_path / "answers.jsonl", quiet)
    assert [len(candidates) for candidates in teacher.candidates(NEW[:3], 1)] == [1, 0, 1]
    asked = len(server.asked)
    server.answer = lambda text: refused
    again = EndpointTeacher(plan, DecodeConfig(), tmp_path / "answers.jsonl", quiet)
    assert [len(candidates) for candidates in again.candidates(NEW[:3], 1)] == [1, 0, 1]
    assert len(server.asked) == asked  # what was refused is not asked for again
    with pytest.raises(InputError, match=r"refuses 10 texts in a row with 413: .*too long"):
        list(again.candidates(NEW[4:20], 1))


def test_ten_refused_texts_in_a_row_do_not_end_the_work_of_an_endpoint_that_answers(server, tmp_path):
    """A chapter that a filter blocks must not stop a distillation, at the same place each time."""
    server.answer = lambda text: (
        (413, {"error": {"message": "too long"}}) if text in NEW[1:14] else (200, completion("x"))
    )
    plan = TeacherPlan(endpoint=server.url, model="words", system_prompt="Translate.", parallel=1)
    teacher = EndpointTeacher(plan, DecodeConfig(), tmp_path / "answers.jsonl", quiet)
    assert [len(candidates) for candidates in teacher.candidates(NEW[:16], 1)] == [1, *[0] * 13, 1, 1]


def test_an_answer_under_way_is_kept_when_the_work_is_stopped(server, tmp_path):
    plan = TeacherPlan(endpoint=server.url, model="words", system_prompt="Translate.", parallel=2)
    teacher = EndpointTeacher(plan, DecodeConfig(), tmp_path / "answers.jsonl", quiet)
    waiting = threading.Event()

    def answer(text):
        if text == NEW[0]:
            waiting.wait(5)
            return 200, completion(english(text))
        waiting.set()
        return 401, {"error": {"message": "no"}}

    server.answer = answer
    with pytest.raises(InputError, match="401"):
        list(teacher.candidates(NEW[:2], 1))
    kept = EndpointTeacher(plan, DecodeConfig(), tmp_path / "answers.jsonl", quiet)
    assert kept.read == 7


def test_records_keep_what_they_had(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "o gato", "line": 1}\n', encoding="utf-8")
    records = CandidateRecords(tmp_path / "in.jsonl", "text", "candidates")
    [record] = records.read(0, 1)
    assert json.loads(records.result(record, [ScoredText("the cat", -0.5)])) == {
        "text": "o gato", "line": 1, "candidates": [["the cat", -0.5]],
    }  # fmt: skip


def test_arguments_that_contradict_each_other_are_refused(run, recipe, text, cli, tmp_path):
    student = tmp_path / "student"
    for arguments, message in (
        ([run], "Name the student's folder"), (["--run", student, "--recipe", recipe], "Name a teacher"),
        (["--resume", student], "holds no distillation"), (["--resume", student, "--drop", 0.1], "as it was planned"),
        ([run, "--run", student, "--to", "marble"], "'marble' is not an export format"),
        ([run, "--run", student, "--to", "onnx:int3"], "int3"),
        ([run, "--run", student, "--references", text[1]], "References need the text"),
        ([run, "--run", student, "--back"], "The student needs a recipe"),
        ([run, "--run", student, "--drop", 2], "drop"),
        (["--endpoint", "http://localhost:1/v1", "--run", student, "--recipe", recipe], "needs the name of its model"),
        ([*ENDPOINT, "--run", student, "--recipe", recipe, "--data.train", '["a.txt", "b.txt"]', "--text", text[0]],
         "The system prompt needs the languages"),
        ([*ENDPOINT, "--run", student, "--recipe", recipe, "--beam-size", 4], "has no --beam-size"),
        ([*ENDPOINT, "--run", student, "--recipe", recipe, "--n-best", 3], "n_best"),
        (["--endpoint", "http://u:p@host/v1", "--model", "m", "--run", student, "--recipe", recipe], "holds no key"),
        ([run, "--run", student, "--to", "onnx:int8", "onnx"], "given twice"),
        ([run, "--run", student, "--text", text[0], "--to", "bergamot"], "Marian cannot compute this model"),
        ([run, "--run", student, "--text", text[0], "--real-weight", 1e-9], "0.001"),
        ([run, "--run", student, "--text", *text, "--references", text[1]], "2 files of text came with 1"),
        ([run, "--run", student, "--text", tmp_path / "a.jsonl"], "has records"),
        ([run, "--run", student, "--engine", "ctranslate2", "--text", text[0]], "has no export"),
        ([run, "--run", student, "--text", tmp_path / "missing"], "Missing text"),
        ([run, "--run", run, "--text", text[0]], "already holds a run"),
    ):  # fmt: skip
        done = cli("distil", *arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr.decode(), arguments
        assert not student.exists()


@pytest.mark.parametrize(
    ("teacher", "student"),
    [
        ({"num_layers": 4}, (6, 2, 16, 24)),
        ({"num_layers": 3}, (3, 1, 16, 24)),
        ({"num_layers": 2}, (2, 1, 16, 24)),
        ({"num_layers": 1}, (1, 1, 16, 24)),
        ({"encoder_layers": 1, "decoder_layers": 3}, (1, 1, 16, 24)),
        ({"encoder_layers": 12, "decoder_layers": 2}, (6, 1, 16, 24)),
        ({"num_layers": 6, "d_model": 512}, (6, 2, 256, 1536)),
    ],
)
def test_a_student_writes_faster_than_its_teacher(whole, teacher, student):
    model = dataclasses.replace(whole.config.model, **teacher)
    whole.config = dataclasses.replace(whole.config, model=model)
    model = config_like(whole).model
    assert (*model.depths.values(), model.d_model, model.d_ff) == student


@pytest.mark.slow
def test_a_distillation_is_killed_ten_times_and_ends_with_the_same_bytes(run, text, tmp_path):
    """The process ends at once, without cleaning up, before or after a file is moved to its place."""
    code = """
import os, pathlib, sys
from heedful.cli import main
count = int(sys.argv[1])
for name in ("replace", "rename"):
    def move(path, target, move=getattr(pathlib.Path, name)):
        global count
        count -= 1
        if count == 0:
            os._exit(9)
        result = move(path, target)
        if count == 1 and len(sys.argv) % 2:
            os._exit(9)
        return result
    setattr(pathlib.Path, name, move)
sys.exit(main(sys.argv[2:]))
"""
    arguments = ["--text", text[0], "--batch-size", 1, "--beam-size", 2, *SETTINGS]

    def start(count, *given):
        command = [sys.executable, "-c", code, str(count), "distil", *map(str, given)]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, env=os.environ | {"KERAS_BACKEND": "jax"}, timeout=200
        ).returncode

    assert start(10**9, run, "--run", "whole", *arguments) == 0
    given, kills = [run, "--run", "killed", *arguments], 0
    for count in (2, 1, 3, 2, 1, 3, 2, 4, 2, 3, 2, 3):
        code_of_exit = start(count, *given)
        if code_of_exit == 0:
            break
        assert code_of_exit == 9
        kills += 1
        if (tmp_path / "killed" / "distillation" / "plan.json").exists():
            given = ["--resume", "killed"]
    assert kills >= 10
    assert start(10**9, "--resume", "killed") == 0
    assert results(tmp_path / "killed") == results(tmp_path / "whole")
