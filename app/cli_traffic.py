"""``popserve traffic``, ``tasks`` and ``judge``: start runs of simulated users on a server and watch them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli_base import DEFAULT_URL, Url, ask, fail
from app.client import Client, ClientError

POLL = 0.5
"""Seconds between two looks at a run."""
POPULATION = {"profile", "members", "antithetic", "kind", "rank", "sigma", "alpha", "decay", "merge_after", "step"}


def traffic(
    task: Annotated[str | None, typer.Argument(help="Who comes, as `popserve tasks` lists them.")] = None,
    url: Url = DEFAULT_URL,
    generations: Annotated[int | None, typer.Option(help="End after so many merges.")] = None,
    max_ratings: Annotated[int | None, typer.Option(help="End after so many ratings.")] = None,
    regime: Annotated[str, typer.Option(help="fixed, fresh, hetero or hetero+sample.")] = "hetero+sample",
    judge: Annotated[
        str | None, typer.Option(help="How the judge errs: perfect, random:P, stingy:P or blindspot.")
    ] = None,
    fix_at: Annotated[int | None, typer.Option(help="The judge is perfect from this generation of the run on.")] = None,
    schedule: Annotated[
        str | None, typer.Option(help="Changes of the judge by generation of the run: '@20 perfect'.")
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Switch to this profile: room, traffic or reference.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the users and of a new population (default 0).")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a setting, for example alpha=0.01.")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="An option of the task.")
    ] = None,
    rule: Annotated[str | None, typer.Option(help="Of persona:custom, for example 'at most 20 words'.")] = None,
    language: Annotated[str | None, typer.Option(help="Of persona:language.")] = None,
    blanks: Annotated[int | None, typer.Option(help="Of sudoku.")] = None,
    file: Annotated[Path | None, typer.Option(help="A JSONL file of your own: it is sent to the server.")] = None,
    name: Annotated[str, typer.Option(help="What to call the run.")] = "",
    concurrency: Annotated[int, typer.Option(help="Most users at once.")] = 64,
    rate: Annotated[float | None, typer.Option(help="Most new users a second.")] = None,
    silent: Annotated[float, typer.Option(help="The share of users who never rate.")] = 0.0,
    temperature: Annotated[float, typer.Option(help="Of sampled replies.")] = 0.7,
    max_tokens: Annotated[int | None, typer.Option(help="Of a reply (default: the task's).")] = None,
    eval_every: Annotated[int, typer.Option(help="Measure after every so many merges; 0: before and after.")] = 0,
    held_out: Annotated[int, typer.Option(help="Requests of a measurement; 0: none.")] = 256,
    shuffle_rewards: Annotated[
        bool, typer.Option("--shuffle-rewards", help="A control: rewards go to random replies; nothing is learned.")
    ] = False,
    resume: Annotated[str | None, typer.Option(metavar="ID", help="Go on with a run that was paused or ended.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it and return; the server goes on.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None,
) -> None:
    """Send simulated users: they ask, and rate what they read. Interrupting pauses the run; --resume goes on."""
    if (task is None) == (resume is None):
        fail("name a task, for example persona:brevity (`popserve tasks` lists them), or --resume a run", 2)
    if fix_at is not None and schedule is not None:
        fail("give --fix-at or --schedule, not both", 2)
    if json_file is not None:
        try:
            json_file.open("a").close()
        except OSError as error:
            fail(error, 2)
    changes = _pairs(settings or [], "--set")
    if profile is not None:
        changes["profile"] = profile
    if changes.keys() & POPULATION or seed is not None:
        changes.setdefault("seed", seed or 0)
    chosen = _pairs(options or [], "--option")
    chosen |= {k: v for k, v in {"rule": rule, "language": language, "blanks": blanks}.items() if v is not None}
    wanted = {
        "task": task,
        "options": chosen,
        "name": name,
        "regime": regime,
        "generations": generations,
        "max_ratings": max_ratings,
        "seed": seed or 0,
        "silent": silent,
        "concurrency": concurrency,
        "rate": rate,
        "eval_every": eval_every,
        "held_out": held_out,
        "shuffle_rewards": shuffle_rewards,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "settings": changes,
        "judge": judge,
        "schedule": schedule if fix_at is None else f"@{fix_at} perfect",
    }
    followed: dict[str, Any] = {}

    async def work(client: Client) -> dict[str, Any]:
        await _ready(client)
        if file is not None:
            await _send(client, file, wanted)
        if resume is not None:
            run = await client.call("POST", f"/api/traffic/{resume}/resume", retry=False)
        else:
            run = await client.call("POST", "/api/traffic", json=wanted, retry=False)
        if detach:
            typer.echo(f"run {run['id']} has started; `popserve traffic --resume {run['id']}` watches it")
            return run
        tell: Callable[[str], None] = lambda line: print(line, flush=True)  # noqa: E731
        try:
            return await follow(client, run, tell, followed)
        except (asyncio.CancelledError, KeyboardInterrupt):
            await asyncio.shield(client.call("POST", f"/api/traffic/{run['id']}/pause", retry=False))
            typer.echo(f"paused: `popserve traffic --resume {run['id']}` goes on", err=True)
            raise

    try:
        run = ask(work, url)
    finally:
        if json_file is not None and followed:
            json_file.write_text(json.dumps(followed, indent=1) + "\n")
    if detach:
        return
    if text := curve(run["scores"]):
        typer.echo(text)
    progress = run["progress"]
    typer.echo(f"{progress['ratings']} ratings in {len(run['turns'])} generations, {progress['seconds']:.0f} s")
    if run["message"]:
        typer.echo(run["message"])
    if run["state"] not in ("done", "stopped"):
        fail(f"the run is {run['state']}: {run['why']}")


async def follow(
    client: Client, run: dict[str, Any], tell: Callable[[str], None], seen: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Tells what a run does until it rests; ``seen`` is kept at the newest state. Raises ClientError."""
    tell(f"run {run['id']}: {run['task']}; a reply is good when it {run['likes']}")
    measured = turned = 0
    why = ""
    while True:
        run = await client.get(f"/api/traffic/{run['id']}")
        if seen is not None:
            seen.clear()
            seen.update(run)
        for kind, item in _news(run, measured, turned):
            if kind == "score":
                measured += 1
                tell(
                    f"held-out score {item['score']:.3f} after {item['ratings']} ratings "
                    f"({item['prompts']} requests, {item['seconds']:.0f} s)"
                )
                for category, score in item["by_category"].items():
                    tell(f"  {category:<40} {score:.3f}")
            else:
                if not turned:
                    tell("generation  reward  observed  ratings  seconds")
                turned += 1
                tell(_line(item) + _left(run, turned))
        if run["why"] and run["why"] != why:
            why = run["why"]
            tell(f"note: {why}")
        if run["state"] not in ("running",):
            return run
        await asyncio.sleep(POLL)


