"""Conversations and their messages: everything a page or a route asks the database, and no SQL elsewhere.

    store = Store(db)
    talk = await store.create_conversation()
    turn = await store.add_turn(talk.id, "What is a flock?")      # the user's row; names the talk after its first words
    messages = await store.prompt(turn.id, system="Be brief.")     # [{role, content}], what the model is asked
    ...                                                            # app.inference answers and stores the reply
    for turn in await store.thread(talk.id, rater="local"):        # what the page shows
        turn.user.content, [(r.message, r.ratings) for r in turn.replies], turn.shown
    await store.conversations()                                    # newest first

Rows come back detached: read their columns, do not change them. Unknown ids raise :class:`NotFound`.
:mod:`app.ratings` writes ratings, :mod:`app.history` answers the dashboard's questions, :mod:`app.journal` is the
engine's.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from sqlmodel import Session, col, func, select, update

from app.db import Database
from app.tables import Conversation, Message, Rating, Setting

TITLE = 60


class NotFound(Exception):
    """Nothing has this id; the message is written for people."""


@dataclass
class RatedMessage:
    """A reply with one rater's present ratings."""

    message: Message
    ratings: dict[str, float] = field(default_factory=dict)
    """By metric; a thumb is 1.0 or 0.0."""
    comment: str = ""


@dataclass
class Turn:
    """What was asked and every reply to it, oldest version first."""

    user: Message
    replies: list[RatedMessage] = field(default_factory=list)

    @property
    def shown(self) -> RatedMessage | None:
        """The newest version."""
        return self.replies[-1] if self.replies else None


class Store:
    """Reads and writes conversations. Every method may raise DatabaseUnavailable."""

    def __init__(self, db: Database) -> None:
        self.db = db

    async def create_conversation(self, title: str = "") -> Conversation:
        now = time.time()
        row = Conversation(id=secrets.token_hex(16), title=title[:TITLE], created_at=now, updated_at=now)
        return await self.db.write(lambda session: _added(session, row))

    async def conversations(self, limit: int = 100) -> list[Conversation]:
        """Newest first."""
        shown = select(Conversation).where(col(Conversation.deleted_at).is_(None))
        query = shown.order_by(col(Conversation.updated_at).desc()).limit(limit)
        return await self.db.read(lambda session: list(session.exec(query)))

    async def conversation(self, conversation_id: str) -> Conversation:
        return await self.db.read(lambda session: _conversation(session, conversation_id))

    async def rename_conversation(self, conversation_id: str, title: str) -> Conversation:
        def job(session: Session) -> Conversation:
            row = _conversation(session, conversation_id)
            row.title = title.strip()[:TITLE]
            return row

        return await self.db.write(job)

    async def delete_conversation(self, conversation_id: str) -> None:
        """Hides it; what its replies taught stays."""

        def job(session: Session) -> None:
            _conversation(session, conversation_id).deleted_at = time.time()

        await self.db.write(job)

    async def add_turn(self, conversation_id: str, content: str) -> Message:
        """Appends what the user says."""

        def job(session: Session) -> Message:
            talk = _conversation(session, conversation_id)
            now = time.time()
            last = session.exec(
                select(func.max(Message.turn)).where(Message.conversation_id == conversation_id)
            ).one_or_none()
            talk.updated_at = now
            if last is None and not talk.title:
                talk.title = " ".join(content.split())[:TITLE]
            row = Message(
                id="msg-" + secrets.token_hex(16),
                conversation_id=conversation_id,
                turn=0 if last is None else last + 1,
                role="user",
                content=content,
                source="chat",
                created_at=now,
            )
            return _added(session, row)

        return await self.db.write(job)

    async def message(self, message_id: str) -> Message:
        return await self.db.read(lambda session: get_message(session, message_id))

    async def rated_message(self, message_id: str, rater: str = "local") -> RatedMessage:
        """One reply with the rater's ratings."""

        def query(session: Session) -> RatedMessage:
            shown = RatedMessage(get_message(session, message_id))
            _attach(session, {message_id: shown}, rater)
            return shown

        return await self.db.read(query)

    async def thread(self, conversation_id: str, rater: str = "local") -> list[Turn]:
        """The whole conversation, oldest turn first."""

        def query(session: Session) -> list[Turn]:
            _conversation(session, conversation_id)
            turns: dict[int, Turn] = {}
            replies: dict[str, RatedMessage] = {}
            for row in session.exec(_rows(conversation_id)):
                if row.role == "user":
                    turns[row.turn] = Turn(row)
                elif row.turn in turns:
                    replies[row.id] = RatedMessage(row)
                    turns[row.turn].replies.append(replies[row.id])
            _attach(session, replies, rater)
            return list(turns.values())

        return await self.db.read(query)

    async def prompt(self, user_id: str, system: str = "") -> list[dict[str, str]]:
        """What the model is asked for a user row: the system prompt, the earlier turns with the newest reply that has
        text, and the row itself."""

        def query(session: Session) -> list[dict[str, str]]:
            user = get_message(session, user_id)
            if user.role != "user" or user.conversation_id is None:
                raise NotFound(f"{user_id} is not a message that can be answered")
            asked: dict[int, str] = {}
            answered: dict[int, str] = {}
            for row in session.exec(_rows(user.conversation_id).where(Message.turn <= user.turn)):
                if row.role == "user":
                    asked[row.turn] = row.content
                elif row.content and row.state in ("done", "stopped"):
                    answered[row.turn] = row.content
            messages = [{"role": "system", "content": system}] if system else []
            for turn, content in asked.items():
                if turn == user.turn:
                    messages.append({"role": "user", "content": content})
                elif turn in answered:
                    messages.append({"role": "user", "content": content})
                    messages.append({"role": "assistant", "content": answered[turn]})
            return messages

        return await self.db.read(query)

    async def stop_leftovers(self) -> int:
        """At start-up: replies that a crash cut off become ``stopped``. Returns how many."""
        cut = update(Message).where(Message.state == "streaming")
        job = cut.values(state="stopped", finished_at=time.time(), error="The server stopped while this was written.")
        return await self.db.write(lambda session: session.execute(job).rowcount)  # type: ignore[attr-defined]

    async def settings(self) -> dict[str, object]:
        """The settings that were changed while running."""
        return await self.db.read(lambda session: {row.key: row.value for row in session.exec(select(Setting))})

    async def save_settings(self, values: dict[str, object]) -> None:
        def job(session: Session) -> None:
            for key, value in values.items():
                session.merge(Setting(key=key, value=value, updated_at=time.time()))

        await self.db.write(job)


