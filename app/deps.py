"""What routes may ask for, as ``Annotated`` aliases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from app.changes import Changes
from app.db import Database
from app.events import Bus
from app.history import History
from app.implicit import Implicit
from app.inference import Inferences
from app.judge import JudgeDesk
from app.marks import Marks
from app.opinions import Opinions
from app.preferences import Preferences
from app.pulse import Pulse
from app.ratings import Ratings
from app.settings import AppSettings
from app.sources import Sources
from app.store import Store
from app.traffic.desk import TrafficDesk
from engine.interface import PopulationServer
from engine.tasks import Surroundings


@dataclass(frozen=True)
class Services:
    """Everything a running application holds."""

    settings: AppSettings
    db: Database
    store: Store
    history: History
    preferences: Preferences
    server: PopulationServer
    bus: Bus
    ratings: Ratings
    inferences: Inferences
    pulse: Pulse
    marks: Marks
    sources: Sources
    changes: Changes
    judge: JudgeDesk
    opinions: Opinions
    implicit: Implicit
    traffic: TrafficDesk
    where: Surroundings
    """Where tasks find data and files."""


async def services(request: Request) -> Services:
    return request.app.state.services


ServicesDep = Annotated[Services, Depends(services)]


def _part(name: str) -> Any:
    async def part(held: ServicesDep) -> Any:  # async: a plain function would cost a thread
        return getattr(held, name)

    return Depends(part)


SettingsDep = Annotated[AppSettings, _part("settings")]
StoreDep = Annotated[Store, _part("store")]
HistoryDep = Annotated[History, _part("history")]
PreferencesDep = Annotated[Preferences, _part("preferences")]
ServerDep = Annotated[PopulationServer, _part("server")]
BusDep = Annotated[Bus, _part("bus")]
RatingsDep = Annotated[Ratings, _part("ratings")]
InferencesDep = Annotated[Inferences, _part("inferences")]
