"""From one generation to the next: running requests keep their model, nobody fails, and a failure anywhere leaves a
whole generation behind that merges on."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import replace

import numpy as np
import pytest

from engine import turnover as module
from engine.interface import EngineError
from engine.master import Master
from engine.noise import Direction
from engine.population import profile
from tests.engine.harness import World, until

LIVE = profile("room", members=8, merge_after=1000, step="zscore", alpha=0.02, decay=0.0)
DECAYING = replace(LIVE, decay=0.05)
WHOLE = replace(LIVE, members=4, kind="gaussian", sigma=0.001, alpha=0.002)


@contextlib.asynccontextmanager
async def running(world: World, count: int):
    """Streams of members, the source and the base, in the middle of their answers."""
    async with contextlib.AsyncExitStack() as stack:
        replies = []
        for i in range(count):
            target = ("population", "population", "source")[i % 3]
            replies.append(await stack.enter_async_context(world.ask(target=target)))
        yield replies


async def step(replies) -> None:
    """One more word of each: the scripted stream compares θ with that of its admission."""
    for reply in replies:
        reply._stream.say("word")
        await anext(aiter(reply))


async def test_running_requests_keep_their_model_across_merges(world):
    world.talkative = False
    server = await world.start(DECAYING)
    async with running(world, 9) as early:
        await step(early)
        for g in range(3):
            world.rate_all()
            record = await server.merge()
            assert record.pause_ms == 0
            assert record.merge_ms > 0
            assert [r.generation for r in early] == [0] * 9
            await step(early)
            async with running(world, 3) as late:
                assert late[0].generation == g + 1
                await step(late)
        assert not np.allclose(early[2]._stream.theta(), world.source(), atol=1e-4), "the source has moved on"
    world.talkative = True
    await world.check()


async def test_running_requests_keep_their_model_across_folds(world):
    world.talkative = False
    server = await world.start(LIVE)
    async with running(world, 6) as early:
        for _ in range(2):
            world.rate_all()
            await server.merge()
            await server.turnover.fold()
            await step(early)
            async with running(world, 3) as late:
                await step(late)
        assert [e["type"] for e in world.journal.entries] == ["merge", "fold"] * 2
    await world.check()


async def test_requests_admitted_while_a_fold_is_under_way(world):
    world.talkative = False
    server = await world.start(LIVE)
    world.rate_all()
    await server.merge()
    go = asyncio.Event()
    world.backend.hooks["fold"] = go.wait
    folding = asyncio.create_task(server.turnover.fold())
    await asyncio.sleep(0.05)
    async with running(world, 6) as during:
        await step(during)
        go.set()
        await folding
        await step(during)
    await world.check()


async def test_merges_without_end_fold_when_rows_run_out(world):
    """16 rows hold the present, the next and two merged generations of 4 pairs."""
    world.rows = 16
    server = await world.start(LIVE)
    records = []
    for _ in range(8):
        await world.talk()
        world.rate_all()
        records.append(await server.merge())
        await world.check()
    assert all(r.pause_ms == 0 for r in records)
    assert 2 <= sum(e["type"] == "fold" for e in world.journal.entries) <= 5
    assert len(world.backends) == 1


async def test_decay_that_fell_due_is_made_up_for_at_a_fold_when_nobody_runs(world):
    world.rows = 16
    server = await world.start(DECAYING)
    for _ in range(8):
        world.rate_all()
        await server.merge()
        await world.check()
    pulls = [e["pull_back"] for e in world.journal.entries if e["type"] == "fold"]
    assert len(pulls) >= 2
    assert all(p < 1 for p in pulls)


async def test_a_fold_with_pull_back_waits_for_running_requests(world):
    server = await world.start(DECAYING)
    for _ in range(2):
        world.rate_all()
        await server.merge()
        if not server.learner.ledger.folded:
            await server.turnover.fold()
    world.talkative = False
    async with running(world, 3) as replies:
        folding = asyncio.create_task(server.turnover.fold())
        waiting = asyncio.create_task(world.ask().__aenter__())
        await asyncio.sleep(0.05)
        assert not folding.done()
        assert not waiting.done()
        await step(replies)
    await folding
    await (await waiting).__aexit__()
    await world.check()


class Crowd:
    """People who chat all the time; none of them may ever see an error."""

    def __init__(self, world: World, people: int = 6):
        self.world, self.replies, self.stop = world, [], False
        self.tasks = [asyncio.create_task(self.chat(i)) for i in range(people)]

    async def chat(self, i: int) -> None:
        while not self.stop:
            async with self.world.ask(target="source" if i == 0 else "population") as reply:
                for _ in range(4):
                    await asyncio.sleep(0.001)
                    await step([reply])
            self.replies.append(reply)
            await asyncio.sleep(0.001)

    async def served_by(self, generation: int) -> None:
        """Returns when somebody has had a whole reply of this generation."""
        async with asyncio.timeout(30):
            while not any(r.generation == generation for r in self.replies):  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def leave(self) -> None:
        self.stop = True
        await asyncio.gather(*self.tasks)


@pytest.mark.parametrize(
    ("settings", "rows"),
    [(LIVE, 4), (DECAYING, 5), (LIVE, 8), (DECAYING, 12), (LIVE, 32), (replace(LIVE, rank=2), 10), (WHOLE, 8)],
    ids=["one generation", "decaying", "two", "three", "plenty", "rank 2", "gaussian"],
)
async def test_nobody_fails_whatever_the_rows(world, settings, rows):
    world.rows, world.talkative = rows, False
    server = await world.start(settings)
    crowd, records = Crowd(world), []
    for number in range(4):
        await crowd.served_by(number)
        world.rate_all()
        records.append(await server.merge())
    await crowd.served_by(4)
    await crowd.leave()
    if settings.kind == "gaussian" or rows < 8:
        assert all(r.pause_ms > 0 for r in records)
    elif rows == 32:
        assert [r.pause_ms for r in records] == [0] * 4
    assert {r.generation for r in crowd.replies} >= set(range(5))
    assert len(world.backends) == 1
    world.talkative = True
    await world.check()


async def test_the_journal_knows_of_a_pause(world):
    world.rows, world.talkative = 4, False
    server = await world.start(LIVE)
    world.rate_all()
    async with running(world, 1):
        merging = asyncio.create_task(server.merge())
        await asyncio.sleep(0.02)
        waiting = asyncio.create_task(world.ask().__aenter__())
        await asyncio.sleep(0.05)
        assert server.status().waiting == 1
    record = await merging
    await (await waiting).__aexit__()
    assert record.pause_ms > 45
    assert world.journal.merges[-1].pause_ms > 45
    assert server.last_merge == record


async def test_the_reference_profile_on_32_rows(world):
    server = await world.start(replace(profile("reference"), merge_after=60, alpha=0.01))
    for _ in range(3):
        await world.talk()
        world.rate_all()
        await server.merge()
        await world.check()
    assert server.learner.generation.number == 3
    assert len(server.learner.generation.directions) == 30
    assert [e["type"] for e in world.journal.entries] == ["merge", "fold"] * 3


async def test_gaussian_members_are_whole_weights_and_the_source_is_folded(world):
    server = await world.start(WHOLE)
    for _ in range(2):
        await world.talk()
        world.rate_all()
        await server.merge()
        assert server.learner.ledger.coefficients == {}
        await world.check()


async def test_from_gaussian_to_lowrank_and_back(world):
    server = await world.start(WHOLE)
    await world.talk()
    world.rate_all()
    await server.configure(LIVE)
    await world.check()
    await world.talk()
    world.rate_all()
    record = await server.merge()
    assert record.late == 4
    left = {d.kind for d in server.learner.ledger.coefficients}
    assert "gaussian" not in left, "late gaussian terms would make every request take turns"
    assert any(d.kind == "gaussian" for d in server.learner.ledger.folded)
    await world.check()
    world.rate_all()
    await server.configure(WHOLE)
    await world.check()


async def test_late_terms_of_rows_that_are_gone_are_drawn_again(world):
    server = await world.start(LIVE)
    for _ in range(3):
        await world.talk()
        world.rate_all()
        await server.merge()
    await server.turnover.fold()
    world.rate_all()
    await server.merge()
    old = world.journal.merges[0].population.directions[0]
    world.rate(0, 1.0, generation=0)
    world.rate(1, 0.0, generation=0)
    world.rate_all()
    record = await server.merge()
    assert record.late == 2
    assert old in {Direction.from_json(d) for d, _ in record.entry["terms"]}
    await world.check()


# -- quiet moments ----------------------------------------------------------------------------------------------------


async def test_quiet_moments_are_used_to_fold(world, monkeypatch):
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    real = asyncio.sleep
    monkeypatch.setattr(module.asyncio, "sleep", lambda seconds: real(min(seconds, 0.01)))
    world.rows = 16
    server = await world.start(LIVE)
    for _ in range(2):
        world.rate_all()
        await server.merge()
    assert not server.turnover._crowded()
    assert not server.learner.ledger.folded
    world.talkative = False
    async with running(world, 1) as replies:
        world.rate_all()
        await server.merge()
        folds = len(world.backend.folds)
        await real(0.05)
        assert len(world.backend.folds) == folds, "not while somebody is being served"
        await step(replies)
    assert server.turnover._crowded()
    await until(lambda: not server.learner.ledger.coefficients)
    await world.check()


async def test_snapshots_bound_the_replay(world, monkeypatch):
    monkeypatch.setattr(module, "SNAPSHOT_FOLDS", 2)
    server = await world.start(DECAYING)
    for _ in range(5):
        world.rate_all()
        await server.merge()
        await server.turnover.fold()
    await until(lambda: server.turnover._saving is None or server.turnover._saving.done())
    assert sorted(f.name for f in (world.home / "snapshots").iterdir()) == [
        "00000004.safetensors",
        "00000008.safetensors",
    ]
    await server.close()
    folded, fold = [], Master.fold
    monkeypatch.setattr(Master, "fold", lambda self, *args: folded.append(args) or fold(self, *args))
    await world.start()
    assert len(folded) == 1
    await world.check()


async def test_a_snapshot_that_cannot_be_written_harms_nothing(world, monkeypatch):
    monkeypatch.setattr(module, "SNAPSHOT_FOLDS", 1)
    (world.home / "snapshots").write_text("in the way")
    server = await world.start(LIVE)
    for _ in range(2):
        world.rate_all()
        await server.merge()
        await server.turnover.fold()
    await world.check()


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [LIVE, DECAYING, WHOLE], ids=["lowrank", "decaying", "gaussian"])
@pytest.mark.parametrize("rows", [4, 32])
@pytest.mark.parametrize("name", ["prepare", "commit", "append"])
async def test_a_journal_that_fails_leaves_a_whole_generation(world, settings, rows, name):
    world.rows = rows
    server = await world.start()
    await server.configure(settings)
    for _ in range(2):
        await world.talk()
        world.rate_all()
        await server.merge()
    before = server.learner.generation.number
    world.rate_all()
    world.journal.fail = {name}
    with contextlib.suppress(OSError):
        await server.merge()
    if name != "append":
        assert server.learner.generation.number == before
        assert server.learner.ratings == settings.members
    await until(lambda: server.state == "serving")
    await world.check()
    world.journal.fail.clear()
    number = server.learner.generation.number
    world.rate_all()
    await server.merge()
    assert server.learner.generation.number == number + 1
    await world.check()


@pytest.mark.parametrize("settings", [LIVE, DECAYING, WHOLE], ids=["lowrank", "decaying", "gaussian"])
async def test_an_engine_that_fails_in_a_fold_is_replaced_by_one_that_holds_what_the_ledger_says(world, settings):
    world.rows = 4
    server = await world.start(settings)
    world.rate_all()
    await server.merge()

    async def full():
        raise OSError("no space left for the weights")

    world.backend.hooks["fold"] = full
    world.rate_all()
    record = await server.merge()
    assert record.next.number == server.learner.generation.number == 2
    await until(lambda: server.state == "serving")
    await world.check()
    world.rate_all()
    await server.merge()
    await world.check()


async def test_a_fold_that_fails_by_itself_is_not_made_twice(world):
    server = await world.start(DECAYING)
    world.rate_all()
    await server.merge()

    async def full():
        raise OSError("no space left for the weights")

    world.backend.hooks["fold"] = full
    with pytest.raises((OSError, EngineError)):
        await server.turnover.fold()
    await until(lambda: server.state == "serving")
    assert [e["type"] for e in world.journal.entries] == ["merge", "fold"]
    await world.check()
    world.rate_all()
    await server.merge()
    await server.turnover.fold()
    await world.check()


@pytest.mark.parametrize("rows", [4, 32])
async def test_a_draw_that_fails_leaves_the_present_generation(world, rows):
    world.rows = rows
    server = await world.start(LIVE)

    async def once():
        del world.backend.hooks["draw"]
        raise OSError("no thread")

    world.rate_all()
    world.backend.hooks["draw"] = once
    with contextlib.suppress(OSError):
        await server.merge()
    await until(lambda: server.state == "serving")
    await world.check()
    if server.learner.generation.number == 0:
        await server.merge()
        await world.check()


@pytest.mark.parametrize("rows", [4, 32])
@pytest.mark.parametrize("settings", [DECAYING, WHOLE], ids=["lowrank", "gaussian"])
@pytest.mark.parametrize("point", ["prepare", "commit", "append"])
@pytest.mark.parametrize("written", [False, True])
async def test_a_process_that_is_killed_anywhere_comes_back_whole(world, settings, rows, point, written, monkeypatch):
    world.rows = rows
    server = await world.start()
    await server.configure(settings)
    for _ in range(2):
        await world.talk()
        world.rate_all()
        await server.merge()
    world.rate_all()
    original = getattr(world.journal, point)

    async def killed(what):
        if written:
            await original(what)
        await asyncio.Event().wait()

    monkeypatch.setattr(world.journal, point, killed)
    merging = asyncio.create_task(server.merge())
    await asyncio.sleep(0.1)
    monkeypatch.undo()
    monkeypatch.setattr("engine.server.make_backend", lambda config, folder: world._backend(folder))
    await server.close()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await merging
    await world.start()
    await world.check()
    world.rate_all()
    await world.server.merge()
    await world.check()


@pytest.mark.parametrize("seed", range(6))
async def test_anything_in_any_order(world, seed, monkeypatch):
    """People, ratings, merges, folds, settings, failures and restarts as they come; always whole in the end."""
    rng = random.Random(seed)
    monkeypatch.setattr(module, "SNAPSHOT_FOLDS", 2)
    world.rows, world.talkative = rng.choice([8, 12, 32]), False
    kinds = [LIVE, DECAYING, replace(LIVE, members=4, antithetic=False), WHOLE, replace(LIVE, members=4, rank=2)]
    await world.start(rng.choice(kinds))
    crowd = Crowd(world, 4)
    for _ in range(25):
        server, learner = world.server, world.server.learner
        await asyncio.sleep(0.004)
        match rng.choice(["rate", "rate", "late", "merge", "merge", "fold", "settings", "restart", "fail", "enlarge"]):
            case "rate":
                world.rate_all({m: rng.random() for m in range(learner.generation.settings.members)})
            case "late":
                for g, past in list(learner.past.items()):
                    member = rng.randrange(past.population.settings.members)
                    world.rate(member, rng.choice([None, rng.random()]), generation=g)
            case "merge":
                world.rate_all({m: rng.random() for m in range(learner.generation.settings.members)})
                await server.merge()
            case "fold":
                async with server._merging:
                    await server.turnover.fold()
            case "settings":
                await server.configure(rng.choice(kinds))
            case "enlarge":
                await server.configure(replace(learner.generation.settings, max_staleness=rng.randrange(6)))
            case "fail":
                world.rate_all({m: rng.random() for m in range(learner.generation.settings.members)})
                world.journal.fail = {rng.choice(["prepare", "commit"])}
                with contextlib.suppress(OSError):
                    await server.merge()
                world.journal.fail.clear()
            case "restart":
                await crowd.leave()
                await server.close()
                world.rows = rng.choice([8, 12, 32])
                await world.start()
                crowd = Crowd(world, 4)
    await crowd.leave()
    world.talkative = True
    await world.check()
