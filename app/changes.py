"""Changing settings while the server runs: those of the population and those of chat; from HTTP and from runs."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from app.events import Bus
from app.marks import Marks
from app.preferences import Preferences
from app.text import Text
from engine.interface import PopulationServer
from engine.population import Settings, profile

CHAT = ("system_prompt", "temperature", "max_tokens")


class BadSetting(ValueError):
    """A setting that is refused; the message says what to do."""


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
        return self.model_dump(include=set(CHAT), exclude_none=True)

    def population(self, now: Settings) -> Settings | None:
        """The new population's settings, None when they stay. Raises ValueError with what to do."""
        left = {*CHAT, "seed", "profile"}
        changes = self.model_dump(exclude=left, exclude_none=True)
        if self.profile is not None:
            return profile(self.profile, **changes)
        changed = replace(now, **changes)
        return None if changed == now and self.seed is None else changed


class Changes:
    """Applies changes in the order in which they must happen, and marks them on the charts."""

    def __init__(self, server: PopulationServer, preferences: Preferences, marks: Marks, bus: Bus) -> None:
        self.server, self.preferences, self.marks, self.bus = server, preferences, marks, bus

    async def apply(self, change: SettingsChange) -> None:
        """Raises BadSetting, what ``PopulationServer.configure`` raises, and DatabaseUnavailable."""
        now = Settings.from_json(self.server.status().settings)
        try:
            population = change.population(now)
        except (ValueError, TypeError) as error:
            raise BadSetting(str(error)) from error
        if population is not None:
            generation = await self.server.configure(population, seed=change.seed)
            if words := _difference(now, population):
                await self.marks.add(generation.number, "settings", words, settings=population.to_json())
        if chat := change.chat():
            before = self.preferences.chat.system_prompt
            await self.preferences.change(**chat)
            if self.preferences.chat.system_prompt != before:
                await self.marks.add(self.server.status().generation, "settings", "system prompt", before=before)
            self.bus.publish("settings", asdict(self.preferences.chat))


def _difference(before: Settings, after: Settings) -> str:
    """What changed, in words; a profile by its name."""
    if before.profile != after.profile:
        return f"profile {after.profile}"
    old, new = before.to_json(), after.to_json()
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in new.items()
        if value != old[name]
    )
