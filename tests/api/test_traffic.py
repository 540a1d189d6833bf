"""Runs of simulated users inside the real web server, around an engine without a model: right numbers of ratings, none
late, none lost, none twice; judges that err; pausing, stopping, resuming."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import col, select

from app.db import DatabaseUnavailable
from app.tables import Message, Rating, RatingEvent
from engine import tasks
from engine.population import profile
from engine.tasks import Reply, Request, Task
from engine.tasks.base import Prompts
from tests.api.conftest import Live, serving, until

LONG = " ".join(["word"] * 40)
PROMPTS = Prompts.divide([f"say: {'yes' if i % 3 else LONG} {i}" for i in range(600)], held_out=12)


class Scripted(Task):
    """Likes short replies, over prompts that the scripted server understands."""

    name, likes, system_prompt = "scripted:short", "is short", "Be brief."

    def __init__(self, order: str = "") -> None:
        self.order = order

    @property
    def held_out(self) -> list[Request]:
        return [Request(prompt, category="long" if LONG in prompt else "short") for prompt in PROMPTS.held_out]

    def sample(self, seed: int, index: int) -> Request:
        prompt = PROMPTS.sample(seed, index)
        return Request(self.order or prompt, category="long" if LONG in prompt else "short")

    def judge(self, request: Request, reply: Reply) -> float:
        return float(len(reply.text.split()) < 10)


class Three:
    """An episode of three turns, good when all were answered."""

    def __init__(self) -> None:
        self.turns = 0

    def messages(self) -> list[dict[str, str]] | None:
        return None if self.turns == 3 else [{"role": "user", "content": f"say: turn {self.turns}"}]

    def take(self, reply: Reply) -> None:
        self.turns += reply.text.startswith("turn")

    def reward(self) -> float:
        return float(self.turns == 3)


class ThreeTurns(Scripted):
    name, many_turns = "scripted:turns", True

    def start(self, request: Request) -> Three:
        return Three()


class Graded(Scripted):
    name, grades = "scripted:graded", (0.0, 0.1, 1.1)

    def judge(self, request: Request, reply: Reply) -> float:
        return 1.1 if len(reply.text.split()) < 10 else 0.1


class Hopeless(Scripted):
    name = "scripted:hopeless"

    def judge(self, request: Request, reply: Reply) -> float:
        return 0.0


KINDS: dict[str, Any] = {
    "short": Scripted,
    "turns": ThreeTurns,
    "graded": Graded,
    "hopeless": Hopeless,
    "failing": lambda: Scripted("fail"),
    "slow": lambda: Scripted("slow"),
}


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    family = (lambda variant, options, where: KINDS[variant](), tuple(KINDS))
    monkeypatch.setitem(tasks.FAMILIES, "scripted", family)


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with serving(tmp_path) as running:
        yield running


async def start(live: Live, task: str = "scripted:short", status: int = 201, **plan: Any) -> dict[str, Any]:
    given = {"generations": 3, "held_out": 0} | plan
    answer = await live.client.post("/api/traffic", json={"task": task, **given})
    assert answer.status_code == status, answer.text
    return answer.json()


async def settled(live: Live, run: dict[str, Any], *states: str) -> dict[str, Any]:
    wanted = states or ("done", "failed", "stopped")
    async with asyncio.timeout(20):
        while (now := (await live.client.get(f"/api/traffic/{run['id']}")).json())["state"] not in wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return now


async def run(live: Live, task: str = "scripted:short", **plan: Any) -> dict[str, Any]:
    done = await settled(live, await start(live, task, **plan))
    assert done["state"] == "done", done["why"]
    return done


async def replies(live: Live) -> list[Message]:
    query = select(Message).where(col(Message.run_id).is_not(None)).order_by(col(Message.created_at))
    return await live.services.db.read(lambda session: list(session.exec(query)))


async def ratings(live: Live) -> list[Rating]:
    return await live.services.db.read(lambda session: list(session.exec(select(Rating))))


async def test_every_generation_gets_just_the_ratings_of_a_merge(live: Live) -> None:
    done = await run(live, concurrency=16)
    assert [(t["generation"], t["ratings"], t["late"]) for t in done["turns"]] == [(0, 4, 0), (1, 4, 0), (2, 4, 0)]
    assert [(m.ratings, m.late, m.counts) for m in live.server.merges] == [(4, 0, [1, 1, 1, 1])] * 3
    assert done["progress"]["ratings"] == done["progress"]["users"] == live.services.ratings.total == 12
    assert (done["progress"]["merged"], done["progress"]["eta_seconds"]) == (3, 0.0)


async def test_ratings_of_others_count(live: Live) -> None:
    assert (await live.rate((await live.chat("hi"))["id"])).status_code == 200
    done = await run(live, generations=1)
    assert done["turns"][0]["ratings"] == 3
    assert live.server.merges[0].ratings == 4


async def test_a_task_brings_its_own_system_prompt(live: Live) -> None:
    await run(live, generations=1)
    asked = live.server.replies[0]
    assert asked.messages[0] == {"role": "system", "content": "Be brief."}
    assert (asked.sampling.temperature, asked.sampling.max_tokens) == (0.7, 64)


async def test_a_persona_shares_its_system_prompt_with_chat_but_keeps_what_a_person_wrote(live: Live) -> None:
    await run(live, "persona:lists", generations=1)
    shared = (await live.client.get("/api/settings")).json()["system_prompt"]
    assert shared == tasks.get("persona:lists").system_prompt == live.server.replies[-1].messages[0]["content"]
    await live.client.put("/api/settings", json={"system_prompt": "Speak like a pirate."})
    await run(live, "persona:brevity", generations=1)
    assert live.server.replies[-1].messages[0]["content"] == "Speak like a pirate."


async def test_a_run_may_draw_another_population(live: Live) -> None:
    done = await run(live, generations=1, settings={"profile": "traffic", "members": 6, "seed": 5})
    assert (done["settings"]["profile"], done["settings"]["members"]) == ("traffic", 6)
    assert [m.ratings for m in live.server.merges] == [64]
    marks = (await live.client.get("/api/marks")).json()
    assert [m["text"] for m in marks if m["kind"] == "settings"] == ["profile traffic"]


async def test_the_same_seed_asks_the_same(live: Live) -> None:
    async def asked(seed: int) -> list[tuple[str, int | None]]:
        before = len(live.server.replies)
        await run(live, generations=2, seed=seed)
        return sorted((r.messages[-1]["content"], r.sampling.seed) for r in live.server.replies[before:])

    first = await asked(3)
    assert first == await asked(3) != await asked(4)
    assert len({seed for _, seed in first}) == 8


async def test_an_engine_that_starts_is_named_as_the_reason(tmp_path: Path) -> None:
    async with serving(tmp_path, ready=False, start_after=asyncio.Event()) as live:
        refused = await start(live, status=503)
        assert refused["error"]["message"] == "The model is being loaded."


async def test_a_perfect_judge_gives_what_is_true(live: Live) -> None:
    done = await run(live, generations=6)
    texts = {reply.id: reply.content for reply in await replies(live)}
    given = await ratings(live)
    assert len(given) == 24
    assert all(r.value == r.truth == float(len(texts[r.inference_id].split()) < 10) for r in given)
    assert {(r.metric, r.rater, r.judge) for r in given} == {("thumb", "traffic:scripted:short", "perfect")}
    for turn, merge in zip(done["turns"], live.server.merges, strict=True):
        assert turn["mean_reward"] == turn["observed_reward"] == pytest.approx(merge.mean_reward)


@pytest.mark.parametrize("judge", ["random:0.5", "stingy:0.5", "blindspot"])
async def test_truth_and_error_are_both_stored(live: Live, judge: str) -> None:
    done = await run(live, generations=10, judge=judge)
    texts = {reply.id: reply.content for reply in await replies(live)}
    given = await ratings(live)
    assert {r.judge for r in given} == {judge}
    assert all(r.truth == float(len(texts[r.inference_id].split()) < 10) for r in given)
    wrong = [r for r in given if r.value != r.truth]
    assert 2 <= len(wrong) <= 32
    assert judge != "stingy:0.5" or all(r.value == 0.0 for r in wrong)
    observed = [turn["observed_reward"] for turn in done["turns"]]
    assert observed == [pytest.approx(m.mean_reward) for m in live.server.merges]
    assert observed != [turn["mean_reward"] for turn in done["turns"]]


async def test_graded_rewards_err_on_their_own_scale(live: Live) -> None:
    await run(live, "scripted:graded", generations=20, judge="random:0.6")
    assert {round(r.value, 6) for r in await ratings(live)} == {0.0, round(0.1 / 1.1, 6), 1.0}
    assert {round(r.truth or 0, 6) for r in await ratings(live)} == {round(0.1 / 1.1, 6), 1.0}


async def test_a_judge_is_fixed_at_its_generation_and_marked(live: Live) -> None:
    await run(live, generations=6, judge="stingy:1", schedule="@3 perfect")
    by_generation: dict[int, set[str]] = {}
    judges = {r.inference_id: r.judge for r in await ratings(live)}
    for reply in await replies(live):
        by_generation.setdefault(reply.generation or 0, set()).add(judges[reply.id] or "")
    assert by_generation == {g: {"stingy:1"} if g < 3 else {"perfect"} for g in range(6)}
    marks = (await live.client.get("/api/marks")).json()
    assert [(m["generation"], m["text"]) for m in marks if m["kind"] == "judge"] == [
        (0, "judge: stingy:1"),
        (3, "judge: perfect"),
    ]
    assert (await live.client.get("/api/judge")).json()["error"] == "perfect"


async def test_a_planned_change_that_cannot_be_stored_is_in_force_and_stored_later(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = live.services.judge
    await live.client.put("/api/judge", json={"schedule": "@3 stingy:1"})

    async def full(values: dict[str, Any]) -> None:
        raise DatabaseUnavailable("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(desk.store, "save_settings", full)
        await desk.on_generation(3)
    assert str(desk.error(3)) == "stingy:1"
    assert [m["text"] for m in (await live.client.get("/api/marks")).json()] == []
    await asyncio.gather(desk.on_generation(4), desk.on_generation(5))
    saved = (await desk.store.settings())["judge"]
    assert (saved["error"], saved["schedule"]) == ("stingy:1", "")
    assert [m["text"] for m in (await live.client.get("/api/marks")).json()] == ["judge: stingy:1"]


async def test_a_schedule_counts_from_the_runs_first_generation(live: Live) -> None:
    await run(live, generations=2)
    await run(live, generations=2, schedule="@1 blindspot")
    marks = (await live.client.get("/api/marks")).json()
    assert [m["generation"] for m in marks if m["kind"] == "judge"] == [3]


async def test_the_judge_survives_a_restart_and_errs_on_people_never(tmp_path: Path) -> None:
    async with serving(tmp_path) as live:
        answer = await live.client.put("/api/judge", json={"error": "stingy:1", "schedule": "@7 perfect"})
        assert answer.json()["error"] == "stingy:1"
    async with serving(tmp_path) as live:
        judge = (await live.client.get("/api/judge")).json()
        assert (judge["error"], judge["schedule"]) == ("stingy:1", "@7 perfect")
        reply = await live.chat()
        await live.rate(reply["id"])
        assert [(r.value, r.judge) for r in await ratings(live)] == [(1.0, None)]


@pytest.mark.parametrize("regime", ["fixed", "fresh"])
async def test_all_members_get_the_same_requests(tmp_path: Path, regime: str) -> None:
    async with serving(tmp_path, settings=profile("room", members=4, merge_after=8)) as live:
        await run(live, regime=regime, generations=4)
        asked = Counter((r.generation, r.member, r.request_index) for r in await replies(live))
        sampled = {r.sampling["temperature"] for r in await replies(live) if r.sampling}
    assert sampled == {0.0}
    indices = {g: sorted({i for gg, _, i in asked if gg == g}) for g in range(4)}
    assert indices == {g: [0, 1] if regime == "fixed" else [2 * g, 2 * g + 1] for g in range(4)}
    assert asked == Counter({(g, m, i): 1 for g in range(4) for m in range(4) for i in indices[g]})


@pytest.mark.parametrize(("regime", "temperature"), [("hetero", 0.0), ("hetero+sample", 0.7)])
async def test_hetero_never_repeats_a_prompt(live: Live, regime: str, temperature: float) -> None:
    await run(live, regime=regime, generations=40)
    rows = await replies(live)
    assert len(rows) == 160
    assert len({r.prompt[-1]["content"] for r in rows if r.prompt}) == 160
    assert {r.sampling["temperature"] for r in rows if r.sampling} == {temperature}


async def test_an_uneven_population_is_refused_in_shared_regimes(tmp_path: Path) -> None:
    async with serving(tmp_path, settings=profile("room", members=4, merge_after=6)) as live:
        refused = await start(live, regime="fixed", status=422)
        assert "for example 8" in refused["error"]["message"]
        assert (await live.client.get("/api/traffic")).json() == []


async def test_an_episode_stays_on_one_member_and_is_rated_once(live: Live) -> None:
    done = await run(live, "scripted:turns")
    episodes: dict[str, list[Message]] = {}
    for reply in await replies(live):
        episodes.setdefault(reply.episode_id or "", []).append(reply)
    assert len(episodes) == 12
    assert all(len(e) == 3 and len({(r.generation, r.member) for r in e}) == 1 for e in episodes.values())
    rated = {r.inference_id for r in await ratings(live)}
    assert all([r.id in rated for r in e] == [False, False, True] for e in episodes.values())
    assert all(turn["mean_reward"] == 1.0 for turn in done["turns"])


async def test_an_episode_that_a_merge_cuts_is_not_rated(tmp_path: Path) -> None:
    async with serving(tmp_path, delay=0.2) as live:
        run_ = await start(live, "scripted:turns", generations=2)
        await until(lambda: len(live.server.replies) == 4)
        answers = await asyncio.gather(*(live.chat("say: x", session=f"s{member}") for member in range(4)))
        await asyncio.gather(*(live.rate(answer["id"]) for answer in answers))
        done = await settled(live, run_)
    assert done["state"] == "done"
    assert done["progress"]["spanned"] > 0
    assert done["progress"]["users"] == sum(done["progress"][n] for n in ("ratings", "spanned", "silent", "failed"))
    assert sum(t["late"] for t in done["turns"]) == 0


async def test_measurements_are_greedy_source_answers_by_category(live: Live) -> None:
    done = await run(live, generations=2, held_out=12, eval_every=1)
    assert [s["generation"] for s in done["scores"]] == [0, 1, 2]
    assert [s["ratings"] for s in done["scores"]] == [0, 4, 8]
    short = sum(LONG not in prompt for prompt in PROMPTS.held_out) / 12
    assert all(s["score"] == pytest.approx(short) for s in done["scores"])
    assert done["scores"][0]["by_category"] == {"long": 0.0, "short": 1.0}
    measured = [r for r in live.server.replies if r.target == "source"]
    assert {r.sampling.temperature for r in measured} == {0.0}
    assert not {m.prompt[-1]["content"] for m in await replies(live) if m.prompt} & set(PROMPTS.held_out)
    assert "12 held-out requests" in done["message"]


async def test_it_says_when_there_is_nothing_to_learn(live: Live) -> None:
    done = await run(live, "scripted:hopeless", generations=2)
    assert done["message"] == "Nothing to learn: all replies scored 0."
    assert [t["null"] for t in done["turns"]] == [True, True]


async def test_shuffled_rewards_keep_their_number_and_lose_their_reply(live: Live) -> None:
    await run(live, generations=10, shuffle_rewards=True)
    given = await ratings(live)
    texts = {reply.id: reply.content for reply in await replies(live)}
    assert all(r.truth == float(len(texts[r.inference_id].split()) < 10) for r in given)
    assert any(r.truth != r.value for r in given)
    assert Counter(r.truth for r in given) == Counter(r.value for r in given)


async def test_silent_users_read_and_do_not_rate(live: Live) -> None:
    done = await run(live, generations=5, silent=0.5)
    progress = done["progress"]
    assert progress["ratings"] == 20
    assert progress["silent"] > 3
    assert progress["users"] == 20 + progress["silent"]
    assert [t["late"] for t in done["turns"]] == [0] * 5


async def test_it_ends_after_so_many_ratings(live: Live) -> None:
    done = await run(live, generations=None, max_ratings=10)
    assert [(t["ratings"], t["null"] is None) for t in done["turns"]] == [(4, False), (4, False), (2, True)]
    assert len(live.server.merges) == 2


async def test_pausing_lets_nobody_in_and_resuming_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, delay=0.02) as live:
        started = await start(live, generations=3)
        await until(lambda: live.server.replies)
        paused = (await live.client.post(f"/api/traffic/{started['id']}/pause")).json()
        assert paused["state"] == "paused"
        await asyncio.sleep(0.5)
        quiet = len(live.server.replies)
        await asyncio.sleep(0.2)
        assert len(live.server.replies) == quiet
        resumed = await live.client.post(f"/api/traffic/{started['id']}/resume")
        assert resumed.json()["state"] == "running"
        done = await settled(live, started)
    assert done["progress"]["ratings"] == 12


async def test_a_stopped_run_is_cut_off_and_can_go_on_without_repeating(live: Live) -> None:
    started = await start(live, "scripted:slow", generations=2)
    await until(lambda: live.server.running == 4)
    stopped = await live.client.delete(f"/api/traffic/{started['id']}")
    assert stopped.json()["state"] == "stopped"
    await until(lambda: live.server.running == 0)
    assert live.services.ratings.total == 0
    KINDS["slow"], kept = Scripted, KINDS["slow"]
    try:
        await live.client.post(f"/api/traffic/{started['id']}/resume")
        done = await settled(live, started)
    finally:
        KINDS["slow"] = kept
    assert (done["state"], done["progress"]["ratings"]) == ("done", 8)
    indices = [r.request_index for r in await replies(live)]
    assert len(indices) == len(set(indices)) == 12


async def test_a_restart_pauses_a_run_and_loses_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, delay=0.02) as live:
        started = await start(live, generations=4)
        await until(lambda: len(live.server.merges) >= 1)
    async with serving(tmp_path) as live:
        found = (await live.client.get(f"/api/traffic/{started['id']}")).json()
        assert found["state"] == "paused"
        assert "resume" in found["why"]
        await start(live, status=409)
        await live.client.post(f"/api/traffic/{started['id']}/resume")
        done = await settled(live, started)
        indices = [r.request_index for r in await replies(live)]
        stored = live.services.ratings.total
    assert (done["state"], done["progress"]["merged"]) == ("done", 4)
    assert len(indices) == len(set(indices))
    assert done["progress"]["ratings"] == stored


async def test_one_run_at_a_time(tmp_path: Path) -> None:
    async with serving(tmp_path, delay=0.05) as live:
        first = await start(live, generations=5)
        refused = await start(live, status=409)
        assert first["id"] in refused["error"]["message"]
        await live.client.delete(f"/api/traffic/{first['id']}")
        await live.client.delete(f"/api/traffic/{(await start(live))['id']}")


async def test_an_engine_that_only_fails_ends_the_run_with_a_reason(live: Live) -> None:
    done = await settled(live, await start(live, "scripted:failing"))
    assert done["state"] == "failed"
    assert "the engine fails to answer" in done["why"].lower()
    assert (await live.client.get("/healthz")).status_code == 200


async def test_a_judge_that_cannot_judge_leaves_replies_unrated_and_ends_the_run(live: Live) -> None:
    who = {"kind": "llm", "options": {"url": "http://127.0.0.1:9/v1", "model": "m", "rubric": "Good?", "retries": 0}}
    changed = await live.client.put("/api/judge", json={"who": who})
    assert changed.status_code == 200, changed.text
    done = await settled(live, await start(live, generations=3))
    assert done["state"] == "failed"
    assert "could be judged" in done["why"]
    assert done["progress"]["unrated"] > 60
    assert live.services.ratings.total == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"task": "persona:nobody", "generations": 1}, "unknown persona"),
        ({"task": "nothing", "generations": 1}, "unknown task"),
        ({"task": "scripted:short"}, "say when to end"),
        ({"task": "scripted:short", "generations": -1}, "generations must be"),
        ({"task": "scripted:short", "generations": 1, "regime": "odd"}, "choose from fixed"),
        ({"task": "scripted:short", "generations": 1, "judge": "random:7"}, "choose perfect"),
        ({"task": "scripted:short", "generations": 1, "schedule": "@x"}, "no generation"),
        ({"task": "scripted:short", "generations": 1, "silent": 0.5, "regime": "fixed"}, "silent must be 0"),
        ({"task": "scripted:short", "generations": 1, "settings": {"sigma": -1}}, "sigma"),
        ({"task": "scripted:short", "generations": 1, "settings": {"colour": 1}}, "colour"),
        ({"task": "scripted:short", "generations": 1, "unheard": True}, "unheard"),
        ({"task": "persona:brevity", "generations": 1, "options": {"x": 1}}, "no option"),
    ],
)
async def test_a_bad_run_is_refused_with_what_to_do(live: Live, body: dict[str, Any], words: str) -> None:
    answer = await live.client.post("/api/traffic", json=body)
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"] + str(answer.json()["error"]["param"])
    assert (await live.client.get("/api/traffic")).json() == []


async def test_names_notes_and_replies(live: Live) -> None:
    done = await run(live, name="first try", judge="stingy:1")
    named = await live.client.patch(f"/api/traffic/{done['id']}", json={"notes": "too stingy"})
    assert (named.json()["name"], named.json()["notes"]) == ("first try", "too stingy")
    shown = (await live.client.get(f"/api/traffic/{done['id']}/replies?limit=5")).json()
    assert len(shown) == 5
    assert {r["observed"] for r in shown} == {0.0}
    assert (await live.client.get("/api/traffic/none")).status_code == 404


async def test_a_source_that_is_left_out_does_not_count(live: Live) -> None:
    weights = await live.client.put("/api/sources", json={"api": 0})
    assert weights.json()["api"] == 0
    reply = await live.chat()
    assert (await live.rate(reply["id"])).json()["credit"]["kind"] == "recorded"
    await live.client.put("/api/sources", json={"api": 2.5})
    again = await live.chat()
    assert (await live.rate(again["id"])).json()["credit"]["kind"] == "counted"
    stored = await live.services.db.read(lambda s: {m.id: m.weight for m in s.exec(select(Message))})
    assert (stored[reply["id"]], stored[again["id"]]) == (0.0, 2.5)
    refused = await live.client.put("/api/sources", json={"api": -1})
    assert refused.status_code == 422
    events = await live.services.db.read(lambda s: list(s.exec(select(RatingEvent))))
    assert len(events) == 2


async def test_people_can_give_a_second_opinion(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.opinions.RATE", 1.0)
    await run(live, generations=8, judge="random:1")
    offers = (await live.client.get("/api/judge/opinions?limit=100")).json()
    assert len(offers) == 32
    for offer in offers[:31]:
        good = len(offer["text"].split()) < 10
        given = await live.client.post(f"/api/judge/opinions/{offer['id']}", json={"value": good})
        assert given.json()["agree"] is False
    await live.client.post(f"/api/judge/opinions/{offers[31]['id']}", json={"value": None})
    health = (await live.client.get("/api/judge/health")).json()
    assert (health["count"], health["errors"], health["verdict"]) == (31, 31, "harmful")
    assert (await live.client.get("/api/judge/opinions")).json() == []
    assert live.services.ratings.total == 32
    assert (await live.client.post("/api/judge/opinions/none", json={"value": True})).status_code == 404
