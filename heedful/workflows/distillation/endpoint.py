"""A teacher behind an interface like OpenAI's, which is asked in parallel; its answers are kept, its tokens counted."""

import concurrent.futures
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from heedful.config import DecodeConfig
from heedful.core.errors import InputError, counted
from heedful.data.text_files import one_line
from heedful.inference.predictor import ScoredText
from heedful.workflows.distillation.plan import TeacherPlan
from heedful.workflows.distillation.teachers import Teacher, json_line

KEY = "OPENAI_API_KEY"  # environment variable
WINDOW = 256  # lines that are asked for before the first of them is written
SECONDS, RETRIES = 60, 5  # for an answer; the client waits longer before each further try
UNFINISHED = ("length", "content_filter")  # reasons why an answer ends before its end
CHARACTERS = 4  # of a token, for the estimate
INSTRUCTION = "Translate the text of the user{languages}. Answer with the translation only."


class Answer(NamedTuple):
    """An answer that was given: translations, the tokens read, and those written."""

    translations: list[str]
    read: int
    written: int


class EndpointTeacher(Teacher):
    """A model behind an endpoint.

    Args:
        plan: its address, name and instruction.
        decode: `n_best` and, for samples, `temperature`.
        answers: file that keeps each answer as soon as it arrives: none is asked for twice.
        report: called with lines for the user.

    Raises:
        InputError: the client's library is not installed.
    """

    def __init__(self, plan: TeacherPlan, decode: DecodeConfig, answers: Path, report: Callable[[str], Any]):
        self._plan, self._path, self._report = plan, answers, report
        self._options: dict[str, Any] = {"n": decode.n_best} if decode.n_best > 1 else {}
        if decode.sample:
            self._options |= {"temperature": decode.temperature, "seed": decode.seed}
        self.identity = {
            "endpoint": plan.endpoint, "model": plan.model, "instruction": plan.instruction, **self._options,
        }  # fmt: skip
        self.window = WINDOW
        self._answers = dict(_read_answers(answers))
        self._library = _openai()
        self._client = self._library.OpenAI(
            base_url=plan.endpoint, api_key=os.environ.get(KEY) or "none", timeout=SECONDS, max_retries=RETRIES
        )

    @property
    def tokens(self) -> tuple[int, int]:
        """How many tokens the answers have read and written so far."""
        answers = self._answers.values()
        return sum(answer.read for answer in answers), sum(answer.written for answer in answers)

    def announce(self, texts: Callable[[], Iterable[str]]) -> None:
        """Report how many tokens the texts without an answer will take.

        Raises:
            InputError: that is more than the budget allows.
        """
        texts_left = {text for text in texts() if text not in self._answers}
        characters = sum(map(len, texts_left))
        read = (characters + len(texts_left) * len(self._plan.instruction)) // CHARACTERS
        written = characters // CHARACTERS * self._options.get("n", 1)
        self._report(
            f"{self._plan}: {counted(len(texts_left), 'text')} to ask for, about {read:,} tokens to read and "
            f"{written:,} to write, at {CHARACTERS} characters a token"
        )
        if self._plan.budget and sum(self.tokens) + read + written > self._plan.budget:
            raise InputError(f"That is more than --budget {self._plan.budget} allows; nothing was asked for.")

    def candidates(self, lines: Iterable[str], first: int) -> Iterator[list[ScoredText]]:
        texts = list(lines)
        missing = list(dict.fromkeys(text for text in texts if text.strip() and text not in self._answers))
        if missing:
            self._ask_all(missing)
        for text in texts:
            answer = self._answers.get(text)
            yield [ScoredText(one_line(one).strip(), 0.0) for one in answer.translations] if answer else []

    def _ask_all(self, texts):
        """Ask for the translations of texts, several at the same time, and keep each answer."""
        pool = concurrent.futures.ThreadPoolExecutor(self._plan.parallel)
        with self._path.open("a", encoding="utf-8", newline="\n") as file:
            try:
                futures = {pool.submit(self._ask, text): text for text in texts}
                for future in concurrent.futures.as_completed(futures):
                    answer, text = future.result(), futures[future]
                    file.write(json_line({"text": text} | answer._asdict()))
                    file.flush()
                    self._answers[text] = answer
                    if self._plan.budget and sum(self.tokens) > self._plan.budget:
                        raise InputError(
                            f"{sum(self.tokens):,} tokens are used, more than --budget {self._plan.budget}. "
                            f"{counted(len(self._answers), 'answer')} are kept."
                        )
            finally:
                pool.shutdown(cancel_futures=True)
                self._report("{}: {:,} tokens read and {:,} written so far".format(self._plan.model, *self.tokens))

    def _ask(self, text):
        """Return the answer to one request.

        Raises:
            InputError: the endpoint fails, or answers what is no completion of a chat.
        """
        messages = [{"role": "system", "content": self._plan.instruction}, {"role": "user", "content": text}]
        where = f"{self._plan.model} at {self._plan.endpoint}"
        try:
            answer = self._client.chat.completions.create(model=self._plan.model, messages=messages, **self._options)
            whole = [choice for choice in answer.choices if choice.finish_reason not in UNFINISHED]
            translations = [choice.message.content or "" for choice in whole]
            used = answer.usage
            return Answer(translations, used.prompt_tokens if used else 0, used.completion_tokens if used else 0)
        except self._library.APIStatusError as error:
            raise InputError(f"{where} answers {error.status_code}: {_short(error.message)}") from error
        except self._library.APITimeoutError as error:
            raise InputError(f"{where} has not answered within {SECONDS} seconds, {RETRIES + 1} times.") from error
        except self._library.APIConnectionError as error:
            raise InputError(f"{where} cannot be reached: {_short(error.__cause__ or error)}") from error
        except (self._library.OpenAIError, AttributeError, TypeError, ValueError) as error:
            raise InputError(f"{where} answers what is no completion of a chat: {_short(error)}") from error


def instruction(languages: tuple[str, str]) -> str:
    """Return what a model is told to do, with the codes of source and target language, which may be empty."""
    source, target = languages
    named = (f" from {source}" if source else "") + (f" into {target}" if target else "")
    return INSTRUCTION.format(languages=named)


def _read_answers(path):
    """Yield (text, `Answer`) from a file; its last line may be incomplete, if the process was killed."""
    if not path.is_file():
        return
    content = path.read_text(encoding="utf-8", errors="replace")
    complete, _, rest = content.rpartition("\n")
    if rest:  # the next answer begins a line
        path.write_text(complete + "\n" if complete else "", encoding="utf-8", newline="\n")
    for line in complete.split("\n") if complete else []:
        answer = json.loads(line)
        yield answer["text"], Answer(answer["translations"], answer["read"], answer["written"])


def _short(error):
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:200]}..."


def _openai():
    try:
        import openai
    except ImportError as error:
        raise InputError("The client of endpoints is not installed: pip install 'heedful[endpoint]'.") from error
    return openai
