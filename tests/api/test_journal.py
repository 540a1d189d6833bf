"""The engine's history: a merge happens as a whole or not at all, and a start finds where it was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlmodel import Session, select

from app.db import Database
from app.history import History
from app.journal import SqliteJournal
from app.tables import MergeUse, Message
from engine.interface import MergeRecord, RatedReply
from engine.learner import Learner
from engine.population import Generation, draw, profile

SETTINGS = profile("room", members=4, max_staleness=2)


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "popserve.db")
    yield database
    await asyncio.to_thread(database.close)


def merge(number: int, used: list[RatedReply] | None = None) -> MergeRecord:
    return MergeRecord(
        generation=number,
        reason="ratings",
        entry={"type": "merge", "generation": number, "terms": [[{"seed": 2**62 + 1}, 0.25]], "decay": 0.0},
        fitness=[1.0, None, 0.5, 0.0],
        counts=[1, 0, 2, 1],
        z=[1.2, 0.0, 0.0, -1.2],
        mean_reward=0.5,
        ratings=4,
        null=False,
        signal_share=0.3,
        late=1,
        drift=0.01,
        next=draw(number + 1, SETTINGS, 7),
        used=used or [],
        merged_at=1000.0 + number,
        merge_ms=3.5,
        pause_ms=0.0,
    )


async def reply(db: Database, name: str, generation: int, reward: float | None, member: int | None = 1) -> None:
    row = {"role": "assistant", "generation": generation, "member": member, "reward": reward}
    await db.write(lambda s: s.add(Message(id=name, created_at=time.time(), **row)))


async def test_an_empty_home(db: Database) -> None:
    assert await SqliteJournal(db).load() is None


async def test_everything_comes_back(db: Database) -> None:
    journal = SqliteJournal(db)
    await journal.begin(draw(0, SETTINGS, 7))
    records = [merge(n, [RatedReply(f"r{n}", n, 2, 0.75)]) for n in range(4)]
    fold = {"type": "fold", "generation": 2, "pull_back": 1.0}
    for record in records:
        if record.generation == 2:
            await journal.append(fold)
        await journal.prepare(replace(record, merge_ms=0.0))
        await journal.commit(record)
    for n in range(5):
        await reply(db, f"chat{n}", n, 0.5)
    await reply(db, "unrated", 4, None)
    await reply(db, "source", 4, 1.0, member=None)
    saved = await SqliteJournal(db).load()
    assert saved is not None
    assert saved.generation == records[-1].next
    assert saved.entries == [records[0].entry, records[1].entry, fold, records[2].entry, records[3].entry]
    assert saved.merges == records[2:]
    assert saved.rewards == [RatedReply(f"chat{n}", n, 1, 0.5) for n in (2, 3, 4)]


async def test_a_crash_between_prepare_and_commit(db: Database) -> None:
    journal = SqliteJournal(db)
    first: Generation = draw(0, SETTINGS, 7)
    await journal.begin(first)
    await journal.prepare(merge(0, [RatedReply("r", 0, 1, 1.0)]))
    saved = await SqliteJournal(db).load()
    assert saved is not None
    assert (saved.generation, saved.entries, saved.merges) == (first, [], [])
    assert await History(db).generations() == []
    with pytest.raises(ValueError, match="never prepared"):
        await journal.commit(merge(0))
    await journal.prepare(merge(0))
    await journal.commit(merge(0))
    assert [g.generation for g in await History(db).generations()] == [0]


async def test_a_commit_that_fails_leaves_nothing(db: Database) -> None:
    journal = SqliteJournal(db)
    first = draw(0, SETTINGS, 7)
    await journal.begin(first)
    await journal.prepare(merge(0))
    twice = [RatedReply("same", 0, 1, 1.0), RatedReply("same", 0, 1, 0.0)]
    with pytest.raises(Exception, match=r"UNIQUE|conflicts"):
        await journal.commit(merge(0, twice))

    def uses(session: Session) -> int:
        return len(session.exec(select(MergeUse)).all())

    assert await db.read(uses) == 0
    saved = await journal.load()
    assert saved is not None
    assert (saved.generation, saved.entries, saved.merges) == (first, [], [])


async def test_a_population_drawn_anew_starts_without_ratings(db: Database) -> None:
    journal = SqliteJournal(db)
    await journal.begin(draw(0, SETTINGS, 7))
    await reply(db, "old", 0, 1.0)
    again = draw(0, replace(SETTINGS, members=6), 8)
    await journal.begin(again)
    await reply(db, "new", 0, 1.0)
    saved = await journal.load()
    assert saved is not None
    assert saved.generation == again
    assert [r.inference_id for r in saved.rewards] == ["new"]


async def test_the_newest_generations_oldest_first(db: Database) -> None:
    journal = SqliteJournal(db)
    for n in range(5):
        await journal.prepare(merge(n))
        await journal.commit(merge(n))
    assert [g.generation for g in await History(db).generations(limit=2)] == [3, 4]
    assert [g.generation for g in await History(db).generations(after=2)] == [3, 4]


async def test_the_real_learner_goes_on_where_it_was(db: Database) -> None:
    journal = SqliteJournal(db)
    learner = Learner(draw(0, SETTINGS, 7))
    await journal.begin(learner.generation)
    for number in range(4):
        for i in range(6):
            name, reward = f"g{number}r{i}", float((i + number) % 3 == 0)
            await reply(db, name, number, reward, member=i % 4)
            learner.record(name, number, i % 4, reward)
        if number == 2:  # changed after it was merged: late credit
            learner.record("g1r0", 1, 0, 0.25)
            await db.write(lambda s: setattr(s.get(Message, "g1r0"), "reward", 0.25))
        if number == 3:
            break
        record = learner.plan("ratings", 7)
        await journal.prepare(record)
        await journal.commit(record)
        learner.commit(record)
    saved = await journal.load()
    assert saved is not None
    again = Learner.resume(saved)
    assert (again.ledger.head, again.generation) == (learner.ledger.head, learner.generation)
    assert (again.rewards, again.running_share) == (learner.rewards, learner.running_share)
    assert {n: p.used for n, p in again.past.items()} == {n: p.used for n, p in learner.past.items()}
    assert again.plan("ratings", 7).entry == learner.plan("ratings", 7).entry