def _news(run: dict[str, Any], measured: int, turned: int) -> Iterable[tuple[str, dict[str, Any]]]:
    """What has come since, in order: a measurement of a generation stands before its turn."""
    scores, turns = run["scores"][measured:], run["turns"][turned:]
    while scores or turns:
        if scores and (not turns or scores[0]["generation"] <= turns[0]["generation"]):
            yield "score", scores.pop(0)
        else:
            yield "turn", turns.pop(0)


def _line(turn: dict[str, Any]) -> str:
    notes = (["nothing to learn: every member scored the same"] if turn["null"] else []) + (
        [f"{turn['late']} late"] if turn["late"] else []
    )
    rewards = [("-" if r is None else f"{r:.2f}") for r in (turn["mean_reward"], turn["observed_reward"])]
    return (
        f"{turn['generation']:10d}  {rewards[0]:>6}  {rewards[1]:>8}  {turn['ratings']:7d}  {turn['seconds']:7.1f}"
        + "".join(f"  {note}" for note in notes)
    )


def _left(run: dict[str, Any], turned: int) -> str:
    eta = run["progress"]["eta_seconds"]
    return f"  about {eta:.0f} s left" if eta and run["state"] == "running" and turned == len(run["turns"]) else ""


async def _ready(client: Client) -> None:
    """Waits until the engine serves, and says what for. Raises ClientError when it has failed."""
    told = ""
    while (status := await client.call("GET", "/api/status", retry=False))["state"] == "starting":
        if status["waiting_for"] != told:
            told = status["waiting_for"]
            typer.echo(f"waiting: {told}", err=True)
        await asyncio.sleep(POLL)
    if status["state"] == "failed":
        raise ClientError(f"the engine has failed: {status['waiting_for']}")


