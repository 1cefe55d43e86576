"""DeepL's glossaries: those of /v2, for one pair of languages, and those of /v3, for several."""

import asyncio
import csv
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from heedful.core.errors import InputError
from heedful.data.glossary import Glossary
from heedful.serve.glossaries import Entry, Glossaries
from heedful.serve.requests import ANY, TEXT, Field, Refused, read_fields, require_encodable
from heedful.serve.service import Service
from heedful.serve.texts import in_background

FORMATS = ("tsv", "csv")
MAX_TERMS = 100_000  # of a dictionary
DICTIONARY = ("source_lang", "target_lang", "entries", "entries_format")


def glossary_routes(service: Service, glossaries: Glossaries) -> list[Route]:
    """Return the routes of both versions."""
    return [*_Version2(service, glossaries).routes(), *_Version3(service, glossaries).routes()]


class _Version2:
    def __init__(self, service: Service, glossaries: Glossaries):
        self.service, self.glossaries = service, glossaries

    def routes(self) -> list[Route]:
        return [
            Route("/v2/glossaries", self.create, methods=["POST"]), Route("/v2/glossaries", self.all, methods=["GET"]),
            Route("/v2/glossaries/{id}", self.one, methods=["GET", "DELETE"]),
            Route("/v2/glossaries/{id}/entries", self.entries, methods=["GET"]),
        ]  # fmt: skip

    async def create(self, request: Request) -> JSONResponse:
        fields = {name: Field(TEXT, ...) for name in ("name", *DICTIONARY)}
        given = await read_fields(request, fields, self.service.limits, forms=True)
        pair, terms = await in_background(_dictionary, self.service, given)
        entry = self.glossaries.add(given["name"])
        entry.dictionaries[pair] = terms
        return JSONResponse(self._shown(entry), 201)

    async def all(self, request: Request) -> JSONResponse:
        entries = [self._shown(one) for one in self.glossaries.all() if len(one.dictionaries) == 1]
        return JSONResponse({"glossaries": entries})

    async def one(self, request: Request) -> Response:
        entry = self.glossaries.find(request.path_params["id"])
        if request.method == "DELETE":
            self.glossaries.remove(entry.id)
            return Response(status_code=204)
        return JSONResponse(self._shown(entry))

    async def entries(self, request: Request) -> Response:
        entry = self.glossaries.find(request.path_params["id"])
        _, terms = _first(entry)
        return Response(_as_tsv(terms), media_type="text/tab-separated-values")

    def _shown(self, entry: Entry) -> dict[str, Any]:
        (source, target), terms = _first(entry)
        return {
            "glossary_id": entry.id, "name": entry.name, "ready": True, "source_lang": source, "target_lang": target,
            "creation_time": entry.made, "entry_count": len(terms.terms),
        }  # fmt: skip


