"""Charts as pure functions: valid figures, gaps where there is no data, words that say what is drawn."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import plotly.graph_objects as go
import pytest

from app.history import GenerationResult
from app.panels import BY_NAME, PANELS, sentence
from app.plots import Rows, finite
from app.pulse import Beat
from engine.interface import MemberStatus

EMPTY = Rows([], [], 0, [])


def merge(generation: int, *fitness: float | None, **changes: object) -> GenerationResult:
    known = [f for f in fitness if f is not None]
    return replace(
        GenerationResult(
            generation=generation,
            mean_reward=sum(known) / len(known) if known else None,
            fitness=list(fitness),
            counts=[0 if f is None else 2 for f in fitness],
            ratings=2 * len(known),
            late=0,
            null=len(set(known)) <= 1,
            signal_share=None,
            drift=0.001 * (generation + 1),
            merged_at=1000.0 + generation,
            merge_ms=12.0,
            pause_ms=0.0,
            reason="ratings",
        ),
        **changes,
    )


def member(index: int, ratings: int = 0, fitness: float | None = None) -> MemberStatus:
    return MemberStatus(index, index, 1 if index % 2 == 0 else -1, ratings + 1, 0, ratings, fitness)


FULL = Rows(
    merges=[
        merge(0, 0.5, 0.25, None, 0.75, signal_share=0.4),
        merge(1, reason="settings"),
        merge(2, 1.0, 0.5, 1.0, 0.5, late=3, pause_ms=4.0),
    ],
    members=[member(0, 2, 0.5), member(1, 1, 1.0), member(2), member(3)],
    generation=3,
    beats=[Beat(0.0, 10.0, 1, 0), Beat(1.0, 30.0, 2, 1), Beat(100.0, 20.0, 1, 0)],
)


@pytest.mark.parametrize("rows", [EMPTY, FULL], ids=["empty", "full"])
@pytest.mark.parametrize("panel", PANELS, ids=lambda p: p.name)
def test_every_figure_is_valid_and_every_panel_has_words(panel, rows: Rows) -> None:
    figure = finite(panel.figure(rows))
    go.Figure(figure)
    json.dumps(figure, allow_nan=False)
    assert panel.title.endswith("?")
    assert panel.answer(rows).endswith(".")
    table = panel.table(rows)
    assert all(len(row) == len(table.head) for row in table.rows)
    assert all(isinstance(cell, str) for row in table.rows for cell in row)
    assert panel.terms


@pytest.mark.parametrize("panel", PANELS, ids=lambda p: p.name)
def test_figures_hold_no_colour_of_their_own(panel) -> None:
    assert "#" not in json.dumps(panel.figure(FULL))


def test_a_generation_without_ratings_is_a_gap() -> None:
    points, line = BY_NAME["learning"].figure(FULL)["data"]
    assert line["y"] == [0.5, None, 0.75]
    assert line["connectgaps"] is False
    assert points["x"] == [0, 0, 0, 2, 2, 2, 2]
    assert points["marker"]["color"] == pytest.approx([0.0, -0.25, 0.25, 0.25, -0.25, 0.25, -0.25])


def test_a_second_that_nobody_looked_at_is_a_gap() -> None:
    (line,) = BY_NAME["throughput"].figure(FULL)["data"]
    assert line["y"] == [10.0, 30.0, None, 20.0]
    assert line["x"] == [0, 1000, 2000, 100_000]


def test_an_hour_is_thinned_to_means_without_hiding_a_gap() -> None:
    beats = [Beat(float(i + (1000 if i > 1800 else 0)), float(i % 2), 1, 0) for i in range(3600)]
    (line,) = BY_NAME["throughput"].figure(replace(FULL, beats=beats))["data"]
    assert len(line["y"]) <= 603
    assert line["y"].count(None) == 1
    assert sum(y for y in line["y"] if y is not None) / len(line["y"]) == pytest.approx(0.5, abs=0.01)


def test_a_null_merge_is_drawn_hollow_and_said() -> None:
    rows = replace(FULL, merges=[merge(0, 1.0, 1.0), merge(1, 0.0, 1.0)])
    line = BY_NAME["learning"].figure(rows)["data"][1]
    assert line["marker"]["color"] == ["var(--paper)", "var(--accent)"]
    assert "nothing to learn, every reply scored the same" in line["text"][0]
    assert "1 merge had nothing to learn from." in BY_NAME["merges"].answer(rows)


def test_the_answers_follow_the_data() -> None:
    assert BY_NAME["learning"].answer(FULL) == "75% in the last generation, up from 50% in the first."
    fallen = replace(FULL, merges=FULL.merges[::-1])
    assert BY_NAME["learning"].answer(fallen) == "50% in the last generation, down from 75% in the first."
    assert BY_NAME["members"].answer(FULL) == "Member 1 leads with 100%; 3 ratings so far."
    assert "11 ratings and took 12 ms; requests waited 4 ms" in BY_NAME["merges"].answer(FULL)
    assert BY_NAME["drift"].answer(FULL) == "The weights have moved by 0.3% of their length since the start."
    assert BY_NAME["throughput"].answer(FULL) == "20 tokens a second for 1 request now; at most 30 in the last hour."
    assert BY_NAME["luck"].answer(FULL).startswith("40%")


def test_the_sentence_at_the_top() -> None:
    assert sentence(EMPTY) == "Nothing has been learned yet: generation 0 has no ratings yet."
    assert sentence(FULL) == (
        "Replies are liked 75% of the time, up from 50% at the start; 2 merges; the weights have moved by 0.3%."
    )


def test_zoom_survives_because_the_revision_stays() -> None:
    more = replace(FULL, merges=[*FULL.merges, merge(3, 0.1, 0.2, 0.3, 0.4)])
    for panel in PANELS:
        revision = panel.figure(FULL)["layout"]["uirevision"]
        assert revision
        assert panel.figure(more)["layout"]["uirevision"] == revision


def test_not_a_number_becomes_null() -> None:
    assert finite({"a": [1.0, math.nan, (math.inf, "x")], "b": -math.inf}) == {"a": [1.0, None, [None, "x"]], "b": None}
