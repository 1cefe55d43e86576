"""OpenAI's interface: /v1/models, /v1/completions, /v1/chat/completions and /v1/embeddings.

For a translator the prompt, or the last message of the user, is the source.
"""

import asyncio
import base64
import contextlib
import json
import secrets
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from heedful.config import DecodeConfig
from heedful.core.errors import InputError
from heedful.data.sentences import gap_after
from heedful.serve.openapi import Operation
from heedful.serve.requests import (
    ANY,
    FLAG,
    NUMBER,
    TEXT,
    TEXTS,
    WHOLE,
    Field,
    Refused,
    answers,
    note_cut,
    note_truncated,
    read_fields,
    require_encodable,
    require_texts,
)
from heedful.serve.service import Served, Service
from heedful.serve.texts import combined, in_background

# Accepted because OpenAI's clients send them, without effect.
IGNORED = (
    "user", "store", "metadata", "parallel_tool_calls", "service_tier", "modalities",
)  # fmt: skip
# The same, but they would change a text: a `Warning` header names them.
NOTED = (
    "frequency_penalty", "presence_penalty", "logit_bias", "suffix", "response_format", "reasoning_effort",
    "min_tokens", "top_a",  # of other servers
)  # fmt: skip
MAX_SEED = 2**32 - 1
MIN_TEMPERATURE = 1e-4  # below it, the most likely token is drawn anyway


class Written(NamedTuple):
    """A text that was written for a request; a continuation is without its prompt."""

    prompt: str
    text: str
    tokens: int
    is_cut: bool
    """Whether it ended because of its length."""


def routes(service: Service) -> list[Route]:
    """Return the routes of the interface."""
    own = OpenAI(service)
    return [
        Route("/v1/models", own.models, methods=["GET"]), Route("/v1/models/{name}", own.model, methods=["GET"]),
        Operation("/v1/completions", own.completions, own.completion_fields),
        Operation("/v1/chat/completions", own.chat_completions, own.chat_fields),
        Operation("/v1/embeddings", own.embeddings, own.embedding_fields),
    ]  # fmt: skip


