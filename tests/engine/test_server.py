"""The server: who answers, what ratings set off, what a dying engine does to people."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from engine.interface import BadRequest, CannotMerge, EngineError, NotReady, RatedReply
from engine.population import profile
from tests.engine.harness import HELLO, until
from tests.engine.scripted_backend import ScriptedStream

ROOM = profile("room", members=4, merge_after=4, step="zscore")
BUTTON = replace(ROOM, merge_after=1000)


async def test_it_says_what_it_waits_for_and_then_serves(world):
    server = world.new()
    assert server.status().state == "starting"
    with pytest.raises(NotReady, match="starting"):
        async with world.ask():
            pass
    with pytest.raises(NotReady):
        await server.merge()
    await server.start()
    said = [data["waiting_for"] for kind, data in world.events if kind == "status" and data["state"] == "starting"]
    assert any("preparing the model" in s for s in said)
    assert any("rebuilding the weights" in s for s in said)
    status = server.status()
    assert (status.state, status.waiting_for, status.engine) == ("serving", "", "scripted")
    assert (status.generation, status.members, status.ratings, status.drift) == (0, 8, 0, 0.0)
    assert world.journal.generation == server.learner.generation
    await world.check()


async def test_a_start_that_fails_says_so_and_closes_the_engine(world):
    server = world.new()

    async def refuse():
        raise RuntimeError("no memory left")

    original = world._backend

    def refusing(folder):
        backend = original(folder)
        backend.hooks["start"] = refuse
        return backend

    world._backend = refusing
    with pytest.raises(EngineError, match="no memory left"):
        await server.start()
    assert (server.state, server.waiting_for) == ("failed", "no memory left")
    assert world.backend.closed
    with pytest.raises(NotReady, match="no memory left"):
        async with world.ask():
            pass


async def test_too_few_rows_for_the_population_is_a_clear_error(world):
    world.rows = 3
    with pytest.raises(EngineError, match="need 4 noise rows, the engine has 3: start it with POPSERVE_ROWS=4"):
        await world.start()


async def test_new_requests_go_round_and_say_who_answers(world):
    server = await world.start(BUTTON)
    met = [(await world.talk()).member for _ in range(8)]
    assert Counter(met) == dict.fromkeys(range(4), 2)
    served = [m.served for m in server.members()]
    assert served == [2] * 4
    assert [m.sign for m in server.members()] == [1, -1, 1, -1]
    assert [d for k, d in world.events if k == "served"][-1] == {"generation": 0, "member": met[-1]}
    world.rate(2, 0.25)
    assert [(m.ratings, m.fitness) for m in server.members()] == [(0, None), (0, None), (1, 0.25), (0, None)]
    assert server.status().rated_members == 1


async def test_a_session_stays_on_its_member(world):
    await world.start(BUTTON)
    assert len({(await world.talk(session="a")).member for _ in range(5)}) == 1


async def test_source_and_base_are_nobodys_reply(world):
    await world.start(BUTTON)
    world.rate_all()
    await world.server.merge()
    async with world.ask(target="source") as source, world.ask(target="base") as base:
        assert (source.generation, source.member) == (1, None)
        assert (base.generation, base.member) == (0, None)
        np.testing.assert_allclose(source._stream.theta(), world.source(), atol=1e-6)
        np.testing.assert_array_equal(base._stream.theta(), world.backend.plain)
    assert not any(world.server.router.served)
    await world.server.turnover.fold()
    with pytest.raises(BadRequest, match="folded"):
        async with world.ask(target="base"):
            pass


async def test_a_prompt_that_does_not_fit_is_refused(world):
    server = await world.start()
    long = [{"role": "user", "content": "word " * 64}]
    with pytest.raises(BadRequest, match="64 tokens, the model reads at most 63"):
        async with server.reply(long, world.ask()._sampling, request_id="x"):
            pass
    assert server.status().running == 0


async def test_leaving_stops_the_generation_at_once(world):
    world.talkative = False
    server = await world.start(BUTTON)

    async def read():
        async with world.ask() as reply:
            async for _ in reply:
                pass

    reading = asyncio.create_task(read())
    await until(lambda: world.backend.running == 1)
    assert (server.status().running, server.members()[0].running) == (1, 1)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert (world.backend.running, server.status().running, server.members()[0].running) == (0, 0, 0)
    with pytest.raises(KeyError):
        async with world.ask():
            raise KeyError
    assert (world.backend.running, server.status().running) == (0, 0)


async def test_an_engine_that_refuses_a_request_leaves_no_trace(world, monkeypatch):
    server = await world.start(BUTTON)

    def refuse(*_, **__):
        raise BadRequest("not this one")

    monkeypatch.setattr(world.backend, "open", refuse)
    with pytest.raises(BadRequest, match="not this one"):
        async with world.ask():
            pass
    assert (server.status().running, [m.running for m in server.members()]) == (0, [0] * 4)


async def test_throughput_counts_what_is_read(world):
    server = await world.start()
    await world.talk()
    assert server.status().tokens_per_second == 3


# -- merges that start by themselves ----------------------------------------------------------------------------------


async def test_a_due_merge_starts_by_itself(world):
    server = await world.start(ROOM)
    await world.talk()
    credits = [world.rate(i, float(i) / 3) for i in range(4)]
    assert [(c.kind, c.ratings, c.merge_after) for c in credits] == [("counted", i + 1, 4) for i in range(4)]
    await until(lambda: server.learner.generation.number == 1)
    await until(lambda: server.state == "serving")
    merges = [d for k, d in world.events if k == "merge"]
    assert [(m["generation"], m["ratings"], m["next_generation"]) for m in merges] == [(0, 4, 1)]
    assert server.status().last_merge["message"] == "Merged 4 ratings."
    assert server.status().ratings == 0
    await world.check()


async def test_enough_ratings_on_too_few_members_wait(world):
    server = await world.start(ROOM)
    for i in range(6):
        world.rate(0, 1.0, name=f"r{i}")
    await asyncio.sleep(0.05)
    assert server.learner.generation.number == 0
    world.rate(1, 0.0)
    await until(lambda: server.learner.generation.number == 1)


async def test_ratings_that_come_during_a_merge_count_and_set_off_the_next(world):
    server = await world.start(ROOM)
    await world.talk()
    go = asyncio.Event()
    world.backend.hooks["draw"] = go.wait
    world.rate_all()
    await until(lambda: server.state == "merging")
    credit = world.rate(0, 1.0, name="while merging")
    assert credit.kind == "counted"
    go.set()
    await until(lambda: server.learner.generation.number == 1)
    assert world.rate(1, 1.0, generation=0, name="after").kind == "late"
    world.rate_all()
    await until(lambda: server.learner.generation.number == 2)
    assert world.journal.merges[-1].late == 2
    await until(lambda: server.state == "serving")
    await world.check()


async def test_a_cancelled_caller_does_not_stop_a_merge_halfway(world):
    server = await world.start(ROOM)
    await world.talk()
    go = asyncio.Event()
    world.backend.hooks["draw"] = go.wait
    world.rate_all({0: 1, 1: 0})
    merging = asyncio.create_task(server.merge())
    await until(lambda: server.state == "merging")
    merging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await merging
    assert server.state == "merging"
    go.set()
    await until(lambda: server.state == "serving")
    assert server.learner.generation.number == 1
    await world.check()


async def test_what_became_due_behind_a_cancelled_caller_is_merged(world):
    server = await world.start(ROOM)
    go = asyncio.Event()
    world.backend.hooks["draw"] = go.wait
    await world.talk()
    switching = asyncio.create_task(server.configure(replace(ROOM, members=6)))
    await until(lambda: server.state == "merging")
    world.backend.hooks["draw"] = lambda: asyncio.sleep(0)
    switching.cancel()
    await asyncio.gather(switching, return_exceptions=True)
    original = server.learner.commit

    def rated_meanwhile(record):
        original(record)
        for i in range(6):
            world.rate(i, i / 6, generation=record.next.number)

    server.learner.commit = rated_meanwhile
    go.set()
    await until(lambda: server.learner.generation.number >= 2)


async def test_merge_by_button(world):
    server = await world.start(BUTTON)
    with pytest.raises(CannotMerge, match="at least half of the 2 pairs"):
        await server.merge()
    assert server.state == "serving"
    world.rate_all()
    records = await asyncio.gather(server.merge(), server.merge(), return_exceptions=True)
    assert records[0].generation == 0
    assert isinstance(records[1], CannotMerge), "the second found a new generation without ratings"
    assert records[0].drift == pytest.approx(server.status().drift)
    assert server.status().drift > 0
    await world.check()


# -- settings ---------------------------------------------------------------------------------------------------------


async def test_settings_before_anyone_was_served_replace_the_population(world):
    server = await world.start()
    drawn = await server.configure(profile("traffic"), seed=9)
    assert (drawn.number, drawn.settings.members) == (0, 16)
    assert world.journal.generation == drawn == server.learner.generation
    assert world.journal.merges == []
    assert "population" in [k for k, _ in world.events]
    await world.check()


async def test_settings_after_serving_end_the_generation_without_a_step(world):
    server = await world.start(ROOM)
    await world.talk()
    world.rate_all({0: 1, 1: 0})
    drawn = await server.configure(replace(ROOM, members=6, sigma=0.01))
    assert (drawn.number, drawn.settings.members) == (1, 6)
    (merge,) = world.journal.merges
    assert (merge.reason, merge.entry["terms"], merge.used) == ("settings", [], [])
    await world.check()
    world.rate_all()
    await until(lambda: len(world.journal.merges) == 2)
    assert world.journal.merges[-1].late == 2
    await until(lambda: server.state == "serving")
    await world.check()


async def test_settings_that_can_never_fit_are_refused_and_nothing_changes(world):
    server = await world.start(ROOM)
    with pytest.raises(BadRequest, match="64 members of rank 1 need 64 noise rows, the engine has 32"):
        await server.configure(profile("room", members=64, antithetic=False))
    with pytest.raises(BadRequest, match="rank 16"):
        await server.configure(profile("room", rank=16))
    await world.check()


@pytest.mark.parametrize(("name", "served"), [("begin", False), ("prepare", True), ("commit", True)])
async def test_settings_that_cannot_be_kept_change_nothing(world, name, served):
    server = await world.start(ROOM)
    if served:
        await world.talk()
    world.journal.fail = {name}
    with pytest.raises(OSError, match="disk is full"):
        await server.configure(replace(ROOM, members=6), seed=99)
    assert server.learner.generation.settings == ROOM
    await world.check()
    drawn = await server.configure(replace(ROOM, members=6))
    assert drawn.settings.members == 6
    await world.check()


# -- a dying engine ---------------------------------------------------------------------------------------------------


async def test_a_dead_engine_fails_its_streams_and_comes_back_at_the_same_generation(world):
    world.talkative = False
    server = await world.start(BUTTON)
    world.rate_all()
    await server.merge()
    world.rate(0, 1.0)

    async def read():
        async with world.ask() as reply:
            async for _ in reply:
                pass

    readers = [asyncio.create_task(read()) for _ in range(5)]
    await until(lambda: world.backend.running == 5)
    world.backend.die()
    for ended in await asyncio.gather(*readers, return_exceptions=True):
        assert isinstance(ended, EngineError)
        assert "starts again by itself" in str(ended)
    await until(lambda: server.state == "serving")
    assert len(world.backends) == 2
    assert world.backends[0].closed
    assert (server.learner.generation.number, server.learner.ratings) == (1, 1)
    assert server.status().running == 0
    await world.check()


async def test_a_merge_that_finds_the_engine_dead_brings_it_back(world):
    server = await world.start(BUTTON)
    world.rate_all()
    world.backend.alive = False
    with pytest.raises(EngineError, match="died"):
        await server.merge()
    await until(lambda: server.state == "serving")
    assert server.learner.generation.number == 0
    await world.check()
    assert (await server.merge()).generation == 0
    await world.check()


async def test_an_engine_that_dies_within_a_merge(world):
    server = await world.start(BUTTON)
    world.rate_all()

    async def die():
        world.backends[0].die()

    world.backend.hooks["draw"] = die
    with pytest.raises(EngineError, match="died"):
        await server.merge()
    await until(lambda: server.state == "serving")
    await world.check()
    await server.merge()
    await world.check()


async def test_ratings_that_came_while_it_was_away_are_merged_when_it_is_back(world):
    server = await world.start(ROOM)
    await world.talk()
    world.backend.alive = False
    with pytest.raises(EngineError):
        await world.talk()
    assert server.state == "starting"
    world.rate_all()
    await until(lambda: server.learner.generation.number == 1)


async def test_an_engine_that_does_not_come_back_says_why(world):
    server = await world.start(BUTTON)
    world.rate_all()
    original = world._backend

    async def refuse():
        raise RuntimeError("no device")

    def refusing(folder):
        backend = original(folder)
        backend.hooks["start"] = refuse
        return backend

    world._backend = refusing
    world.backend.alive = False
    with pytest.raises(EngineError):
        await server.merge()
    await until(lambda: server.state == "failed")
    assert "did not come back: no device" in server.status().waiting_for
    with pytest.raises(NotReady, match="no device"):
        async with world.ask():
            pass


async def test_close_ends_streams_and_everything_else(world):
    world.talkative = False
    server = await world.start(BUTTON)

    async def read():
        async with world.ask() as reply:
            async for _ in reply:
                pass

    reading = asyncio.create_task(read())
    await until(lambda: world.backend.running == 1)
    await server.close()
    (ended,) = await asyncio.gather(reading, return_exceptions=True)
    assert isinstance(ended, NotReady)
    assert len(world.backends) == 1, "nothing was brought up again"
    assert world.backend.closed
    assert server._tasks == set()
    with pytest.raises(NotReady, match="closed"):
        async with world.ask():
            pass


# -- starting again ---------------------------------------------------------------------------------------------------


async def test_a_restart_goes_on_where_it_was(world):
    server = await world.start(ROOM)
    for _ in range(3):
        world.rate_all()
        await until(lambda g=server.learner.generation.number: server.learner.generation.number > g)
        await until(lambda: server.state == "serving")
    world.rate(1, 1.0)
    world.rate(2, 0.0, generation=2)
    before = server.learner
    status = server.status()
    await server.close()
    await world.start(seed=77)
    after = world.server.learner
    assert (after.generation, after.ledger, after.rewards) == (before.generation, before.ledger, before.rewards)
    assert world.server.status().drift == pytest.approx(status.drift)
    assert world.server.status().last_merge["generation"] == status.last_merge["generation"]
    assert world.server.router.untouched is False
    await world.check()


async def test_a_merge_that_was_due_happens_after_a_restart(world):
    server = await world.start(ROOM)
    await world.talk()
    await server.close()
    for member in range(4):
        world.journal.rated[f"m{member}"] = RatedReply(f"m{member}", 0, member, member / 3)
    await world.start()
    await until(lambda: world.server.learner.generation.number == 1)
    await until(lambda: world.server.state == "serving")
    assert world.journal.merges[-1].ratings == 4
    await world.check()


async def test_fewer_rows_than_last_time_fold_at_the_start(world):
    await world.start(BUTTON)
    for _ in range(3):
        world.rate_all()
        await world.server.merge()
    await world.server.close()
    world.rows = 4
    await world.start()
    assert world.journal.entries[-1]["type"] == "fold"
    await world.check()


async def test_streams_see_their_own_seed_and_parameters(world):
    await world.start()
    async with world.ask() as reply:
        stream = reply._stream
        assert isinstance(stream, ScriptedStream)
        assert stream.sampling.seed == reply.seed
        assert reply.prompt_tokens == len(HELLO[0]["content"].split())


async def test_listeners_can_leave(world):
    server, heard = await world.start(BUTTON), []
    leave = server.listen(lambda kind, data: heard.append(kind))
    world.rate(0, 1.0)
    leave()
    world.rate(1, 1.0)
    assert heard == ["rating"]
