"""Simulated users: they chat with a running server through its public API and rate what they read.

A generation gets the ratings that make its merge due and not one more: the next users come when it has merged, so
that no rating is late. Greedy answers of the source model to held-out prompts say what was learned.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from app.client import Client, ClientError
from app.runs import Plan, Result, Score, Turn
from engine.tasks import Reply, Request, Task

T = TypeVar("T")
MERGE_TIMEOUT = 180.0
"""Seconds to wait for a due merge before the run is given up."""
POLL = 0.1
NUDGE = 5.0
"""After so many seconds without a merge some more users come: members may lack ratings that others took."""
NUDGES = 3


@dataclass(frozen=True)
class _Read:
    inference_id: str
    reward: float


class Traffic:
    """One run. ``tell`` gets the progress, line by line; ``result`` exists once :meth:`run` has reached the server."""

    def __init__(self, client: Client, task: Task, plan: Plan, tell: Callable[[str], None] = print) -> None:
        self.client, self.task, self.plan, self.tell = client, task, plan, tell
        self.result: Result | None = None
        self._users = 0
        self._run = uuid.uuid4().hex[:12]
        self._gate = asyncio.Semaphore(plan.concurrency)

    async def run(self) -> Result:
        """Everything, in order. Raises ClientError."""
        await self.client.call("GET", "/healthz", retry=False)
        await self._serving()
        if self.plan.settings:
            await self.client.call("PUT", "/api/settings", json=self.plan.settings)
        shared = await self.client.get("/api/settings")
        status = await self._serving()
        result = self.result = Result(
            task=self.task.name,
            url=self.client.url,
            model=status["model"],
            system_prompt=shared["system_prompt"],
            settings=shared["settings"],
            plan=asdict(self.plan),
            started_at=time.time(),
        )
        started = time.monotonic()
        self.tell(
            f"{self.task.name} at {self.client.url}: {status['model']}, N = {status['members']}, "
            f"a merge every {status['merge_after']} ratings ({status['profile']})\n"
            f"a reply is good when it {self.task.likes}"
        )
        try:
            await self._measure(result, status["generation"])
            await self._generations(result)
            result.complete = True
        finally:
            result.seconds = time.monotonic() - started
        return result

    async def _generations(self, result: Result) -> None:
        merged, measured = 0, True
        self.tell("generation  mean reward  ratings  seconds")
        while self.plan.generations is None or merged < self.plan.generations:
            left = None if self.plan.max_ratings is None else self.plan.max_ratings - result.ratings
            if left is not None and left <= 0:
                break
            turn = await self._generation(result, left)
            result.turns.append(turn)
            notes = (["nothing to learn: every member scored the same"] if turn.null else []) + (
                [f"{turn.late} late"] if turn.late else []
            )
            self.tell(
                f"{turn.generation:10d}  {_mean(turn):>11}  {turn.ratings:7d}  {turn.seconds:7.1f}"
                + "".join(f"  {note}" for note in notes)
            )
            merged += turn.null is not None
            measured = False
            if self.plan.eval_every and merged and merged % self.plan.eval_every == 0:
                await self._measure(result, turn.generation + 1)
                measured = True
        if not measured:
            await self._measure(result, (await self._serving())["generation"])

    async def _generation(self, result: Result, left: int | None) -> Turn:
        """Brings a generation the ratings that it lacks (at most ``left``) and waits for its merge."""
        started = time.monotonic()
        status = await self._serving()
        generation, merged = status["generation"], False
        thoughts: list[float] = []
        late = extra = nudges = 0
        while not merged and (left is None or len(thoughts) < left):
            missing = status["merge_after"] - status["ratings"] + extra
            if left is not None:
                missing = min(missing, left - len(thoughts))
            for thought, credit in await self._visit(missing, generation):
                thoughts.append(thought)
                late += credit["kind"] == "late"
                result.ratings += 1
            merged, status = await self._merge(generation)
            if not merged and status["ratings"] >= status["merge_after"] + extra:
                nudges += 1
                if nudges > NUDGES:
                    raise ClientError(
                        f"generation {generation} has {status['ratings']} ratings and does not merge: "
                        "see the server's log"
                    )
                extra += max(1, status["members"] // 4)
        null, drift = await self._outcome(generation) if merged else (None, None)
        mean = sum(thoughts) / len(thoughts) if thoughts else None
        return Turn(generation, mean, len(thoughts), late, null, drift, time.monotonic() - started)

    async def _merge(self, generation: int) -> tuple[bool, dict[str, Any]]:
        """Waits while a merge is due or under way: (whether it came, the status). Raises ClientError."""
        started = time.monotonic()
        while True:
            status = await self._serving()
            waited = time.monotonic() - started
            if status["generation"] != generation:
                return True, status
            if status["state"] == "serving" and (status["ratings"] < status["merge_after"] or waited > NUDGE):
                return False, status
            if waited > MERGE_TIMEOUT:
                raise ClientError(f"generation {generation} has its ratings but does not merge: see the server's log")
            await asyncio.sleep(POLL)

    async def _outcome(self, generation: int) -> tuple[bool | None, float | None]:
        found = await self.client.get("/api/generations", after=generation - 1, limit=10_000)
        row = next((row for row in found if row["generation"] == generation), None)
        return (False, None) if row is None else (bool(row["null"]), row["drift"])

    async def _visit(self, ratings: int, generation: int) -> list[tuple[float, dict[str, Any]]]:
        """Users come until ``ratings`` of them have rated: (what each thought, the credit that its rating got)."""
        raters, silent = [], []
        while len(raters) < ratings:
            index, self._users = self._users, self._users + 1
            mute = random.Random(f"{self.plan.seed}/{index}/silent").random() < self.plan.silent
            (silent if mute else raters).append(index)
        if not self.plan.shuffle_rewards:
            users = [self._read_and_rate(index) for index in raters]
            return (await together([*users, *(self._read(index) for index in silent)]))[: len(users)]
        reads = (await together(self._read(index) for index in [*raters, *silent]))[: len(raters)]
        dealt = [read.reward for read in reads]
        random.Random(f"{self.plan.seed}/{generation}/shuffle").shuffle(dealt)
        credits = await together(self._rate(read, reward) for read, reward in zip(reads, dealt, strict=True))
        return [(read.reward, credit) for read, credit in zip(reads, credits, strict=True)]

    async def _read(self, index: int) -> _Read:
        request = self.task.sample(self.plan.seed, index)
        answer = await self._ask(
            request.prompt,
            temperature=self.plan.temperature,
            seed=(self.plan.seed << 31) + index,
            source=f"traffic:{self.task.name}",
            priority=1,
        )
        return _Read(answer["id"], self._judge(request, answer))

    async def _read_and_rate(self, index: int) -> tuple[float, dict[str, Any]]:
        read = await self._read(index)
        return read.reward, await self._rate(read, read.reward)

    async def _rate(self, read: _Read, reward: float) -> dict[str, Any]:
        """The credit of one rating; a whole reward is given as a thumb, any other as a score."""
        thumb = reward in (0.0, 1.0)
        rating = {
            "inference_id": read.inference_id,
            "metric_name": "thumb" if thumb else "score",
            "value": reward == 1.0 if thumb else reward,
            "rater": self.task.name,
        }
        headers = {"Idempotency-Key": f"{self._run}-{read.inference_id}"}
        return (await self.client.call("POST", "/v1/feedback", json=rating, headers=headers))["credit"]

    async def _ask(self, prompt: str, **request: Any) -> dict[str, Any]:
        assert self.result is not None
        system = [{"role": "system", "content": self.result.system_prompt}] if self.result.system_prompt else []
        messages = [*system, {"role": "user", "content": prompt}]
        body = {"messages": messages, "max_tokens": self.plan.max_tokens, **request}
        async with self._gate:
            return await self.client.call("POST", "/v1/chat/completions", json=body)

    def _judge(self, request: Request, answer: dict[str, Any]) -> float:
        choice = answer["choices"][0]
        return self.task.judge(request, Reply(choice["message"]["content"] or "", choice["finish_reason"] or ""))

    async def _measure(self, result: Result, generation: int) -> None:
        """Greedy answers of the source model to held-out prompts."""
        requests = self.task.held_out[: self.plan.held_out]
        if not requests:
            return
        started = time.monotonic()
        source = f"eval:{self.task.name}"
        asked = (self._ask(r.prompt, temperature=0.0, population=False, source=source, priority=2) for r in requests)
        answers = await together(asked)
        judged = [self._judge(request, answer) for request, answer in zip(requests, answers, strict=True)]
        score = sum(judged) / len(judged)
        seconds = time.monotonic() - started
        result.scores.append(Score(generation, result.ratings, score, len(requests), seconds))
        self.tell(
            f"held-out score {score:.3f} after {result.ratings} ratings ({len(requests)} prompts, {seconds:.0f} s)"
        )

    async def _serving(self) -> dict[str, Any]:
        """The status, once the engine serves. Raises ClientError when it has failed."""
        give_up = time.monotonic() + self.client.patience
        told = ""
        while True:
            status = await self.client.get("/api/status")
            if status["state"] == "failed":
                raise ClientError(f"the engine has failed: {status['waiting_for']}")
            if status["state"] not in ("starting", "paused"):
                return status
            why = status["waiting_for"] or f"the engine is {status['state']}"
            if why != told:
                told = why
                self.tell(f"waiting: {why}")
            if time.monotonic() > give_up:
                raise ClientError(f"the engine does not serve: {why}")
            await asyncio.sleep(0.5)


def _mean(turn: Turn) -> str:
    return "-" if turn.mean_reward is None else f"{turn.mean_reward:.2f}"


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
