"""The population over HTTP: status, members, generations, merging, settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from app.deps import HistoryDep, ServerDep, Services, ServicesDep, Text
from app.errors import ApiError
from app.history import GenerationResult
from app.settings import Metric
from engine.interface import MemberStatus, Status
from engine.population import PROFILES, Settings, profile

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


class SettingsChange(BaseModel):
    """What to change; anything that is left out stays. A `profile` brings its own values for what is left out."""

    model_config = ConfigDict(
        strict=True, extra="forbid", json_schema_extra={"examples": [{"profile": "traffic", "merge_after": 32}]}
    )

    profile: str | None = None
    members: int | None = None
    antithetic: bool | None = None
    kind: str | None = None
    rank: int | None = None
    sigma: float | None = None
    alpha: float | None = None
    decay: float | None = None
    merge_after: int | None = None
    max_staleness: int | None = None
    step: str | None = None
    seed: int | None = Field(None, ge=0, lt=2**63, description="Makes the new population reproducible.")
    system_prompt: Annotated[Text, Field(max_length=8000)] | None = None
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    max_tokens: int | None = Field(None, ge=1, le=32_768)

    def chat(self) -> dict[str, Any]:
        """The part that only changes chat."""
        return self.model_dump(include={"system_prompt", "temperature", "max_tokens"}, exclude_none=True)

    def population(self, now: Settings) -> Settings | None:
        """The new population's settings, None when they stay. Raises ValueError with what to do."""
        left = {"system_prompt", "temperature", "max_tokens", "seed", "profile"}
        changes = self.model_dump(exclude=left, exclude_none=True)
        if self.profile is not None:
            return profile(self.profile, **changes)
        changed = replace(now, **changes)
        return None if changed == now and self.seed is None else changed


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
    try:
        population = change.population(Settings.from_json(services.server.status().settings))
    except (ValueError, TypeError) as error:
        raise ApiError(422, str(error), "bad_setting") from error
    if population is not None:
        await services.server.configure(population, seed=change.seed)
    if chat := change.chat():
        await services.preferences.change(**chat)
        services.bus.publish("settings", asdict(services.preferences.chat))
    return _settings(services)
