"""Charts of a run of simulated users, as pure functions: its learning curve, and its scores by category."""

from __future__ import annotations

from app.plots import ACCENT, INK, LINE, QUIET, Figure, Rows, Table, axis, empty, layout, share, shares
from app.traffic.views import RunView, Score, Turn
from app.words import count, percent

# -- do the users like it better? --------------------------------------------------------------------------------------


def run_answer(rows: Rows) -> str:
    if rows.run is None:
        return "No simulated users have come yet."
    return rows.run.message or "The first measurement is on its way."


def run(rows: Rows) -> Figure:
    """Observed and true mean reward of each generation, and the held-out score before a generation is rated."""
    if rows.run is None or not (rows.run.turns or rows.run.scores):
        return empty("The curve begins with the first measurement.")
    turns, scores = rows.run.turns, rows.run.scores
    x = [turn.generation for turn in turns]
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "observed reward",
            "x": x,
            "y": [turn.observed_reward for turn in turns],
            "text": [_said(turn) for turn in turns],
            "hovertemplate": "generation %{x}: observed %{y:.1%}<br>%{text}<extra></extra>",
            "line": {"color": ACCENT, "width": 2},
            "marker": {"size": 6, "color": ACCENT},
        }
    ]
    if _apart(turns):
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "true reward",
                "x": x,
                "y": [turn.mean_reward for turn in turns],
                "hovertemplate": "generation %{x}: true %{y:.1%}<extra></extra>",
                "line": {"color": "var(--warm)", "width": 2, "dash": "dash"},
            }
        )
    data.append(
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "held-out score",
            "x": [score.generation - 0.5 for score in scores],
            "y": [score.score for score in scores],
            "text": [_measured(score) for score in scores],
            "hovertemplate": "%{text}: %{y:.1%}<extra></extra>",
            "line": {"color": INK, "width": 1, "dash": "dot"},
            "marker": {"size": 9, "symbol": "diamond", "color": INK},
        }
    )
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "font": {"color": QUIET}}
    few = {"dtick": 1} if len(turns) <= 12 else {}
    return {
        "data": data,
        "layout": layout(
            xaxis=axis(title="generation", showgrid=False, tickformat=",d", **few),
            yaxis=shares(title="reward"),
            showlegend=True,
            legend=legend,
            uirevision=rows.run.id,
        ),
    }


def _apart(turns: list[Turn]) -> bool:
    """Whether the truth is known and differs from what was observed."""
    return any(t.mean_reward is not None and t.mean_reward != t.observed_reward for t in turns)


def _said(turn: Turn) -> str:
    return count(turn.ratings, "rating") + (", nothing to learn" if turn.null else "")


def _measured(score: Score) -> str:
    return f"source model before generation {score.generation}, {count(score.prompts, 'held-out request')}"


def run_table(rows: Rows) -> Table:
    head = ["generation", "ratings", "observed", "true", "held-out score before", "learned", "seconds"]
    if rows.run is None:
        return Table(head, [])
    scores = {score.generation: score.score for score in rows.run.scores}
    lines = [
        [
            str(turn.generation),
            str(turn.ratings),
            share(turn.observed_reward),
            share(turn.mean_reward),
            share(scores.get(turn.generation)),
            {None: "not merged", True: "no: all the same", False: "yes"}[turn.null],
            f"{turn.seconds:,.1f}",
        ]
        for turn in reversed(rows.run.turns)
    ]
    last = [score for score in rows.run.scores if score.generation not in {turn.generation for turn in rows.run.turns}]
    return Table(head, [[str(s.generation), "–", "–", "–", share(s.score), "–", "–"] for s in reversed(last)] + lines)


# -- where is it better? -----------------------------------------------------------------------------------------------


def categories_answer(rows: Rows) -> str:
    found = _first_and_last(rows.by_category)
    if not found:
        return "Known after a run over a task with categories, such as BIG-Bench."
    first, last = found
    if first is last:
        best = max(last.by_category, key=lambda name: last.by_category[name])
        return f"Before any learning; best at {best} with {percent(last.by_category[best])}."
    both = first.by_category.keys() & last.by_category.keys()
    better = sum(last.by_category[name] > first.by_category[name] for name in both)
    worse = sum(last.by_category[name] < first.by_category[name] for name in both)
    return f"Better in {better} of {count(len(both), 'category', 'categories')}, worse in {worse}."


def _first_and_last(run: RunView | None) -> tuple[Score, Score] | None:
    scores = [score for score in run.scores if score.by_category] if run else []
    return (scores[0], scores[-1]) if scores else None


def categories(rows: Rows) -> Figure:
    """The held-out score of each category: before (hollow) and now (full)."""
    found = _first_and_last(rows.by_category)
    if not found:
        return empty("A line for every category of the task.")
    first, last = found
    names = sorted(last.by_category, key=lambda name: (last.by_category[name], name))
    ways_x: list[float | None] = []
    ways_y: list[str | None] = []
    for name in names:
        ways_x += [first.by_category.get(name), last.by_category[name], None]
        ways_y += [name, name, None]
    ways = {"type": "scatter", "mode": "lines", "x": ways_x, "y": ways_y, "hoverinfo": "skip", "showlegend": False}
    before = {
        "type": "scatter",
        "mode": "markers",
        "name": f"before generation {first.generation}",
        "x": [first.by_category.get(name) for name in names],
        "y": names,
        "marker": {"size": 9, "color": "var(--paper)", "line": {"color": ACCENT, "width": 1.5}},
        "hovertemplate": "%{y}: %{x:.1%}<extra></extra>",
    }
    now = before | {
        "name": f"before generation {last.generation}",
        "x": [last.by_category[name] for name in names],
        "marker": {"size": 9, "color": ACCENT},
    }
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "font": {"color": QUIET}}
    return {
        "data": [ways | {"line": {"color": LINE, "width": 3}}, *([] if first is last else [before]), now],
        "layout": layout(
            xaxis=axis(title="held-out score", rangemode="tozero", tickformat=".0%"),
            yaxis=axis(showgrid=True, type="category", categoryorder="array", categoryarray=names),
            showlegend=True,
            legend=legend,
        ),
    }


def categories_table(rows: Rows) -> Table:
    scores = [score for score in rows.by_category.scores if score.by_category] if rows.by_category else []
    names = sorted({name for score in scores for name in score.by_category})
    head = ["category", *(f"before gen {score.generation}" for score in scores)]
    return Table(head, [[name, *(share(score.by_category.get(name)) for score in scores)] for name in names])
