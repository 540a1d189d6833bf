"""One reply, from the stored row to the stored text. Knows nothing of HTTP.

    async with await inferences.open(messages, sampling, source="chat", parent_id=user_row.id) as inference:
        inference.id, inference.generation, inference.member      # known before the first token
        async for delta in inference:                              # engine.interface.Delta
            ...
    inference.state, inference.text, inference.finish_reason, inference.completion_tokens

``open`` returns when the reply is admitted; it raises engine.interface.NotReady or BadRequest. The finished row is
committed before the last delta is handed on. Leaving the block, ``await inference.close()``, ``inferences.stop(id)``
and a cancelled task all stop the generation at once, also before the first token, and keep the text so far as
``stopped``. A stop ends the iteration quietly; an engine failure raises :class:`ReplyFailed`, with the text so far
kept as ``failed``. A web response that streams a reply is :class:`app.streaming.ReplyResponse`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import anyio
from sqlmodel import Session, col, update

from app.db import Database, DatabaseUnavailable
from app.store import next_version
from app.tables import Message, MessageState
from engine.interface import Delta, EngineError, NotReady, PopulationServer, Reply, Sampling, Target

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunTags:
    """What a reply to a simulated user is stored with, see :class:`app.tables.Message`."""

    run_id: str
    task: str
    category: str | None = None
    request_index: int | None = None
    episode_id: str | None = None


class ReplyFailed(Exception):
    """The engine broke off a reply; the message is written for people."""


def new_id() -> str:
    """An inference id."""
    return "chatcmpl-" + secrets.token_hex(16)


class Inference:
    """A reply under way; made by :meth:`Inferences.open`. Iterate it once."""

    def __init__(self, owner: Inferences, row: Message, reply: Reply) -> None:
        self.id = row.id
        self.row = row
        """The row as it was stored at the start (conversation, turn, version)."""
        self.text = ""
        self.state: MessageState = "streaming"
        self.finish_reason: str | None = None
        self.completion_tokens = 0
        self.generation: int | None = None
        self.member: int | None = None
        self.seed: int | None = None
        self.prompt_tokens: int | None = None
        self._owner = owner
        self._reply = reply
        self._stopping = False
        self._deltas: asyncio.Queue[Delta | Exception | None] = asyncio.Queue()
        self._admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=f"reply {row.id}")
        self._task.add_done_callback(self._finished)

    async def __aenter__(self) -> Inference:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Delta]:
        while (item := await self._deltas.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    def stop(self) -> None:
        """Stops the generation; :meth:`close` waits until its row is stored."""
        if not self._stopping:
            self._stopping = True
            self._task.cancel()

    async def close(self) -> None:
        """Stops the generation if it still runs and waits until its row is stored, also inside a cancelled task."""
        self.stop()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self._task])

    async def admitted(self) -> None:
        """Returns when the engine has taken the request; raises what it was refused with."""
        try:
            await asyncio.shield(self._admitted)
        except BaseException:
            await self.close()
            raise

    async def _run(self) -> None:
        """Generates and stores; a task of its own, so that no client can interrupt the storing."""
        try:
            self.row = await self._owner.db.write(partial(_insert, row=self.row))
            async with self._reply as reply:
                self.generation, self.member = reply.generation, reply.member
                self.seed, self.prompt_tokens = reply.seed, reply.prompt_tokens
                self._admitted.set_result(None)
                async for delta in reply:
                    self.text += delta.text
                    self.completion_tokens = delta.tokens
                    if delta.finish_reason is not None:
                        self.finish_reason = delta.finish_reason
                        await self._store("done")
                        self._deltas.put_nowait(delta)
                        return
                    self._deltas.put_nowait(delta)
            raise EngineError("The reply ended without saying why.")
        except asyncio.CancelledError:
            await self._end("done" if self.finish_reason else "stopped")
        except Exception as error:
            await self._end("failed", words(error))
            raise

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._owner.forget(self)
        error = None if task.cancelled() else task.exception()
        if not self._admitted.done():
            self._admitted.set_exception(error or NotReady("The reply was stopped before it began."))
            self._admitted.exception()  # marks it as seen: nobody may be waiting any more
        elif error is not None:
            if not isinstance(error, EngineError | DatabaseUnavailable):
                log.error("reply %s failed", self.id, exc_info=error)
            self._deltas.put_nowait(ReplyFailed(words(error)))
        self._deltas.put_nowait(None)

    async def _end(self, state: MessageState, error: str | None = None) -> None:
        """Stores an unfinished reply; a database that fails now must not hide why it ended."""
        try:
            await self._store(state, error)
        except Exception as failure:
            log.error("reply %s could not be stored: %s", self.id, failure)
            self.state = state

    async def _store(self, state: MessageState, error: str | None = None) -> None:
        values: dict[str, Any] = {
            "content": self.text.encode("utf-8", "replace").decode(),
            "state": state,
            "generation": self.generation,
            "member": self.member,
            "seed": self.seed,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "finish_reason": self.finish_reason,
            "finished_at": time.time(),
            "error": error,
        }
        await self._owner.db.write(partial(_update, message_id=self.id, values=values))
        self.state = state


def words(error: BaseException) -> str:
    """What a client may read of an error."""
    if isinstance(error, EngineError | DatabaseUnavailable):
        return str(error)
    return "The engine failed while it wrote this reply. The text so far is kept; ask again."


class Inferences:
    """Opens replies and knows those under way."""

    def __init__(self, db: Database, server: PopulationServer) -> None:
        self.db = db
        self.server = server
        self._running: dict[str, Inference] = {}
        self._closed = False

    async def open(
        self,
        messages: list[dict[str, str]],
        sampling: Sampling,
        *,
        source: str,
        target: Target = "population",
        parent_id: str | None = None,
        session: str | None = None,
        member: int | None = None,
        priority: int = 0,
        tags: RunTags | None = None,
    ) -> Inference:
        """Stores the row, asks the engine, returns once it is admitted.

        ``parent_id`` is the user row that is answered (None for the API); the rest as
        :meth:`engine.interface.PopulationServer.reply` takes it. Raises NotReady, BadRequest, NotFound,
        DatabaseUnavailable.
        """
        status = self.server.status()
        if self._closed or status.state in ("starting", "failed"):
            raise NotReady(status.waiting_for or "The server is shutting down.")
        row = Message(
            id=new_id(),
            parent_id=parent_id,
            role="assistant",
            state="streaming",
            prompt=messages,
            target=target,
            source=source,
            sampling=asdict(sampling),
            created_at=time.time(),
            **(asdict(tags) if tags else {}),
        )
        reply = self.server.reply(
            messages, sampling, request_id=row.id, target=target, session=session, member=member, priority=priority
        )
        inference = Inference(self, row, reply)
        self._running[row.id] = inference
        await inference.admitted()
        return inference

    def running(self, inference_id: str) -> Inference | None:
        """The reply if it is still being written."""
        return self._running.get(inference_id)

    async def stop(self, inference_id: str) -> bool:
        """Stops a reply and waits until its text is stored; False when it was not running."""
        inference = self._running.get(inference_id)
        if inference is None:
            return False
        await inference.close()
        return True

    async def stop_answer(self, parent_id: str) -> bool:
        """Stops what answers a user row, also before it is admitted; False when nothing does."""
        answering = [i for i in self._running.values() if i.row.parent_id == parent_id]
        await asyncio.gather(*(i.close() for i in answering))
        return bool(answering)

    def stop_all(self) -> None:
        """Stops everything and admits nothing more (shutdown)."""
        self._closed = True
        for inference in list(self._running.values()):
            inference.stop()

    async def close(self) -> None:
        """As :meth:`stop_all`, and waits until every row is stored."""
        self.stop_all()
        await asyncio.gather(*(inference.close() for inference in list(self._running.values())))

    def forget(self, inference: Inference) -> None:
        self._running.pop(inference.id, None)


def _insert(session: Session, row: Message) -> Message:
    copy = Message.model_validate(row)
    if copy.parent_id is not None:
        copy.conversation_id, copy.turn, copy.version = next_version(session, copy.parent_id)
    session.add(copy)
    session.flush()
    return copy


def _update(session: Session, message_id: str, values: dict[str, Any]) -> None:
    session.execute(update(Message).where(col(Message.id) == message_id).values(**values))
