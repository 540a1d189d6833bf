"""What a run of simulated users shows: to the pages, over HTTP, and on the command line. Plain data, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

RunState = Literal["running", "paused", "stopped", "done", "failed"]
ACTIVE: tuple[RunState, ...] = ("running", "paused")
"""At most one run is in one of these states; only ``running`` sends users."""


@dataclass(frozen=True)
class Score:
    """One measurement: the mean greedy held-out score (0..1) of the source model before ``generation`` is rated."""

    generation: int
    ratings: int
    """Given by the run before it."""
    score: float
    prompts: int
    seconds: float
    by_category: dict[str, float] = field(default_factory=dict)
    """Empty where the task has no categories."""


@dataclass(frozen=True)
class Turn:
    """One generation of users. Rewards are means in 0..1, None where nothing was rated."""

    generation: int
    mean_reward: float | None
    """What a judge without error says; the observed reward where the truth is not known."""
    observed_reward: float | None
    """What was rated: with the judge's errors, shuffled where the run shuffles."""
    ratings: int
    late: int
    """Ratings that came after the generation had merged."""
    null: bool | None
    """The merge had nothing to learn from; None when the run ended before the merge."""
    drift: float | None
    """‖θ − θ_0‖ / ‖θ_0‖ after the merge."""
    seconds: float


@dataclass(frozen=True)
class Progress:
    """How far a run is. ``users`` = ``ratings`` + ``silent`` + ``unrated`` + ``spanned`` + ``failed``."""

    generation: int = 0
    """The one being rated."""
    merged: int = 0
    """Generations of this run that have merged."""
    ratings: int = 0
    users: int = 0
    silent: int = 0
    """Read and did not rate, as the plan wants."""
    unrated: int = 0
    """The judge could not judge the reply."""
    spanned: int = 0
    """Episodes that a merge cut in two, so that no member can be credited."""
    failed: int = 0
    """Replies that the engine broke off."""
    seconds: float = 0.0
    """Running time, without pauses."""
    eta_seconds: float | None = None
    """Estimated time left; None while there is nothing to estimate from, 0 at the end."""
    requests_per_second: float = 0.0
    """Replies over the last ten seconds."""


@dataclass(frozen=True)
class RunView:
    """A run of simulated users, as it stands. Times are Unix seconds."""

    id: str
    name: str
    notes: str
    task: str
    options: dict[str, Any]
    """Of the task."""
    plan: dict[str, Any]
    """:class:`app.traffic.plan.Plan`."""
    state: RunState
    why: str
    """Why it is paused, has failed or waits, in a sentence; else empty."""
    progress: Progress
    scores: list[Score]
    turns: list[Turn]
    message: str
    """One sentence: what the source model scores and whether there is anything to learn. Empty before it is known."""
    likes: str
    """What the users like, as a continuation of "a reply is good when it ..."."""
    model: str
    settings: dict[str, Any]
    """Of the population when the run began."""
    system_prompt: str
    created_at: float
    updated_at: float
    finished_at: float | None = None

    @property
    def active(self) -> bool:
        return self.state in ACTIVE


@dataclass(frozen=True)
class RunReply:
    """A reply to a simulated user. ``truth`` and ``observed`` are rewards in 0..1: what a judge without error gives
    (None where it is not known) and what was rated (None: not rated)."""

    id: str
    prompt: str
    """The last message that was answered."""
    text: str
    generation: int | None
    member: int | None
    truth: float | None
    observed: float | None
    judge: str | None
    """The judge error in force, as in ``random:0.5``."""
    episode_id: str | None
    category: str | None
    created_at: float


@dataclass(frozen=True)
class Problem:
    """A line of a user's file that cannot be used. Lines count from 1."""

    line: int
    what: str


@dataclass(frozen=True)
class OwnFileView:
    """A user's file as a task: how many of its lines are requests, and what is wrong with the other ones."""

    name: str
    task: str
    usable: int
    bad: int
    """Lines that cannot be used; the first 1,000 are listed."""
    problems: list[Problem]
