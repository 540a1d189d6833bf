"""Charts of what has merged, as pure functions from rows to a figure, a line of words and a table. Where there is no
data there is a gap."""

from __future__ import annotations

from collections.abc import Sequence

from app.history import GenerationResult
from app.plots import (
    ACCENT,
    LINE,
    QUIET,
    RAMP,
    Figure,
    Rows,
    Table,
    axis,
    empty,
    generations_axis,
    layout,
    share,
    shares,
)
from app.words import count, percent


def rated(merges: Sequence[GenerationResult]) -> list[GenerationResult]:
    return [m for m in merges if m.mean_reward is not None and m.ratings]


def typical(merges: Sequence[GenerationResult]) -> float:
    """The mean reward over all ratings of some merges."""
    return sum(m.mean_reward * m.ratings for m in merges if m.mean_reward is not None) / sum(m.ratings for m in merges)


# -- is it learning? ---------------------------------------------------------------------------------------------------


def learning_answer(rows: Rows) -> str:
    merges = rated(rows.merges)
    if not merges:
        return "Nothing has merged yet: rate some replies."
    if len(merges) == 1:
        return f"The first generation scored {percent(merges[0].mean_reward or 0)} on average."
    few = max(1, min(5, len(merges) // 4))
    first, last = typical(merges[:few]), typical(merges[-few:])
    span = "generation" if few == 1 else f"{few} generations"
    if abs(last - first) < 0.02:
        return f"Not visibly: {percent(last)} in the last {span}, {percent(first)} in the first."
    return f"{percent(last)} in the last {span}, {'up' if last > first else 'down'} from {percent(first)} in the first."


def learning(rows: Rows) -> Figure:
    if not rated(rows.merges):
        return empty("The first point comes with the first merge.")
    x, y, deviations, labels = [], [], [], []
    for m in rows.merges:
        known = [f for f in m.fitness if f is not None]
        mean = sum(known) / len(known) if known else 0.0
        for member, (fitness, number) in enumerate(zip(m.fitness, m.counts, strict=False)):
            if fitness is not None:
                x.append(m.generation)
                y.append(fitness)
                deviations.append(fitness - mean)
                labels.append(f"member {member}: {percent(fitness)}<br>{count(number, 'rating')}")
    reach = max((abs(d) for d in deviations), default=0.0) or 1.0
    points = {
        "type": "scatter",
        "mode": "markers",
        "name": "members",
        "x": x,
        "y": y,
        "text": labels,
        "hovertemplate": "generation %{x}, %{text}<extra></extra>",
        "marker": {"size": 6, "opacity": 0.75, "color": deviations, "colorscale": RAMP, "cmin": -reach, "cmax": reach},
    }
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "mean reward",
        "x": [m.generation for m in rows.merges],
        "y": [m.mean_reward for m in rows.merges],
        "text": [_merge_label(m) for m in rows.merges],
        "hovertemplate": "generation %{x}: mean %{y:.1%}<br>%{text}<extra></extra>",
        "connectgaps": False,
        "line": {"color": ACCENT, "width": 2},
        "marker": {
            "size": 7,
            "color": ["var(--paper)" if m.null else ACCENT for m in rows.merges],
            "line": {"color": ACCENT, "width": 1.5},
        },
    }
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "font": {"color": QUIET}}
    return {
        "data": [points, line],
        "layout": layout(
            xaxis=generations_axis(rows.merges), yaxis=shares(title="reward"), showlegend=True, legend=legend
        ),
    }


def _merge_label(m: GenerationResult) -> str:
    return count(m.ratings, "rating") + (": nothing to learn, every reply scored the same" if m.null else "")


def learning_table(rows: Rows) -> Table:
    def line(m: GenerationResult) -> list[str]:
        known = [f for f in m.fitness if f is not None]
        spread = f"{percent(min(known))} to {percent(max(known))}" if known else "–"
        return [str(m.generation), share(m.mean_reward), spread, f"{len(known)} of {len(m.fitness)}"]

    return Table(["generation", "mean reward", "members", "members rated"], [line(m) for m in reversed(rows.merges)])


# -- what did each merge use? ------------------------------------------------------------------------------------------


def merges_answer(rows: Rows) -> str:
    if not rows.merges:
        return "Nothing has merged yet."
    last = rows.merges[-1]
    nothing = sum(m.null for m in rows.merges)
    waited = f"requests waited {last.pause_ms:,.0f} ms" if last.pause_ms >= 1 else "nobody waited"
    text = f"The last one used {count(last.ratings + last.late, 'rating')} and took {last.merge_ms:,.0f} ms; {waited}."
    return text + (f" {count(nothing, 'merge')} had nothing to learn from." if nothing else "")


