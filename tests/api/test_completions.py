"""``/v1/chat/completions``: OpenAI's shape, refusals, and replies that end when their client leaves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.db import DatabaseUnavailable
from app.tables import Message
from tests.api.conftest import Live, serving, shared_loop
from tests.fake_server import CANNED

ASK = {"messages": [{"role": "user", "content": "hi"}]}


def chunks(text: str) -> list[Any]:
    """The data of every event; the last one is ``[DONE]`` when the reply is whole."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def row(live: Live, inference_id: str) -> Message:
    return await live.services.store.message(inference_id)


async def newest(live: Live) -> Message:
    def query(session: Any) -> str:
        return session.connection().exec_driver_sql("SELECT id FROM message ORDER BY rowid DESC LIMIT 1").scalar()

    return await row(live, await live.services.db.read(query))


async def test_a_whole_reply(live: Live) -> None:
    answer = await live.chat(seed=5, temperature=0.2, max_completion_tokens=20, stop="\n", source="traffic:x")
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": CANNED}
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"] == {"prompt_tokens": 1, "completion_tokens": 9, "total_tokens": 10}
    assert answer["population"] == {"generation": 0, "member": 0}
    stored = await row(live, answer["id"])
    assert (stored.content, stored.state, stored.finish_reason) == (CANNED, "done", "stop")
    assert (stored.generation, stored.member, stored.seed, stored.target) == (0, 0, 5, "population")
    assert (stored.prompt, stored.source) == (ASK["messages"], "traffic:x")
    assert stored.sampling is not None
    assert stored.sampling["temperature"] == 0.2
    assert stored.sampling["max_tokens"] == 20
    assert stored.sampling["stop"] == ["\n"]
    assert stored.conversation_id is None


async def test_a_stream(live: Live) -> None:
    answer = await live.client.post("/v1/chat/completions", json=ASK | {"stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = chunks(answer.text)
    assert parts[-1] == "[DONE]"
    assert parts[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(p["choices"][0]["delta"].get("content", "") for p in parts[:-1]) == CANNED
    assert [p["choices"][0]["finish_reason"] for p in parts[:-1]] == [None] * (len(parts) - 2) + ["stop"]
    assert len({p["id"] for p in parts[:-1]}) == 1
    assert all(p["population"] == {"generation": 0, "member": 0} and "usage" not in p for p in parts[:-1])


async def test_a_stream_with_usage(live: Live) -> None:
    ask = ASK | {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 3}
    *parts, usage, done = chunks((await live.client.post("/v1/chat/completions", json=ask)).text)
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
    assert all(p["usage"] is None for p in parts)
    assert parts[-1]["choices"][0]["finish_reason"] == "length"


async def test_the_row_is_stored_before_the_last_event(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, delay=0.001) as live,
        live.client.stream("POST", "/v1/chat/completions", json=ASK | {"stream": True}) as answer,
    ):
        async for line in answer.aiter_lines():
            if '"finish_reason": "stop"' in line:
                data = json.loads(line.removeprefix("data: "))
                assert (await row(live, data["id"])).state == "done"
                assert (await live.rate(data["id"])).status_code == 200
                return
    pytest.fail("the stream had no end")


async def test_who_answers(live: Live) -> None:
    assert (await live.chat(population=False))["population"] == {"generation": 0, "member": None}
    base = await live.chat(population="base")
    assert base["population"] == {"generation": 0, "member": None}
    assert (await row(live, base["id"])).target == "base"
    members = [(await live.chat())["population"]["member"] for _ in range(4)]
    assert sorted(members) == [0, 1, 2, 3]
    answers = [await live.chat(session="game") for _ in range(3)]
    assert len({a["population"]["member"] for a in answers}) == 1
    answer = await live.client.post("/v1/chat/completions", json=ASK, headers={"X-Session-Id": "game"})
    assert answer.json()["population"] == answers[0]["population"]


async def test_text_parts_and_developer(live: Live) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": parts}]
    answer = await live.client.post("/v1/chat/completions", json={"messages": messages})
    stored = await row(live, answer.json()["id"])
    assert stored.prompt == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "ab"}]


