"""What every command of ``popserve`` shares: which server, and failures as sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, NoReturn

import typer

from app.client import Client, ClientError

DEFAULT_URL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option("--url", envvar="POPSERVE_URL", help="The server to talk to.")]


def fail(message: object, status: int = 1) -> NoReturn:
    """Ends with a sentence on standard error."""
    typer.echo(f"popserve: {message}", err=True)
    raise typer.Exit(status)


def ask(work: Callable[[Client], Coroutine[Any, Any, Any]], url: str, patience: float = 300.0) -> Any:
    """What ``work`` returns; its failures are sentences, not tracebacks."""

    async def run() -> Any:
        async with Client(url, patience=patience, tell=lambda line: typer.echo(line, err=True)) as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except ClientError as error:
        fail(error)
    except KeyboardInterrupt:
        fail("interrupted", 130)
