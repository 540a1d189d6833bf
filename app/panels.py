"""The dashboard: its panels in order, and the sentence above them."""

from __future__ import annotations

from app import charts, charts_now, charts_run
from app.plots import Panel, Rows
from app.words import count, percent

GENERATION = ("Generation", "a population of members drawn around one source model; a merge ends it.")
MEMBER = ("Member", "one slightly different copy of the source model: its weights plus a little noise of its own.")
FITNESS = ("Fitness", "the mean reward of one member's rated replies: a thumb up is 100%, a thumb down 0%.")
MERGE = ("Merge", "the source model takes a step towards the members that did better than the mean.")
DRIFT = ("Drift", "how far the weights are from those it started with, as a share of their length: ‖θ−θ₀‖ / ‖θ₀‖.")

CATEGORIES = Panel(
    "categories",
    "Where is it better?",
    charts_run.categories_answer,
    charts_run.categories,
    charts_run.categories_table,
    (
        (
            "Category",
            "a kind of task of the stream, such as reading or arithmetic; its score is the mean over its tasks.",
        ),
    ),
    broad=True,
    over="",
    moved_by="merged traffic",
)
"""Of the newest run whose task has categories."""
PANELS = (
    Panel(
        "learning",
        "Is it learning?",
        charts.learning_answer,
        charts.learning,
        charts.learning_table,
        (
            GENERATION,
            MEMBER,
            FITNESS,
            ("Mean reward", "over all rated replies of a generation."),
        ),
        broad=True,
    ),
    Panel(
        "members",
        "Who answers well now?",
        charts_now.members_answer,
        charts_now.members,
        charts_now.members_table,
        (MEMBER, FITNESS, ("Bars", "replies given, and in front the rated ones, coloured by fitness around the mean.")),
        over="",
        moved_by="status change merged",
    ),
    Panel(
        "merges",
        "What did each merge use?",
        charts.merges_answer,
        charts.merges,
        charts.merges_table,
        (
            MERGE,
            ("Late rating", "one of a reply whose generation had merged; the next merge corrects for it."),
            ("Time taken", "from the decision to the first request that the next generation may answer."),
        ),
    ),
    Panel("drift", "Is it drifting?", charts.drift_answer, charts.drift, charts.drift_table, (DRIFT, MERGE)),
    Panel(
        "throughput",
        "How fast does it answer?",
        charts_now.throughput_answer,
        charts_now.throughput,
        charts_now.throughput_table,
        (("Tokens a second", "generated for all requests together, over the last ten seconds."),),
        over="time",
        moved_by="status merged mark",
    ),
    Panel(
        "luck",
        "Is it luck?",
        charts.luck_answer,
        charts.luck,
        charts.luck_table,
        (
            ("Signal share", "the estimated part of the spread between members that is not chance of the ratings."),
            ("Luck", "the rest: which prompts a member happened to get, and which words it happened to draw."),
        ),
    ),
    CATEGORIES,
)
RUN = Panel(
    "run",
    "Do they like it better?",
    charts_run.run_answer,
    charts_run.run,
    charts_run.run_table,
    (
        ("Observed reward", "what the judge said of a generation's replies, on average: this is what is learned from."),
        ("True reward", "what a judge without error says of the same replies, where the truth is known."),
        ("Held-out score", "of greedy answers of the source model to requests that are never used for learning."),
    ),
    broad=True,
    moved_by="traffic mark",
)
"""Of a run of simulated users, on the page about it."""
BY_NAME = {panel.name: panel for panel in (*PANELS, RUN)}


def sentence(rows: Rows) -> str:
    """Everything in one sentence."""
    merges = charts.rated(rows.merges)
    if not merges:
        rated = sum(m.ratings for m in rows.members)
        so_far = f"{count(rated, 'rating')} so far" if rated else "no ratings yet"
        return f"Nothing has been learned yet: generation {rows.generation} has {so_far}."
    few = max(1, min(5, len(merges) // 4))
    last = charts.typical(merges[-few:])
    text = f"Replies are liked {percent(last)} of the time"
    if len(merges) > 1:
        first = charts.typical(merges[:few])
        change = (
            "as at the start"
            if percent(first) == percent(last)
            else (f"{'up' if last > first else 'down'} from {percent(first)} at the start")
        )
        text += f", {change}"
    learned = sum(not m.null for m in merges)
    return f"{text}; {count(learned, 'merge')}; the weights have moved by {percent(rows.merges[-1].drift)}."
