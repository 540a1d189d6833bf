"""Charts of what is served now: the members of the present generation, and the pace of the last hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from app.plots import ACCENT, LINE, QUIET, RAMP, REVISION, Figure, Rows, Table, axis, empty, layout, share
from app.pulse import Beat
from app.words import count, percent

GAP = 15.0
"""Seconds without a beat that are drawn as a gap."""
POINTS = 600

# -- who answers well now? ---------------------------------------------------------------------------------------------


def members_answer(rows: Rows) -> str:
    known = [m for m in rows.members if m.fitness is not None]
    if not known:
        return f"No member of generation {rows.generation} is rated yet."
    best = max(known, key=lambda m: (m.fitness or 0, m.ratings))
    total = sum(m.ratings for m in rows.members)
    if len(known) == 1:
        return f"Member {best.member} is the only one rated so far, with {percent(best.fitness or 0)}."
    if len({m.fitness for m in known}) == 1:
        return f"{count(total, 'rating')} so far, and every rated member scores the same."
    return f"Member {best.member} leads with {percent(best.fitness or 0)}; {count(total, 'rating')} so far."


def members(rows: Rows) -> Figure:
    if not rows.members:
        return empty("The population is drawn when the engine is ready.")
    if not any(m.served or m.ratings for m in rows.members):
        return empty("Nobody has asked this generation anything yet.")
    known = [m.fitness for m in rows.members if m.fitness is not None]
    mean = sum(known) / len(known) if known else 0.0
    reach = max((abs(f - mean) for f in known), default=0.0) or 1.0
    x = [m.member for m in rows.members]
    served = {
        "type": "bar",
        "name": "replies",
        "x": x,
        "y": [m.served for m in rows.members],
        "marker": {"color": LINE},
        "hovertemplate": "member %{x}: %{y} replies<extra></extra>",
    }
    by_fitness = {
        "type": "bar",
        "name": "rated replies",
        "x": x,
        "y": [m.ratings for m in rows.members],
        "text": ["" if m.fitness is None else percent(m.fitness) for m in rows.members],
        "textposition": "outside",
        "textfont": {"color": QUIET, "size": 12},
        "cliponaxis": False,
        "width": 0.5,
        "marker": {
            "color": [0.0 if m.fitness is None else m.fitness - mean for m in rows.members],
            "colorscale": RAMP,
            "cmin": -reach,
            "cmax": reach,
        },
        "hovertemplate": "member %{x}: %{y} rated, fitness %{text}<extra></extra>",
    }
    few = {"dtick": 1} if len(x) <= 32 else {}
    low = {"dtick": 1} if max(m.served for m in rows.members) <= 5 else {"nticks": 5}
    return {
        "data": [served, by_fitness],
        "layout": layout(
            barmode="overlay",
            bargap=0.25,
            margin={"l": 8, "r": 8, "t": 20, "b": 8},
            xaxis=axis(title="member", showgrid=False, tickformat="d", **few),
            yaxis=axis(title="replies", rangemode="tozero", tickformat=",d", **low),
            uirevision=f"{REVISION} {len(x)}",
        ),
    }


def members_table(rows: Rows) -> Table:
    head = ["member", "half of the pair", "replies", "rated", "fitness"]
    sign = {1: "+", -1: "−"}
    lines = [[str(m.member), sign[m.sign], str(m.served), str(m.ratings), share(m.fitness)] for m in rows.members]
    return Table(head, lines)


# -- how fast does it answer? ------------------------------------------------------------------------------------------


def throughput_answer(rows: Rows) -> str:
    if not rows.beats:
        return "Nothing has been measured yet."
    last = rows.beats[-1]
    peak = max(b.tokens_per_second for b in rows.beats)
    if not peak:
        return "Nothing has been generated in the last hour."
    now = f"{last.tokens_per_second:,.0f} tokens a second for {count(last.running, 'request')}"
    held = f", {last.waiting:,} waiting" if last.waiting else ""
    return f"{now}{held} now; at most {peak:,.0f} in the last hour."


def throughput(rows: Rows) -> Figure:
    if not rows.beats:
        return empty("Measured every second once the engine serves.")
    x: list[int] = []
    y: list[float | None] = []
    beats = thinned(rows.beats)
    for before, beat in zip([None, *beats], beats, strict=False):
        if before is not None and beat.at - before.at > GAP:  # nobody looked: a gap
            x.append(_milliseconds(before.at + 1))
            y.append(None)
        x.append(_milliseconds(beat.at))
        y.append(round(beat.tokens_per_second, 1))
    line = {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "connectgaps": False,
        "line": {"color": ACCENT, "width": 1.5},
        "hovertemplate": "%{x|%H:%M:%S}: %{y:,.0f} tokens/s<extra></extra>",
    }
    return {
        "data": [line],
        "layout": layout(
            xaxis=axis(type="date", showgrid=False, nticks=6),
            yaxis=axis(title="tokens/s", rangemode="tozero", nticks=5),
        ),
    }


def thinned(beats: Sequence[Beat]) -> list[Beat]:
    """At most :data:`POINTS` beats, each the mean of those around it that follow one another without a gap."""
    size = -(-len(beats) // POINTS)
    groups: list[list[Beat]] = []
    for beat in beats:
        if groups and len(groups[-1]) < size and beat.at - groups[-1][-1].at <= GAP:
            groups[-1].append(beat)
        else:
            groups.append([beat])
    return [
        replace(group[-1], tokens_per_second=sum(b.tokens_per_second for b in group) / len(group)) for group in groups
    ]


def _milliseconds(at: float) -> int:
    """Since 1970; the page turns it into the reader's time."""
    return round(1000 * at)


def throughput_table(rows: Rows) -> Table:
    """Means by minute, newest first."""
    minutes: dict[int, list[Beat]] = {}
    for beat in rows.beats:
        minutes.setdefault(int(beat.at // 60), []).append(beat)
    lines = [
        [
            f"{datetime.fromtimestamp(60 * minute, UTC):%H:%M}",
            f"{sum(b.tokens_per_second for b in beats) / len(beats):,.1f}",
            str(max(b.running for b in beats)),
        ]
        for minute, beats in sorted(minutes.items(), reverse=True)
    ]
    return Table(["minute (UTC)", "tokens a second", "most requests at once"], lines)
