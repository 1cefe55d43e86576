"""Hugging Face's interface for classifiers, as `huggingface_hub.InferenceClient` asks it: /models/NAME."""

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from heedful.serve.openapi import Operation
from heedful.serve.requests import (
    ANY,
    TEXTS,
    Field,
    Refused,
    answers,
    note_truncated,
    read_fields,
    require_texts,
)
from heedful.serve.service import Served, Service


def routes(service: Service) -> list[Route]:
    """Return the routes of the interface."""
    fields = {"inputs": Field(TEXTS, ...), "parameters": Field(ANY, {}), "options": Field(ANY, ignored=True)}

    async def classify(request: Request) -> JSONResponse:
        """Return the probabilities of the classes of each text, most likely first."""
        given = await read_fields(request, fields, service.limits)
        served = service.find(request.path_params["name"], "classifies")
        texts = [given["inputs"]] if isinstance(given["inputs"], str) else given["inputs"]
        require_texts("inputs", texts, service.limits)
        count = _count(given["parameters"], served)
        note_truncated(request, served.run.tokenizer.encode_batch(texts), served.predictor.length - 2)
        rows = await answers(request, service.classify(served, texts), service.limits)
        return JSONResponse([_ranked(served.predictor.labels, row)[:count] for row in rows])

    return [Operation("/models/{name}", classify, fields)]


def _count(parameters, served: Served) -> int:
    """Return how many classes are asked for; `Refused` (422) for parameters that have another meaning here."""
    if not isinstance(parameters, dict):
        raise Refused(422, "The field 'parameters' must be an object.")
    function = parameters.get("function_to_apply")
    trained_with = "sigmoid" if served.predictor.several_labels else "softmax"
    if function not in (None, trained_with):
        raise Refused(422, f"function_to_apply must be {trained_with} for {served.name}.")
    count = parameters.get("top_k")
    if count is None:
        return len(served.predictor.labels)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise Refused(422, "top_k must be a whole number from 1.")
    return count


def _ranked(labels, probabilities: np.ndarray) -> list[dict[str, str | float]]:
    order = np.argsort(-probabilities, kind="stable")
    return [{"label": labels[index], "score": float(probabilities[index])} for index in order]
