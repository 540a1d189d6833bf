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
    created_at: float


class Rating(SQLModel, table=True):
    """The present value for each (reply, rater, metric): what the newest event says."""

    inference_id: str = Field(foreign_key="message.id", primary_key=True)
    rater: str = Field(primary_key=True)
    metric: str = Field(primary_key=True)
    value: float
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
