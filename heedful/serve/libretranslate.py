"""LibreTranslate's interface: /translate, /detect, /languages, /translate_file, /suggest, /frontend/settings."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from heedful.core.errors import InputError
from heedful.data.document_formats import FORMATS as FORMATS_OF_FILES
from heedful.serve.openapi import UPLOAD, Operation
from heedful.serve.requests import (
    FORM,
    TEXT,
    TEXTS,
    WHOLE,
    Field,
    Refused,
    answers,
    note_cut,
    read_fields,
    require_texts,
)
from heedful.serve.service import Served, Service, all_or_none
from heedful.serve.texts import (
    PLAIN,
    Markup,
    combined,
    detect_languages,
    in_background,
    joined,
    pieces_of_all,
    recognised,
    sample_of,
    sample_of_texts,
)
from heedful.serve.uploads import Uploads, read_upload

FORMATS = ("text", "html")
AUTO = "auto"  # the source language that is recognised
KEY_IN_BODY = ("/translate", "/detect", "/translate_file")  # paths whose requests may have their key in a field
DOWNLOADS = "/download_file/"  # path of what needs no key, since each address has one


def routes(service: Service) -> list[Route]:
    """Return the routes of the interface."""
    limits = service.limits
    fields = {
        "q": Field(TEXTS, ...), "source": Field(TEXT, AUTO), "target": Field(TEXT, ...),
        "format": Field(TEXT, "text"), "alternatives": Field(WHOLE, 0, 0, limits.alternatives),
        "api_key": Field(TEXT, ""), "run": Field(TEXT),
    }  # fmt: skip

    async def translate(request: Request) -> JSONResponse:
        """Translate texts."""
        given = await read_fields(request, fields, limits, forms=True)
        if given["format"] not in FORMATS:
            raise Refused(422, f"The format must be {' or '.join(FORMATS)}.")
        several = isinstance(given["q"], list)
        texts = given["q"] if several else [given["q"]]
        require_texts("q", texts, limits)
        detected: dict[str, Any] = {}
        markup = Markup("html") if given["format"] == "html" else PLAIN
        source = given["source"].lower()
        if given["run"]:
            served = service.find(given["run"], "translates")
        else:
            sample = await sample_of_texts(texts, markup) if source == AUTO else ""
            served, detected = await _translator(service, source, given["target"], sample)
        pieces = await pieces_of_all(served, texts, markup)
        note_cut(request, pieces)
        count = given["alternatives"]
        with all_or_none() as futures:
            futures += service.translate(served, pieces)
            more = service.alternatives(served, pieces, count + 1) if count else []
        results = await answers(request, [*futures, *more], limits)
        translated = await joined(pieces, results[: len(futures)])
        result: dict = {"translatedText": translated if several else translated[0]}
        if source == AUTO:
            detected = detected or {"confidence": 0.0, "language": served.languages[0]}
            result["detectedLanguage"] = [detected] * len(texts) if several else detected
        if count:
            others = await in_background(_others, pieces, translated, results[len(futures) :], count)
            result["alternatives"] = others if several else others[0]
        return JSONResponse(result)

    return [
        Operation("/translate", translate, fields, forms=[FORM]), *_languages(service), *_files(service),
    ]  # fmt: skip


def _languages(service: Service) -> list[Route]:
    limits = service.limits

    async def languages(request: Request) -> JSONResponse:
        """List the languages, and into which each is translated."""
        targets: dict[str, set[str]] = {}
        for served in service.translators:
            source, target = served.languages
            targets.setdefault(source, set()).add(target)
            targets.setdefault(target, set())
        return JSONResponse([{"code": code, "name": code, "targets": sorted(own)} for code, own in targets.items()])

    async def settings(request: Request) -> JSONResponse:
        """Describe what the server allows."""
        return JSONResponse({
            "apiKeys": service.needs_key, "keyRequired": service.needs_key, "charLimit": limits.characters,
            "suggestions": False, "supportedFilesFormat": list(FORMATS_OF_FILES), "language": {},
        })  # fmt: skip

    detect_fields = {"q": Field(TEXTS, ...), "api_key": Field(TEXT, "")}

    async def detect(request: Request) -> JSONResponse:
        """Recognise the language of texts."""
        given = await read_fields(request, detect_fields, limits, forms=True)
        texts = given["q"] if isinstance(given["q"], list) else [given["q"]]
        require_texts("q", texts, limits)
        known = [code for served in service.translators for code in served.languages]
        ranked = [
            [{"confidence": round(100 * share, 1), "language": code} for code, share in ranking]
            for ranking in [await in_background(detect_languages, text, known) for text in texts]
        ]  # fmt: skip
        return JSONResponse(ranked if isinstance(given["q"], list) else ranked[0])

    return [
        Route("/languages", languages, methods=["GET"]), Operation("/detect", detect, detect_fields, forms=[FORM]),
        Route("/frontend/settings", settings, methods=["GET"]),
    ]  # fmt: skip


def _files(service: Service) -> list[Route]:
    limits = service.limits
    file_fields = {"source": Field(TEXT, AUTO), "target": Field(TEXT, ...), "api_key": Field(TEXT, "")}

    async def suggest(request: Request) -> JSONResponse:
        """Refuse suggestions."""
        raise Refused(403, "Suggestions are disabled on this server.")

    uploads = Uploads(service)

    async def translate_file(request: Request) -> JSONResponse:
        """Translate a document."""
        name, content, given = await read_upload(request, limits)
        if "target" not in given:
            raise Refused(422, "The field 'target' is missing.")
        source = given.get("source", AUTO).lower()
        text = await in_background(sample_of, content, name) if source == AUTO else ""
        served, _ = await _translator(service, source, given["target"], text)
        try:
            begun = await uploads.start(served, name, content)
        except InputError as error:
            raise Refused(400, str(error)) from error
        await uploads.finished(begun, request)
        if begun.status != "done":
            raise Refused(400, begun.message)
        return JSONResponse({"translatedFileUrl": str(request.url_for("translated_file", id=begun.id, key=begun.key))})

    async def translated_file(request: Request) -> Response:
        """Return a translated document."""
        upload = uploads.find(request.path_params["id"], request.path_params["key"])
        return Response(upload.content, media_type="application/octet-stream")

    return [
        Route("/suggest", suggest, methods=["POST"]),
        Operation("/translate_file", translate_file, file_fields, forms=[UPLOAD]),
        Route("/download_file/{id}/{key}", translated_file, methods=["GET"], name="translated_file"),
    ]


async def _translator(service: Service, source: str, target: str, text: str) -> tuple[Served, dict[str, Any]]:
    """Return the translator for two languages and, if the source is `auto`, which one was recognised."""
    if source != AUTO:
        return service.for_languages(source, target), {}
    code, share = await recognised(service, text, target)
    served = service.for_languages(code, target)
    return served, {"confidence": round(100 * share, 1), "language": served.languages[0]}


def _others(pieces, translated, candidates_of, count):
    """Return for each text up to `count` further translations, from the candidates of all pieces."""
    candidates = iter(candidates_of)
    others = []
    for each, first in zip(pieces, translated, strict=True):
        results = combined([next(candidates) for _ in each.texts], count + 1)
        different = dict.fromkeys(map(each.join, results))
        others.append([text for text in different if text != first][:count])
    return others
