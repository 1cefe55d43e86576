"""DeepL's interface: /v2/translate, /v2/languages, /v2/usage."""

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from heedful.serve.requests import ANY, TEXT, TEXTS, Field, Refused, answers, note_cut, read_fields, require_texts
from heedful.serve.service import Service

# Accepted, because DeepL's clients may send them; none has an effect on a translator of our own.
IGNORED = (
    "show_billed_characters", "split_sentences", "preserve_formatting", "model_type", "context", "formality",
    "enable_beta_languages", "outline_detection",
)  # fmt: skip
# Accepted too; the answer says in a header that they were ignored.
NOTED = (
    "tag_handling", "tag_handling_version", "ignore_tags", "non_splitting_tags", "splitting_tags", "glossary_id",
    "style_id", "custom_instructions", "extra_body_parameters",
)  # fmt: skip


def routes(service: Service) -> list[Route]:
    """Return the routes of the interface."""
    fields = {"text": Field(TEXTS, ...), "target_lang": Field(TEXT, ...), "source_lang": Field(TEXT)}
    fields |= {name: Field(ANY, ignored=True) for name in IGNORED}
    fields |= {name: Field(ANY, ignored=True, noted=True) for name in NOTED}

    async def translate(request: Request) -> JSONResponse:
        given = await read_fields(request, fields, service.limits, forms=True)
        texts = [given["text"]] if isinstance(given["text"], str) else given["text"]
        if not texts:
            raise Refused(422, "The field 'text' has no text.")
        require_texts("text", texts, service.limits)
        source = given["source_lang"] and language(given["source_lang"])
        one = service.for_languages(source, language(given["target_lang"]))
        pieces = [service.pieces(one, text) for text in texts]
        note_cut(request, pieces)
        futures = [future for each in service.translate(one, pieces) for future in each]
        results = iter(await answers(request, futures, service.limits))
        detected = one.languages[0].upper()
        translations = [
            {"detected_source_language": detected, "text": each.join(next(results).text for _ in each.texts),
             "billed_characters": len(text)}
            for text, each in zip(texts, pieces, strict=True)
        ]  # fmt: skip
        return JSONResponse({"translations": translations})

    async def languages(request: Request) -> JSONResponse:
        side = 1 if request.query_params.get("type") == "target" else 0
        codes = sorted({one.languages[side].upper() for one in service.translators})
        return JSONResponse([{"language": code, "name": code, "supports_formality": False} for code in codes])

    async def usage(request: Request) -> JSONResponse:
        """Nothing is counted, and nothing is limited by a count."""
        return JSONResponse({"character_count": 0, "character_limit": 1_000_000_000_000})

    return [
        Route("/v2/translate", translate, methods=["POST"]), Route("/v2/languages", languages, methods=["GET", "POST"]),
        Route("/v2/usage", usage, methods=["GET", "POST"]),
    ]  # fmt: skip


def language(code: str) -> str:
    """Return a language code without its country, as in EN-US, in lower case."""
    return code.split("-")[0].lower()