async def _send(client: Client, file: Path, wanted: dict[str, Any]) -> None:
    try:
        content = await asyncio.to_thread(file.read_bytes)
    except OSError as error:
        raise ClientError(f"{file} cannot be read: {error.strerror}") from error
    report = await client.call("PUT", f"/api/tasks/files/{file.name}", content=content, retry=False)
    for problem in report["problems"]:
        typer.echo(f"{file.name}, line {problem['line']}: {problem['what']}", err=True)
    typer.echo(f"{file.name}: {report['usable']} requests, {report['bad']} bad lines", err=True)
    wanted["options"]["file"] = report["name"]


def tasks(url: Url = DEFAULT_URL, as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """List what simulated users may ask and like."""
    cards = ask(lambda client: client.call("GET", "/api/tasks", retry=False), url)
    if as_json:
        typer.echo(json.dumps(cards, indent=2))
        return
    for card in cards:
        typer.echo(f"{card['name']:<22} {card['title']}: good when it {card['likes']}")
        for option in card["options"]:
            choices = f" ({', '.join(option['choices'])})" if option["choices"] else ""
            typer.echo(f"{'':<22}   {option['name']}: {option['help']}{choices}")
        if not card["available"]:
            typer.echo(f"{'':<22}   not available here: {card['why']}")


def judge(
    error: Annotated[
        str | None, typer.Argument(help="perfect, random:P, stingy:P or blindspot; left out: show the judge.")
    ] = None,
    url: Url = DEFAULT_URL,
    at: Annotated[int | None, typer.Option(help="From this generation of the server on, not now.")] = None,
) -> None:
    """Show the judge of simulated users and how good it is, or change how it errs."""

    async def work(client: Client) -> tuple[dict[str, Any], dict[str, Any]]:
        if error is not None:
            change = {"error": error} if at is None else {"schedule": f"@{at} {error}"}
            await client.call("PUT", "/api/judge", json=change, retry=False)
        return await client.get("/api/judge"), await client.get("/api/judge/health")

    now, health = ask(work, url)
    typer.echo(f"judge   {now['error']}{'  ' + now['schedule'] if now['schedule'] else ''}")
    typer.echo(f"who     {now['who']['kind']}{'  ' + now['fault'] if now['fault'] else ''}")
    typer.echo(f"health  {health['sentence']}")


def _pairs(pairs: list[str], option: str) -> dict[str, Any]:
    """``name=value`` pairs; a value is JSON where it can be read as JSON, else text."""
    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            fail(f"{option} takes NAME=VALUE, not {pair!r}", 2)
        try:
            out[name] = json.loads(value)
        except ValueError:
            out[name] = value
    return out


def sparkline(values: Iterable[float]) -> str:
    """Values of 0..1 as bars."""
    bars = "▁▂▃▄▅▆▇█"
    return "".join(bars[round(min(1.0, max(0.0, value)) * (len(bars) - 1))] for value in values)


def curve(scores: list[dict[str, Any]]) -> str:
    """The held-out scores of a run as a line of bars and a small table; empty without measurements."""
    if not scores:
        return ""
    values = [s["score"] for s in scores]
    rows = [
        f"{s['generation']:10d}  {s['ratings']:7d}  {s['score']:.3f}  {'█' * round(40 * s['score'])}" for s in scores
    ]
    head = f"held-out score: {values[0]:.3f} {sparkline(values)} {values[-1]:.3f}"
    return "\n".join([head, "generation  ratings  score", *rows])
