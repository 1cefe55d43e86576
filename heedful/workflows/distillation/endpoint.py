"""A teacher that an OpenAI-compatible API serves: parallel requests, stored answers, and a count of the tokens."""

import concurrent.futures
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from heedful.config import DecodeConfig
from heedful.core.errors import InputError, counted, extra_needed
from heedful.core.iteration import batched
from heedful.core.validation import parse_json
from heedful.data.text_files import one_line
from heedful.inference.predictor import ScoredText
from heedful.workflows.distillation.plan import TeacherPlan
from heedful.workflows.distillation.records import json_line
from heedful.workflows.distillation.teachers import Teacher

KEY = "OPENAI_API_KEY"  # environment variable
WINDOW, PER_REQUEST = 256, 16  # lines that are asked for before the first of them is written, at least
SECONDS, RETRIES = 60, 5  # for an answer; the client waits longer before each further try
UNFINISHED = ("length", "content_filter")  # reasons why an answer ends before its end
REFUSED = (400, 413, 422)  # status codes of a text that is too long or not wanted
MANY_REFUSED = 10  # in a row, before the first answer: the texts are not the reason
BYTES = 3  # of a token, for the estimate
SYSTEM_PROMPT = "Translate the text of the user{languages}. Answer with the translation only."


class Answer(NamedTuple):
    """An answer that was given: translations, the tokens read, and those written."""

    translations: list[str]
    read: int
    written: int


