"""The population over HTTP: status, members, generations, merging, settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel

from app.changes import SettingsChange
from app.deps import HistoryDep, ServerDep, Services, ServicesDep
from app.history import GenerationResult
from app.settings import Metric
from engine.interface import MemberStatus, Status
from engine.population import PROFILES

router = APIRouter(tags=["population"])


@dataclass(frozen=True)
class AppStatus(Status):
    """The engine's status, and what the application counts."""

    ratings_total: int
    """Every rating ever stored."""
    ratings_needed: int
    """Ratings until the next merge."""


def present(services: Services) -> AppStatus:
    """The status now."""
    status = services.server.status()
    fields = {name: getattr(status, name) for name in Status.__dataclass_fields__}
    needed = max(0, status.merge_after - status.ratings)
    return AppStatus(**fields, ratings_total=services.ratings.total, ratings_needed=needed)


@router.get("/healthz")
async def healthz(server: ServerDep) -> dict[str, str]:
    """Answers as soon as the process serves; `state` says whether the engine does."""
    return {"status": "ok", "state": server.status().state}


@router.get("/api/status")
async def status(services: ServicesDep) -> AppStatus:
    """Who is served now, and how far the next merge is."""
    return present(services)


@router.get("/api/members")
async def members(server: ServerDep) -> list[MemberStatus]:
    """The members of the present generation."""
    return server.members()


@router.get("/api/generations")
async def generations(
    history: HistoryDep,
    after: Annotated[int, Query(description="Only generations with a higher number.", ge=-1, le=2**53)] = -1,
    limit: Annotated[int, Query(description="At most so many, the newest.", ge=1, le=10_000)] = 1000,
) -> list[GenerationResult]:
    """The generations that have merged, oldest first."""
    return await history.generations(after=after, limit=limit)


@router.post("/api/merge")
async def merge(server: ServerDep) -> GenerationResult:
    """Merges now, if at least half of the members (of the pairs) are rated."""
    record = await server.merge("api")
    return GenerationResult(**{name: getattr(record, name) for name in GenerationResult.__dataclass_fields__})


class SettingsAnswer(BaseModel):
    """`settings` are those of the present population; `profiles` what may be switched to."""

    settings: dict[str, Any]
    profiles: dict[str, dict[str, Any]]
    system_prompt: str
    temperature: float
    max_tokens: int
    metrics: dict[str, Metric]


def _settings(services: Services) -> SettingsAnswer:
    return SettingsAnswer(
        settings=services.server.status().settings,
        profiles={name: s.to_json() for name, s in PROFILES.items()},
        metrics=services.settings.metrics,
        **asdict(services.preferences.chat),
    )


@router.get("/api/settings")
async def settings(services: ServicesDep) -> SettingsAnswer:
    """The population's settings, and those of chat."""
    return _settings(services)


@router.put("/api/settings")
async def change_settings(change: SettingsChange, services: ServicesDep) -> SettingsAnswer:
    """Changes settings. Population settings draw a new population from the present source model, whose ratings start
    at none; the other ones only change chat. All are kept."""
    await services.changes.apply(change)
    return _settings(services)
