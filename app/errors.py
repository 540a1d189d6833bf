"""One shape for every error, ``{"error": {"message", "type", "code"}}``, and a page for browsers."""

from __future__ import annotations

import logging
import re
from html import escape
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.changes import BadSetting
from app.db import DatabaseUnavailable
from app.events import TooManySubscribers
from app.inference import ReplyFailed
from app.ratings import BadRating, KeyReused, NotFinished
from app.sources import BadWeight
from app.store import NotFound
from app.traffic.desk import BadPlan, RunActive
from app.traffic.forms import BadForm
from engine.interface import BadRequest, CannotMerge, EngineError, NotReady
from engine.judges import JudgeFault
from engine.judges.errors import UnknownError
from engine.tasks import TaskError

log = logging.getLogger(__name__)
RETRY_AFTER = "5"

STATUS: dict[type[Exception], tuple[int, str]] = {
    NotReady: (503, "not_ready"),
    DatabaseUnavailable: (503, "database_unavailable"),
    TooManySubscribers: (503, "too_many_listeners"),
    ReplyFailed: (502, "reply_failed"),
    CannotMerge: (409, "cannot_merge"),
    NotFinished: (409, "not_finished"),
    KeyReused: (409, "idempotency_key_reused"),
    RunActive: (409, "run_active"),
    NotFound: (404, "not_found"),
    BadSetting: (422, "bad_setting"),
    BadPlan: (422, "bad_plan"),
    BadForm: (422, "bad_form"),
    BadWeight: (422, "bad_weight"),
    TaskError: (422, "bad_task"),
    UnknownError: (422, "bad_judge"),
    JudgeFault: (422, "bad_judge"),
    BadRating: (422, "bad_rating"),
    BadRequest: (400, "bad_request"),
    EngineError: (500, "engine_error"),
}
"""What the layers below may raise, most specific first: (HTTP status, code)."""


class ErrorDetail(BaseModel):
    """`type` is one of OpenAI's, `param` the field that is at fault, `code` a word for programs."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(BaseModel):
    """Every error looks like this."""

    error: ErrorDetail


class ApiError(Exception):
    """A refusal with a status; the message says what to do."""

    def __init__(self, status: int, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param


def body(status: int, message: str, code: str, param: str | None = None) -> dict[str, dict[str, str | None]]:
    """The error shape; ``type`` is one of OpenAI's."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def answer(
    request: Request,
    status: int,
    message: str,
    code: str,
    param: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """The error as the client reads it: a page for a browser that opens one, else JSON."""
    headers = dict(headers or {})
    if status == 503:
        headers.setdefault("Retry-After", RETRY_AFTER)
    api = request.url.path.startswith(("/api/", "/v1/", "/healthz", "/openapi.json"))
    if "text/html" in request.headers.get("accept", "") and not api and "hx-request" not in request.headers:
        return HTMLResponse(page(status, message), status, headers)
    return JSONResponse(body(status, message, code, param), status, headers)


def page(status: int, message: str) -> str:
    """A page that needs nothing else to work."""
    title = escape(HTTPStatus(status).phrase)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} · popserve</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="stylesheet" href="/static/popserve.css"></head>'
        f'<body><main class="error-page"><h1>{title}</h1><p>{escape(message)}</p>'
        '<p><a href="/">Back to the chat</a></p></main></body></html>'
    )


def described(error: RequestValidationError) -> tuple[str, str | None]:
    """(what is wrong with each field, the first field) in words, without echoing what was sent."""
    said: dict[str, list[str]] = {}
    for fault in error.errors()[:20]:
        place = [str(p) for p in fault["loc"] if p not in ("body", "query", "path", "header")]
        name = ".".join(p for i, p in enumerate(place) if not (i and _INNER.search(p)))[:120]
        message = str(fault["msg"]).removeprefix("Value error, ")
        if fault["type"] == "json_invalid":
            name, message = "", "The body is not valid JSON."
        messages = said.setdefault(name, [])
        if message not in messages:
            messages.append(message)
    parts = [f"{name}: {', or '.join(found)}" if name else ", or ".join(found) for name, found in said.items()]
    return "; ".join(parts[:5]).encode("utf-8", "replace").decode(), next(filter(None, said), None)


_INNER = re.compile(r"[(\[]|^(?:bool|int|float|str|none|dict|list)$")
"""Pydantic's own names of what a field may hold, which say nothing to a client."""


def install(app: FastAPI) -> None:
    """Registers the handlers."""

    async def known(request: Request, error: Exception) -> Response:
        status, code = next(v for kind, v in STATUS.items() if isinstance(error, kind))
        return answer(request, status, str(error), code)

    for kind in STATUS:
        app.add_exception_handler(kind, known)

    @app.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> Response:
        return answer(request, error.status, str(error), error.code, error.param)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        message, param = described(error)
        status = 400 if request.url.path.startswith("/v1/chat") else 422
        return answer(request, status, message, "invalid", param)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        detail = str(error.detail)
        if error.status_code == 404 and detail == "Not Found":
            detail = "There is nothing at this address."
        if error.status_code == 413:
            detail = "The request is too large."
        code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
        return answer(request, error.status_code, detail, code, headers=dict(error.headers or {}))

    @app.exception_handler(ClientDisconnect)
    async def left(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def fault(request: Request, error: Exception) -> Response:
        return answer(request, 500, "Something went wrong here; the server's log says what.", "internal_error")
