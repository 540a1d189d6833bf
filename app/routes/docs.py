"""``/docs``: the API, to read and to try, with Swagger UI out of an installed wheel (nothing from another host)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, Response

from app.errors import ApiError

router = APIRouter(include_in_schema=False)
FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>API · popserve</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/docs/swagger-ui.css"></head>
<body><div id="swagger-ui"></div>
<script src="/docs/swagger-ui-bundle.js"></script><script src="/docs/start.js"></script></body></html>
"""
START = """SwaggerUIBundle({
  url: "/openapi.json", dom_id: "#swagger-ui", deepLinking: true, displayRequestDuration: true, validatorUrl: null,
});
"""


def folder() -> Path | None:
    """Where the wheel lies; it is read as data, nothing of it is imported."""
    found = find_spec("fastapi_swagger")
    return Path(next(iter(found.submodule_search_locations))) / "resources" if found else None  # type: ignore[arg-type]


@router.get("/docs")
async def docs() -> HTMLResponse:
    return HTMLResponse(PAGE)


@router.get("/docs/start.js")
async def start() -> Response:
    return Response(START, media_type="text/javascript")


@router.get("/docs/{name}")
async def asset(name: str, request: Request) -> Response:
    place = folder()
    if name not in FILES or place is None:
        raise ApiError(
            404, "This file of the API page is not installed; /openapi.json holds the description.", "not_found"
        )
    return FileResponse(place / name, media_type=FILES[name], headers={"Cache-Control": "max-age=86400"})
