"""Draws learning curves: score over ratings, the median of the seeds and the band from the worst to the best.

    python -m bench.curve docs/learning.svg learning.json "rewards shuffled=shuffled.json" --title "Brevity"
    python -m bench.curve docs/judges.svg judges.json --mark "512=the last judge is fixed"

Each argument is a JSON of :mod:`bench.sweep`, perhaps with a label; every candidate in it is one curve. Plotly draws it
in Chromium, as in the dashboard, and gives the SVG back. The same as a Markdown table goes to the terminal.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import plotly.graph_objects as go
from playwright.sync_api import sync_playwright
from plotly.offline import get_plotlyjs

WIDTH, HEIGHT = 760, 380
PAPER, INK, LINE = "#fdfcf8", "#3d3b37", "#d9d6cf"
COLOURS = ("#00786f", "#b4532a", "#6a4c93", "#8a8578", "#2f6fb0")


@dataclass(frozen=True)
class Curve:
    """One condition: ``runs`` are seeds, each [(ratings, score), ...] at the same numbers of ratings."""

    label: str
    runs: list[list[tuple[float, float]]]

    def columns(self) -> tuple[list[float], list[list[float]]]:
        """The numbers of ratings, and the seeds' scores at each."""
        return [x for x, _ in self.runs[0]], [[run[i][1] for run in self.runs] for i in range(len(self.runs[0]))]


def figure(
    curves: Sequence[Curve], title: str, marks: Sequence[tuple[float, str]] = (), x: str = "ratings"
) -> go.Figure:
    """The picture of some curves; ``marks`` are vertical lines with a word each."""
    drawn = go.Figure()
    ends = apart([statistics.median(run[-1][1] for run in curve.runs) for curve in curves])
    for curve, colour, end in zip(curves, COLOURS, ends, strict=False):
        xs, scores = curve.columns()
        band = [min(s) for s in scores] + [max(s) for s in reversed(scores)]
        drawn.add_scatter(
            x=xs + xs[::-1], y=band, fill="toself", fillcolor=colour, opacity=0.15, mode="none", hoverinfo="skip",
            showlegend=False,
        )  # fmt: skip
        middle = [statistics.median(s) for s in scores]
        drawn.add_scatter(x=xs, y=middle, mode="lines+markers", line={"color": colour, "width": 2.5}, showlegend=False)
        drawn.add_annotation(
            x=xs[-1], y=end, text=curve.label, xanchor="left", xshift=8, showarrow=False, font_color=colour
        )
    for place, word in marks:
        drawn.add_vline(x=place, line={"color": INK, "width": 1, "dash": "dot"}, annotation_text=word)
    axis = {"gridcolor": LINE, "zeroline": False, "linecolor": LINE}
    drawn.update_layout(
        title={"text": title, "font_size": 15, "x": 0.01},
        width=WIDTH,
        height=HEIGHT,
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        font={"family": "sans-serif", "color": INK, "size": 12},
        margin={"l": 50, "r": 150, "t": 46, "b": 44},
        xaxis=axis | {"title": {"text": x}},
        yaxis=axis | {"range": [0, 1.02], "tickformat": ".0%"},
    )
    return drawn


def table(curves: Sequence[Curve]) -> str:
    """The ends of some curves as Markdown."""
    lines = ["| | at the start | at the end: median | worst | best |", "|---|---|---|---|---|"]
    for curve in curves:
        ends = [run[-1][1] for run in curve.runs]
        numbers = (statistics.median(run[0][1] for run in curve.runs), statistics.median(ends), min(ends), max(ends))
        lines.append(f"| {curve.label} | {' | '.join(f'{number:.3f}' for number in numbers)} |")
    return "\n".join(lines)


def apart(places: list[float], gap: float = 0.055) -> list[float]:
    """The places of labels, moved up where two would overlap."""
    moved, last = list(places), -gap
    for i in sorted(range(len(places)), key=places.__getitem__):
        moved[i] = last = max(places[i], last + gap)
    return moved


def svg(drawn: go.Figure) -> str:
    """The picture as SVG text. Raises FileNotFoundError without a Chromium."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise FileNotFoundError("drawing a curve needs Chromium: `make test` installs it on Debian")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content("<div id=plot></div>")
        page.add_script_tag(content=get_plotlyjs())
        url = page.evaluate(
            "async ([figure, size]) => Plotly.toImage(await Plotly.newPlot('plot', figure), {format: 'svg', ...size})",
            [json.loads(drawn.to_json()), {"width": WIDTH, "height": HEIGHT}],
        )
        browser.close()
    return unquote(url.partition(",")[2]) + "\n"


def read(argument: str) -> list[Curve]:
    """The curves of one ``[label=]file.json``."""
    label, _, name = argument.rpartition("=")
    found = json.loads(Path(name).read_text())
    return [
        Curve(label or words(c["candidate"]) or c["settings"]["profile"], [r["scores"] for r in c["runs"]])
        for c in found
    ]


def words(candidate: str) -> str:
    """``judge=random:0.6,@8,perfect`` → ``random:0.6, then perfect``."""
    alone = candidate.removeprefix("judge=").removeprefix("regime=")
    return candidate if "=" in alone else re.sub(r",@\d+,", ", then ", alone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("sources", nargs="+", metavar="[LABEL=]FILE")
    parser.add_argument("--title", default="Held-out score of the source model")
    parser.add_argument("--mark", action="append", default=[], metavar="RATINGS=WORDS", help="a vertical line")
    options = parser.parse_args()
    curves = [curve for source in options.sources for curve in read(source)]
    marks = [(float(place), word) for place, _, word in (mark.partition("=") for mark in options.mark)]
    options.target.write_text(svg(figure(curves, options.title, marks)))
    print(table(curves))


if __name__ == "__main__":
    main()
