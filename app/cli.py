"""The command ``popserve``: serve a model, look at a server, merge, and send it simulated users."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from app.cli_base import DEFAULT_URL, Url, ask, fail
from app.cli_traffic import judge, tasks, traffic

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Serves a language model as a population that learns from ratings.",
)


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


for command in (traffic, tasks, judge):
    cli.command()(command)


def main() -> None:
    """The entry point of the ``popserve`` script."""
    cli()


if __name__ == "__main__":
    main()
