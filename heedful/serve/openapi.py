"""A description of the server's interfaces in OpenAPI 3.1: /openapi.json."""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from heedful import __version__
from heedful.serve.requests import ANY, FLAG, JSON, NUMBER, TEXT, TEXTS, WHOLE, Field

UPLOAD = "multipart/form-data"
SCHEMAS: dict[Any, dict[str, Any]] = {
    TEXT: {"type": "string"}, FLAG: {"type": "boolean"}, WHOLE: {"type": "integer"}, NUMBER: {"type": "number"},
    TEXTS: {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, ANY: {},
}  # fmt: skip


class Operation(Route):
    """A route whose body has known fields.

    Args:
        path, endpoint, method: as for `Route`; the first line of the endpoint's docstring is its summary.
        fields: of the body.
        forms: content types of the body besides JSON.
    """

    def __init__(
        self, path: str, endpoint: Any, fields: Mapping[str, Field], forms: Sequence[str] = (), method: str = "POST"
    ):
        super().__init__(path, endpoint, methods=[method])
        self.fields, self.forms = fields, forms

    def body(self) -> dict[str, Any]:
        """Return the description of the body."""
        properties = {
            name: SCHEMAS[field.kind] | ({"description": "has no effect"} if field.ignored else {})
            | ({"minimum": field.minimum} if field.minimum is not None else {})
            | ({"maximum": field.maximum} if field.maximum is not None else {})
            | ({"default": field.default} if field.default not in (None, ...) else {})
            for name, field in self.fields.items()
        }  # fmt: skip
        required = [name for name, field in self.fields.items() if field.default is ...]
        schema = {"type": "object", "properties": properties} | ({"required": required} if required else {})
        if UPLOAD in self.forms:
            file = {"type": "string", "format": "binary"}
            schema = schema | {"properties": properties | {"file": file}, "required": ["file", *required]}
            return {"required": True, "content": {UPLOAD: {"schema": schema}}}
        return {"required": True, "content": {kind: {"schema": schema} for kind in (JSON, *self.forms)}}


def description(routes: Sequence[BaseRoute], needs_key: bool) -> dict[str, Any]:
    """Return the description of routes.

    Args:
        routes: of the server.
        needs_key: whether a request needs a key.
    """
    paths: dict[str, Any] = {}
    for route in routes:
        if not isinstance(route, Route):
            continue
        names = re.findall(r"{(\w+)(?::\w+)?}", route.path)
        parameters = [{"name": name, "in": "path", "required": True, "schema": SCHEMAS[TEXT]} for name in names]
        for method in sorted((route.methods or {"GET"}) - {"HEAD"}):
            summary = (inspect.getdoc(route.endpoint) or "").split("\n")[0].rstrip(".")
            operation: dict[str, Any] = {"responses": {"200": {"description": "the answer"}}}
            operation |= {"summary": summary} if summary else {}
            operation |= {"parameters": parameters} if parameters else {}
            if isinstance(route, Operation):
                operation["requestBody"] = route.body()
            paths.setdefault(re.sub(r":\w+}", "}", route.path), {})[method.lower()] = operation
    document: dict[str, Any] = {
        "openapi": "3.1.0", "info": {"title": "heedful", "version": __version__}, "paths": paths,
    }  # fmt: skip
    if needs_key:
        document["components"] = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        document["security"] = [{"key": []}]
    return document


def openapi_route(routes: Sequence[BaseRoute], needs_key: bool) -> Route:
    """Return the route of the description of `routes`."""

    async def openapi(request: Request) -> JSONResponse:
        """Describe this server."""
        return JSONResponse(description(routes, needs_key))

    return Route("/openapi.json", openapi, methods=["GET"])
