"""Builds the application and serves it: ``popserve serve``, or ``python -m app.main``."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from app import errors, settings
from app.backend import real_server
from app.changes import Changes
from app.db import Database, DatabaseUnavailable
from app.deps import Services
from app.events import Bus
from app.history import History
from app.home import HomeInUse, hold
from app.implicit import Implicit
from app.inference import Inferences
from app.journal import SqliteJournal
from app.judge import JudgeDesk
from app.marks import Marks
from app.migrate import NewerDatabase
from app.opinions import Opinions
from app.preferences import Preferences
from app.pulse import Pulse
from app.ratings import Ratings
from app.routes import api, chat, dashboard, docs, events, feedback, judge, openai, static, traffic, traffic_page
from app.routes import implicit as implicit_routes
from app.security import Guard
from app.settings import AppSettings
from app.sources import Sources
from app.store import Store
from app.traffic.desk import TrafficDesk
from app.traffic.records import Records
from app.traffic.users import World
from engine.interface import EngineError, Journal, PopulationServer
from engine.tasks import Surroundings

log = logging.getLogger(__name__)
MAX_BODY = 4 * 1024 * 1024
HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
ServerFactory = Callable[[Journal], PopulationServer]


def create_app(app_settings: AppSettings, server: ServerFactory | None = None) -> FastAPI:
    """The application; its state comes with its lifespan. ``server`` makes the engine from a journal (tests)."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with running(app_settings, server or (lambda journal: real_server(app_settings, journal))) as services:
            app.state.services = services
            yield

    app = FastAPI(
        title="popserve",
        summary="A language model served as a population that learns from ratings.",
        version="0.1.0",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses={"default": {"model": errors.ErrorAnswer, "description": "What went wrong, and what to do."}},
        generate_unique_id_function=lambda route: route.name if isinstance(route, APIRoute) else "",
    )
    errors.install(app)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=MAX_BODY)
    app.add_middleware(Guard, hosts=HOSTS | {app_settings.host}, max_body=MAX_BODY)
    for module in (
        api,
        openai,
        feedback,
        traffic,
        judge,
        implicit_routes,
        events,
        docs,
        chat,
        dashboard,
        traffic_page,
        static,
    ):
        app.include_router(module.router)
    return app


@contextlib.asynccontextmanager
async def running(app_settings: AppSettings, make_server: ServerFactory) -> AsyncIterator[Services]:
    """Opens everything and closes it in the reverse order; the engine starts in the background."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(hold(app_settings.home))
        db = Database(app_settings.database)
        stack.push_async_callback(asyncio.to_thread, db.close)
        store, bus = Store(db), Bus()
        preferences = Preferences(store, app_settings)
        await preferences.open()
        await store.stop_leftovers()
        server = make_server(SqliteJournal(db))
        stack.push_async_callback(server.close)
        marks, sources = Marks(db, bus), Sources(store)
        await marks.open()
        await sources.open()
        changes = Changes(server, preferences, marks, bus)
        ratings = Ratings(db, server, bus, app_settings.metrics, sources)
        await ratings.open()
        inferences = Inferences(db, server)
        stack.push_async_callback(inferences.close)
        desk, opinions, history = JudgeDesk(store, marks, server, bus), Opinions(db, bus), History(db)
        stack.push_async_callback(desk.close)
        await desk.open()
        implicit = Implicit(db, store, ratings, marks, server, bus)
        await implicit.open()
        world = World(inferences, ratings, desk, opinions, preferences)
        where = Surroundings(app_settings.data, app_settings.files)
        runs = TrafficDesk(Records(db), world, server, history, changes, marks, bus, where)
        await runs.open()
        stack.callback(bus.close)

        turned: set[asyncio.Task[None]] = set()

        def tell(kind: str, data: dict[str, Any]) -> None:
            if kind != "rating":  # app.ratings publishes these with their credit
                bus.publish(kind, data)
            if kind == "population":  # other members, perhaps other settings
                bus.publish("status", {})
            if kind == "merge":
                turned.add(task := asyncio.create_task(desk.on_generation(data["next_generation"])))
                task.add_done_callback(turned.discard)
            if kind in ("status", "population"):  # it may have come up, or come back
                ratings.tell_waiting()

        stack.callback(server.listen(tell))
        starting = asyncio.create_task(start(server, bus), name="start the engine")
        stack.push_async_callback(_cancelled, starting)
        pulse = Pulse(server, bus)
        stack.push_async_callback(_cancelled, asyncio.create_task(pulse.run(), name="pulse"))
        stack.push_async_callback(runs.close)
        yield Services(
            settings=app_settings,
            db=db,
            store=store,
            history=history,
            preferences=preferences,
            server=server,
            bus=bus,
            ratings=ratings,
            inferences=inferences,
            pulse=pulse,
            marks=marks,
            sources=sources,
            changes=changes,
            judge=desk,
            opinions=opinions,
            implicit=implicit,
            traffic=runs,
            where=where,
        )


async def start(server: PopulationServer, bus: Bus) -> None:
    """Starts the engine; why it failed is in its status, for the page."""
    try:
        await server.start()
    except EngineError as error:
        log.error("the engine did not start: %s", error)
    except Exception:
        log.exception("the engine did not start")
    bus.publish("status", {})


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


class WebServer(uvicorn.Server):
    """Uvicorn that says where it listens, and lets streams end before it waits for them."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for bound in sockets if self.started and sockets else []:
            host, port = bound.getsockname()[:2]
            print(f"popserve is at http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        services: Services | None = getattr(self.config.app.state, "services", None)  # type: ignore[union-attr]
        if services is not None:
            await services.traffic.close()  # before its replies are stopped, which it would take for failures
            services.bus.close()
            services.inferences.stop_all()
        await super().shutdown(sockets)


class PortTaken(Exception):
    """Another program listens there."""


def bind(app_settings: AppSettings) -> socket.socket:
    """A listening socket. Raises PortTaken with what to do."""
    family = socket.AF_INET6 if ":" in app_settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or asyncio sets no TCP_NODELAY
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((app_settings.host, app_settings.port))
    except OSError as error:
        bound.close()
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be opened ({error.strerror})"
        raise PortTaken(f"Port {app_settings.port} {why}: choose another one, for example PORT=8123.") from error
    return bound


def serve(app_settings: AppSettings) -> None:
    """Serves until interrupted. Raises PortTaken, HomeInUse, NewerDatabase, DatabaseUnavailable before anything is
    loaded."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S")
    for name in ("app", "engine"):
        logging.getLogger(name).setLevel(logging.INFO)
    bound = bind(app_settings)
    try:
        with hold(app_settings.home):
            Database(app_settings.database).close()
        web = WebServer(
            uvicorn.Config(
                create_app(app_settings),
                lifespan="on",
                access_log=False,
                log_level="warning",
                timeout_graceful_shutdown=10,
                workers=1,
            )
        )
        with contextlib.suppress(KeyboardInterrupt):  # it has been obeyed by then
            web.run(sockets=[bound])
        if not web.started:
            sys.exit(3)
    finally:
        bound.close()


def main() -> int:
    """The exit status; faults of the settings and the surroundings are sentences, not tracebacks."""
    try:
        serve(settings.load())
    except (settings.SettingsError, PortTaken, HomeInUse, NewerDatabase, DatabaseUnavailable) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
