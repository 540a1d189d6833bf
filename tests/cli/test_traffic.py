"""Simulated users against the real web server: right numbers of ratings, none late, none lost, none twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlmodel import select

from app import traffic
from app.client import Client, ClientError
from app.runs import Plan, Result, Score, curve, sparkline
from app.tables import Message, Rating
from app.traffic import Traffic
from engine.population import profile
from engine.tasks import Reply, Request
from engine.tasks.base import Prompts
from engine.tasks.personas import Persona
from tests.api.conftest import Live, serving, until

LONG = " ".join(["word"] * 40)
PROMPTS = Prompts.divide([f"say: {'yes' if i % 3 else LONG} {i}" for i in range(400)], held_out=12)


def short(reply: Reply) -> float:
    return float(len(reply.text.split()) < 10)


class Scripted(Persona):
    """The taste of a persona over prompts that the scripted server understands."""

    @property
    def held_out(self) -> list[Request]:
        return [Request(prompt) for prompt in PROMPTS.held_out]

    def sample(self, seed: int, index: int) -> Request:
        return Request(PROMPTS.sample(seed, index))


TASK = Scripted("persona:test", "is short", short, "Be brief.")


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    """Words come at once: these tests are about numbers."""
    async with serving(tmp_path, delay=0.0) as running:
        yield running


async def run(live: Live, transport: httpx.AsyncBaseTransport | None = None, **plan: Any) -> tuple[Result, list[str]]:
    lines: list[str] = []
    async with Client(f"http://127.0.0.1:{live.port}", patience=10, transport=transport) as client:
        given = {"generations": 3, "held_out": 0} | plan
        return await Traffic(client, TASK, Plan(**given), lines.append).run(), lines


async def rows(live: Live) -> tuple[list[Message], list[Rating]]:
    """The replies to rating users, and the ratings."""

    def query(session: Any) -> tuple[list[Message], list[Rating]]:
        replies = select(Message).where(Message.role == "assistant", Message.source == "traffic:persona:test")
        return list(session.exec(replies).all()), list(session.exec(select(Rating)).all())

    return await live.services.db.read(query)


async def test_every_generation_gets_just_the_ratings_of_a_merge(live: Live) -> None:
    result, lines = await run(live, generations=3, concurrency=16)
    assert [(t.generation, t.ratings, t.late) for t in result.turns] == [(0, 4, 0), (1, 4, 0), (2, 4, 0)]
    assert [(m.ratings, m.late, m.counts) for m in live.server.merges] == [(4, 0, [1, 1, 1, 1])] * 3
    assert live.server.generation.number == 3
    assert result.complete
    assert result.ratings == live.services.ratings.total == 12
    assert [line.split()[0] for line in lines if line.split()[0].isdigit()] == ["0", "1", "2"]


async def test_ratings_are_what_the_judge_says(live: Live) -> None:
    result, _ = await run(live, generations=6)
    replies, ratings = await rows(live)
    texts = {reply.id: reply.content for reply in replies}
    assert len(ratings) == 24
    assert all(r.value == short(Reply(texts[r.inference_id], "stop")) for r in ratings)
    assert 0 < sum(r.value for r in ratings) < 24
    assert {(r.metric, r.rater) for r in ratings} == {("thumb", "persona:test")}
    for turn, merge in zip(result.turns, live.server.merges, strict=True):
        assert turn.mean_reward == pytest.approx(merge.mean_reward)
        assert turn.null == merge.null


async def test_shuffled_rewards_keep_their_number_and_lose_their_reply(live: Live) -> None:
    result, _ = await run(live, generations=10, shuffle_rewards=True)
    replies, ratings = await rows(live)
    judged = {reply.id: short(Reply(reply.content, "stop")) for reply in replies}
    assert len(ratings) == 40
    assert any(judged[r.inference_id] != r.value for r in ratings)
    for turn, merge in zip(result.turns, live.server.merges, strict=True):
        given = Counter(r.reward for r in merge.used)
        assert given == Counter(judged[r.inference_id] for r in merge.used)
        assert turn.mean_reward == pytest.approx(merge.mean_reward)


async def test_it_ends_after_so_many_ratings(live: Live) -> None:
    result, _ = await run(live, generations=None, max_ratings=10)
    assert result.ratings == live.services.ratings.total == 10
    assert [(t.ratings, t.null is None) for t in result.turns] == [(4, False), (4, False), (2, True)]
    assert len(live.server.merges) == 2


async def test_whole_generations_of_ratings_end_with_a_merge(live: Live) -> None:
    result, _ = await run(live, generations=None, max_ratings=8)
    assert [t.null is None for t in result.turns] == [False, False]
    assert live.server.generation.number == 2


async def test_silent_users_read_and_do_not_rate(live: Live) -> None:
    result, _ = await run(live, generations=5, silent=0.5)
    replies, ratings = await rows(live)
    assert result.ratings == len(ratings) == 20
    assert 25 <= len(replies) <= 60
    assert [m.ratings for m in live.server.merges] == [4] * 5


async def test_ratings_of_others_count(live: Live) -> None:
    reply = await live.chat("hi")
    assert (await live.rate(reply["id"])).status_code == 200
    result, _ = await run(live, generations=1)
    assert result.turns[0].ratings == 3
    assert live.server.merges[0].ratings == 4


async def test_measurements_ask_the_source_greedily_and_rate_nothing(live: Live) -> None:
    result, lines = await run(live, generations=2, eval_every=1, held_out=256)
    expected = sum(short(Reply(p.removeprefix("say: "), "stop")) for p in PROMPTS.held_out) / 12
    assert [(s.generation, s.ratings, s.prompts) for s in result.scores] == [(0, 0, 12), (1, 4, 12), (2, 8, 12)]
    assert all(s.score == pytest.approx(expected) for s in result.scores)
    measured = [r for r in live.server.replies if r.target == "source"]
    assert Counter(r.messages[-1]["content"] for r in measured) == Counter(dict.fromkeys(PROMPTS.held_out, 3))
    assert {r.sampling.temperature for r in measured} == {0.0}
    asked = [r for r in live.server.replies if r.target == "population"]
    assert len(asked) == live.services.ratings.total == 8
    assert not {r.messages[-1]["content"] for r in asked} & set(PROMPTS.held_out)
    assert sum(line.startswith("held-out score") for line in lines) == 3


async def test_the_shared_system_prompt_is_used(live: Live) -> None:
    settings = {"system_prompt": "Speak like a pirate.", "temperature": 0.2, "max_tokens": 5}
    result, _ = await run(live, generations=1, settings=settings)
    assert result.system_prompt == "Speak like a pirate."
    asked = live.server.replies[0]
    assert asked.messages[0] == {"role": "system", "content": "Speak like a pirate."}
    assert (asked.sampling.temperature, asked.sampling.max_tokens) == (0.7, 64)


async def test_a_profile_draws_a_new_population(live: Live) -> None:
    result, _ = await run(live, generations=1, settings={"profile": "traffic", "members": 6, "seed": 5})
    assert (result.settings["profile"], result.settings["members"]) == ("traffic", 6)
    assert [m.ratings for m in live.server.merges] == [64]
    with pytest.raises(ClientError, match="antithetic"):
        await run(live, settings={"members": 5})


async def test_the_same_seed_asks_the_same(live: Live) -> None:
    async def asked(seed: int) -> list[tuple[str, int | None]]:
        before = len(live.server.replies)
        await run(live, generations=2, seed=seed)
        return sorted((r.messages[-1]["content"], r.sampling.seed) for r in live.server.replies[before:])

    first = await asked(3)
    assert first == await asked(3)
    assert first != await asked(4)
    assert len({seed for _, seed in first}) == 8


class Flaky(httpx.AsyncHTTPTransport):
    """Loses the answer of every third request after the server has acted on it."""

    calls = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        self.calls += 1
        if self.calls % 3 == 0:
            await answer.aclose()
            raise httpx.ReadError("lost", request=request)
        return answer


async def test_lost_answers_lose_no_rating_and_store_none_twice(live: Live) -> None:
    transport = Flaky()
    result, _ = await run(live, transport=transport, generations=3, concurrency=4)
    assert transport.calls > 30
    assert [m.ratings for m in live.server.merges] == [4] * 3
    assert result.ratings == live.services.ratings.total == 12


async def test_it_waits_for_a_starting_engine(tmp_path: Path) -> None:
    ready = asyncio.Event()
    async with serving(tmp_path, ready=False, delay=0.0, start_after=ready) as live:
        task = asyncio.create_task(run(live, generations=1))
        await asyncio.sleep(0.2)
        assert not task.done()
        ready.set()
        result, lines = await task
    assert result.complete
    assert lines[0] == "waiting: The model is being loaded."


async def test_a_failed_engine_ends_the_run(tmp_path: Path) -> None:
    async with serving(tmp_path, ready=False, failure="There is no GPU.") as live:
        await until(lambda: live.server.state == "failed")
        with pytest.raises(ClientError, match="There is no GPU"):
            await run(live)


async def test_failing_replies_are_asked_again(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = iter([True, False] * 100)
    admitted = type(live.server).reply

    def reply(server: Any, *args: Any, **kwargs: Any) -> Any:
        made = admitted(server, *args, **kwargs)
        if next(failures):
            made.messages = [{"role": "user", "content": "fail"}]
        return made

    monkeypatch.setattr(type(live.server), "reply", reply)
    result, _ = await run(live, generations=1)
    assert [m.ratings for m in live.server.merges] == [4]
    assert result.ratings == 4
    assert len(live.server.replies) >= 8


async def test_a_merge_that_never_comes_is_an_error(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_: object) -> None: ...

    monkeypatch.setattr(type(live.server), "_due", nothing)
    monkeypatch.setattr(traffic, "NUDGE", 0.15)
    with pytest.raises(ClientError, match="does not merge"):
        await run(live, generations=1)
    assert live.services.ratings.total == 4 + traffic.NUDGES * 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"generations": None}, "give --generations or --max-ratings"),
        ({"generations": -1}, "--generations"),
        ({"max_ratings": -1}, "--max-ratings"),
        ({"silent": 1.0}, "--silent"),
        ({"silent": float("nan")}, "--silent"),
        ({"concurrency": 0}, "--concurrency"),
        ({"seed": -1}, "--seed"),
        ({"eval_every": -1}, "--eval-every"),
        ({"held_out": -1}, "--held-out"),
    ],
)
def test_a_plan_is_checked(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(**({"generations": 1} | wrong))


def test_the_curve_shows_every_score() -> None:
    result = Result("t", "u", "m", "s", profile("room").to_json(), {}, 0.0)
    assert curve(result) == ""
    result.scores = [Score(g, 64 * g, s, 256, 1.0) for g, s in ((0, 0.6), (5, 0.85), (10, 1.0))]
    text = curve(result)
    assert text.startswith("held-out score: 0.600 ▅▇█ 1.000")
    assert [line.split()[:3] for line in text.splitlines()[2:]] == [
        ["0", "0", "0.600"],
        ["5", "320", "0.850"],
        ["10", "640", "1.000"],
    ]


def test_sparklines_span_zero_to_one() -> None:
    assert sparkline([0.0, 0.5, 1.0, -1.0, 2.0]) == "▁▅█▁█"
