"""Conversations: turns, versions, what the model is asked, and who sees which rating."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, event
from sqlmodel import Session

from app.store import NotFound
from engine.interface import Sampling
from tests.api.conftest import Live


async def answer(live: Live, user_id: str, text: str = "fine") -> str:
    """Replies to a user row with ``text``."""
    messages = [{"role": "user", "content": f"say: {text}"}]
    opened = await live.services.inferences.open(messages, Sampling(), source="chat", parent_id=user_id)
    async with opened as inference:
        async for _ in inference:
            pass
    return inference.id


async def test_a_conversation(live: Live) -> None:
    store = live.services.store
    talk = await store.create_conversation()
    first = await store.add_turn(talk.id, "  What is\n a flock? ")
    one = await answer(live, first.id, "Birds.")
    second = await store.add_turn(talk.id, "And a herd?")
    two = await answer(live, second.id, "Cows.")
    again = await answer(live, second.id, "Sheep.")
    assert (await store.conversation(talk.id)).title == "What is a flock?"
    turns = await store.thread(talk.id)
    assert [t.user.content for t in turns] == ["  What is\n a flock? ", "And a herd?"]
    assert [[r.message.id for r in t.replies] for t in turns] == [[one], [two, again]]
    assert [r.message.version for r in turns[1].replies] == [0, 1]
    assert turns[1].shown is not None
    assert turns[1].shown.message.content == "Sheep."
    asked = await store.prompt(second.id, "Be brief.")
    assert [m["content"] for m in asked] == ["Be brief.", "  What is\n a flock? ", "Birds.", "And a herd?"]
    third = await store.add_turn(talk.id, "More?")
    assert [m["content"] for m in await store.prompt(third.id)][-2:] == ["Sheep.", "More?"]


async def test_votes_do_not_leak(live: Live) -> None:
    store = live.services.store
    replies = []
    for _ in range(2):
        talk = await store.create_conversation()
        replies.append((talk.id, await answer(live, (await store.add_turn(talk.id, "x")).id)))
    rate = live.services.ratings.rate
    await rate(replies[0][1], "thumb", True, rater="local", source="chat", comment="yes")
    await rate(replies[0][1], "thumb", False, rater="other", source="api", comment="no")
    seen = [(await store.thread(talk))[0].replies[0] for talk, _ in replies]
    assert [(s.ratings, s.comment) for s in seen] == [({"thumb": 1.0}, "yes"), ({}, "")]


async def test_the_list_of_conversations(live: Live) -> None:
    store = live.services.store
    talks = [await store.create_conversation(f"t{i}") for i in range(3)]
    await store.add_turn(talks[0].id, "newest")
    await store.rename_conversation(talks[1].id, " renamed ")
    await store.delete_conversation(talks[2].id)
    assert [t.title for t in await store.conversations()] == ["t0", "renamed"]
    for use in (store.conversation, store.thread, store.delete_conversation):
        with pytest.raises(NotFound):
            await use(talks[2].id)
    with pytest.raises(NotFound):
        await store.add_turn(talks[2].id, "x")


async def test_unknown_ids(live: Live) -> None:
    store = live.services.store
    for use in (store.message, store.thread, store.prompt, store.rated_message):
        with pytest.raises(NotFound):
            await use("' OR 1=1 --")
    with pytest.raises(NotFound):
        await answer(live, "msg-none")
    assert not live.services.inferences._running


async def test_unanswered_turns_are_left_out_of_the_prompt(live: Live) -> None:
    store = live.services.store
    talk = await store.create_conversation()
    await store.add_turn(talk.id, "lost")
    kept = await store.add_turn(talk.id, "kept")
    await answer(live, kept.id, "yes")
    last = await store.add_turn(talk.id, "last")
    assert [m["content"] for m in await store.prompt(last.id)] == ["kept", "yes", "last"]


async def test_no_query_reads_a_whole_table_of_messages(live: Live) -> None:
    store, db, seen = live.services.store, live.services.db, set()

    @event.listens_for(Engine, "before_cursor_execute")
    def note(_c: object, _cursor: object, statement: str, parameters: object, *_: object) -> None:
        if statement.startswith(("SELECT", "UPDATE")):
            seen.add((statement, tuple(parameters)))  # type: ignore[arg-type]

    try:
        talk = await store.create_conversation()
        first = await store.add_turn(talk.id, "x")
        name = await answer(live, first.id)
        await live.rate(name)
        await store.thread(talk.id)
        await store.prompt(first.id)
        await store.rated_message(name)
        await store.conversations()
        await store.stop_leftovers()
        await live.services.history.generations()
        await live.server.journal.load()
    finally:
        event.remove(Engine, "before_cursor_execute", note)

    def plans(session: Session) -> list[tuple[str, str]]:
        connection = session.connection()
        return [
            (step[3], statement)
            for statement, parameters in seen
            for step in connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters)
        ]

    steps = await db.read(plans)
    assert len(seen) > 12
    slow = [s for s in steps if (s[0].startswith("SCAN") and "INDEX" not in s[0]) or "TEMP B-TREE FOR ORDER" in s[0]]
    whole = ("SCAN ledger_entry", "SCAN generation")  # read whole at a start; the rated replies are sorted then
    slow = [s for s in slow if not s[0].startswith(whole) and "reward IS NOT NULL" not in s[1]]
    assert slow == []
