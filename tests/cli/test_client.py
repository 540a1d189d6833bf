"""The client waits for what passes by itself and says plainly what does not."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from app.client import Client, ClientError, Refused

Handler = Callable[[httpx.Request], httpx.Response]


class Script:
    """Answers in turn; the last one again and again."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


@pytest.fixture(autouse=True)
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, without making them."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr("app.client.asyncio.sleep", sleep)
    return made


def client(script: Handler, patience: float = 60.0, told: list[str] | None = None) -> Client:
    tell = (told if told is not None else []).append
    return Client("http://127.0.0.1:1/", patience=patience, tell=tell, transport=httpx.MockTransport(script))


def error(status: int, message: str, **headers: str) -> httpx.Response:
    return httpx.Response(status, headers=headers, json={"error": {"message": message}})


async def test_what_passes_is_tried_again() -> None:
    script = Script(
        error(503, "The model is being loaded.", **{"retry-after": "0"}),
        error(429, "slow down"),
        httpx.ConnectError("refused"),
        httpx.ReadError("gone"),
        error(502, "The reply failed."),
        httpx.Response(200, json={"id": 1}),
    )
    async with client(script) as api:
        assert await api.call("POST", "/v1/x", json={"a": 1}) == {"id": 1}
    assert len(script.requests) == 6
    assert {request.content for request in script.requests} == {b'{"a":1}'}


async def test_it_waits_as_long_as_the_server_asks_but_not_longer_than_five_seconds(naps: list[float]) -> None:
    script = Script(
        error(503, "later", **{"retry-after": "3"}),
        error(503, "later", **{"retry-after": "3600"}),
        error(503, "later", **{"retry-after": "soon"}),
        httpx.Response(200, json={}),
    )
    async with client(script) as api:
        await api.get("/x")
    assert naps == [3.0, 5.0, 1.0]


async def test_it_says_what_it_waits_for_once() -> None:
    told: list[str] = []
    script = Script(*[error(503, "The model is being loaded.")] * 6, httpx.Response(200, json={}))
    async with client(script, told=told) as api:
        await api.get("/x")
    assert told == ["waiting: The model is being loaded."]


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500])
async def test_a_refusal_is_final_and_keeps_the_servers_words(status: int) -> None:
    script = Script(error(status, "The metric 'x' is not declared."))
    async with client(script) as api:
        with pytest.raises(Refused, match="not declared") as refused:
            await api.get("/x")
    assert refused.value.status == status
    assert len(script.requests) == 1


async def test_patience_ends() -> None:
    async with client(Script(error(503, "The engine has stopped.")), patience=0.0) as api:
        with pytest.raises(ClientError, match="The engine has stopped"):
            await api.get("/x")


async def test_without_retry_the_first_failure_is_final() -> None:
    script = Script(httpx.ConnectError("refused"))
    async with client(script) as api:
        with pytest.raises(ClientError, match=r"no server answers at http://127\.0\.0\.1:1 .*make run"):
            await api.call("GET", "/x", retry=False)
    assert len(script.requests) == 1


async def test_another_server_is_recognised() -> None:
    async with client(Script(httpx.Response(404, text="<html>"))) as api:
        with pytest.raises(Refused, match="answered 404"):
            await api.get("/x")
    async with client(Script(httpx.Response(200, text="<html>"))) as api:
        with pytest.raises(ClientError, match="is it a popserve server"):
            await api.get("/x")


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://[::1", "http://"])
def test_an_address_is_checked(url: str) -> None:
    with pytest.raises(ClientError, match="give one like http"):
        Client(url)
