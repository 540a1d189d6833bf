"""One SQLite file: many readers, one writer thread, and a promise that is kept.

``await db.write(job)`` runs ``job(session)`` in the writer thread and returns after COMMIT has reached the disk; jobs
that wait at the same time share one transaction (and one fsync), each in its own savepoint. A job may run twice, so it
does nothing but use its session. ``await db.read(query)`` runs ``query(session)`` in a worker thread.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError, ProgrammingError, ResourceClosedError
from sqlalchemy.pool import QueuePool, StaticPool
from sqlmodel import Session

from app.migrate import migrate

log = logging.getLogger(__name__)
T = TypeVar("T")
GROUP = 256
"""The most jobs that share a transaction."""


class DatabaseUnavailable(Exception):
    """The database cannot be read or written now; the message is written for people. Nothing was acknowledged."""


def connect(path: Path, *, writer: bool, busy_ms: int = 5000) -> Engine:
    """An engine on the file, with every pragma the application relies on."""
    options: dict[str, Any] = (
        {"poolclass": StaticPool} if writer else {"poolclass": QueuePool, "pool_size": 4, "max_overflow": 4}
    )
    engine = create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False}, **options)

    @event.listens_for(engine, "connect")
    def pragmas(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # SQLAlchemy's begin event says BEGIN, not the driver
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {busy_ms}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA cache_size = -16000")
        if writer:
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute("PRAGMA synchronous = FULL")
        else:
            cursor.execute("PRAGMA query_only = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN")

    return engine


def unavailable(error: DBAPIError, path: Path) -> DatabaseUnavailable:
    """The sentence for a locked, full, damaged or unwritable database."""
    while isinstance(error.__context__, DBAPIError):  # a failed rollback hides what made it necessary
        error = error.__context__
    reason = str(error.orig).lower()
    if "locked" in reason or "busy" in reason:
        advice = "another program holds it locked: close that program and try again"
    elif "full" in reason:
        advice = "the disk is full: make room and try again"
    elif "malformed" in reason or "not a database" in reason:
        advice = "the file is damaged: stop the server and restore it from a copy"
    elif "readonly" in reason or "unable to open" in reason:
        advice = "the file cannot be written: check its permissions"
    else:
        advice = f"SQLite says: {error.orig}"
    return DatabaseUnavailable(f"The database {path.name} is not available; {advice}. Nothing was changed.")


def outage(error: BaseException) -> bool:
    """True when the database itself fails, false when a job broke a rule or has a fault."""
    return isinstance(error, DBAPIError) and not isinstance(error, IntegrityError | ProgrammingError)


class Database:
    """Opens (and migrates) on construction. Raises DatabaseUnavailable, or :class:`app.migrate.NewerDatabase`."""

    def __init__(self, path: Path, *, busy_ms: int = 5000) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = connect(path, writer=True, busy_ms=busy_ms)
        try:
            with self._writer.connect() as connection:
                migrate(connection, path)
        except DBAPIError as error:
            self._writer.dispose()
            raise unavailable(error, path) from error
        self._reader = connect(path, writer=False, busy_ms=busy_ms)
        self._readers = anyio.CapacityLimiter(8)
        self._jobs: queue.SimpleQueue[tuple[Callable[[Session], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="database-writer", daemon=True)
        self._thread.start()

    async def write(self, job: Callable[[Session], T]) -> T:
        """Runs the job in a transaction; returns its result once that is durable.

        Cancelling the caller does not take the job back. Raises what the job raises, or DatabaseUnavailable.
        """
        return await asyncio.shield(asyncio.wrap_future(self.submit(job)))

    def submit(self, job: Callable[[Session], T]) -> Future[T]:
        """As :meth:`write`, from any thread."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise DatabaseUnavailable("The server is shutting down. Nothing was changed.")
            self._jobs.put((job, future))
        return future

    async def read(self, query: Callable[[Session], T]) -> T:
        """Runs a query on its own snapshot. Raises DatabaseUnavailable."""
        return await anyio.to_thread.run_sync(partial(self._read, query), limiter=self._readers)

    def _read(self, query: Callable[[Session], T]) -> T:
        try:
            with Session(self._reader, expire_on_commit=False) as session:
                result = query(session)
                session.expunge_all()
                return result
        except DBAPIError as error:
            if outage(error):
                raise unavailable(error, self.path) from error
            raise

    def close(self) -> None:
        """Finishes the jobs that were accepted and closes the file. Further writes are refused."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._jobs.put(None)
        self._thread.join()
        self._reader.dispose()
        self._writer.dispose()

    def _run(self) -> None:
        while (first := self._jobs.get()) is not None:
            batch = [first]
            while len(batch) < GROUP:
                try:
                    item = self._jobs.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    self._jobs.put(None)
                    break
                batch.append(item)
            self._commit(batch)

    def _commit(self, batch: list[tuple[Callable[[Session], Any], Future[Any]]]) -> None:
        """One transaction for the batch; if that breaks as a whole, one transaction for each job."""
        try:
            outcomes = self._transaction([job for job, _ in batch])
        except BaseException as error:
            if len(batch) > 1:
                for item in batch:
                    self._commit([item])
                return
            log.error("a write failed: %s", error)
            batch[0][1].set_exception(
                unavailable(error, self.path) if isinstance(error, DBAPIError) and outage(error) else error
            )
            return
        for (_, future), (result, error) in zip(batch, outcomes, strict=True):
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    def _transaction(self, jobs: list[Callable[[Session], Any]]) -> list[tuple[Any, Exception | None]]:
        outcomes: list[tuple[Any, Exception | None]] = []
        with Session(self._writer, expire_on_commit=False) as session:
            for job in jobs:
                fault: Exception | None = None
                try:
                    with session.begin_nested():
                        try:
                            result = job(session)
                            session.flush()
                        except Exception as error:
                            fault = error
                            raise
                    outcomes.append((result, None))
                except Exception as error:
                    fault = fault or error
                    if outage(fault) or isinstance(fault, InvalidRequestError | ResourceClosedError):
                        raise fault from None  # SQLite may have rolled back everything
                    outcomes.append((None, fault))
                session.expunge_all()
            session.commit()
        return outcomes
