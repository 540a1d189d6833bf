"""The dashboard: a page, its figures as JSON, its tables as HTML."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse

from app.deps import Services, ServicesDep
from app.errors import ApiError
from app.history import GenerationResult, History
from app.panels import BY_NAME, PANELS, Panel, sentence
from app.plots import Rows, finite
from app.templating import fragment, page
from app.traffic.desk import measured_by_category

router = APIRouter(include_in_schema=False)
MOST = 2000
"""Generations drawn, the newest."""


_merges: WeakKeyDictionary[History, tuple[object, list[GenerationResult]]] = WeakKeyDictionary()


async def merges_of(services: Services) -> list[GenerationResult]:
    """Read once a merge, not once a second by every open dashboard."""
    newest = services.server.status().last_merge
    key = newest and newest["merged_at"]
    kept = _merges.get(services.history)
    if kept is None or kept[0] != key:
        kept = _merges[services.history] = (key, await services.history.generations(limit=MOST))
    return kept[1]


async def rows_of(services: Services, run_id: str = "") -> Rows:
    """Raises NotFound for a run that there is not; an empty id is that of the newest one."""
    traffic = services.traffic
    run = await (traffic.run(run_id) if run_id else traffic.newest())
    by_category = run if run_id and run is not None and measured_by_category(run) else traffic.by_category
    return Rows(
        merges=await merges_of(services),
        members=services.server.members(),
        generation=services.server.status().generation,
        beats=list(services.pulse.beats),
        marks=services.marks.newest,
        run=run,
        by_category=by_category,
    )


@router.get("/dashboard")
async def dashboard(request: Request, services: ServicesDep) -> HTMLResponse:
    rows = await rows_of(services)
    panels = [(panel, panel.answer(rows)) for panel in PANELS]
    return page(request, "dashboard.html", services, sentence=sentence(rows), panels=panels)


@router.get("/dashboard/figures.json")
async def figures(
    services: ServicesDep,
    panel: Annotated[list[str] | None, Query(max_length=len(BY_NAME))] = None,
    run: Annotated[str, Query(max_length=100)] = "",
) -> JSONResponse:
    """The figures of some panels (of all of the dashboard when none is named), and the sentences above them."""
    chosen = PANELS if panel is None else tuple(_panel(name) for name in dict.fromkeys(panel))
    rows = await rows_of(services, run)

    def draw() -> dict[str, Any]:
        drawn = {p.name: {"answer": p.answer(rows), "figure": finite(p.draw(rows))} for p in chosen}
        return {"sentence": sentence(rows), "panels": drawn}

    return JSONResponse(await asyncio.to_thread(draw), headers={"Cache-Control": "no-store"})


@router.get("/dashboard/tables/{name}")
async def table(name: str, services: ServicesDep, run: Annotated[str, Query(max_length=100)] = "") -> HTMLResponse:
    """The numbers behind a panel, newest first."""
    return HTMLResponse(fragment("_table.html", table=_panel(name).table(await rows_of(services, run))))


def _panel(name: str) -> Panel:
    if name not in BY_NAME:
        raise ApiError(404, f"There is no such panel: choose from {', '.join(BY_NAME)}.", "not_found")
    return BY_NAME[name]