class OpenAI:
    """The endpoints."""

    def __init__(self, service: Service):
        self.service = service
        limits = service.limits
        writing = {
            "model": Field(TEXT, ...), "max_tokens": Field(WHOLE, None, 1, limits.tokens),
            "max_completion_tokens": Field(WHOLE, None, 1, limits.tokens), "temperature": Field(NUMBER, None, 0, 2),
            "top_p": Field(NUMBER, None, 0, 1), "n": Field(WHOLE, 1, 1, limits.alternatives),
            "seed": Field(WHOLE), "stop": Field(TEXTS), "stream": Field(FLAG, False), "stream_options": Field(ANY),
            "top_k": Field(WHOLE, None, 1), "min_p": Field(NUMBER, None, 0, 1),  # of other servers
            "repetition_penalty": Field(NUMBER, None, 0, 10),
        } | {name: Field(ANY, ignored=True, noted=name in NOTED) for name in (*IGNORED, *NOTED)}  # fmt: skip
        self.completion_fields = writing | {"prompt": Field(TEXTS, ...), "echo": Field(FLAG, False)}
        self.chat_fields = writing | {"messages": Field(ANY, ...)}
        self.embedding_fields = {
            "model": Field(TEXT, ...), "input": Field(TEXTS, ...), "encoding_format": Field(TEXT, "float"),
            "dimensions": Field(WHOLE), "user": Field(ANY, ignored=True),
        }  # fmt: skip

    async def models(self, request: Request) -> Response:
        """List the runs."""
        return JSONResponse({"object": "list", "data": [_model(served) for served in self.service.runs.values()]})

    async def model(self, request: Request) -> Response:
        """Describe a run."""
        return JSONResponse(_model(self.service.find(request.path_params["name"])))

    async def completions(self, request: Request) -> Response:
        """Continue, or translate, one prompt or several."""
        given = await read_fields(request, self.completion_fields, self.service.limits)
        served = self.service.find(given["model"], "writes")
        prompts = [given["prompt"]] if isinstance(given["prompt"], str) else given["prompt"]
        require_texts("prompt", prompts, self.service.limits)
        pieces = [self.service.pieces(served, prompt) for prompt in prompts]
        note_cut(request, pieces)
        if given["stream"]:
            if len(prompts) != 1 or given["n"] != 1 or given["echo"]:
                raise Refused(422, "A stream has one prompt, n = 1 and no echo.")
            return await _streamed(request, self.service, served, prompts[0], pieces[0], given, _text_chunk)
        results = await _write(request, self.service, served, prompts, pieces, given)
        choices = [
            {"index": index, "text": (result.prompt if given["echo"] else "") + _until_stop(result.text, given),
             "logprobs": None, "finish_reason": _reason(result, given)}
            for index, result in enumerate(results)
        ]  # fmt: skip
        return JSONResponse(
            _head("text_completion", served) | {"choices": choices, "usage": _usage(served, prompts, results)}
        )

    async def chat_completions(self, request: Request) -> Response:
        """Continue, or translate, the last message of the user."""
        given = await read_fields(request, self.chat_fields, self.service.limits)
        served = self.service.find(given["model"], "writes")
        prompt = last_message(given["messages"])
        require_texts("messages", [prompt], self.service.limits)
        pieces = self.service.pieces(served, prompt)
        note_cut(request, [pieces])
        if given["stream"]:
            if given["n"] != 1:
                raise Refused(422, "A stream has n = 1.")
            return await _streamed(request, self.service, served, prompt, pieces, given, _chat_chunk)
        results = await _write(request, self.service, served, [prompt], [pieces], given)
        choices = [
            {"index": index, "logprobs": None, "finish_reason": _reason(result, given),
             "message": {"role": "assistant", "content": _until_stop(result.text, given), "refusal": None}}
            for index, result in enumerate(results)
        ]  # fmt: skip
        usage = _usage(served, [prompt], results)
        return JSONResponse(_head("chat.completion", served) | {"choices": choices, "usage": usage})

    async def embeddings(self, request: Request) -> Response:
        """Return the vector of each text."""
        given = await read_fields(request, self.embedding_fields, self.service.limits)
        served = self.service.find(given["model"], "embeds")
        texts = [given["input"]] if isinstance(given["input"], str) else given["input"]
        require_texts("input", texts, self.service.limits)
        if given["encoding_format"] not in ("float", "base64"):
            raise Refused(422, "The field 'encoding_format' must be float or base64.")
        size = served.run.config.model.d_model
        if given["dimensions"] not in (None, size):
            raise Refused(422, f"The vectors of {served.name} have {size} dimensions.")
        vectors = await answers(request, self.service.embed(served, texts), self.service.limits)
        encoded = served.run.tokenizer.encode_batch(texts)
        note_truncated(request, encoded, served.predictor.model.max_length - 2)
        tokens = sum(map(len, encoded))
        data = [
            {"object": "embedding", "index": index, "embedding": _vector(vector, given["encoding_format"])}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "data": data, "model": served.name, "usage": usage})


def last_message(messages: Any) -> str:
    """Return the text of the user's last message; `Refused` if there is none."""
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise Refused(422, "The field 'messages' must be a list of objects with role and content.")
    for message in reversed(messages):
        if message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, list):
            parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
            texts = [part for part in parts if isinstance(part, str)]
            content = "".join(texts) if parts and len(texts) == len(parts) else None
        if isinstance(content, str):
            require_encodable("messages", [content])
            return content
        break
    raise Refused(422, "The field 'messages' has no message of the user with a text.")


def _options(served: Served, given) -> dict[str, Any]:
    """Return the settings of `DecodeConfig` that a request asks for."""
    options: dict[str, Any] = {}
    decode = served.predictor.decode
    if max_tokens := given["max_completion_tokens"] or given["max_tokens"]:
        options["max_length"] = max_tokens
    if given["repetition_penalty"]:
        options["repetition_penalty"] = given["repetition_penalty"]
    sample = _samples(given, decode)
    if sample and not decode.sample:
        options |= {"sample": True, "beam_size": 1, "temperature": 1.0}  # OpenAI's default
    elif decode.sample and not sample:
        options["sample"] = False
    if sample:
        options |= {name: given[name] for name in ("temperature", "top_p", "top_k") if given[name]}
        if given["min_p"] is not None:
            options["min_p"] = given["min_p"]
        seed = given["seed"]
        options["seed"] = secrets.randbits(32) if seed is None else seed & MAX_SEED
    if given["n"] > 1 or (not served.task.translates and given["n"] != decode.n_best):
        options["n_best"] = given["n"]
        if not sample:
            options["beam_size"] = max(given["n"], decode.beam_size)
    return options


