"""The command ``popserve``: serve a model, look at a server, merge, and send it simulated users."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from app.client import Client, ClientError

DEFAULT_URL = "http://127.0.0.1:8000"
Url = Annotated[str, typer.Option("--url", envvar="POPSERVE_URL", help="The server to talk to.")]

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Serves a language model as a population that learns from ratings.",
)


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


@cli.callback()
def everywhere(
    url: Annotated[str | None, typer.Option(help="The server to talk to, for every command.")] = None,
) -> None:
    if url:
        os.environ["POPSERVE_URL"] = url


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder where everything is kept.")] = None,
    model: Annotated[str | None, typer.Option(help="embedded, a model folder, or a hub id.")] = None,
    engine: Annotated[str | None, typer.Option(help="auto, vllm or transformers.")] = None,
    profile: Annotated[str | None, typer.Option(help="Population of a new home: room, traffic or reference.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes the drawn populations reproducible.")] = None,
) -> None:
    """Serve until interrupted. Options win over POPSERVE_... variables, and these over .env."""
    from app import main as server
    from app import settings
    from app.db import DatabaseUnavailable
    from app.home import HomeInUse
    from app.migrate import NewerDatabase

    given = {k: v for k, v in locals().items() if k in settings.AppSettings.model_fields and v is not None}
    # A closed terminal ends the server like an interrupt does, so that the engine's processes end with it.
    signal.signal(signal.SIGHUP, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    try:
        server.serve(settings.load(**given))
    except (settings.SettingsError, server.PortTaken, HomeInUse, NewerDatabase, DatabaseUnavailable) as error:
        fail(error, 2)
    finally:
        for child in multiprocessing.active_children():
            child.terminate()


@cli.command()
def prepare() -> None:
    """Prepare the model of the settings, so that serving starts at once; print where it is."""
    from app import settings
    from engine.model_files import EMBEDDED, ModelError, is_prepared, prepare_model

    try:
        chosen = settings.load()
        if chosen.model == EMBEDDED and not is_prepared(chosen.home):
            typer.echo("Unpacking the embedded model (once, about half a minute) ...")
            os.environ.setdefault("TQDM_DISABLE", "1")
        typer.echo(f"Model: {prepare_model(chosen.model, chosen.home)}")
    except (settings.SettingsError, ModelError, OSError) as error:
        fail(error, 2)


@cli.command()
def status(url: Url = DEFAULT_URL, as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Show who is served now and how far the next merge is."""
    now = ask(lambda client: client.call("GET", "/api/status", retry=False), url)
    if as_json:
        typer.echo(json.dumps(now, indent=2))
        return
    lines = {
        "model": f"{now['model']} on {now['engine']}",
        "state": f"{now['state']} {now['waiting_for']}".strip(),
        "generation": f"{now['generation']} of {now['members']} members ({now['profile']})",
        "ratings": f"{now['ratings']} of {now['merge_after']} for the next merge, {now['ratings_total']} in all",
        "drift": f"{now['drift']:.4f}",
        "load": f"{now['running']} running, {now['waiting']} waiting, {now['tokens_per_second']:.0f} tokens/s",
    }
    for name, value in lines.items():
        typer.echo(f"{name:<11} {value}")


@cli.command()
def merge(url: Url = DEFAULT_URL) -> None:
    """Merge now, with the ratings there are."""
    done = ask(lambda client: client.call("POST", "/api/merge", retry=False), url)
    outcome = "nothing to learn, every reply scored the same" if done["null"] else f"drift {done['drift']:.4f}"
    typer.echo(f"generation {done['generation']} merged: {done['ratings']} ratings, {outcome}")


@cli.command()
def traffic(
    task: Annotated[str, typer.Argument(help="Who comes: persona:brevity or persona:lists.")],
    url: Url = DEFAULT_URL,
    generations: Annotated[int | None, typer.Option(help="End after so many merges.")] = None,
    max_ratings: Annotated[int | None, typer.Option(help="End after so many ratings.")] = None,
    profile: Annotated[str | None, typer.Option(help="Switch to this profile: room, traffic or reference.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the users and of a new population (default 0).")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a setting, for example alpha=0.01.")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Most users at once.")] = 64,
    silent: Annotated[float, typer.Option(help="The share of users who never rate.")] = 0.0,
    eval_every: Annotated[int, typer.Option(help="Measure after every so many merges; 0: before and after.")] = 0,
    held_out: Annotated[int, typer.Option(help="Prompts of a measurement; 0: none.")] = 256,
    shuffle_rewards: Annotated[
        bool, typer.Option("--shuffle-rewards", help="A control: rewards go to random replies; nothing is learned.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None,
) -> None:
    """Send simulated users: they chat through the public API and rate what they read."""
    from app.runs import Plan, curve
    from app.traffic import Traffic
    from engine.tasks import get

    changes = _changes(settings or [])
    if profile is not None:
        changes["profile"] = profile
    if changes.keys() - {"system_prompt", "temperature", "max_tokens"} or seed is not None:
        changes.setdefault("seed", seed or 0)
    try:
        wanted = get(task)
        plan = Plan(
            generations=generations,
            max_ratings=max_ratings,
            seed=seed or 0,
            settings=changes,
            concurrency=concurrency,
            silent=silent,
            shuffle_rewards=shuffle_rewards,
            eval_every=eval_every,
            held_out=held_out,
        )
        if json_file is not None:
            json_file.open("a").close()
    except (ValueError, OSError) as error:
        fail(error, 2)
    running: list[Traffic] = []

    async def work(client: Client) -> Any:
        running.append(Traffic(client, wanted, plan, tell=lambda line: print(line, flush=True)))
        return await running[0].run()

    try:
        result = ask(work, url)
    finally:
        partial = running[0].result if running else None
        if json_file is not None and partial is not None:
            json_file.write_text(json.dumps(partial.to_json(), indent=1) + "\n")
    if text := curve(result):
        typer.echo(text)
    typer.echo(f"{result.ratings} ratings in {len(result.turns)} generations, {result.seconds:.0f} s")


def _changes(pairs: list[str]) -> dict[str, Any]:
    """``name=value`` pairs; a value is JSON where it can be read as JSON, else text."""
    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            fail(f"--set takes NAME=VALUE, not {pair!r}", 2)
        try:
            out[name] = json.loads(value)
        except ValueError:
            out[name] = value
    return out


def main() -> None:
    """The entry point of the ``popserve`` script."""
    cli()


if __name__ == "__main__":
    main()
