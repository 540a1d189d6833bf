"""What is kept, table by table (SQLite through SQLModel). Times are Unix seconds, JSON columns hold plain data."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import JSON, BigInteger, Column, Index, text
from sqlmodel import Field, SQLModel

MessageState = Literal["streaming", "done", "stopped", "failed"]


class Conversation(SQLModel, table=True):
    """A chat in the browser. A deleted one is hidden, not erased: merges refer to its replies."""

    __table_args__ = (Index("ix_conversation_shown", "updated_at", sqlite_where=text("deleted_at IS NULL")),)

    id: str = Field(primary_key=True)
    title: str = ""
    created_at: float
    updated_at: float
    deleted_at: float | None = None


class Message(SQLModel, table=True):
    """A message of a conversation, or a reply given through the API.

    An assistant row is an **inference**: its id is the inference id of feedback. Turn t of a conversation is one user
    row and its replies; regenerating adds a reply with the next ``version`` and the same ``parent_id``.
    """

    __table_args__ = (
        Index("ix_message_conversation", "conversation_id", "turn", "version"),
        Index("ix_message_rated", "generation", sqlite_where=text("reward IS NOT NULL")),
        Index("ix_message_streaming", "state", sqlite_where=text("state = 'streaming'")),
        Index("ix_message_run", "run_id", "created_at", sqlite_where=text("run_id IS NOT NULL")),
    )

    id: str = Field(primary_key=True)
    conversation_id: str | None = Field(default=None, foreign_key="conversation.id")
    parent_id: str | None = Field(default=None, foreign_key="message.id")
    """The user row that a reply answers; None outside conversations."""
    turn: int = 0
    version: int = 0
    role: str
    content: str = ""
    state: str = "done"
    """streaming, done, stopped (by the client, with the text so far) or failed."""
    prompt: list[dict[str, str]] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    """The messages exactly as the model got them, system prompt included."""
    target: str | None = None
    """population, source or base."""
    generation: int | None = None
    member: int | None = None
    seed: int | None = Field(default=None, sa_column=Column(BigInteger))
    source: str = ""
    """Who asked: ``chat``, ``api`` or, for simulated users, ``traffic:…``."""
    sampling: dict[str, Any] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reward: float | None = None
    """The reply's reward in 0..1 from its present ratings, None without any."""
    weight: float = 1.0
    """Of its reward in the member's fitness: that of its source when it was last rated."""
    run_id: str | None = Field(default=None, foreign_key="traffic_run.id")
    """The run of simulated users that it belongs to, with its task, its place in the run and its episode."""
    task: str | None = None
    category: str | None = None
    request_index: int | None = None
    """:meth:`engine.tasks.Task.sample` with the run's seed and this index gives the request again."""
    episode_id: str | None = None
    """Replies of several turns that are rated together, by the last of them."""
    error: str | None = None
    created_at: float
    finished_at: float | None = None


class RatingEvent(SQLModel, table=True):
    """Every rating ever given, changed (a later event) or taken back (``value`` None). Rows are only added."""

    __tablename__ = "rating_event"

    id: int | None = Field(default=None, primary_key=True)
    inference_id: str = Field(foreign_key="message.id", index=True)
    rater: str
    metric: str
    value: float | None = None
    comment: str | None = None
    tags: dict[str, str] | None = Field(default=None, sa_column=Column(JSON(none_as_null=True)))
    source: str
    idempotency_key: str | None = Field(default=None, unique=True)
    truth: float | None = None
    """The reward in 0..1 that a judge without error gives, where it is known; ``value`` is what was observed."""
    judge: str | None = None
    """The judge error in force (:func:`engine.judges.errors.parse`), None for people."""
    created_at: float


class Rating(SQLModel, table=True):
    """The present value for each (reply, rater, metric): what the newest event says."""

    inference_id: str = Field(foreign_key="message.id", primary_key=True)
    rater: str = Field(primary_key=True)
    metric: str = Field(primary_key=True)
    value: float
    truth: float | None = None
    judge: str | None = None
    comment: str | None = None
    event_id: int = Field(foreign_key="rating_event.id")
    updated_at: float