def _samples(given, decode: DecodeConfig) -> bool:
    """Return whether tokens are sampled: as a request asks for, or as the run does."""
    temperature, top_p = given["temperature"], given["top_p"]
    if (temperature is not None and temperature < MIN_TEMPERATURE) or top_p == 0:  # only the likeliest token is left
        return False
    return bool(temperature or (top_p or 1) < 1 or decode.sample)


async def _write(request, service, served, prompts, pieces, given):
    """Return the `Written` of each result; `pieces` are those of each prompt."""
    options = _options(served, given)
    if served.task.translates:
        results = iter(await answers(request, _queue_translations(service, served, pieces, options), service.limits))
        max_length = options.get("max_length")

        def written():
            return [
                _counted(served, prompt, _joined(served, each, texts, max_length), max_length)
                for prompt, each in zip(prompts, pieces, strict=True)
                for texts in combined([next(results) for _ in each.texts], given["n"])
            ]

        return await in_background(written) if any(each.joined for each in pieces) else written()
    continuations_of = await answers(request, service.generate(served, prompts, **options), service.limits)
    return [
        Written(prompt, each.text, each.tokens, each.is_cut)
        for prompt, continuations in zip(prompts, continuations_of, strict=True)
        for each in continuations
    ]


def _queue_translations(service, served, pieces, options):
    """Queue the pieces of texts for translation, with `options` if there are any; return their futures."""
    return service.candidates(served, pieces, **options) if options else service.translate(served, pieces)


def _joined(served, pieces, results, left):
    """Join the results of pieces to one text, cut to `left` tokens unless that is None."""
    if left is None:
        return pieces.join(results)
    tokenizer, kept = served.run.target_tokenizer, []
    for result in results:
        ids = tokenizer.encode(result)
        kept.append(result if len(ids) <= left else tokenizer.decode(ids[:left]))
        left -= len(ids)
        if left <= 0:
            break
    if pieces.joined:  # restoring the markup needs a result for each piece
        return pieces.join([*kept, *[""] * (len(pieces.texts) - len(kept))])
    return pieces._replace(gaps=pieces.gaps[: len(kept) - 1]).join(kept)


def _until_stop(text, given):
    """Return the text before the first stop sequence."""
    stops = [given["stop"]] if isinstance(given["stop"], str) else given["stop"] or []
    return text[: min([text.index(stop) for stop in stops if stop and stop in text], default=len(text))]


def _counted(served, prompt, text, max_length):
    """Return a `Written`, by counting the tokens of its text."""
    tokens = len(served.run.target_tokenizer.encode(text))
    return Written(prompt, text, tokens, max_length is not None and tokens >= max_length)


def _reason(result, given):
    """Return why a text ends: `length` if it was cut off because of its length, `stop` otherwise."""
    return "length" if result.is_cut and _until_stop(result.text, given) == result.text else "stop"


async def _streamed(request, service, served, prompt, pieces, given, chunk) -> Response:
    """Return the stream of a text as server-sent events: as it is written, or at once if markup has to be restored."""
    if given["stop"]:
        raise Refused(422, "Stop sequences are not supported in a stream.")
    if not isinstance(given["stream_options"] or {}, dict):
        raise Refused(422, "The field 'stream_options' must be an object.")
    options = _options(served, given)
    if pieces.joined:  # its markup can be restored only in the whole text
        futures = _queue_translations(service, served, [pieces], options)
        [results] = combined(await answers(request, futures, service.limits), 1)
        texts = _single(await in_background(_joined, served, pieces, results, options.get("max_length")))
    else:
        if served.predictor.decode.beam_size > 1:  # the tokens of a beam are final at its end only
            options |= {"beam_size": 1, "n_best": 1}
        # Queued before the response starts, so that a full queue is answered with a status of its own.
        first = _Stream(service, served, pieces.texts[0], options)
        texts = _as_written(service, served, pieces, options, first)
    max_length = options.get("max_length") if served.task.translates else served.predictor.max_tokens(**options)
    events = _events(texts, served, prompt, given, chunk, max_length, service.limits)
    return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-store"})


