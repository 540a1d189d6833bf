"""The page about simulated users: a sentence to fill in, the run that it starts, and everything that it shows."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, UploadFile
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from app import words
from app.deps import Services, ServicesDep
from app.errors import ApiError
from app.panels import CATEGORIES, RUN
from app.routes import implicit, judge_page
from app.routes.dashboard import rows_of
from app.templating import fragment, page
from app.traffic.desk import measured_by_category
from app.traffic.files import keep
from app.traffic.forms import RunForm, fill, options_of
from app.traffic.views import RunReply, RunView
from app.traffic.words import doing, planned
from engine.population import PROFILES, Settings
from engine.regimes import REGIMES
from engine.tasks.cards import TaskCard
from engine.tasks.catalogue import describe

router = APIRouter(prefix="/traffic", include_in_schema=False)
router.include_router(judge_page.router)
REPLIES = 12
"""Shown at once."""
RunId = Annotated[str, Query(max_length=100)]
REGIME_WORDS = {
    "fixed": "the same requests for all members, again in every generation; greedy",
    "fresh": "the same requests for all members, new ones in every generation; greedy",
    "hetero": "every request goes to one member and never comes back; greedy",
    "hetero+sample": "the same, sampled: what a deployed model sees",
}


@router.get("")
async def traffic(request: Request, services: ServicesDep, run: RunId = "") -> HTMLResponse:
    rows = await rows_of(services, run)
    panels = [RUN] if rows.run is None or not measured_by_category(rows.run) else [RUN, CATEGORIES]
    cards = await asyncio.to_thread(describe, services.where)
    return page(
        request,
        "traffic.html",
        services,
        query=_query(run).removeprefix("?"),
        panels=[(panel, panel.answer(rows)) for panel in panels],
        run=_run(rows.run, run),
        start=_start(services, cards, run),
        replies=await _replies(services, rows.run, run),
        runs=await _runs(services),
        implicit=await implicit.part(services),
        **await judge_page.parts(services),
    )


@router.get("/now")
async def now(services: ServicesDep, run: RunId = "") -> HTMLResponse:
    """The run as it stands."""
    return HTMLResponse(_run(await _shown(services, run), run))


@router.get("/replies")
async def replies(services: ServicesDep, run: RunId = "") -> HTMLResponse:
    """The last replies to its users."""
    return HTMLResponse(await _replies(services, await _shown(services, run), run))


@router.get("/runs")
async def runs(services: ServicesDep) -> HTMLResponse:
    return HTMLResponse(await _runs(services))


@router.get("/options")
async def options(services: ServicesDep, task: Annotated[str, Query(max_length=200)]) -> HTMLResponse:
    """The options of a task."""
    for card in await asyncio.to_thread(describe, services.where):
        if card.name == task:
            return HTMLResponse(fragment("_options.html", card=card))
    raise ApiError(404, f"There is no task {task[:80]!r}: reload the page.", "not_found")


@router.post("/start")
async def start(request: Request, services: ServicesDep) -> HTMLResponse:
    """Starts what the sentence says; a page about an earlier run is left."""
    async with request.form(max_files=0, max_fields=60) as fields:
        form, chosen, pinned = fill(RunForm, fields), options_of(fields), fields.get("pinned")
    present = Settings.from_json(services.server.status().settings)
    begun = await services.traffic.start(**form.wanted(present, chosen))
    return HTMLResponse(_run(begun), headers={"HX-Redirect": "/traffic"} if pinned else None)


@router.post("/file")
async def bring(file: UploadFile, services: ServicesDep) -> HTMLResponse:
    """Stores a file as a task, and says which of its lines cannot be used."""
    name = (file.filename or "").rpartition("/")[2].rpartition("\\")[2].removesuffix(".jsonl")
    kept = await asyncio.to_thread(keep, services.where, name, await file.read())
    return HTMLResponse(fragment("_kept.html", kept=kept))


@router.post("/{run_id}/pause")
async def pause(run_id: str, services: ServicesDep, run: RunId = "") -> HTMLResponse:
    return HTMLResponse(_run(await services.traffic.pause(run_id), run))


@router.post("/{run_id}/resume")
async def resume(run_id: str, services: ServicesDep, run: RunId = "") -> HTMLResponse:
    return HTMLResponse(_run(await services.traffic.resume(run_id), run))


@router.post("/{run_id}/stop")
async def stop(run_id: str, services: ServicesDep, run: RunId = "") -> HTMLResponse:
    return HTMLResponse(_run(await services.traffic.stop(run_id), run))


# -- parts -------------------------------------------------------------------------------------------------------------


async def _shown(services: Services, run_id: str) -> RunView | None:
    return await (services.traffic.run(run_id) if run_id else services.traffic.newest())


def _query(pinned: str) -> str:
    """Of addresses on a page about a certain run; without one the page follows the newest."""
    return f"?run={quote(pinned)}" if pinned else ""


def _run(run: RunView | None, pinned: str = "") -> Markup:
    if run is None:
        return fragment("_run.html", run=None, query="")
    now = run.progress
    facts = [
        ("Generations", _of(now.merged, run.plan.get("generations"))),
        ("Ratings", _of(now.ratings, run.plan.get("max_ratings"))),
        ("Requests a second", f"{now.requests_per_second:.1f}"),
        ("Time left", words.duration(now.eta_seconds) if run.active and now.eta_seconds is not None else "–"),
    ]
    lost = [
        words.count(number, what, many)
        for number, what, many in (
            (now.silent, "user stayed silent", "users stayed silent"),
            (now.unrated, "reply could not be judged", "replies could not be judged"),
            (now.spanned, "episode was cut by a merge", "episodes were cut by a merge"),
            (now.failed, "reply failed", "replies failed"),
        )
        if number
    ]
    return fragment(
        "_run.html",
        run=run,
        says=planned(run),
        doing=doing(run),
        facts=facts,
        lost=", ".join(lost),
        share=_share(run),
        query=_query(pinned),
    )


def _of(done: int, goal: int | None) -> str:
    return f"{done:,}" if goal is None else f"{done:,} of {goal:,}"


def _share(run: RunView) -> float:
    """Of the plan that is done, in per cent."""
    if run.state == "done":
        return 100.0
    goals = ((run.progress.merged, run.plan.get("generations")), (run.progress.ratings, run.plan.get("max_ratings")))
    return round(max((min(100.0, 100 * done / goal) for done, goal in goals if goal), default=0.0), 1)


def _start(services: Services, cards: list[TaskCard], pinned: str) -> Markup:
    now = Settings.from_json(services.server.status().settings)
    families: dict[str, list[TaskCard]] = {}
    for card in cards:
        families.setdefault(card.family, []).append(card)
    return fragment(
        "_start.html",
        families=families,
        card=next(card for card in cards if card.available),
        members=now.members,
        each=f"{now.merge_after / now.members:.3f}".rstrip("0").rstrip("."),
        judge=str(services.judge.view().error),
        regimes=[(name, REGIME_WORDS[name]) for name in REGIMES],
        profiles=list(PROFILES),
        profile=services.server.status().profile,
        pinned=pinned,
    )


async def _replies(services: Services, run: RunView | None, pinned: str) -> Markup:
    shown = await services.traffic.replies(run.id, REPLIES) if run else []
    return fragment("_replies.html", replies=[_reply(reply) for reply in shown], query=_query(pinned))


def _reply(reply: RunReply) -> dict[str, Any]:
    """``apart``: the judge was wrong."""
    return {
        "prompt": reply.prompt,
        "text": reply.text,
        "who": f"gen {reply.generation} · member {reply.member}" if reply.member is not None else "source",
        "observed": "–" if reply.observed is None else f"{reply.observed:.2g}",
        "truth": "–" if reply.truth is None else f"{reply.truth:.2g}",
        "apart": None not in (reply.observed, reply.truth) and abs(reply.observed - reply.truth) > 1e-9,  # type: ignore[operator]
        "judge": reply.judge or "",
        "category": reply.category or "",
    }


async def _runs(services: Services) -> Markup:
    return fragment("_runs.html", runs=[_line(run) for run in await services.traffic.runs()])


def _line(run: RunView) -> dict[str, Any]:
    first, last = (run.scores[0].score, run.scores[-1].score) if run.scores else (None, None)
    return {
        "id": run.id,
        "name": run.name,
        "notes": run.notes,
        "when": f"{datetime.fromtimestamp(run.created_at, UTC):%Y-%m-%d %H:%M}",
        "regime": run.plan.get("regime", ""),
        "judge": run.plan.get("judge") or run.plan.get("schedule") or "as it was",
        "merged": run.progress.merged,
        "score": "–" if first is None or last is None else f"{words.percent(first)} → {words.percent(last)}",
        "state": run.state,
        "can_resume": run.state in ("paused", "stopped", "failed"),
    }
