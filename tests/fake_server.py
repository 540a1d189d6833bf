"""An engine without a model: canned words, real generations, and a journal that is told what the real one tells.

``FakeServer(journal)`` is a factory that ``create_app(settings, server=FakeServer)`` takes as it is; give it a partial
for other behaviour. A prompt whose last message is ``fail``, ``slow``, ``refuse`` or ``say: …`` gets just that.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from engine.interface import (
    BadRequest,
    CannotMerge,
    Credit,
    Delta,
    EngineError,
    Journal,
    Listener,
    MemberStatus,
    MergeRecord,
    NotReady,
    RatedReply,
    Sampling,
    State,
    Status,
    Target,
)
from engine.population import Generation, Settings, draw, profile

CANNED = "A **flock** is many birds that move as one."


class FakeReply:
    """Admitted on entering; every word takes ``server.delay`` seconds."""

    def __init__(
        self,
        server: FakeServer,
        messages: list[dict[str, str]],
        sampling: Sampling,
        target: Target,
        session: str | None,
        named: int | None,
    ) -> None:
        self.server, self.messages, self.sampling = server, messages, sampling
        self.target, self.session, self.named = target, session, named
        self.generation = 0
        self.member: int | None = None
        self.seed = 0
        self.prompt_tokens = sum(len(m["content"].split()) for m in messages)
        self.entered = self.left = False

    async def __aenter__(self) -> FakeReply:
        self.server.require()
        if self.messages[-1]["content"] == "refuse":
            raise BadRequest("The conversation is longer than the model can read: start a new one.")
        if self.server.hold is not None:
            await self.server.hold.wait()
        self.entered = True
        self.server.running += 1
        self.generation = 0 if self.target == "base" else self.server.generation.number
        self.member = self.named
        if self.named is None and self.target == "population":
            self.member = self.server.route(self.session)
        self.seed = self.sampling.seed if self.sampling.seed is not None else 1234567
        return self

    async def __aexit__(self, *error: object) -> None:
        self.left = True
        if self.entered:
            self.server.running -= 1
            self.server.emit("served", {"generation": self.generation, "member": self.member})

    async def __aiter__(self) -> AsyncIterator[Delta]:
        order = self.messages[-1]["content"]
        text = order.removeprefix("say:").strip() if order.startswith("say:") else self.server.text
        words = text.split(" ")
        for i, word in enumerate(words, 1):
            await asyncio.sleep(3600 if order == "slow" else self.server.delay)
            if order == "fail" and i == 3:
                raise EngineError("The engine has died; it starts again by itself.")
            if i >= self.sampling.max_tokens and i < len(words):
                yield Delta(word, i, "length")
                return
            yield Delta(word + (" " if i < len(words) else ""), i, "stop" if i == len(words) else None)


class FakeServer:
    """Implements :class:`engine.interface.PopulationServer`."""

    def __init__(
        self,
        journal: Journal,
        *,
        settings: Settings | None = None,
        delay: float = 0.0,
        text: str = CANNED,
        start_after: asyncio.Event | None = None,
        failure: str = "",
    ) -> None:
        self.journal, self.delay, self.text = journal, delay, text
        self.settings = settings or profile("room", members=4, merge_after=4)
        self.start_after, self.failure = start_after, failure
        self.hold: asyncio.Event | None = None
        """When set, requests wait for it before they are admitted."""
        self.state: State = "starting"
        self.generation = draw(0, self.settings, 1)
        self.merges: list[MergeRecord] = []
        self.rewards: dict[int, dict[str, RatedReply]] = defaultdict(dict)
        self.late: set[str] = set()
        self.served: dict[int, int] = defaultdict(int)
        self.sessions: dict[str, int] = {}
        self.replies: list[FakeReply] = []
        self.running = 0
        self.due: asyncio.Task[Any] | None = None
        self.lock = asyncio.Lock()
        self.listeners: list[Listener] = []

    async def start(self) -> None:
        if self.start_after is not None:
            await self.start_after.wait()
        if self.failure:
            self.state = "failed"
            raise EngineError(self.failure)
        saved = await self.journal.load()
        if saved is None:
            await self.journal.begin(self.generation)
        else:
            self.generation, self.settings, self.merges = saved.generation, saved.generation.settings, saved.merges
            for rated in saved.rewards:
                self.rewards[rated.generation][rated.inference_id] = rated
        self.state = "serving"
        self.emit("population", {"generation": self.generation.number})
        self.emit("status", {})

    async def close(self) -> None:
        self.state = "failed"
        if self.due is not None:
            self.due.cancel()

    def require(self) -> None:
        if self.state in ("starting", "failed"):
            raise NotReady(self.status().waiting_for)

    def status(self) -> Status:
        now = self.rewards[self.generation.number]
        waiting = {"starting": "The model is being loaded.", "failed": self.failure or "The engine is closed."}
        last = self.merges[-1] if self.merges else None
        return Status(
            model="fake-model",
            engine="fake (cpu)",
            state=self.state,
            waiting_for=waiting.get(self.state, ""),
            generation=self.generation.number,
            members=self.settings.members,
            ratings=len(now),
            merge_after=self.settings.merge_after,
            rated_members=len({r.member for r in now.values()}),
            drift=0.001 * self.generation.number,
            running=self.running,
            waiting=0,
            tokens_per_second=0.0,
            profile=self.settings.profile,
            settings=self.settings.to_json(),
            last_merge=None
            if last is None
            else {
                "generation": last.generation,
                "mean_reward": last.mean_reward,
                "ratings": last.ratings,
                "null": last.null,
                "merged_at": last.merged_at,
                "message": "nothing to learn: every reply scored the same" if last.null else "merged",
            },
        )

    def members(self) -> list[MemberStatus]:
        now = self.rewards[self.generation.number].values()
        out = []
        for m in self.generation.members:
            rewards = [r.reward for r in now if r.member == m.index]
            fitness = sum(rewards) / len(rewards) if rewards else None
            served = self.served[m.index]
            out.append(MemberStatus(m.index, m.direction.seed, m.sign, served, 0, len(rewards), fitness))
        return out

    def route(self, session: str | None) -> int:
        if session is not None and session in self.sessions:
            return self.sessions[session]
        least = min(self.members(), key=lambda m: (m.ratings, m.served, m.member)).member
        self.served[least] += 1
        if session is not None:
            self.sessions[session] = least
        return least

    def reply(
        self,
        messages: list[dict[str, str]],
        sampling: Sampling,
        *,
        request_id: str,
        target: Target = "population",
        session: str | None = None,
        member: int | None = None,
        priority: int = 0,
    ) -> FakeReply:
        reply = FakeReply(self, messages, sampling, target, session, member)
        self.replies.append(reply)
        return reply

    def rate(
        self, inference_id: str, generation: int, member: int | None, reward: float | None, weight: float = 1.0
    ) -> Credit:
        self.require()
        number = self.generation.number
        kind = "counted" if generation == number else "late"
        if member is None or weight <= 0 or generation < number - self.settings.max_staleness:
            kind = "recorded"
        elif reward is None:
            self.rewards[generation].pop(inference_id, None)
        else:
            self.rewards[generation][inference_id] = RatedReply(inference_id, generation, member, reward, weight)
        if kind == "late":
            self.late.add(inference_id)
        now = len(self.rewards[number])
        self.emit("rating", {"inference_id": inference_id, "ratings": now})
        self.emit("status", {})
        if now >= self.settings.merge_after and (self.due is None or self.due.done()):
            self.due = asyncio.create_task(self._due())
        return Credit(kind, generation, member, now, self.settings.merge_after)

    async def _due(self) -> None:
        with contextlib.suppress(CannotMerge):
            await self.merge("ratings")

    async def merge(self, reason: str = "button") -> MergeRecord:
        self.require()
        async with self.lock:
            number, members = self.generation.number, self.members()
            rated = [m for m in members if m.fitness is not None]
            if 2 * len(rated) < len(members):
                raise CannotMerge(f"{len(rated)} of {len(members)} members are rated: half of them must be.")
            started = time.perf_counter()
            fitness = [m.fitness for m in members]
            values = [m.fitness for m in rated if m.fitness is not None]
            used = list(self.rewards[number].values())
            following = draw(number + 1, self.settings, 1)
            record = MergeRecord(
                generation=number,
                reason=reason,
                entry={"type": "merge", "generation": number, "terms": [], "decay": 0.0},
                fitness=fitness,
                counts=[m.ratings for m in members],
                z=[0.0 if f is None else f - sum(values) / len(values) for f in fitness],
                mean_reward=sum(r.reward for r in used) / len(used),
                ratings=len(used),
                null=len(set(values)) == 1,
                signal_share=0.5,
                late=len(self.late),
                drift=0.001 * (number + 1),
                next=following,
                used=used,
                merged_at=time.time(),
            )
            await self.journal.prepare(record)
            record = replace(record, merge_ms=1000 * (time.perf_counter() - started))
            await self.journal.commit(record)
            self._turn(following)
            self.merges.append(record)
            told = {name: getattr(record, name) for name in ("generation", "mean_reward", "ratings")}
            self.emit("merge", told | {"next_generation": following.number})
            self.emit("population", {"generation": following.number})
            self.emit("status", {})
            return record

    def _turn(self, generation: Generation) -> None:
        self.generation = generation
        self.served.clear()
        self.sessions.clear()
        self.late.clear()

    async def configure(self, settings: Settings, *, seed: int | None = None) -> Generation:
        self.require()
        if settings.rank > 8:
            raise BadRequest(f"the engine has 8 noise rows, and rank {settings.rank} needs more")
        generation = draw(self.generation.number, settings, 2 if seed is None else seed)
        await self.journal.begin(generation)
        self.settings = settings
        self.rewards[generation.number].clear()
        self._turn(generation)
        self.emit("population", {"generation": generation.number})
        return generation

    def listen(self, listener: Listener) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def emit(self, kind: str, data: dict[str, Any]) -> None:
        for listener in self.listeners:
            listener(kind, data)
