"""The judge on the page about simulated users: how it errs, who judges, second opinions, what counts how much."""

from __future__ import annotations

import math
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from app.deps import Services, ServicesDep
from app.opinions import Given
from app.templating import fragment
from app.text import Text
from app.traffic.forms import BadForm, ErrorForm, fill
from app.traffic.words import describe
from engine.judges.errors import parse
from engine.judges.schedule import Schedule, parse_schedule

router = APIRouter(include_in_schema=False)
KINDS = (
    ("perfect", "Perfect", "says what is true"),
    ("random", "Random", "says something else"),
    ("stingy", "Stingy", "gives the lowest grade"),
    ("blindspot", "Blind spot", "turns its grades round on a fixed part of the requests"),
)
Word = Annotated[Text, Form(max_length=2000)]


async def parts(services: Services) -> dict[str, Markup]:
    """Everything about the judge, as the page shows it."""
    return {
        "judge": _judge(services),
        "who": _who(services),
        "opinion": await _opinion(services),
        "health": await _health(services),
        "sources": await _sources(services),
    }


# -- how it errs -------------------------------------------------------------------------------------------------------


def _judge(services: Services) -> Markup:
    view = services.judge.view()
    error = parse(view.error)
    planned = [
        {"generation": generation, "says": describe(later)}
        for generation, later in parse_schedule(view.schedule).changes
    ]
    percent = 100 * error.p if error.p else 25
    return fragment(
        "_judge.html",
        kinds=KINDS,
        kind=error.kind,
        percent=f"{percent:g}",
        says=describe(error),
        dial=dial(error.p if error.kind in ("random", "stingy") else 0.0),
        planned=planned,
        generation=services.server.status().generation,
    )


def dial(share: float) -> dict[str, str]:
    """Where the hand of the dial points: from the left (never wrong) over the top to the right (always)."""
    angle = math.pi * (1 - min(1.0, max(0.0, share)))
    return {"x": f"{50 + 34 * math.cos(angle):.2f}", "y": f"{48 - 34 * math.sin(angle):.2f}"}


@router.get("/judge")
async def judge(services: ServicesDep) -> HTMLResponse:
    return HTMLResponse(_judge(services))


@router.post("/judge")
async def change(request: Request, services: ServicesDep) -> HTMLResponse:
    """Another error, from the next reply on; what is planned stays."""
    async with request.form(max_files=0, max_fields=10) as fields:
        error = fill(ErrorForm, fields).error()
    await services.judge.change(error=error)
    return HTMLResponse(_judge(services))


@router.post("/judge/plan")
async def plan(request: Request, services: ServicesDep) -> HTMLResponse:
    """One more planned change; without a judge, all of them are dropped."""
    async with request.form(max_files=0, max_fields=10) as fields:
        form, generation = fill(ErrorForm, fields), str(fields.get("generation", "")).strip()
    error = form.error()
    changes: dict[int, Any] = dict(parse_schedule(services.judge.view().schedule).changes)
    if error is None:
        changes = {}
    else:
        now = services.server.status().generation
        if not (generation.isascii() and generation.isdecimal() and now < int(generation[:9]) < 10**7):
            raise BadForm(f"A change can be planned for a generation after {now:,}, the present one.")
        changes[int(generation)] = error
    schedule = parse_schedule(str(Schedule(tuple(sorted(changes.items())))))
    await services.judge.change(schedule=schedule)
    return HTMLResponse(_judge(services))


# -- who judges --------------------------------------------------------------------------------------------------------


def _who(services: Services, message: str = "") -> Markup:
    view = services.judge.view()
    return fragment(
        "_who.html", kind=view.who["kind"], options=view.who.get("options", {}), fault=view.fault, message=message
    )


@router.post("/judge/who")
async def change_who(
    services: ServicesDep,
    kind: Word,
    model: Word = "",
    url: Word = "",
    rubric: Word = "",
    api_key_env: Word = "",
    max_calls: Word = "",
) -> HTMLResponse:
    """Another judge. Raises JudgeFault with what to do where it cannot be opened."""
    options: dict[str, Any] = {}
    if kind == "llm":
        options = {"url": url, "model": model, "rubric": rubric.replace("\r\n", "\n"), "api_key_env": api_key_env}
        if max_calls.strip():
            if not (max_calls.strip().isascii() and max_calls.strip().isdecimal()):
                raise BadForm("Most calls: a whole number, for example 1000.")
            options["max_calls"] = int(max_calls[:9])
    elif kind == "reward_model":
        options = {"model": model}
    options = {name: value for name, value in options.items() if value != ""}
    await services.judge.change(who={"kind": kind, "options": options})
    return HTMLResponse(_who(services, "From the next reply on."))


# -- how good it is ----------------------------------------------------------------------------------------------------


async def _health(services: Services) -> Markup:
    health = await services.opinions.health()
    kinds = [
        {"name": name, "rate": f"{share['rate']:.0%}", "within": f"{share['low']:.0%} to {share['high']:.0%}",
         "count": share["count"]}
        for name, share in health["by_kind"].items()
        if share["count"]
    ]  # fmt: skip
    return fragment("_health.html", sentence=health["sentence"], verdict=health["verdict"], kinds=kinds)


async def _opinion(services: Services, given: Given | None = None) -> Markup:
    waiting = await services.opinions.queue(1)
    said = ""
    if given is not None and given.person is not None:
        said = f"The judge gave it {given.judge:.2g}. " + ("You agree." if given.agree else "You do not agree.")
    return fragment("_opinion.html", offer=waiting[0] if waiting else None, said=said)


@router.get("/judge/health")
async def health(services: ServicesDep) -> HTMLResponse:
    return HTMLResponse(await _health(services))


@router.get("/opinion")
async def opinion(services: ServicesDep) -> HTMLResponse:
    """A judged reply that waits for a second opinion."""
    return HTMLResponse(await _opinion(services))


@router.post("/opinion/{inference_id}")
async def give(inference_id: str, services: ServicesDep, value: Word = "") -> HTMLResponse:
    """``up``, ``down``, or anything else to skip it; then the next one."""
    says = {"up": 1.0, "down": 0.0}.get(value)
    return HTMLResponse(await _opinion(services, await services.opinions.give(inference_id, says, rater="local")))


# -- what counts how much ----------------------------------------------------------------------------------------------


async def _sources(services: Services, message: str = "") -> Markup:
    counts = await services.ratings.by_source()
    names = dict.fromkeys([*services.sources.weights, *counts])
    rows = []
    for name in sorted(names):
        below = sum(number for other, number in counts.items() if other.startswith(f"{name}:"))
        label = f"{name}, all tasks" if name == "traffic" else name
        number = counts.get(name, 0) + below
        weight = f"{services.sources.weight(name):g}"
        rows.append({"name": name, "label": label, "ratings": f"{number:,}", "weight": weight})
    return fragment("_sources.html", rows=rows, message=message)


@router.get("/sources")
async def sources(services: ServicesDep) -> HTMLResponse:
    return HTMLResponse(await _sources(services))


@router.post("/sources")
async def weigh(request: Request, services: ServicesDep) -> HTMLResponse:
    """Weights by source; a field that holds what holds already changes nothing."""
    weights = {}
    async with request.form(max_files=0, max_fields=200) as fields:
        for name, value in fields.items():
            try:
                weight = float(str(value))
            except ValueError:
                raise BadForm(f"The weight of {name[:80]} is a number: 1 counts fully, 0 leaves it out.") from None
            if weight != services.sources.weight(name):
                weights[name] = weight
    await services.sources.change(weights)
    return HTMLResponse(await _sources(services, "From the next rating on." if weights else ""))
