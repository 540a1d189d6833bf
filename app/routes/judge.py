"""The judge of simulated users over HTTP, how good it is, what a rating counts by its source, the marks on charts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from app.deps import ServicesDep
from app.judge import JudgeView
from app.marks import MarkView
from app.opinions import Given, Offer
from app.text import Text
from engine.judges.errors import parse
from engine.judges.schedule import parse_schedule

router = APIRouter(prefix="/api", tags=["judge"])


class Who(BaseModel):
    """Who judges."""

    model_config = ConfigDict(strict=True, extra="forbid")

    kind: str = Field(description="`task` (the task itself), `llm` or `reward_model`.")
    options: dict[str, Any] = Field({}, description="llm: url, model, rubric, ...; reward_model: model.", max_length=20)


class JudgeChange(BaseModel):
    """What is left out stays."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        json_schema_extra={"examples": [{"error": "random:0.6", "schedule": "@150 perfect"}]},
    )

    error: Annotated[Text, Field(max_length=80)] | None = Field(
        None, description="`perfect`, `random:P`, `stingy:P` or `blindspot`; from the next reply on."
    )
    schedule: Annotated[Text, Field(max_length=2000)] | None = Field(
        None, description="Changes to come, by generation: `@150 perfect`. Empty: none."
    )
    who: Who | None = None


class Opinion(BaseModel):
    """What a person says of a judged reply."""

    model_config = ConfigDict(strict=True, extra="forbid")

    value: bool | Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = Field(
        description="true or false, or 0 to 1; null skips the reply."
    )


@router.get("/judge")
async def judge(services: ServicesDep) -> JudgeView:
    """How simulated users are judged now, and what is planned."""
    return services.judge.view()


@router.put("/judge")
async def change_judge(change: JudgeChange, services: ServicesDep) -> JudgeView:
    """Changes the judge. It is stored, and marked on every chart."""
    return await services.judge.change(
        error=None if change.error is None else parse(change.error),
        schedule=None if change.schedule is None else parse_schedule(change.schedule),
        who=None if change.who is None else change.who.model_dump(),
    )


@router.get("/judge/health")
async def judge_health(
    services: ServicesDep, judge: Annotated[str | None, Query(max_length=200)] = None
) -> dict[str, Any]:
    """How often the judge is wrong, from the second opinions of people, with a 95% interval."""
    return await services.opinions.health(judge)


@router.get("/judge/opinions")
async def opinions(services: ServicesDep, limit: Annotated[int, Query(ge=1, le=200)] = 20) -> list[Offer]:
    """Judged replies that wait for a second opinion, newest first."""
    return await services.opinions.queue(limit)


@router.post("/judge/opinions/{inference_id}")
async def give_opinion(inference_id: str, opinion: Opinion, services: ServicesDep) -> Given:
    """A person's second opinion; it says how good the judge is and changes no rating."""
    value = None if opinion.value is None else float(opinion.value)
    return await services.opinions.give(inference_id, value, rater="local")


@router.get("/marks")
async def marks(services: ServicesDep) -> list[MarkView]:
    """Changes that every chart shows, oldest first."""
    return services.marks.newest


@router.get("/sources")
async def sources(services: ServicesDep) -> dict[str, float]:
    """What a rating counts by its source."""
    return services.sources.weights


@router.put("/sources")
async def change_sources(weights: dict[Text, float], services: ServicesDep) -> dict[str, float]:
    """Weighs the ratings of a source from now on; 0 leaves them out."""
    await services.sources.change(weights)
    return services.sources.weights
