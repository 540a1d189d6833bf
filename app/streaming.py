"""Where a reply meets HTTP: a client that leaves stops its reply, before the first token and after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Coroutine
from typing import Any, TypeVar

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.inference import Inference

T = TypeVar("T")
NO_BUFFERING = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; cancels it and raises ClientDisconnect when the client leaves first."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait([task, watch], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return await task
        raise ClientDisconnect()
    finally:
        watch.cancel()
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task, watch])
        if not task.cancelled():
            task.exception()


class ReplyResponse(StreamingResponse):
    """A streamed body made from ``inference``; however the response ends, the inference is closed."""

    def __init__(self, inference: Inference, content: AsyncIterable[str | bytes], **options: Any) -> None:
        options["headers"] = NO_BUFFERING | (options.get("headers") or {})
        options.setdefault("media_type", "text/event-stream")
        super().__init__(content, **options)
        self._inference = inference

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._inference.close()
