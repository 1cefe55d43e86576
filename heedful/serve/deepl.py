"""DeepL's interface: /v2/translate, /v2/languages, /v2/usage, glossaries (v2 and v3) and documents."""

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from heedful.core.errors import InputError
from heedful.data.glossary import Glossary
from heedful.serve.deepl_glossaries import glossary_routes, language
from heedful.serve.glossaries import Glossaries
from heedful.serve.openapi import UPLOAD, Operation
from heedful.serve.requests import (
    ANY,
    FORM,
    TEXT,
    TEXTS,
    Field,
    Refused,
    answers,
    note_cut,
    read_body,
    read_fields,
    require_texts,
)
from heedful.serve.service import Served, Service
from heedful.serve.texts import (
    PLAIN,
    Markup,
    in_background,
    joined,
    pieces_of_all,
    recognised,
    sample_of,
    sample_of_texts,
)
from heedful.serve.uploads import Upload, Uploads, read_upload

# Accepted, because DeepL's clients may send them; they have no effect here.
IGNORED = (
    "show_billed_characters", "preserve_formatting", "model_type", "context", "enable_beta_languages",
    "outline_detection", "tag_handling_version",
)  # fmt: skip
# Accepted too; the answer says in a header that they were ignored.
NOTED = ("style_id", "custom_instructions", "extra_body_parameters", "glossary_ids")
NOT_SPLIT, BY_LINES, WITHIN_LINES = "0", "1", "nonewlines"  # values of split_sentences
FORMALITIES = ("default", "more", "less", "prefer_more", "prefer_less")


def routes(service: Service) -> list[Route]:
    """Return the routes of the interface."""
    glossaries, uploads = Glossaries(), Uploads(service)
    return [
        *_translation(service, glossaries), *_languages(service), *glossary_routes(service, glossaries),
        *_documents(service, glossaries, uploads),
    ]  # fmt: skip


def _translation(service: Service, glossaries: Glossaries) -> list[Route]:
    fields = {"text": Field(TEXTS, ...), "target_lang": Field(TEXT, ...), "source_lang": Field(TEXT)}
    fields |= {
        "tag_handling": Field(TEXT, ""), "split_sentences": Field(ANY, "1"), "formality": Field(TEXT, "default"),
        "glossary_id": Field(TEXT), "ignore_tags": Field(TEXTS, ""), "splitting_tags": Field(TEXTS, ""),
        "non_splitting_tags": Field(TEXTS, ""),
    }  # fmt: skip
    fields |= {name: Field(ANY, ignored=True) for name in IGNORED}
    fields |= {name: Field(ANY, ignored=True, noted=True) for name in NOTED}

    async def translate(request: Request) -> JSONResponse:
        """Translate texts."""
        given = await read_fields(request, fields, service.limits, forms=True)
        texts = [given["text"]] if isinstance(given["text"], str) else given["text"]
        if not texts:
            raise Refused(422, "The field 'text' has no text.")
        require_texts("text", texts, service.limits)
        _require_formality(given["formality"])
        markup = _markup(given)
        sample = "" if given["source_lang"] else await sample_of_texts(texts, markup)
        served = await _translator(service, given["source_lang"], given["target_lang"], sample)
        glossary = _glossary(glossaries, given["glossary_id"], given["source_lang"], served)
        splitting = _splitting(given["split_sentences"])
        if splitting != BY_LINES and not markup.form:
            texts = [text.replace("\n", " ") for text in texts]
        options = {"split": "never"} if splitting == NOT_SPLIT else {}
        pieces = await pieces_of_all(served, texts, markup, glossary, **options)
        note_cut(request, pieces)
        translated = await joined(pieces, await answers(request, service.translate(served, pieces), service.limits))
        detected = served.languages[0].upper()
        translations = [
            {"detected_source_language": detected, "text": result, "billed_characters": len(text)}
            for text, result in zip(texts, translated, strict=True)
        ]  # fmt: skip
        return JSONResponse({"translations": translations})

    return [Operation("/v2/translate", translate, fields, forms=[FORM])]


async def _translator(service: Service, source: str | None, target: str, text: str) -> Served:
    """Return the translator for a pair of languages; without a source, for that of the text."""
    target_code = language(target)
    source_code = language(source) if source else (await recognised(service, text, target_code))[0]
    return service.for_languages(source_code, target_code)


def _require_formality(formality: str) -> None:
    if formality not in FORMALITIES:
        raise Refused(400, f"formality must be one of {', '.join(FORMALITIES)}.")
    if formality in ("more", "less"):
        raise Refused(400, "'formality' is not supported for this language: use prefer_more or prefer_less.")


def _splitting(value: Any) -> str:
    """Return how a request wants text to be split; `Refused` (400) for another value."""
    value = str(int(value) if isinstance(value, bool) else value).lower()
    if value not in (NOT_SPLIT, BY_LINES, WITHIN_LINES):
        raise Refused(400, f"split_sentences must be {NOT_SPLIT}, {BY_LINES} or {WITHIN_LINES}.")
    return value


