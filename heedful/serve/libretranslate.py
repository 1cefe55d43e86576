"""LibreTranslate's interface: /translate, /languages, /frontend/settings."""

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from heedful.serve.requests import (
    TEXT,
    TEXTS,
    WHOLE,
    Field,
    Refused,
    answers,
    note_cut,
    note_ignored,
    read_fields,
    require_texts,
)
from heedful.serve.service import Service

FORMATS = ("text", "html")


def routes(service: Service) -> list[Route]:
    """Return the routes of the interface."""
    limits = service.limits
    fields = {
        "q": Field(TEXTS, ...), "source": Field(TEXT, "auto"), "target": Field(TEXT, ...),
        "format": Field(TEXT, "text"), "alternatives": Field(WHOLE, 0, 0, limits.alternatives),
        "api_key": Field(TEXT, ""), "run": Field(TEXT),
    }  # fmt: skip

    async def translate(request: Request) -> JSONResponse:
        given = await read_fields(request, fields, limits, forms=True)
        if given["format"] not in FORMATS:
            raise Refused(422, f"The format must be {' or '.join(FORMATS)}.")
        if given["format"] == "html":
            note_ignored(request, "format=html")
        several = isinstance(given["q"], list)
        texts = given["q"] if several else [given["q"]]
        require_texts("q", texts, limits)
        if given["run"]:
            one = service.find(given["run"], "translates")
        else:
            one = service.for_languages(given["source"], given["target"])
        pieces = [service.pieces(one, text) for text in texts]
        note_cut(request, pieces)
        futures = [future for each in service.translate(one, pieces) for future in each]
        count = given["alternatives"]
        more = [service.alternatives(one, text, count + 1) for text in texts] if count else []
        results = await answers(request, futures + more, limits)
        written = iter(results[: len(futures)])
        translated = [each.join(next(written).text for _ in each.texts) for each in pieces]
        result: dict = {"translatedText": translated if several else translated[0]}
        if given["source"] == "auto":
            detected = {"confidence": 0.0, "language": one.languages[0]}  # that of the only fitting run, not detected
            result["detectedLanguage"] = [detected] * len(texts) if several else detected
        if count:
            others = _others(translated, results[-len(more) :], count)
            result["alternatives"] = others if several else others[0]
        return JSONResponse(result)

    async def languages(request: Request) -> JSONResponse:
        targets: dict[str, set[str]] = {}
        for one in service.translators:
            source, target = one.languages
            targets.setdefault(source, set()).add(target)
            targets.setdefault(target, set())
        return JSONResponse([{"code": code, "name": code, "targets": sorted(own)} for code, own in targets.items()])

    async def settings(request: Request) -> JSONResponse:
        return JSONResponse({
            "apiKeys": service.needs_key, "keyRequired": service.needs_key, "charLimit": limits.characters,
            "suggestions": False, "supportedFilesFormat": [], "language": {},
        })  # fmt: skip

    return [
        Route("/translate", translate, methods=["POST"]), Route("/languages", languages, methods=["GET"]),
        Route("/frontend/settings", settings, methods=["GET"]),
    ]  # fmt: skip


def _others(translated, candidates_of, count):
    """Return for each text up to `count` of its candidates that differ from its translation."""
    return [
        [other.text for other in candidates if other.text != text][:count]
        for text, candidates in zip(translated, candidates_of, strict=True)
    ]