class EndpointTeacher(Teacher):
    """A model that an OpenAI-compatible API serves.

    Args:
        plan: its address, name and system prompt.
        decode: with `sample`, `temperature`, `top_p`, `seed` and `n_best`; nothing else is used.
        answers: file that keeps each answer as soon as it arrives: none is asked for twice.
        report: called with lines for the user.

    Raises:
        InputError: the client's library is not installed.
    """

    def __init__(self, plan: TeacherPlan, decode: DecodeConfig, answers: Path, report: Callable[[str], Any]):
        self._plan, self._path, self._report = plan, answers, report
        self._options: dict[str, Any] = {"temperature": 0}
        if decode.sample:
            self._options = {"temperature": decode.temperature, "top_p": decode.top_p, "seed": decode.seed}
            self._options |= {"n": decode.n_best} if decode.n_best > 1 else {}
        self.identity = {
            "endpoint": plan.endpoint, "model": plan.model, "system_prompt": plan.system_prompt, **self._options,
        }  # fmt: skip
        self.window = max(WINDOW, PER_REQUEST * plan.parallel)
        self._answers = dict(_read_answers(answers))
        self.read = sum(answer.read for answer in self._answers.values())
        self.written = sum(answer.written for answer in self._answers.values())
        self._refused_in_a_row, self._has_answered, self._lock = 0, False, threading.Lock()
        self._library = openai_library()
        self._client = self._library.OpenAI(
            base_url=plan.endpoint, api_key=os.environ.get(KEY) or "none", timeout=SECONDS, max_retries=RETRIES
        )

    def announce(self, texts: Callable[[], Iterable[str]]) -> None:
        """Report how many tokens the texts without an answer will take.

        Raises:
            InputError: that is more than the budget allows.
        """
        texts_left = {text for text in texts() if text not in self._answers}
        size = sum(len(text.encode()) for text in texts_left)
        read = (size + len(texts_left) * len(self._plan.system_prompt)) // BYTES
        written = size // BYTES * self._options.get("n", 1)
        self._report(
            f"{self._plan}: {counted(len(texts_left), 'text')} to ask for, about {read:,} tokens to read and "
            f"{written:,} to write, at {BYTES} bytes a token"
        )
        if self._plan.budget and self.read + self.written + read + written > self._plan.budget:
            raise InputError(f"That is more than --budget {self._plan.budget} allows.")

    def candidates(self, lines: Iterable[str], first: int) -> Iterator[list[ScoredText]]:
        for texts in batched(lines, self.window):
            missing = list(dict.fromkeys(text for text in texts if text.strip() and text not in self._answers))
            if missing:
                self._ask_all(missing)
            for text in texts:
                answer = self._answers.get(text)
                yield [ScoredText(one_line(one).strip(), 0.0) for one in answer.translations] if answer else []

    def _ask_all(self, texts):
        """Ask for the translations of texts, several at the same time; each answer is kept when it arrives."""
        pool = concurrent.futures.ThreadPoolExecutor(self._plan.parallel)
        with self._path.open("a", encoding="utf-8", newline="\n") as file:
            try:
                for future in concurrent.futures.as_completed([pool.submit(self._ask, text, file) for text in texts]):
                    future.result()
                    if self._is_over_budget():
                        raise InputError(
                            f"{self.read + self.written:,} tokens are used, more than --budget {self._plan.budget}. "
                            f"{counted(len(self._answers), 'answer')} are kept."
                        )
            finally:
                pool.shutdown(cancel_futures=True)  # waits for the requests under way: their answers are paid for
                self._report(f"{self._plan.model}: {self.read:,} tokens read and {self.written:,} written so far")

    def _ask(self, text, file):
        """Ask for the translations of one text, and keep the answer; a text that the endpoint refuses gets none.

        Raises:
            InputError: the endpoint fails, refuses several texts in a row, or does not answer with a chat completion.
        """
        if self._is_over_budget():
            return  # the requests that were under way are the last ones
        messages = [{"role": "system", "content": self._plan.system_prompt}, {"role": "user", "content": text}]
        where = f"{self._plan.model} at {self._plan.endpoint}"
        try:
            answer = self._answer_of(
                self._client.chat.completions.create(model=self._plan.model, messages=messages, **self._options)
            )
        except self._library.APIStatusError as error:
            if error.status_code not in REFUSED:
                raise InputError(f"{where} answers {error.status_code}: {_short(error.message)}") from error
            with self._lock:
                self._refused_in_a_row += 1
                max_refused = MANY_REFUSED * (MANY_REFUSED if self._has_answered else 1)
                if self._refused_in_a_row >= max_refused:
                    reason = f"{error.status_code}: {_short(error.message)}"
                    raise InputError(f"{where} refuses {max_refused} texts in a row with {reason}") from error
                if self._has_answered:  # the text is the reason: it is not asked for again
                    self._keep(text, Answer([], 0, 0), file)
            return
        except self._library.APITimeoutError as error:
            raise InputError(f"{where} has not answered within {SECONDS} seconds, {RETRIES + 1} times.") from error
        except self._library.APIConnectionError as error:
            raise InputError(f"{where} cannot be reached: {_short(error.__cause__ or error)}") from error
        except (self._library.OpenAIError, AttributeError, TypeError, ValueError) as error:
            raise InputError(f"{where} does not answer with a chat completion: {_short(error)}") from error
        with self._lock:
            self._refused_in_a_row, self._has_answered = 0, True
            self._keep(text, answer, file)
            self.read, self.written = self.read + answer.read, self.written + answer.written

    def _keep(self, text, answer, file):
        file.write(json_line({"text": text} | answer._asdict()))
        file.flush()
        self._answers[text] = answer

    def _is_over_budget(self):
        return 0 < self._plan.budget < self.read + self.written

    def _answer_of(self, completion):
        """Return the `Answer` in a completion, without choices that end before their end."""
        finished = [choice for choice in completion.choices if choice.finish_reason not in UNFINISHED]
        # A lone surrogate, half a character, could not be written to a file.
        texts = [(choice.message.content or "").encode(errors="replace").decode() for choice in finished]
        used = completion.usage
        return Answer(texts, used.prompt_tokens if used else 0, used.completion_tokens if used else 0)


def system_prompt_for(languages: tuple[str, str]) -> str:
    """Return the system prompt for a translation; the codes of source and target language may be empty."""
    source, target = languages
    named = (f" from {source}" if source else "") + (f" into {target}" if target else "")
    return SYSTEM_PROMPT.format(languages=named)


def _read_answers(path: Path) -> Iterator[tuple[str, Answer]]:
    """Yield (text, `Answer`) from a file; a last line that a killed process has left incomplete is cut off."""
    if not path.is_file():
        return
    content = path.read_bytes()
    complete = content.rfind(b"\n") + 1
    os.truncate(path, complete)
    for number, line in enumerate(content[:complete].splitlines(), start=1):
        answer = parse_json(line.decode(), f"{path}, line {number}")
        yield answer["text"], Answer(answer["translations"], answer["read"], answer["written"])


def _short(error):
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:200]}..."


def openai_library() -> Any:
    """Return the module `openai`; raise `InputError` if it is not installed."""
    with extra_needed("endpoint", "The client of endpoints is not installed"):
        import openai
    return openai
