"""The database: group commit, migrations, and outages that lose nothing that was acknowledged."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from sqlmodel import Session, SQLModel

from app.db import Database, DatabaseUnavailable, connect
from app.migrate import NewerDatabase
from app.tables import RatingEvent, Setting


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "popserve.db", busy_ms=200)
    yield database
    await asyncio.to_thread(database.close)


def put(key: str, value: object = 1):
    def job(session: Session) -> str:
        session.add(Setting(key=key, value=value, updated_at=0.0))
        session.flush()
        return key

    return job


async def keys(db: Database) -> list[str]:
    return await db.read(lambda s: sorted(s.execute(text("SELECT key FROM setting")).scalars()))


async def held(db: Database) -> threading.Event:
    """Keeps the writer busy, so that what is written next shares a transaction."""
    running, release = threading.Event(), threading.Event()

    def job(session: Session) -> None:
        running.set()
        release.wait(5)

    db.submit(job)
    await asyncio.to_thread(running.wait, 5)
    return release


async def test_one_failing_job_does_not_lose_the_others(db: Database) -> None:
    release = await held(db)
    commits: list[int] = []
    db._transaction = lambda jobs, real=db._transaction: commits.append(len(jobs)) or real(jobs)  # type: ignore[method-assign]

    def broken(session: Session) -> None:
        put("half")(session)
        raise RuntimeError("no")

    futures = [db.submit(job) for job in (put("a"), broken, put("a"), put("b"))]
    release.set()
    outcomes = await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
    assert commits == [4]
    assert outcomes[0] == "a"
    assert outcomes[3] == "b"
    assert isinstance(outcomes[1], RuntimeError)
    assert "UNIQUE" in str(outcomes[2])
    assert await keys(db) == ["a", "b"]


async def test_a_broken_foreign_key_is_refused(db: Database) -> None:
    event = {"inference_id": "none", "rater": "r", "metric": "thumb", "value": 1.0, "source": "api", "created_at": 0.0}
    with pytest.raises(Exception, match="FOREIGN KEY"):
        await db.write(lambda s: s.add(RatingEvent(**event)))


async def test_acknowledged_means_on_the_disk(db: Database, tmp_path: Path) -> None:
    await db.write(put("kept"))
    other = sqlite3.connect(tmp_path / "popserve.db")
    assert other.execute("SELECT key FROM setting").fetchall() == [("kept",)]
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()
    pragma = await db.write(lambda s: s.execute(text("PRAGMA synchronous")).scalar())
    assert pragma == 2


async def test_a_locked_database_is_an_outage_and_passes(db: Database, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "popserve.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    results = await asyncio.gather(*(db.write(put(k)) for k in "ab"), return_exceptions=True)
    assert all(isinstance(r, DatabaseUnavailable) and "locked" in str(r) for r in results)
    other.execute("ROLLBACK")
    other.close()
    await db.write(put("after"))
    assert await keys(db) == ["after"]


async def test_a_full_database_is_an_outage_and_keeps_the_rest(db: Database) -> None:
    await db.write(put("before"))
    await db.write(lambda s: s.execute(text("PRAGMA max_page_count = 60")).scalar())
    release = await held(db)
    futures = [db.submit(put("small")), db.submit(put("big", "x" * 2_000_000))]
    release.set()
    small, big = await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
    assert small == "small"
    assert isinstance(big, DatabaseUnavailable)
    assert "full" in str(big)
    assert await keys(db) == ["before", "small"]


async def test_a_cancelled_caller_does_not_take_the_job_back(db: Database) -> None:
    release = await held(db)
    task = asyncio.create_task(db.write(put("kept")))
    await asyncio.sleep(0)
    task.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await db.write(put("next"))
    assert await keys(db) == ["kept", "next"]


async def test_closing_finishes_what_was_accepted(tmp_path: Path) -> None:
    db = Database(tmp_path / "popserve.db")
    futures = [db.submit(put(f"k{i}")) for i in range(500)]
    await asyncio.to_thread(db.close)
    assert all(f.done() and not f.exception() for f in futures)
    with pytest.raises(DatabaseUnavailable):
        await db.write(put("late"))


async def test_readers_cannot_write(db: Database) -> None:
    with pytest.raises(DatabaseUnavailable):
        await db.read(lambda s: put("x")(s))


async def test_the_migrations_make_the_tables_of_the_code(db: Database) -> None:
    def differences(session: Session) -> list[object]:
        return compare_metadata(MigrationContext.configure(session.connection()), SQLModel.metadata)

    assert await db.read(differences) == []


def test_reopening_changes_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        Database(tmp_path / "popserve.db").close()


def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "popserve.db"
    Database(path).close()
    with connect(path, writer=True).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(NewerDatabase, match=r"newer version .*9999.*POPSERVE_HOME"):
        Database(path)
    with connect(path, writer=True).begin() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "9999"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "popserve.db"
    path.write_bytes(b"this is not a database, it is a text that is long enough" * 100)
    with pytest.raises(DatabaseUnavailable, match="damaged"):
        Database(path)