def get_message(session: Session, message_id: str) -> Message:
    """The row, or NotFound."""
    row = session.get(Message, message_id)
    if row is None:
        raise NotFound(f"No reply has the id {message_id[:80]!r}.")
    return row


def next_version(session: Session, parent_id: str) -> tuple[str | None, int, int]:
    """(conversation id, turn, version) of a new reply to a user row; marks the conversation as used now."""
    user = get_message(session, parent_id)
    newest = session.exec(
        select(func.max(Message.version)).where(
            Message.conversation_id == user.conversation_id, Message.turn == user.turn, Message.role == "assistant"
        )
    ).one_or_none()
    if user.conversation_id is not None:
        _conversation(session, user.conversation_id).updated_at = time.time()
    return user.conversation_id, user.turn, 0 if newest is None else newest + 1


def _added(session: Session, row: Conversation | Message):
    copy = type(row).model_validate(row)
    session.add(copy)
    session.flush()
    return copy


def _conversation(session: Session, conversation_id: str) -> Conversation:
    row = session.get(Conversation, conversation_id)
    if row is None or row.deleted_at is not None:
        raise NotFound("This conversation does not exist, or was deleted.")
    return row


def _rows(conversation_id: str):
    order = (col(Message.turn), col(Message.role).desc(), col(Message.version))
    return select(Message).where(Message.conversation_id == conversation_id).order_by(*order)


def _attach(session: Session, replies: dict[str, RatedMessage], rater: str) -> None:
    ids = list(replies)
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        for rating in session.exec(select(Rating).where(col(Rating.inference_id).in_(some), Rating.rater == rater)):
            reply = replies[rating.inference_id]
            reply.ratings[rating.metric] = rating.value
            reply.comment = rating.comment or reply.comment
