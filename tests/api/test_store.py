"""Conversations: turns, versions, what the model is asked, and who sees which rating."""

from __future__ import annotations

import pytest

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
