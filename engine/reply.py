"""One admitted request: who answers it, and its stream."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.interface import BadRequest, Delta, Sampling, Target

if TYPE_CHECKING:
    from engine.backends.base import Backend, Stream
    from engine.server import Server


class ServedReply:
    """See :class:`engine.interface.Reply`. The member and its weights are fixed on entering, in one step of the event
    loop: a merge or a fold falls before or after it, never inside."""

    def __init__(
        self,
        server: Server,
        messages: list[dict[str, str]],
        sampling: Sampling,
        request_id: str,
        target: Target,
        session: str | None,
        member: int | None,
        priority: int,
    ):
        self._server, self._messages = server, messages
        self._id, self._target, self._session, self._priority = request_id, target, session, priority
        self._named = member
        self.seed = secrets.randbits(31) if sampling.seed is None else sampling.seed
        self._sampling = replace(sampling, seed=self.seed)
        self.generation = 0
        self.member: int | None = None
        self.prompt_tokens = 0
        self._backend: Backend | None = None
        self._stream: Stream | None = None
        self._entered = False

    async def __aenter__(self) -> ServedReply:
        server = self._server
        backend = server.backend_or_raise()
        tokens = backend.encode(self._messages)
        self.prompt_tokens = len(tokens)
        if self.prompt_tokens >= backend.max_model_len:
            raise BadRequest(
                f"the conversation has {self.prompt_tokens} tokens, the model reads at most "
                f"{backend.max_model_len - 1}: shorten it or start a new one"
            )
        await server.gate.enter()
        try:
            backend = server.backend_or_raise()
            self.generation, self.member, weights = server.assign(self._target, self._session, self._named)
            self._entered, self._backend = True, backend
            with server.watching_for_death(backend):
                self._stream = backend.open(
                    tokens, self._sampling, weights, request_id=self._id, priority=self._priority
                )
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            if self._stream is not None:
                await self._stream.close()
        finally:
            self._leave()

    def _leave(self) -> None:
        if self._entered:
            self._entered = False
            self._server.release(self.generation, self.member)
        self._server.gate.leave()

    async def __aiter__(self) -> AsyncIterator[Delta]:
        assert self._stream is not None, "enter the reply first"
        before = 0
        with self._server.watching_for_death(self._backend):
            async for delta in self._stream:
                self._server.meter.add(delta.tokens - before)
                before = delta.tokens
                yield delta
