"""Runs of simulated users over HTTP: start, watch, pause, resume, stop; and the tasks there are."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi import Request as HttpRequest
from pydantic import BaseModel, ConfigDict, Field

from app.deps import ServicesDep
from app.text import Text
from app.traffic.files import keep
from app.traffic.views import OwnFileView, RunReply, RunView
from engine.tasks.cards import TaskCard
from engine.tasks.catalogue import describe

router = APIRouter(prefix="/api", tags=["traffic"])
Name = Annotated[Text, Field(max_length=120)]
Notes = Annotated[Text, Field(max_length=10_000)]


class RunRequest(BaseModel):
    """What a run is to do; only `task` and an end (`generations` or `max_ratings`) are needed."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        json_schema_extra={"examples": [{"task": "persona:brevity", "generations": 12}]},
    )

    task: Annotated[Text, Field(min_length=1, max_length=200)] = Field(description="A name of `GET /api/tasks`.")
    options: dict[str, Any] = Field({}, description="Of the task, as its card lists them.", max_length=20)
    name: Name = ""
    regime: str = Field("hetero+sample", description="`fixed`, `fresh`, `hetero` or `hetero+sample`.")
    generations: int | None = Field(None, description="Ends after so many merges.")
    max_ratings: int | None = Field(None, description="Ends after so many ratings.")
    seed: int = Field(0, description="Of the users: what they ask, how replies are drawn, who stays silent.")
    silent: float = Field(0.0, description="The share of users who read and do not rate.")
    concurrency: int = Field(64, description="Most users at once.")
    rate: float | None = Field(None, description="Most new users a second; left out: as many as are answered.")
    eval_every: int = Field(0, description="Measure after every so many merges; 0: before and after.")
    held_out: int = Field(256, description="Prompts of a measurement; 0: none.")
    shuffle_rewards: bool = Field(False, description="A control: rewards go to random replies; nothing is learned.")
    temperature: float = Field(0.7, description="Of sampled replies.")
    max_tokens: int | None = Field(None, description="Of a reply; left out: the task's.")
    settings: dict[str, Any] = Field({}, description="Changed before the start, as in `PUT /api/settings`.")
    judge: str | None = Field(None, description="The judge's error from the start, for example `random:0.5`.")
    schedule: str | None = Field(
        None, description="Changes of the judge, counted from the run's first generation: `@20 perfect`."
    )


class RunChange(BaseModel):
    """What is left out stays."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: Name | None = None
    notes: Notes | None = None


@router.get("/tasks")
async def tasks(services: ServicesDep) -> list[TaskCard]:
    """What simulated users may ask and like, with the options of each, and whether it can be had here."""
    return await asyncio.to_thread(describe, services.where)


@router.put("/tasks/files/{name}")
async def put_file(name: str, request: HttpRequest, services: ServicesDep) -> OwnFileView:
    """Stores a JSONL file of your own as traffic (the task `file`) and says which of its lines cannot be used. A file
    without a usable line is refused."""
    return await asyncio.to_thread(keep, services.where, name, await request.body())


@router.post("/traffic", status_code=201)
async def start_run(wanted: RunRequest, services: ServicesDep) -> RunView:
    """Starts a run. One at a time is running or paused: another one is refused with 409."""
    return await services.traffic.start(**dict(wanted))


@router.get("/traffic")
async def runs(services: ServicesDep) -> list[RunView]:
    """All runs, newest first."""
    return await services.traffic.runs()


@router.get("/traffic/{run_id}")
async def run(run_id: str, services: ServicesDep) -> RunView:
    """One run, as it stands."""
    return await services.traffic.run(run_id)


@router.get("/traffic/{run_id}/replies")
async def run_replies(
    run_id: str, services: ServicesDep, limit: Annotated[int, Query(ge=1, le=1000)] = 20
) -> list[RunReply]:
    """The last replies to its users with their rewards, newest first."""
    return await services.traffic.replies(run_id, limit)


@router.post("/traffic/{run_id}/pause")
async def pause_run(run_id: str, services: ServicesDep) -> RunView:
    """No more users come; those who are there finish and rate."""
    return await services.traffic.pause(run_id)


@router.post("/traffic/{run_id}/resume")
async def resume_run(run_id: str, services: ServicesDep) -> RunView:
    """Goes on where it ended, also after a stop, a failure or a restart of the server; no request is repeated."""
    return await services.traffic.resume(run_id)


@router.delete("/traffic/{run_id}")
async def stop_run(run_id: str, services: ServicesDep) -> RunView:
    """Stops at once: replies under way are cut off and not rated. The run and its ratings stay."""
    return await services.traffic.stop(run_id)


@router.patch("/traffic/{run_id}")
async def change_run(run_id: str, change: RunChange, services: ServicesDep) -> RunView:
    """Names a run, or notes something about it."""
    return await services.traffic.describe(run_id, **change.model_dump(exclude_none=True))
