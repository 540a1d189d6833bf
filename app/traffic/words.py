"""A run in words."""

from __future__ import annotations

from app.traffic.views import RunView
from app.words import count, percent


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
