"""Templates to pages and fragments. A template holds no logic: what it shows is prepared by the routes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
from fastapi import Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from app import assets, words
from app.deps import Services
from app.routes.api import present

FOLDER = Path(__file__).resolve().parent.parent / "templates"
env = jinja2.Environment(
    loader=jinja2.FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
env.globals["asset"] = assets.url
env.globals["words"] = words
env.globals["icon"] = env.get_template("icons.html").module.icon  # type: ignore[attr-defined]


def shell(services: Services) -> dict[str, Any]:
    """What the top bar shows."""
    status = present(services)
    ring = min(100.0, 100 * status.ratings / status.merge_after)
    return {"status": status, "status_json": jsonable_encoder(status), "ring": round(ring, 2)}


def page(request: Request, name: str, services: Services, **context: Any) -> HTMLResponse:
    """A whole page: never kept by the browser, so that going back shows what is true now."""
    look = request.cookies.get("theme", "")
    text = env.get_template(name).render(
        **shell(services),
        theme=look if look in ("light", "dark") else "",
        talks_closed=request.cookies.get("talks") == "closed",
        **context,
    )
    return HTMLResponse(text, headers={"Cache-Control": "no-store"})


def fragment(name: str, **context: Any) -> Markup:
    """A part of a page."""
    return Markup(env.get_template(name).render(**context))


def swap(target: str, html: str, how: str = "innerHTML") -> str:
    """A piece of HTML with the place where htmx puts it."""
    return f'<hx-partial hx-target="{target}" hx-swap="{how}">{html}</hx-partial>'