def _markup(given: dict[str, Any]) -> Markup:
    """Return how a request wants markup to be read; `Refused` (400) for another kind."""
    form = given["tag_handling"]
    if form not in ("", "xml", "html"):
        raise Refused(400, "tag_handling must be xml or html.")
    if not form:
        return PLAIN
    names = {
        name: tuple(given[name].split(",")) if isinstance(given[name], str) else tuple(given[name])
        for name in ("ignore_tags", "splitting_tags", "non_splitting_tags")
    }
    lists = [tuple(name.strip().lower() for name in names[key] if name.strip()) for key in names]
    return Markup(form, *lists)


def _glossary(glossaries: Glossaries, key: str | None, source: str | None, served: Served) -> Glossary | None:
    """Return the glossary that a request names; as DeepL, only for a request that names its source language."""
    if key and not source:
        raise Refused(400, "A glossary needs source_lang.")
    return glossaries.terms(key, *served.languages)


def _languages(service: Service) -> list[Route]:
    async def languages(request: Request) -> JSONResponse:
        """List the languages."""
        kind = request.query_params.get("type")
        if kind is None and request.method == "POST":  # DeepL's clients send it in a form
            kind = (await read_fields(request, {"type": Field(TEXT)}, service.limits, forms=True))["type"]
        elif kind is None and b"type=target" in await read_body(request, service.limits):
            kind = "target"
        codes = sorted({served.languages[kind == "target"].upper() for served in service.translators})
        return JSONResponse([{"language": code, "name": code, "supports_formality": False} for code in codes])

    async def languages_v3(request: Request) -> JSONResponse:
        """List the languages, and whether each can be source or target."""
        if request.query_params.get("resource") not in (None, "translate_text", "translate_document", "glossary"):
            raise Refused(404, "Only translation is supported.")
        sources, targets = ({served.languages[side] for served in service.translators} for side in (0, 1))
        return JSONResponse([
            {"lang": code, "name": code, "usable_as_source": code in sources, "usable_as_target": code in targets,
             "features": {}}
            for code in sorted(sources | targets)
        ])  # fmt: skip

    async def pairs(request: Request) -> JSONResponse:
        """List the pairs of languages that a glossary may have."""
        return JSONResponse({"supported_languages": [
            {"source_lang": source, "target_lang": target}
            for source, target in sorted({served.languages for served in service.translators})
        ]})  # fmt: skip

    async def usage(request: Request) -> JSONResponse:
        """Tell that nothing is counted, and nothing is limited by a count."""
        return JSONResponse({"character_count": 0, "character_limit": 1_000_000_000_000})

    return [
        Route("/v2/languages", languages, methods=["GET", "POST"]),
        Route("/v3/languages", languages_v3, methods=["GET"]),
        Route("/v2/glossary-language-pairs", pairs, methods=["GET"]),
        Route("/v2/usage", usage, methods=["GET", "POST"]),
    ]  # fmt: skip


def _documents(service: Service, glossaries: Glossaries, uploads: Uploads) -> list[Route]:
    fields = {name: Field(TEXT) for name in ("source_lang", "formality", "glossary_id", "filename")}
    fields |= {"target_lang": Field(TEXT, ...)}
    key = {"document_key": Field(TEXT, ...)}

    async def upload(request: Request) -> JSONResponse:
        """Translate a document."""
        name, content, given = await read_upload(request, service.limits)
        if "target_lang" not in given:
            raise Refused(422, "The field 'target_lang' is missing.")
        _require_formality(given.get("formality", "default"))
        source = given.get("source_lang")
        text = "" if source else await in_background(sample_of, content, name)
        served = await _translator(service, source, given["target_lang"], text)
        glossary = _glossary(glossaries, given.get("glossary_id"), source, served)
        try:
            begun = await uploads.start(served, name, content, glossary)
        except InputError as error:
            raise Refused(400, str(error)) from error
        return JSONResponse({"document_id": begun.id, "document_key": begun.key})

    async def requested_upload(request: Request) -> Upload:
        given = await read_fields(request, key, service.limits, forms=True)
        return uploads.find(request.path_params["id"], given["document_key"])

    async def status(request: Request) -> JSONResponse:
        """Tell whether a document is translated."""
        upload = await requested_upload(request)
        result: dict[str, Any] = {"document_id": upload.id, "status": upload.status}
        if upload.status == "error":
            result["error_message"] = upload.message
        elif upload.status == "done":
            result["billed_characters"] = upload.characters
        else:
            result["seconds_remaining"] = 1
        return JSONResponse(result)

    async def result(request: Request) -> Response:
        """Return a translated document."""
        upload = await requested_upload(request)
        if upload.status != "done":
            raise Refused(503, f"The document is not ready: {upload.status}.")
        name = re.sub(r"[^\w.-]", "_", upload.name, flags=re.ASCII)
        return Response(
            upload.content, media_type="application/octet-stream",
            headers={"content-disposition": f'attachment; filename="{name}"'},
        )  # fmt: skip

    return [
        Operation("/v2/document", upload, fields, forms=[UPLOAD]),
        Operation("/v2/document/{id}", status, key, forms=[FORM]),
        Operation("/v2/document/{id}/result", result, key, forms=[FORM]),
    ]  # fmt: skip
