"""A run in words."""

from __future__ import annotations

from app.traffic.views import RunView
from app.words import count, percent
from engine.judges.errors import JudgeError, UnknownError, parse


def judge_of(error: str) -> str:
    """``random:0.25`` → "a judge that is wrong 25% of the time"."""
    try:
        known = parse(error)
    except UnknownError:
        return error
    return describe(known)


def describe(error: JudgeError) -> str:
    """A judge by what it does."""
    return {
        "perfect": "a judge without error",
        "random": f"a judge that says something else {percent(error.p)} of the time",
        "stingy": f"a judge that gives the lowest grade {percent(error.p)} of the time",
        "blindspot": "a judge that turns its grades round in its blind spot",
    }[error.kind]


def planned(run: RunView) -> str:
    """What the run was started to do, in a sentence."""
    plan, settings = run.plan, run.settings
    ends = ((plan.get("generations"), "generation"), (plan.get("max_ratings"), "rating"))
    goals = [count(number, what) for number, what in ends if number is not None]
    sent = "send requests"
    if settings:
        each = settings["merge_after"] / settings["members"]
        sent = f"send {each:.3g} request{'s' if each != 1 else ''} to each of {count(settings['members'], 'member')}"
    judged = f", judged by {judge_of(plan['judge'])}" if plan.get("judge") else ""
    later = f" ({plan['schedule']})" if plan.get("schedule") else ""
    regime = "" if plan.get("regime") == "hetero+sample" else f", in the regime {plan.get('regime')}"
    return f"Users of {run.name} {sent}{judged}{later}{regime}, for {' or '.join(goals)}."


def doing(run: RunView) -> str:
    """What it is at."""
    if run.state != "running":
        rest = {
            "paused": "No more users come.",
            "stopped": "It can be resumed.",
            "done": "All that was planned is done.",
        }
        return run.why or rest.get(run.state, "It can be resumed.")
    if not run.scores and not run.turns and run.plan.get("held_out"):
        return run.why or f"The source model answers held-out requests, before anything is learned ({run.task})."
    return run.why or f"Generation {run.progress.generation} is being rated."


def message_of(run: RunView) -> str:
    """What the source model scores, and whether there is anything to learn; empty before that is known."""
    sentences = []
    if run.scores:
        first, last = run.scores[0], run.scores[-1]
        asked = f"{count(first.prompts, 'held-out request')}"
        if len(run.scores) == 1:
            sentences.append(f"The source model scores {percent(first.score)} on {asked}.")
        else:
            sentences.append(f"The source model scores {percent(last.score)} on {asked}, after {percent(first.score)}.")
    merged = [turn for turn in run.turns if turn.null is not None]
    if merged:
        spread = sum(not turn.null for turn in merged)
        if spread:
            sentences.append(f"{spread} of {count(len(merged), 'generation')} had any spread between members.")
        else:
            rewards = {turn.observed_reward for turn in merged}
            alike = rewards.pop() if len(rewards) == 1 else None
            said = "no member stood out" if alike is None else f"all replies scored {alike:g}"
            sentences.append(f"Nothing to learn: {said}.")
    return " ".join(sentences)