def merges(rows: Rows) -> Figure:
    if not rows.merges:
        return empty("A bar for every merge.")
    x = [m.generation for m in rows.merges]
    used = {
        "type": "bar",
        "name": "ratings",
        "x": x,
        "y": [m.ratings for m in rows.merges],
        "text": [m.reason for m in rows.merges],
        "textposition": "none",
        "marker": {"color": [LINE if m.null else ACCENT for m in rows.merges]},
        "hovertemplate": "generation %{x}: %{y} ratings (%{text})<extra></extra>",
    }
    late = {
        "type": "bar",
        "name": "late ratings",
        "x": x,
        "y": [m.late for m in rows.merges],
        "marker": {"color": "var(--mid)"},
        "hovertemplate": "generation %{x}: %{y} late ratings of earlier generations<extra></extra>",
    }
    taken = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "time taken",
        "x": x,
        "y": [m.merge_ms for m in rows.merges],
        "yaxis": "y2",
        "line": {"color": QUIET, "width": 1.5},
        "marker": {"size": 5, "color": QUIET},
        "hovertemplate": "generation %{x}: %{y:,.0f} ms<extra></extra>",
    }
    return {
        "data": [used, late, taken],
        "layout": layout(
            barmode="stack",
            bargap=0.35,
            xaxis=generations_axis(rows.merges, anchor="y2"),
            yaxis=axis(title="ratings", domain=[0.5, 1], rangemode="tozero", nticks=4),
            yaxis2=axis(title="ms", domain=[0, 0.38], rangemode="tozero", nticks=4),
        ),
    }


def merges_table(rows: Rows) -> Table:
    head = ["generation", "ratings", "late", "why", "learned", "taken", "waited", "drift after"]
    return Table(head, [_merge_row(m) for m in reversed(rows.merges)])


def _merge_row(m: GenerationResult) -> list[str]:
    return [
        str(m.generation),
        str(m.ratings),
        str(m.late),
        m.reason,
        "no: all the same" if m.null else "yes" if m.mean_reward is not None else "no ratings",
        f"{m.merge_ms:,.0f} ms",
        f"{m.pause_ms:,.0f} ms",
        percent(m.drift),
    ]


# -- is it drifting? ---------------------------------------------------------------------------------------------------


def drift_answer(rows: Rows) -> str:
    if not rows.merges:
        return "Not yet: the weights are those it started from."
    return f"The weights have moved by {percent(rows.merges[-1].drift)} of their length since the start."


def drift(rows: Rows) -> Figure:
    if not rows.merges:
        return empty("It starts at 0 and moves with every merge.")
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [m.generation for m in rows.merges],
        "y": [m.drift for m in rows.merges],
        "line": {"color": ACCENT, "width": 2},
        "marker": {"size": 5, "color": ACCENT},
        "hovertemplate": "after generation %{x}: %{y:.2%}<extra></extra>",
    }
    return {
        "data": [line],
        "layout": layout(
            xaxis=generations_axis(rows.merges),
            yaxis=axis(title="‖θ−θ₀‖ / ‖θ₀‖", tickformat=".2~%", rangemode="tozero"),
        ),
    }


def drift_table(rows: Rows) -> Table:
    return Table(["after generation", "drift"], [[str(m.generation), f"{m.drift:.3%}"] for m in reversed(rows.merges)])


# -- is it luck? -------------------------------------------------------------------------------------------------------


def luck_answer(rows: Rows) -> str:
    known = [m for m in rows.merges if m.signal_share is not None]
    if not known:
        return "Not known yet: it takes a merge with several ratings a member."
    return f"{percent(known[-1].signal_share or 0)} of the spread between members was signal in the last such merge."


def luck(rows: Rows) -> Figure:
    if not any(m.signal_share is not None for m in rows.merges):
        return empty("It takes a merge with several ratings a member.")
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [m.generation for m in rows.merges],
        "y": [m.signal_share for m in rows.merges],
        "connectgaps": False,
        "line": {"color": ACCENT, "width": 2},
        "marker": {"size": 5, "color": ACCENT},
        "hovertemplate": "generation %{x}: %{y:.0%} signal<extra></extra>",
    }
    return {
        "data": [line],
        "layout": layout(xaxis=generations_axis(rows.merges), yaxis=shares(title="signal share")),
    }


def luck_table(rows: Rows) -> Table:
    return Table(
        ["generation", "signal share"], [[str(m.generation), share(m.signal_share)] for m in rows.merges[::-1]]
    )
