"""``GET /api/events``: what happens, as it happens (server-sent events)."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from fastapi.sse import EventSourceResponse, ServerSentEvent

from app.deps import ServicesDep
from app.events import Subscription
from app.routes.api import present

router = APIRouter(tags=["population"])


async def subscription(
    services: ServicesDep, last_event_id: Annotated[str | None, Header()] = None
) -> AsyncIterator[Subscription]:
    listening = services.bus.subscribe(last_event_id)
    try:
        yield listening
    finally:
        services.bus.leave(listening)


@router.get("/api/events", response_class=EventSourceResponse)
async def events(
    services: ServicesDep, listening: Annotated[Subscription, Depends(subscription)]
) -> AsyncIterable[ServerSentEvent]:
    """Named events with JSON data: `status` (as `/api/status`, at most four a second), `rating`, `merge`, `population`,
    `served`, `settings`, `traffic` (at most four a second), `judge`, `mark`, `opinion`, `implicit`.

    After a lost connection send `Last-Event-ID` to get what was missed; `resync` says that it is no longer kept:
    load afresh."""
    yield ServerSentEvent(event="status", data=present(services), retry=2000)
    async for event in listening:
        data = present(services) if event.kind == "status" else event.data
        yield ServerSentEvent(event=event.kind, data=data, id=event.id or None)
