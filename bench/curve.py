"""Draws the learning curves of a sweep's JSON as an SVG: held-out score over ratings, a line a seed, the median thick.

python -m bench.curve learning.json docs/learning.svg
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 300, 46, 34
INK, LINE, ACCENT = "#5c5a55", "#d9d6cf", "#00786f"


def draw(runs: list[dict], title: str) -> str:
    """The picture of runs with the same numbers of ratings: [{"scores": [[ratings, score], …]}, …]."""
    most = runs[0]["scores"][-1][0]

    def points(scores: list) -> str:
        place = [
            (LEFT + r / most * (WIDTH - LEFT - 14), (HEIGHT - BOTTOM) - s * (HEIGHT - BOTTOM - 30)) for r, s in scores
        ]
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in place)

    median = [(r, statistics.median(run["scores"][i][1] for run in runs)) for i, (r, _) in enumerate(runs[0]["scores"])]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fdfcf8"/>',
        f'<text x="{LEFT}" y="18" fill="{INK}" font-weight="bold">{title}</text>',
    ]
    for level in (0, 0.25, 0.5, 0.75, 1):
        y = (HEIGHT - BOTTOM) - level * (HEIGHT - BOTTOM - 30)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 14}" y1="{y}" y2="{y}" stroke="{LINE}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end" fill="{INK}">{level:.0%}</text>')
    for ratings, _ in median:
        x = LEFT + ratings / most * (WIDTH - LEFT - 14)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 16}" text-anchor="middle" fill="{INK}">{ratings}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 2}" text-anchor="middle" fill="{INK}">ratings</text>')
    for run in runs:
        parts.append(f'<polyline points="{points(run["scores"])}" fill="none" stroke="{ACCENT}" opacity="0.35"/>')
    parts.append(f'<polyline points="{points(median)}" fill="none" stroke="{ACCENT}" stroke-width="3"/>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    source, target = map(Path, sys.argv[1:3])
    (found, *_) = json.loads(source.read_text())
    settings = found["settings"]
    seeds = len(found["runs"])
    title = f"Held-out score of the source model, {settings['profile']} (N = {settings['members']}), {seeds} seeds"
    target.write_text(draw(found["runs"], title))


if __name__ == "__main__":
    main()
