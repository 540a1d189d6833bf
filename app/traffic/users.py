"""One simulated user: a request put to a member like a person's, turn by turn, and a rating by inference id.

A user enters where people enter (:class:`app.inference.Inferences`, :class:`app.ratings.Ratings`), after them in the
engine's queue, so that what is measured is what is served.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass
from typing import Literal

from app.inference import Inference, Inferences, ReplyFailed, RunTags
from app.judge import JudgeDesk, Verdict
from app.opinions import Opinions
from app.preferences import Preferences
from app.ratings import NotFinished, Ratings
from app.traffic.plan import Plan
from engine.interface import BadRequest, EngineError, Sampling
from engine.regimes import Ask
from engine.tasks import Reply, Request, Task

TRAFFIC, MEASUREMENT = 1, 2
"""Priorities: people (0) are served first."""
End = Literal["read", "spanned", "failed"]


@dataclass(frozen=True)
class World:
    """What the server gives to a run."""

    inferences: Inferences
    ratings: Ratings
    desk: JudgeDesk
    opinions: Opinions
    preferences: Preferences


@dataclass(frozen=True)
class Read:
    """A request that has been answered to its end. ``spanned``: a merge cut the episode in two, so that no member can
    be credited. ``failed``: the engine broke it off."""

    ask: Ask
    request: Request
    end: End
    inference_id: str = ""
    """Of the last reply: it carries the rating."""
    generation: int = 0
    member: int | None = None
    messages: tuple[dict[str, str], ...] = ()
    """What the last reply answered."""
    text: str = ""
    truth: float = 0.0
    """The task's own reward, on its own scale."""


@dataclass(frozen=True)
class Rated:
    """What became of a judged reply: ``observed`` None was not rated."""

    verdict: Verdict
    late: bool


class Users:
    """The users of one run."""

    def __init__(self, world: World, task: Task, plan: Plan, run_id: str) -> None:
        self.world, self.task, self.plan, self.run_id = world, task, plan, run_id
        self.source = f"traffic:{task.name}"

    def request(self, index: int) -> Request:
        return self.task.sample(self.plan.seed, index)

    def silent(self, index: int) -> bool:
        """Whether this user only reads."""
        return random.Random(f"{self.plan.seed}/{index}/silent").random() < self.plan.silent

    def prompt(self, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        """With the system message: chat's where people are to see what is taught, else the task's."""
        chat = self.world.preferences.chat.system_prompt
        system = chat if self.task.shares_prompt else self.task.system_prompt
        return [{"role": "system", "content": system}, *messages] if system else messages

    async def read(self, ask: Ask) -> Read:
        """Asks a member, for as many turns as the task has. Raises only when cancelled."""
        request = self.request(ask.index)
        episode = secrets.token_hex(8) if self.task.many_turns else None
        tags = RunTags(self.run_id, self.task.name, request.category or None, ask.index, episode)
        temperature = self.plan.temperature if ask.temperature is None else ask.temperature
        return await self._play(ask, request, temperature, tags)

    async def measure(self, request: Request) -> float | None:
        """The reward on 0..1 that the source model's greedy answer earns; None when the engine broke it off."""
        played = await self._play(Ask(0, None, 0.0), request, 0.0, None)
        return None if played.end != "read" else self.task.scale(played.truth)

    async def _play(self, ask: Ask, request: Request, temperature: float, tags: RunTags | None) -> Read:
        episode = self.task.start(request)
        played = Read(ask, request, "read")
        member, turn = ask.member, 0
        try:
            while (messages := episode.messages()) is not None:
                sampling = Sampling(
                    temperature=temperature,
                    max_tokens=self.plan.max_tokens or self.task.max_tokens,
                    seed=random.Random(f"{self.plan.seed}/{ask.index}/{turn}").getrandbits(31),
                )
                prompt = self.prompt(messages)
                inference = await self._ask(prompt, sampling, member, tags)
                if turn and inference.generation != played.generation:
                    return Read(ask, request, "spanned")
                member, turn = inference.member, turn + 1
                episode.take(Reply(inference.text, inference.finish_reason or ""))
                played = Read(
                    ask,
                    request,
                    "read",
                    inference.id,
                    inference.generation or 0,
                    inference.member,
                    tuple(prompt),
                    inference.text,
                )
        except BadRequest:
            return Read(ask, request, "spanned" if turn else "failed")
        except (EngineError, ReplyFailed):
            return Read(ask, request, "failed")
        if not played.inference_id:
            return Read(ask, request, "failed")
        return Read(**{**played.__dict__, "truth": episode.reward()})

    async def _ask(
        self, prompt: list[dict[str, str]], sampling: Sampling, member: int | None, tags: RunTags | None
    ) -> Inference:
        live = tags is not None
        opened = await self.world.inferences.open(
            prompt,
            sampling,
            source=self.source if live else f"eval:{self.task.name}",
            target="population" if live else "source",
            member=member,
            priority=TRAFFIC if live else MEASUREMENT,
            tags=tags,
        )
        async with opened as inference:
            async for _ in inference:
                pass
        if inference.state != "done":
            raise ReplyFailed("The reply was stopped.")
        return inference

    async def judge(self, read: Read) -> Verdict:
        key = f"{read.generation}/{read.member}/{read.ask.index}"
        return await self.world.desk.verdict(
            self.task,
            read.request,
            list(read.messages),
            read.text,
            read.truth,
            generation=read.generation,
            key=key,
            seed=self.plan.seed,
        )

    async def rate(self, read: Read, verdict: Verdict) -> Rated:
        """Gives the observed reward: a whole one as a thumb, any other as a score."""
        if verdict.observed is None:
            return Rated(verdict, late=False)
        thumb = verdict.observed in (0.0, 1.0)
        try:
            rated = await self.world.ratings.rate(
                read.inference_id,
                "thumb" if thumb else "score",
                verdict.observed == 1.0 if thumb else verdict.observed,
                rater=self.source,
                source=self.source,
                key=f"{self.run_id}-{read.inference_id}",
                truth=verdict.truth,
                judge=verdict.judge,
            )
        except NotFinished:
            return Rated(Verdict(None, verdict.truth, verdict.judge, "the reply was broken off"), late=False)
        await self.world.opinions.offer(
            read.inference_id,
            observed=verdict.observed,
            truth=verdict.truth,
            blind=read.request.in_blind_spot,
            judge=verdict.judge,
        )
        return Rated(verdict, late=rated.credit["kind"] == "late")
