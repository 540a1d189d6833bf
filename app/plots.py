"""How charts look, and what they are made from: plain Plotly JSON, with colours as ``var(--…)`` for the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.history import GenerationResult
from app.pulse import Beat
from engine.interface import MemberStatus

Figure = dict[str, Any]
ACCENT, INK, QUIET, LINE = "var(--accent)", "var(--ink)", "var(--quiet)", "var(--line)"
RAMP = [[0, "var(--cool)"], [0.5, "var(--mid)"], [1, "var(--warm)"]]
"""Fitness: below the population's mean to above it."""
REVISION = "kept"
"""The same for every update, so that zoom and hidden traces survive."""


@dataclass(frozen=True)
class Rows:
    """Everything that the dashboard draws."""

    merges: Sequence[GenerationResult]
    """Oldest first."""
    members: Sequence[MemberStatus]
    generation: int
    beats: Sequence[Beat]
    """Oldest first."""


@dataclass(frozen=True)
class Table:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Panel:
    """One chart with its words. ``terms`` are (word, meaning)."""

    name: str
    title: str
    answer: Callable[[Rows], str]
    figure: Callable[[Rows], Figure]
    table: Callable[[Rows], Table]
    terms: Sequence[tuple[str, str]]
    broad: bool = False


def finite(value: Any) -> Any:
    """The same data with every non-finite float as None: JSON and Plotly know no NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def axis(**changes: Any) -> dict[str, Any]:
    """Hairlines, quiet ticks."""
    style = {
        "gridcolor": LINE,
        "gridwidth": 1,
        "linecolor": LINE,
        "zeroline": False,
        "ticks": "",
        "tickfont": {"color": QUIET, "size": 12},
        "title": {"font": {"color": QUIET, "size": 12}, "standoff": 8},
        "automargin": True,
    }
    title = changes.pop("title", None)
    if title is not None:
        style["title"] = {**style["title"], "text": title}  # type: ignore[dict-item]
    return style | changes


def layout(**changes: Any) -> dict[str, Any]:
    """Our look, for every figure."""
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": INK, "size": 13},
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "var(--raised)", "bordercolor": LINE, "font": {"color": INK, "size": 13}},
        "showlegend": False,
        "uirevision": REVISION,
        "dragmode": "zoom",
    } | changes


def generations_axis(merges: Sequence[GenerationResult], **changes: Any) -> dict[str, Any]:
    """Whole numbers only, also while there are few."""
    few = {"dtick": 1} if merges and merges[-1].generation - merges[0].generation <= 12 else {}
    return axis(title="generation", showgrid=False, tickformat=",d", **few, **changes)


def shares(**changes: Any) -> dict[str, Any]:
    return axis(range=[-0.04, 1.04], tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1], **changes)


def empty(message: str) -> Figure:
    """A chart without data says what it waits for."""
    bare = {"visible": False, "fixedrange": True}
    note = {"text": message, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    note["font"] = {"color": QUIET, "size": 14}  # type: ignore[assignment]
    return {"data": [], "layout": layout(xaxis=bare, yaxis=bare, annotations=[note])}


def share(value: float | None) -> str:
    """A share for a table."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.1%}"