async def _single(text) -> AsyncIterator[str]:
    yield text


async def _as_written(service, served, pieces, options, stream) -> AsyncIterator[str]:
    """Yield the results of pieces as they are written; `stream` is that of the first piece."""
    left = options.get("max_length")
    try:
        for number, text in enumerate(pieces.texts, start=1):
            if number > 1:
                if left is not None:
                    left -= len(served.run.target_tokenizer.encode(stream.written))
                    if left <= 0:
                        return
                    options["max_length"] = left
                yield gap_after(stream.written, pieces.gaps[number - 2])
                stream = _Stream(service, served, text, options, number)
            async for written in stream.pieces():
                yield written
    finally:
        stream.future.cancel()  # frees the slot if the client has left


async def _events(texts, served, prompt, given, chunk, max_length, limits) -> AsyncIterator[str]:
    """Yield the events of a text that is written in parts, with its end, or with the error that ended it."""
    head, written = _head("chat.completion.chunk" if chunk is _chat_chunk else "text_completion", served), ""
    try:
        async with asyncio.timeout(limits.seconds), contextlib.aclosing(texts):
            async for text in texts:
                written += text
                yield _event(head | {"choices": [chunk(text, None)]})
        result = _counted(served, prompt, written, max_length)
        yield _event(head | {"choices": [chunk("", _reason(result, given))]})
        if (given["stream_options"] or {}).get("include_usage"):
            yield _event(head | {"choices": [], "usage": _usage(served, [result.prompt], [result])})
        yield "data: [DONE]\n\n"
    except InputError as error:
        yield _event({"error": {"message": str(error), "type": "invalid_request_error"}})
    except Refused as error:
        yield _event({"error": {"message": error.message, "type": "invalid_request_error"}})
    except TimeoutError:
        message = f"No answer within {limits.seconds:g} seconds."
        yield _event({"error": {"message": message, "type": "timeout"}})


class _Stream:
    """The continuation, or the translation, of one text, as it is written."""

    def __init__(self, service, served, text, options, number=1):
        loop, self.written = asyncio.get_running_loop(), ""
        self._queue = asyncio.Queue[str | None]()
        self.future = service.stream(
            served, text, lambda piece: loop.call_soon_threadsafe(self._queue.put_nowait, piece), number, **options
        )
        self.future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._queue.put_nowait, None))

    async def pieces(self) -> AsyncIterator[str]:
        """Yield the pieces of the text as they come."""
        while (piece := await self._queue.get()) is not None:
            self.written += piece
            yield piece
        result = self.future.result()  # of a translator, whose last piece may not have been streamed; or None
        if result is not None and result.text.startswith(self.written) and result.text != self.written:
            rest = result.text[len(self.written) :]
            self.written = result.text
            yield rest


def _event(content: Any) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


def _text_chunk(text, reason):
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}


def _chat_chunk(text, reason):
    delta = {"role": "assistant", "content": text} if reason is None else {}
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _head(kind, served):
    return {"id": f"{kind.split('.')[0]}-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()),
            "model": served.name}  # fmt: skip


def _model(served):
    return {"id": served.name, "object": "model", "created": int(served.run.weights_path().stat().st_mtime),
            "owned_by": "heedful", "task": served.task.name}  # fmt: skip


def _usage(served, prompts, results):
    read = sum(map(len, served.run.source_tokenizer.encode_batch(prompts)))
    written = sum(result.tokens for result in results)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _vector(vector, encoding):
    numbers = np.asarray(vector, "<f4")
    if encoding == "base64":
        return base64.b64encode(numbers.tobytes()).decode()
    return [float(number) for number in numbers]