@shared_loop
@pytest.mark.parametrize(
    ("change", "status", "word"),
    [
        ({"n": 2}, 400, "n must be 1"),
        ({"model": "gpt-4"}, 404, "fake-model"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, "role"),
        ({"messages": [{"role": "user"}]}, 400, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, 400, "content"),
        ({"messages": "hi"}, 400, "messages"),
        ({"temperature": 3}, 400, "temperature"),
        ({"temperature": "0.5"}, 400, "temperature"),
        ({"temperature": True}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": True}, 400, "max_tokens"),
        ({"max_tokens": 10**30}, 400, "max_tokens"),
        ({"seed": -1}, 400, "seed"),
        ({"seed": 2**63}, 400, "seed"),
        ({"presence_penalty": 9}, 400, "presence_penalty"),
        ({"stop": ["a"] * 17}, 400, "stop"),
        ({"stop": ""}, 400, "stop"),
        ({"priority": 3}, 400, "priority"),
        ({"population": "both"}, 400, "population"),
        ({"population": 1}, 400, "population"),
        ({"tools": [{"type": "function"}]}, 400, "tools"),
        ({"logprobs": True}, 400, "logprobs"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"messages": [{"role": "user", "content": "x" * 1_000_001}]}, 400, "characters"),
        ({"messages": [{"role": "user", "content": "refuse"}]}, 400, "longer than the model"),
    ],
)
async def test_what_is_refused(shared: Live, change: dict[str, Any], status: int, word: str) -> None:
    answer = await shared.client.post("/v1/chat/completions", json=ASK | change)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert word in error["message"]
    assert error["type"] == "invalid_request_error"
    assert error["code"]


@shared_loop
@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"",
        b"[]",
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}',
        b'{"messages":[{"role":"user","content":"x"}],"top_p":Infinity}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
async def test_bodies_that_are_no_request(shared: Live, raw: bytes) -> None:
    answer = await shared.client.post("/v1/chat/completions", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]


async def test_a_body_that_is_too_large(live: Live) -> None:
    answer = await live.client.post("/v1/chat/completions", json=ASK | {"junk": "x" * 5_000_000})
    assert answer.status_code == 413
    assert "at most 4 MiB" in answer.json()["error"]["message"]

    async def pieces():
        for _ in range(100):
            yield b" " * 60_000

    answer = await live.client.post(
        "/v1/chat/completions", content=pieces(), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 413
    assert "too large" in answer.json()["error"]["message"]


async def test_a_refused_reply_is_kept_as_failed(live: Live) -> None:
    await live.client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "refuse"}]})
    stored = await newest(live)
    assert stored.state == "failed"
    assert "longer" in (stored.error or "")


async def test_an_engine_that_fails_keeps_the_text_so_far(live: Live) -> None:
    fail = {"messages": [{"role": "user", "content": "fail"}]}
    answer = await live.client.post("/v1/chat/completions", json=fail)
    assert answer.status_code == 502
    assert "died" in answer.json()["error"]["message"]
    stored = await newest(live)
    assert (stored.state, stored.content) == ("failed", "A **flock** ")
    parts = chunks((await live.client.post("/v1/chat/completions", json=fail | {"stream": True})).text)
    assert "died" in parts[-1]["error"]["message"]
    assert (await live.rate(parts[0]["id"])).status_code == 409


async def test_a_database_that_fails_is_a_503_and_no_reply_is_called_finished(live: Live) -> None:
    def broken(jobs: Any) -> Any:
        raise DatabaseUnavailable("The disk is full. Nothing was changed.")

    live.services.db._transaction = broken  # type: ignore[method-assign]
    answer = await live.client.post("/v1/chat/completions", json=ASK)
    assert answer.status_code == 503
    assert "disk is full" in answer.json()["error"]["message"]


async def test_many_streams_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, delay=0.002) as live:
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(base_url=live.client.base_url, limits=limits, timeout=30) as client:
            asks = [client.post("/v1/chat/completions", json=ASK | {"stream": True}) for _ in range(64)]
            answers = await asyncio.gather(*asks)
        texts = {"".join(c["choices"][0]["delta"].get("content", "") for c in chunks(a.text)[:-1]) for a in answers}
        assert texts == {CANNED}


@shared_loop
async def test_models(shared: Live) -> None:
    assert [m["id"] for m in (await shared.client.get("/v1/models")).json()["data"]] == ["fake-model"]
    assert (await shared.chat(model="fake-model"))["model"] == "fake-model"


async def test_a_wrong_field_is_named_as_the_client_wrote_it(live: Live) -> None:
    body = {"messages": [{"role": "user", "content": 3}], "population": 3}
    answer = await live.client.post("/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert "messages.0.content: " in error["message"]
    assert "population: " in error["message"]
    assert not {"(", "["} & set(error["message"])
    assert error["param"] == "messages.0.content"
    broken = await live.client.post("/v1/chat/completions", content="{", headers={"Content-Type": "application/json"})
    assert (broken.json()["error"]["message"], broken.json()["error"]["param"]) == ("The body is not valid JSON.", None)
