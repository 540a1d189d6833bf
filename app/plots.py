"""How charts look, and what they are made from: plain Plotly JSON, with colours as ``var(--…)`` for the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from app.history import GenerationResult
from app.marks import MarkView
from app.pulse import Beat
from app.traffic.views import RunView
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
    marks: Sequence[MarkView] = ()
    """Oldest first."""
    run: RunView | None = None
    """The run of simulated users that is looked at."""
    by_category: RunView | None = None
    """The newest run whose task has categories."""


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
    over: Literal["generation", "time", ""] = "generation"
    """What the x-axis counts, so that marks find their place; empty: nothing that marks could have a place on."""

    moved_by: str = "merged mark"
    """The page's events after which it is drawn again."""

    def draw(self, rows: Rows) -> Figure:
        """The figure with the marks on it."""
        figure = self.figure(rows)
        return marked(figure, rows.marks, self.over) if self.over else figure


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


# -- marks -------------------------------------------------------------------------------------------------------------

NAMED = 4
"""Marks that are named on a chart, the newest; the other ones say their words on hover."""
LONGEST = 26
"""Characters of a mark's words on a chart."""


def marked(figure: Figure, marks: Sequence[MarkView], over: Literal["generation", "time"]) -> Figure:
    """The figure with a dotted line where something changed (judge, settings, weights, a run), between the last
    generation before it and the first one after it, or at its time. Marks outside of what is drawn are left out."""
    known = [x for trace in figure["data"] for x in trace.get("x", ()) if isinstance(x, int | float)]
    if not known:
        return figure
    low, high = (min(known) - 0.5, max(known) + 0.5) if over == "generation" else (min(known), max(known))
    words: dict[float, list[str]] = {}
    for mark in marks:
        place = mark.generation - 0.5 if over == "generation" else round(1000 * mark.created_at)
        if low <= place <= high:
            words.setdefault(place, []).append(mark.text)
    lines, notes = [], []
    for number, (place, texts) in enumerate(sorted(words.items(), reverse=True)):
        style = {"color": QUIET, "width": 1, "dash": "dot"}
        where = {"xref": "x", "yref": "paper"}
        lines.append({"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "line": style, **where})
        whole = ", ".join(dict.fromkeys(texts))
        short = whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1]}…"
        right = place > low + 0.7 * (high - low)
        note = {"x": place, "y": 1 - 0.08 * (number % NAMED), "text": escape(short if number < NAMED else "·"), **where}
        note |= {"xanchor": "right" if right else "left", "yanchor": "top", "showarrow": False, "align": "left"}
        notes.append(
            note
            | {
                "hovertext": escape(whole),
                "font": {"color": QUIET, "size": 11},
                "bgcolor": "var(--paper)",
                "borderpad": 1,
            }
        )
    figure["layout"]["shapes"] = [*figure["layout"].get("shapes", ()), *lines]
    figure["layout"]["annotations"] = [*figure["layout"].get("annotations", ()), *notes]
    return figure
