"""What routes may ask for, as ``Annotated`` aliases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from pydantic import AfterValidator

from app.db import Database
from app.events import Bus
from app.history import History
from app.inference import Inferences
from app.preferences import Preferences
from app.ratings import Ratings
from app.settings import AppSettings
from app.store import Store
from engine.interface import PopulationServer


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


def services(request: Request) -> Services:
    return request.app.state.services


ServicesDep = Annotated[Services, Depends(services)]
SettingsDep = Annotated[AppSettings, Depends(lambda s=Depends(services): s.settings)]
StoreDep = Annotated[Store, Depends(lambda s=Depends(services): s.store)]
HistoryDep = Annotated[History, Depends(lambda s=Depends(services): s.history)]
PreferencesDep = Annotated[Preferences, Depends(lambda s=Depends(services): s.preferences)]
ServerDep = Annotated[PopulationServer, Depends(lambda s=Depends(services): s.server)]
BusDep = Annotated[Bus, Depends(lambda s=Depends(services): s.bus)]
RatingsDep = Annotated[Ratings, Depends(lambda s=Depends(services): s.ratings)]
InferencesDep = Annotated[Inferences, Depends(lambda s=Depends(services): s.inferences)]


def _unicode(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half a surrogate pair, which is no Unicode text") from None
    return value


Text = Annotated[str, AfterValidator(_unicode)]
"""Text that can be stored."""
