"""The application: all interfaces of a service, with the checks that every request passes."""

import base64
import functools
import hmac
import logging
from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from heedful.core.errors import InputError
from heedful.serve import deepl, huggingface, libretranslate, openai, pages
from heedful.serve.monitoring import Monitor
from heedful.serve.openapi import openapi_route
from heedful.serve.requests import KEY_CHECK, Refused, warnings_of
from heedful.serve.service import Service

OPEN = ("/livez", "/readyz", "/health")  # paths that need no key
PAGES = ("/page/", "/api/")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
logger = logging.getLogger("heedful.serve")


def build_app(
    service: Service, hosts: Sequence[str], keys: Sequence[str] = (), origins: Sequence[str] = ()
) -> tuple[ASGIApp, Monitor]:
    """Return the application and its monitor.

    Args:
        service: the runs.
        hosts: names that a request may have in its Host header; `*` allows any.
        keys: if there are any, a request must have one of them.
        origins: origins of web pages that may use the server from a browser.
    """
    monitor, service.needs_key = Monitor(service), bool(keys)
    routes = [*monitor.routes(), *libretranslate.routes(service), *deepl.routes(service), *openai.routes(service)]
    routes += [*huggingface.routes(service), *pages.routes(service)]
    routes.append(openapi_route(routes[:], bool(keys)))
    app: Any = Starlette(routes=routes, exception_handlers={
        Refused: _refused, InputError: _bad_input, HTTPException: _http_error, Exception: _failed,
    })  # fmt: skip
    app = _guarded(app, hosts, keys, origins)
    return monitor.middleware(app, routes), monitor


def _guarded(app: ASGIApp, hosts, keys, origins) -> ASGIApp:
    """Return `app` after the checks of Host, Origin and key."""

    def refusal_of(request: Request) -> Response | None:
        """Return the answer to a request that `app` does not get."""
        path, origin = request.scope["path"], request.headers.get("origin")  # that of `url` depends on the Host header
        if "*" not in hosts and _host(request.headers.get("host", "")) not in hosts:
            return _error(403, "This server does not answer for that host name: see --allowed-host.", path=path)
        if origin and origin not in origins and not _is_own(origin.partition("://")[2], request, hosts):
            return _error(403, "Web pages of other origins may not use this server: see --cors.", path=path)
        if request.method == "OPTIONS" and origin:
            return Response(status_code=204)
        if not keys or path in OPEN or path.startswith(libretranslate.DOWNLOADS) or _has_key(request, keys):
            return None
        if path in libretranslate.KEY_IN_BODY and "authorization" not in request.headers:
            request.scope.setdefault("state", {})[KEY_CHECK] = functools.partial(_is_key, keys)
            return None
        return _without_key(path)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        request = Request(scope, receive)
        refusal, origin = refusal_of(request), request.headers.get("origin")
        allowed = [(b"x-content-type-options", b"nosniff")]
        if origin and origin in origins:
            allowed += [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin"),
                        (b"access-control-allow-headers", _requested_headers(request)),
                        (b"access-control-expose-headers", b"retry-after, warning"),
                        (b"access-control-allow-methods", ", ".join(METHODS).encode())]  # fmt: skip

        async def sent(message):
            if message["type"] == "http.response.start":
                warnings = [(b"warning", f'299 heedful "{_quoted(text)}"'.encode()) for text in warnings_of(scope)]
                message["headers"] = [*message.get("headers", []), *allowed, *warnings]
            await send(message)

        await (refusal or app)(scope, receive, sent)

    return guarded


def _requested_headers(request: Request) -> bytes:
    """Return which headers a page of an allowed origin may send: those it asks for, such as OpenAI's own."""
    return request.headers.get("access-control-request-headers", "authorization, content-type").encode("latin-1")


def _quoted(text: str) -> str:
    """Return a text as the content of a quoted string in a header, where control characters may not stand."""
    visible = "".join(character if character.isprintable() else "?" for character in text)
    return visible.replace("\\", "\\\\").replace('"', '\\"')


def _is_own(address: str, request: Request, hosts: Sequence[str]) -> bool:
    """Return whether an address of a web page is one of the server's own: of a known host, or of the request's."""
    return _host(address) in hosts or address.lower() == request.headers.get("host", "").lower()


def _host(value: str) -> str:
    """Return the name in a Host header, without its port."""
    return (value.split("]")[0] + "]" if value.startswith("[") else value.split(":")[0]).lower()


def _has_key(request: Request, keys) -> bool:
    """Return whether a request has a key: as bearer token (OpenAI, LibreTranslate), of DeepL, or as password."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode("utf-8").partition(":")[2]
        except ValueError:
            return False
    elif scheme.lower() not in ("bearer", "deepl-auth-key"):
        return False
    return _is_key(keys, given)


def _is_key(keys: Sequence[str], given: str) -> bool:
    return any(hmac.compare_digest(given.strip().encode("utf-8", "surrogatepass"), key.encode()) for key in keys)


def _without_key(path: str) -> Response:
    """Return the answer to a request without a key, or with a wrong one."""
    if path.startswith(("/v2/", "/v3/")):  # as DeepL
        return _error(403, "An API key is needed.", path=path)
    # Browsers cannot send a bearer token when they open a page; they can send a password.
    scheme = 'Basic realm="heedful"' if path.startswith(PAGES) else "Bearer"
    return _error(401, "An API key is needed.", {"WWW-Authenticate": scheme}, path)


def _error(status: int, message: str, headers: dict[str, str] | None = None, path: str = "") -> JSONResponse:
    """Return an error in the form of the interface: OpenAI's `error.message`, or LibreTranslate's and DeepL's."""
    if path.startswith("/v1/"):
        kind = "invalid_request_error" if status < 500 else "server_error"
        error = {"message": message, "type": kind, "param": None, "code": None}
        return JSONResponse({"error": error}, status, headers)
    return JSONResponse({"error": message, "message": message}, status, headers)


async def _refused(request: Request, refused: Exception) -> Response:
    assert isinstance(refused, Refused)  # noqa: S101 - for the type checker
    return _error(refused.status, refused.message, refused.headers, request.url.path)


async def _bad_input(request: Request, error: Exception) -> Response:
    return _error(422, str(error), None, request.url.path)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - for the type checker
    return _error(error.status_code, error.detail, dict(error.headers or {}), request.url.path)


async def _failed(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _error(500, "The server failed; its log says why.", None, request.url.path)
