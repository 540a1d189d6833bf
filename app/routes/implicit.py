"""Implicit feedback over HTTP, on the page about simulated users, and from chat's copy button."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field

from app.deps import Services, ServicesDep
from app.implicit import ImplicitView
from app.templating import fragment
from app.text import Text
from app.traffic.forms import BadForm
from app.words import percent

router = APIRouter(tags=["implicit feedback"])


class ImplicitChange(BaseModel):
    """What is left out stays."""

    model_config = ConfigDict(
        strict=True, extra="forbid", json_schema_extra={"examples": [{"on": True, "weights": {"copy": 0.2}}]}
    )

    on: bool | None = None
    weights: dict[Text, float] = Field({}, description="By rule, 0 (left out) to 1 (as a rating).", max_length=20)


class Action(BaseModel):
    """What a person did with a reply."""

    model_config = ConfigDict(strict=True, extra="forbid")

    action: Annotated[Text, Field(max_length=40)] = Field(description="`copy` or `regenerate`.")


@router.get("/api/implicit")
async def implicit(services: ServicesDep) -> ImplicitView:
    """Whether what people do counts, and each rule with its weight, how often it applied and its agreement with thumbs
    on the same replies."""
    return await services.implicit.view()


@router.put("/api/implicit")
async def change_implicit(change: ImplicitChange, services: ServicesDep) -> ImplicitView:
    """Switches it on or off and weighs its rules, for what people do from now on."""
    await services.implicit.change(on=change.on, weights=change.weights)
    return await services.implicit.view()


@router.post("/api/implicit/{inference_id}", status_code=204)
async def act(inference_id: str, action: Action, services: ServicesDep) -> Response:
    """Says that a person did something with a reply; once is enough."""
    await services.implicit.did(await services.store.message(inference_id), action.action)
    return Response(status_code=204)


@router.get("/traffic/implicit", include_in_schema=False)
async def implicit_part(services: ServicesDep) -> HTMLResponse:
    return HTMLResponse(await part(services))


@router.post("/traffic/implicit", include_in_schema=False)
async def change_part(request: Request, services: ServicesDep) -> HTMLResponse:
    """The whole form: a switch that is not sent is off."""
    weights: dict[str, float] = {}
    async with request.form(max_files=0, max_fields=30) as fields:
        on = fields.get("on") == "true"
        for name, value in fields.items():
            if name.startswith("weight."):
                try:
                    weights[name.removeprefix("weight.")] = float(str(value))
                except ValueError:
                    raise BadForm("A weight is a number from 0 (left out) to 1 (as a rating).") from None
    await services.implicit.change(on=on, weights=weights)
    return HTMLResponse(await part(services, "Kept, for what people do from now on."))


async def part(services: Services, message: str = "") -> Markup:
    view = await services.implicit.view()
    rules: list[dict[str, Any]] = [
        {
            "name": rule.name,
            "label": rule.label,
            "help": rule.help,
            "says": "good" if rule.value >= 0.5 else "bad",
            "weight": f"{rule.weight:g}",
            "seen": f"{rule.seen:,}",
            "agrees": "–"
            if rule.agreement is None
            else f"{percent(rule.agreement.share)} of {rule.agreement.count} "
            f"({percent(rule.agreement.low)} to {percent(rule.agreement.high)})",
        }
        for rule in view.rules
    ]
    return fragment("_implicit.html", on=view.on, rules=rules, message=message)
