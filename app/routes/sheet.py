"""The sheet behind the status line: what is happening, merge now, the population's profile, how chat asks."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse
from markupsafe import Markup
from pydantic import ValidationError

from app import words
from app.changes import BadSetting, SettingsChange
from app.deps import Services, ServicesDep
from app.routes.api import present
from app.templating import fragment
from app.text import Text
from app.words import count, happening
from engine.interface import EngineError
from engine.population import PROFILES, Settings

router = APIRouter(prefix="/sheet", include_in_schema=False)
PURPOSE = {
    "room": "One person's thumbs move it.",
    "traffic": "Many people, or simulated users.",
    "reference": "The published settings: a large population and patience.",
}


def describe(settings: Settings) -> str:
    pairs = " in pairs" if settings.antithetic else ""
    return f"{count(settings.members, 'member')}{pairs}, a merge every {count(settings.merge_after, 'rating')}"


def _now(services: Services, message: str = "") -> Markup:
    status = present(services)
    context: dict[str, Any] = {"status": status, "sentences": happening(status), "message": message}
    return fragment("_now.html", **context)


def _profiles(services: Services, message: str = "") -> Markup:
    choices = [(name, PURPOSE.get(name, ""), describe(s)) for name, s in PROFILES.items()]
    context = {"choices": choices, "present": services.server.status().profile, "message": message}
    return fragment("_profiles.html", **context)


def _asking(services: Services, message: str = "") -> Markup:
    context = {"chat": services.preferences.chat, "message": message}
    return fragment("_asking.html", **context)


@router.get("")
async def sheet(services: ServicesDep) -> HTMLResponse:
    return HTMLResponse(
        fragment("_sheet.html", now=_now(services), profiles=_profiles(services), asking=_asking(services))
    )


@router.get("/now")
async def now(services: ServicesDep) -> HTMLResponse:
    return HTMLResponse(_now(services))


@router.get("/merged")
async def merged(services: ServicesDep) -> HTMLResponse:
    """The newest merge, as a notice."""
    return HTMLResponse(fragment("_notice.html", text=words.merged(services.server.status().last_merge)))


@router.post("/merge")
async def merge(services: ServicesDep) -> HTMLResponse:
    try:
        await services.server.merge("button")
    except EngineError as error:
        return HTMLResponse(_now(services, str(error)), 409)
    return HTMLResponse(_now(services))


@router.post("/profile")
async def profile(profile: Annotated[Text, Form(max_length=50)], services: ServicesDep) -> HTMLResponse:
    try:
        await services.changes.apply(SettingsChange(profile=profile))
    except (BadSetting, EngineError) as error:
        return HTMLResponse(_profiles(services, str(error)), 422)
    return HTMLResponse(_profiles(services, "A new population is drawn from the present model."))


@router.post("/chat")
async def asking(
    services: ServicesDep,
    temperature: Annotated[float, Form()],
    max_tokens: Annotated[int, Form()],
    system_prompt: Annotated[Text, Form(max_length=8000)] = "",
) -> HTMLResponse:
    try:
        change = SettingsChange(
            system_prompt=system_prompt.replace("\r\n", "\n"), temperature=temperature, max_tokens=max_tokens
        )
    except ValidationError as error:
        fault = error.errors()[0]
        return HTMLResponse(_asking(services, f"{str(fault['loc'][0]).replace('_', ' ')}: {fault['msg']}."), 422)
    await services.changes.apply(change)
    return HTMLResponse(_asking(services, "Kept. The next message is asked this way."))