class GenerationRow(SQLModel, table=True):
    """A drawn population. The row with the highest id is the present one."""

    __tablename__ = "generation"

    id: int | None = Field(default=None, primary_key=True)
    number: int = Field(index=True)
    data: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    """:meth:`engine.population.Generation.to_json`."""
    created_at: float


class Merge(SQLModel, table=True):
    """A merge. ``prepared`` rows that a crash left behind never happened."""

    __table_args__ = (Index("ix_merge_state", "state", "generation"),)

    id: int | None = Field(default=None, primary_key=True)
    generation: int
    state: str
    reason: str
    mean_reward: float | None = None
    ratings: int
    null: bool
    late: int
    signal_share: float | None = None
    drift: float
    merged_at: float
    merge_ms: float
    pause_ms: float
    fitness: list[float | None] = Field(sa_column=Column(JSON, nullable=False))
    counts: list[int] = Field(sa_column=Column(JSON, nullable=False))
    record: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    """The rest of the :class:`engine.interface.MergeRecord`: z, entry, next."""


class MergeUse(SQLModel, table=True):
    """A reply that a merge used, with the reward it had then."""

    __tablename__ = "merge_use"

    merge_id: int = Field(foreign_key="merge.id", primary_key=True)
    inference_id: str = Field(primary_key=True)
    generation: int
    member: int
    reward: float | None = None
    weight: float = 1.0


class LedgerEntry(SQLModel, table=True):
    """The ledger in order of ``id``: from θ_0 and these entries any generation is rebuilt."""

    __tablename__ = "ledger_entry"

    id: int | None = Field(default=None, primary_key=True)
    entry: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    created_at: float


class Setting(SQLModel, table=True):
    """A setting that was changed while running (the system prompt, …)."""

    key: str = Field(primary_key=True)
    value: Any = Field(sa_column=Column(JSON, nullable=False))
    updated_at: float


class TrafficRun(SQLModel, table=True):
    """A run of simulated users; enough of it is kept to go on after a restart."""

    __tablename__ = "traffic_run"

    id: str = Field(primary_key=True)
    name: str
    notes: str = ""
    task: str
    options: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    """Of the task: :func:`engine.tasks.get`."""
    plan: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    state: str
    """running, paused, stopped, done or failed."""
    why: str = ""
    """Why it is paused or has failed, in words."""
    progress: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    result: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    """Measurements and generations so far."""
    created_at: float
    updated_at: float
    finished_at: float | None = None


class Mark(SQLModel, table=True):
    """Something that every chart shows as a line: a change of the judge, of settings, of weights."""

    id: int | None = Field(default=None, primary_key=True)
    generation: int = Field(index=True)
    kind: str
    """judge, settings, weights or run."""
    text: str
    data: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    created_at: float


class SecondOpinion(SQLModel, table=True):
    """A judged reply that was drawn for people to judge again; ``value`` is None until somebody does."""

    __tablename__ = "second_opinion"

    inference_id: str = Field(foreign_key="message.id", primary_key=True)
    observed: float
    """What the judge said, in 0..1."""
    truth: float | None = None
    blind: bool = False
    """Whether the request lies in the blind spot."""
    judge: str
    value: float | None = None
    """What a person says, in 0..1."""
    rater: str | None = None
    skipped: bool = False
    offered_at: float
    given_at: float | None = None


class ImplicitSignal(SQLModel, table=True):
    """What a person did that may say whether a reply was good (:mod:`engine.judges.implicit`), used or not."""

    __tablename__ = "implicit_signal"

    id: int | None = Field(default=None, primary_key=True)
    inference_id: str = Field(foreign_key="message.id", index=True)
    rule: str
    value: float
    weight: float
    """0 when implicit feedback was off."""
    created_at: float