class _Version3:
    fields = {"name": Field(TEXT), "dictionaries": Field(ANY)}

    def __init__(self, service: Service, glossaries: Glossaries):
        self.service, self.glossaries, self._changing = service, glossaries, asyncio.Lock()

    def routes(self) -> list[Route]:
        return [
            Route("/v3/glossaries", self.create, methods=["POST"]), Route("/v3/glossaries", self.all, methods=["GET"]),
            Route("/v3/glossaries/{id}", self.one, methods=["GET", "DELETE", "PATCH"]),
            Route("/v3/glossaries/{id}/dictionaries", self.dictionaries, methods=["PUT", "DELETE"]),
            Route("/v3/glossaries/{id}/entries", self.entries, methods=["GET"]),
        ]  # fmt: skip

    async def create(self, request: Request) -> JSONResponse:
        given = await read_fields(request, self.fields, self.service.limits)
        if not given["name"]:
            raise Refused(422, "The field 'name' is missing.")
        dictionaries = await in_background(self._dictionaries_in, given)
        entry = self.glossaries.add(given["name"])
        entry.dictionaries.update(dictionaries)
        return JSONResponse(self._shown(entry), 201)

    async def all(self, request: Request) -> JSONResponse:
        return JSONResponse({"glossaries": [self._shown(one) for one in self.glossaries.all()]})

    async def one(self, request: Request) -> Response:
        entry = self.glossaries.find(request.path_params["id"])
        if request.method == "DELETE":
            self.glossaries.remove(entry.id)
            return Response(status_code=204)
        if request.method == "PATCH":
            given = await read_fields(request, self.fields, self.service.limits)
            async with self._changing:  # terms are added to those that it has
                entry.dictionaries |= await in_background(self._added, entry, given)
            entry.name = given["name"] or entry.name
        return JSONResponse(self._shown(entry))

    async def dictionaries(self, request: Request) -> Response:
        entry = self.glossaries.find(request.path_params["id"])
        if request.method == "PUT":
            given = await read_fields(request, {name: Field(TEXT) for name in DICTIONARY}, self.service.limits)
            pair, terms = await in_background(_dictionary, self.service, given)
            entry.dictionaries[pair] = terms
            return JSONResponse(_counted(pair, terms))
        del entry.dictionaries[_pair_in(request, entry)]
        return Response(status_code=204)

    async def entries(self, request: Request) -> JSONResponse:
        entry = self.glossaries.find(request.path_params["id"])
        pair = _pair_in(request, entry)
        shown = {
            "source_lang": pair[0], "target_lang": pair[1], "entries": _as_tsv(entry.dictionaries[pair]),
            "entries_format": "tsv",
        }  # fmt: skip
        return JSONResponse({"dictionaries": [shown]})

    def _dictionaries_in(self, given: dict[str, Any]) -> dict[tuple[str, str], Glossary]:
        tables = given["dictionaries"] or []
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise Refused(400, "dictionaries must be a list of dictionaries.")
        return dict(_dictionary(self.service, table) for table in tables)

    def _added(self, entry: Entry, given: dict[str, Any]) -> dict[tuple[str, str], Glossary]:
        """Return the dictionaries of a glossary to which a request adds terms."""
        more = self._dictionaries_in(given)
        known = {pair: entry.dictionaries[pair].terms for pair in more if pair in entry.dictionaries}
        return {pair: _limited(Glossary(known.get(pair, {}) | terms.terms, "entries")) for pair, terms in more.items()}

    def _shown(self, entry: Entry) -> dict[str, Any]:
        dictionaries = [_counted(pair, terms) for pair, terms in entry.dictionaries.items()]
        head = {"glossary_id": entry.id, "name": entry.name, "creation_time": entry.made}
        return head | {"dictionaries": dictionaries}


def _first(entry: Entry) -> tuple[tuple[str, str], Glossary]:
    """Return the only dictionary of a glossary; `Refused` (404) if it has none, as /v2 sees it."""
    if not entry.dictionaries:
        raise Refused(404, f"The glossary {entry.id!r} has no terms.")
    return next(iter(entry.dictionaries.items()))


def _counted(pair: tuple[str, str], terms: Glossary) -> dict[str, Any]:
    return {"source_lang": pair[0], "target_lang": pair[1], "entry_count": len(terms.terms)}


def _dictionary(service: Service, table: dict[str, Any]) -> tuple[tuple[str, str], Glossary]:
    """Return the languages and the terms of a dictionary; `Refused` (400) if it is wrong, or no run translates so."""
    if not all(isinstance(table.get(name), str) for name in DICTIONARY):
        raise Refused(400, f"A dictionary needs {', '.join(DICTIONARY)}, all texts.")
    require_encodable("entries", [table["entries"]])
    if table["entries_format"] not in FORMATS:
        raise Refused(400, f"entries_format must be {' or '.join(FORMATS)}.")
    pair = language(table["source_lang"]), language(table["target_lang"])
    service.for_languages(*pair)
    lines = table["entries"].splitlines()
    try:
        if table["entries_format"] == "csv":
            lines = ["\t".join(row[:2]) for row in csv.reader(lines)]
        return pair, _limited(Glossary.of_lines(lines, "entries"))
    except (InputError, csv.Error) as error:
        raise Refused(400, str(error)) from error


def _limited(glossary: Glossary) -> Glossary:
    """Return a glossary; `Refused` (413) if it has too many terms."""
    if len(glossary.terms) > MAX_TERMS:
        raise Refused(413, f"A dictionary may have {MAX_TERMS:,} entries.")
    return glossary


def _as_tsv(glossary: Glossary) -> str:
    return "\n".join(f"{term}\t{result}" for term, result in glossary.terms.items())


def _pair_in(request: Request, entry: Entry) -> tuple[str, str]:
    """Return the languages in the query of a request; `Refused` (404) if the glossary does not have them."""
    query = request.query_params
    pair = language(query.get("source_lang", "")), language(query.get("target_lang", ""))
    if pair not in entry.dictionaries:
        raise Refused(404, f"The glossary {entry.id!r} has no terms for {pair[0]} to {pair[1]}.")
    return pair


def language(code: str) -> str:
    """Return a language code without its country, as in EN-US, in lower case."""
    return code.split("-")[0].lower()
