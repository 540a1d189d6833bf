"""Talks to a running server over its public HTTP API, patiently: it retries what passes by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Self

import httpx

PASSING = frozenset({429, 502, 503, 504})
"""Statuses that another try may not meet: the engine starts, a reply failed, too much at once."""


class ClientError(Exception):
    """The server cannot be reached or refuses; the message is written for people."""


class Refused(ClientError):
    """The server answered with an error that another try would meet again."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """One server. ``patience`` is how many seconds a single call may wait for a server that is away or starts;
    ``tell`` hears, once in a while, what it waits for."""

    def __init__(
        self,
        url: str,
        *,
        patience: float = 300.0,
        tell: Callable[[str], None] = lambda _: None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        try:
            self.url = str(httpx.URL(url)).rstrip("/")
        except httpx.InvalidURL as error:
            raise ClientError(f"{url!r} is no address: give one like http://127.0.0.1:8000") from error
        if not self.url.startswith(("http://", "https://")):
            raise ClientError(f"{url!r} is no address: give one like http://127.0.0.1:8000")
        self.patience = patience
        self.tell = tell
        self._told = ""
        self._http = httpx.AsyncClient(
            base_url=self.url,
            transport=transport,
            trust_env=False,
            timeout=httpx.Timeout(30.0, read=600.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=512),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def get(self, path: str, **params: Any) -> Any:
        return await self.call("GET", path, params=params)

    async def call(self, method: str, path: str, *, retry: bool = True, **request: Any) -> Any:
        """The decoded JSON answer. Without ``retry`` the first failure is final. Raises ClientError, Refused."""
        give_up = time.monotonic() + (self.patience if retry else 0.0)
        pause = 0.25
        while True:
            try:
                answer = await self._http.request(method, path, **request)
            except httpx.TransportError as error:
                why, wait = f"no server answers at {self.url} ({type(error).__name__})", pause
            else:
                if answer.is_success:
                    return self._json(answer)
                why = _message(answer)
                if answer.status_code not in PASSING:
                    raise Refused(answer.status_code, why)
                wait = max(pause, min(_retry_after(answer), 5.0))
            if time.monotonic() + wait > give_up:
                raise ClientError(
                    f"{why}: start one with `make run`, or name it with --url" if "no server" in why else why
                )
            if pause >= 1.0 and why != self._told:
                self._told = why
                self.tell(f"waiting: {why}")
            await asyncio.sleep(wait)
            pause = min(2 * pause, 4.0)

    def _json(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except ValueError:
            raise ClientError(f"{self.url} does not speak JSON: is it a popserve server?") from None


def _retry_after(answer: httpx.Response) -> float:
    try:
        return max(0.0, float(answer.headers.get("retry-after", 0)))
    except ValueError:
        return 0.0


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.request.url} answered {answer.status_code}"
