"""A conversation as the page shows it: turns as plain views, and one answer as a stream of pieces of HTML.

The stream is server-sent events for htmx: an unnamed message is HTML that says where it goes (``<hx-partial>``), named
ones (``turn`` first, ``end`` last) are for the page's script.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import anyio
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from markupsafe import Markup
from starlette.types import Receive, Scope, Send

from app.db import DatabaseUnavailable
from app.deps import Services
from app.inference import Inference, Inferences, ReplyFailed
from app.markdown import Growing, render
from app.store import NotFound, RatedMessage, Turn
from app.streaming import NO_BUFFERING
from app.tables import Message
from app.templating import fragment, swap
from engine.interface import EngineError, Sampling

RATER = "local"
"""The person at this machine."""


@dataclass(frozen=True)
class ReplyView:
    """A reply as templates read it."""

    id: str
    turn: str
    """The user row it answers."""
    state: str
    text: str
    html: Markup
    who: str
    """``gen 12 · member 7``."""
    version: int
    """From 1."""
    note: str
    """Why it is not whole, or empty."""
    rateable: bool
    thumb: bool | None
    comment: str
    said: str = ""
    """What the last vote did."""


@dataclass(frozen=True)
class TurnView:
    id: str
    content: str
    reply: ReplyView | None
    note: str
    """Why there is no reply, or empty."""


def reply_view(rated: RatedMessage, inferences: Inferences, said: str = "") -> ReplyView:
    """The view of a stored reply; one that is being written shows the text so far."""
    row = rated.message
    running = inferences.running(row.id) if row.state == "streaming" else None
    text = running.text if running else row.content
    thumb = rated.ratings.get("thumb")
    return ReplyView(
        id=row.id,
        turn=row.parent_id or "",
        state=row.state,
        text=text,
        html=Markup(render(text)),
        who=_who(row),
        version=row.version + 1,
        note=_note(row),
        rateable=row.state in ("done", "stopped") and row.generation is not None and bool(text),
        thumb=None if thumb is None else thumb >= 0.5,
        comment=rated.comment,
        said=said,
    )


def turn_view(turn: Turn, inferences: Inferences, note: str = "") -> TurnView:
    shown = reply_view(turn.shown, inferences) if turn.shown else None
    return TurnView(turn.user.id, turn.user.content, shown, note if shown is None or not shown.note else "")


def _who(row: Message) -> str:
    if row.generation is None:
        return ""
    return f"gen {row.generation} · " + ("source" if row.member is None else f"member {row.member}")


def _note(row: Message) -> str:
    if row.state == "failed":
        return row.error or "The reply failed. Ask again."
    if row.state == "stopped":
        return row.error or ("Stopped." if row.content else "Stopped before the first word.")
    if row.state == "done" and row.finish_reason == "length":
        return "Cut off at the longest reply that the settings allow."
    return ""


def sampling(services: Services) -> Sampling:
    """How chat asks."""
    chat = services.preferences.chat
    return Sampling(temperature=chat.temperature, max_tokens=chat.max_tokens)


def _event(name: str, data: dict[str, Any]) -> bytes:
    return format_sse_event(event=name, data_str=json.dumps(data))


def _html(*pieces: str) -> bytes:
    return format_sse_event(data_str="".join(pieces))


async def answer(services: Services, user: Message, *, new: bool) -> AsyncIterator[bytes]:
    """Answers a user row by the least-rated member. ``new``: the row itself is not on the page yet."""
    assert user.conversation_id is not None
    talk = await services.store.conversation(user.conversation_id)
    note = ""
    async with _asked(services, user) as asked:
        yield _event("turn", {"conversation": talk.id, "turn": user.id, "title": talk.title})
        yield await _begun(services, user, new)
        try:
            async with await asked as inference:
                growing = Growing()
                async for delta in inference:
                    if delta.text:
                        yield _grown(user.id, *growing.add(delta.text))
        except (EngineError, ReplyFailed, DatabaseUnavailable, NotFound) as error:
            note = str(error)
    view = turn_view(await find_turn(services, talk.id, user.id), services.inferences, note)
    yield _html(swap(f"#t-{user.id}", fragment("_turn.html", turn=view), "outerHTML"))
    yield _event("end", {})


@contextlib.asynccontextmanager
async def _asked(services: Services, user: Message) -> AsyncIterator[asyncio.Task[Inference]]:
    """The engine is being asked: from here on :meth:`Inferences.stop_answer` finds it. Leaving stops it."""
    messages = await services.store.prompt(user.id, services.preferences.chat.system_prompt)
    task = asyncio.create_task(services.inferences.open(messages, sampling(services), source="chat", parent_id=user.id))
    await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is None:
                await task.result().close()


async def _begun(services: Services, user: Message, new: bool) -> bytes:
    if not new:
        return _html(swap(f"#t-{user.id} .reply", fragment("_writing.html", turn=user.id), "outerHTML"))
    turn = fragment("_turn.html", turn=TurnView(user.id, user.content, None, ""), writing=True)
    talks = fragment("_talks.html", talks=await services.store.conversations(), current=user.conversation_id)
    return _html(swap("#log", turn, "beforeend"), swap("#talks", talks))


def _grown(user_id: str, settled: str, tail: str) -> bytes:
    place = f"#w-{user_id}"
    before = swap(f"{place} .settled", settled, "beforeend") if settled else ""
    return _html(before, swap(f"{place} .tail", tail))


async def find_turn(services: Services, conversation: str, user_id: str) -> Turn:
    """One turn of a conversation. Raises NotFound."""
    for turn in await services.store.thread(conversation, RATER):
        if turn.user.id == user_id:
            return turn
    raise NotFound("This message does not exist, or its conversation was deleted.")


class AnswerResponse(StreamingResponse):
    """Streams :func:`answer`; when the client leaves, the answer is stopped at once and its text kept."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        super().__init__(pieces, headers=NO_BUFFERING, media_type="text/event-stream")
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._pieces):  # type: ignore[type-var]
            await super().__call__(scope, receive, send)
