"""``/static/NAME``: the files of :mod:`app.assets`, kept for a year where the address names their content."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.assets import NoAsset, load
from app.errors import ApiError

router = APIRouter(include_in_schema=False)


@router.get("/static/{name}")
async def static(name: str, request: Request, v: str = "") -> Response:
    try:
        asset = await asyncio.to_thread(load, name)
    except NoAsset as error:
        raise ApiError(404, str(error), "not_found") from error
    tag = f'"{asset.digest}"'
    kept = "public, max-age=31536000, immutable" if v == asset.digest else "no-cache"
    headers = {"Cache-Control": kept, "ETag": tag, "Vary": "Accept-Encoding"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    body = asset.body
    if "gzip" in request.headers.get("accept-encoding", "").lower():
        body, headers["Content-Encoding"] = asset.gzipped, "gzip"
    return Response(body, headers=headers, media_type=asset.media_type)
