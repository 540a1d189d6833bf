"""The command: every failure is a sentence and an exit status, every option arrives."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from app import cli, settings
from app import main as server
from engine import model_files
from tests.api.conftest import Live, serving
from tests.models.test_model_files import write_model

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No .env and no variables of the machine."""
    monkeypatch.chdir(tmp_path)
    for name in ("PORT", *(f"POPSERVE_{field.upper()}" for field in settings.AppSettings.model_fields), "POPSERVE_URL"):
        monkeypatch.delenv(name, raising=False)


def call(*words: str) -> Result:
    return CliRunner().invoke(cli.cli, words)


async def call_beside(live: Live, *words: str) -> Result:
    """Runs a command in a thread against a server in this one."""
    return await asyncio.to_thread(call, *words, "--url", f"http://127.0.0.1:{live.port}")


def test_without_a_command_it_explains_itself() -> None:
    out = call().output
    assert all(name in out for name in ("serve", "prepare", "status", "merge", "traffic"))


@pytest.mark.parametrize("words", [("status",), ("merge",), ("traffic", "persona:brevity", "--generations", "1")])
def test_without_a_server_it_says_how_to_start_one(words: tuple[str, ...]) -> None:
    result = call(*words, "--url", NOBODY)
    assert result.exit_code == 1
    assert "no server answers" in result.stderr
    assert "make run" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_server_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPSERVE_URL", NOBODY)
    assert NOBODY in call("status").stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name a task"),
        (("persona:brevity", "--resume", "x"), "name a task"),
        (("persona:brevity", "--fix-at", "3", "--schedule", "@3 perfect"), "not both"),
        (("persona:brevity", "--generations", "1", "--set", "alpha"), "NAME=VALUE"),
        (("persona:brevity", "--generations", "1", "--json", "missing/x.json"), "missing/x.json"),
        (("persona:brevity", "--generations", "1", "--url", "nonsense"), "no address"),
        (("persona:brevity", "--generations", "x"), "--generations"),
    ],
)
def test_wrong_options_are_sentences(words: tuple[str, ...], message: str) -> None:
    result = call("traffic", *words)
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert "Traceback" not in result.output


async def test_status_and_merge(tmp_path: Path) -> None:
    async with serving(tmp_path, delay=0.0) as live:
        shown = await call_beside(live, "status")
        assert shown.exit_code == 0
        assert "fake-model on fake (cpu)" in shown.output
        assert "0 of 4 for the next merge, 0 in all" in shown.output
        parsed = json.loads((await call_beside(live, "status", "--json")).output)
        assert (parsed["generation"], parsed["members"]) == (0, 4)

        refused = await call_beside(live, "merge")
        assert refused.exit_code == 1
        assert "0 of 4 members are rated" in refused.stderr
        for value in (True, False, True):
            await live.rate((await live.chat())["id"], value)
        merged = await call_beside(live, "merge")
        assert merged.exit_code == 0
        assert "generation 0 merged: 3 ratings, drift 0.0010" in merged.output


async def test_traffic_prints_its_progress_and_writes_json(tmp_path: Path) -> None:
    words = ("--generations", "2", "--profile", "room", "--set", "members=4", "--set", "merge_after=4", "--seed", "9")
    async with serving(tmp_path, delay=0.0) as live:
        result = await call_beside(
            live, "traffic", "persona:brevity", *words, "--held-out", "5", "--eval-every", "1", "--json", "run.json"
        )
        assert result.exit_code == 0, result.output
        assert "8 ratings in 2 generations" in result.output
        assert "Nothing to learn: all replies scored 1." in result.output  # the fake engine's replies are all short
        asked = live.server.replies[-1]
        assert asked.messages[0]["content"] == settings.SYSTEM_PROMPT
    run = json.loads(Path("run.json").read_text())
    assert run["state"] == "done"
    assert (run["task"], run["model"], run["progress"]["ratings"]) == ("persona:brevity", "fake-model", 8)
    assert [s["ratings"] for s in run["scores"]] == [0, 4, 8]
    assert [t["generation"] for t in run["turns"]] == [0, 1]
    assert run["plan"]["settings"] == {"members": 4, "merge_after": 4, "profile": "room", "seed": 9}
    assert (run["settings"]["members"], run["settings"]["merge_after"]) == (4, 4)


async def test_traffic_leaves_the_population_alone_unless_told(tmp_path: Path) -> None:
    async with serving(tmp_path, delay=0.0) as live:
        drawn = live.server.generation
        result = await call_beside(live, "traffic", "persona:lists", "--max-ratings", "3", "--held-out", "0")
        assert result.exit_code == 0, result.output
        assert live.server.generation is drawn


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("persona:brevity", "--generations", "1", "--profile", "nobody"), "unknown profile 'nobody'"),
        (("persona:rudeness", "--generations", "1"), "persona:brevity"),
        (("persona:brevity",), "say when to end"),
        (("persona:brevity", "--generations", "1", "--silent", "2"), "silent must be"),
        (("persona:brevity", "--generations", "1", "--judge", "random"), "choose perfect, random:P"),
        (("--resume", "nothing"), "There is no run"),
    ],
)
async def test_a_refusal_keeps_the_servers_words(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    async with serving(tmp_path, delay=0.0) as live:
        result = await call_beside(live, "traffic", *words)
        assert result.exit_code == 1
        assert message in result.stderr
        assert "Traceback" not in result.output


async def test_traffic_with_a_judge_that_is_fixed_midway(tmp_path: Path) -> None:
    words = ("--generations", "2", "--judge", "stingy:1", "--fix-at", "1", "--held-out", "0", "--json", "run.json")
    async with serving(tmp_path, delay=0.0) as live:
        result = await call_beside(live, "traffic", "persona:brevity", *words)
        assert result.exit_code == 0, result.output
        shown = await call_beside(live, "judge")
        assert shown.output.split()[:2] == ["judge", "perfect"]
        changed = await call_beside(live, "judge", "random:0.25", "--at", "9")
        assert "@9 random:0.25" in changed.output
    turns = json.loads(Path("run.json").read_text())["turns"]
    assert [(t["mean_reward"], t["observed_reward"]) for t in turns] == [(1.0, 0.0), (1.0, 1.0)]


async def test_a_detached_run_is_watched_later(tmp_path: Path) -> None:
    async with serving(tmp_path, delay=0.0) as live:
        words = ("traffic", "persona:brevity", "--generations", "2", "--held-out", "0", "--detach")
        started = await call_beside(live, *words)
        assert started.exit_code == 0, started.output
        run = (await live.client.get("/api/traffic")).json()[0]
        assert run["id"] in started.output
        watched = await call_beside(live, "traffic", "--resume", run["id"])
        assert "8 ratings in 2 generations" in watched.output or "has done all" in watched.stderr


async def test_a_file_of_ones_own_is_sent_and_its_bad_lines_are_named(tmp_path: Path) -> None:
    lines = [f'{{"prompt": "say: {i}", "answer": "{i}"}}' for i in range(8)] + ['{"prompt": 5}', "nonsense"]
    Path("mine.jsonl").write_text("\n".join(lines))
    async with serving(tmp_path, delay=0.0) as live:
        words = ("traffic", "file", "--file", "mine.jsonl", "--generations", "1", "--held-out", "0")
        result = await call_beside(live, *words)
        assert result.exit_code == 0, result.output + result.stderr
        assert "mine.jsonl, line 9:" in result.stderr
        assert "mine.jsonl, line 10: not JSON" in result.stderr
        assert "8 requests, 2 bad lines" in result.stderr
        assert (tmp_path / "tasks" / "mine.jsonl").exists()


async def test_tasks_are_listed(tmp_path: Path) -> None:
    async with serving(tmp_path, delay=0.0) as live:
        listed = await call_beside(live, "tasks")
        names = [card["name"] for card in json.loads((await call_beside(live, "tasks", "--json")).output)]
    assert {"persona:brevity", "persona:custom", "bigbench", "file"} <= set(names)
    assert all(name in listed.output for name in names)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[settings.AppSettings]:
    """The settings that were served with, instead of serving."""
    seen: list[settings.AppSettings] = []
    monkeypatch.setattr(server, "serve", seen.append)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return seen


def test_serve_options_win_over_the_environment(
    served: list[settings.AppSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT", "8123")
    monkeypatch.setenv("POPSERVE_PROFILE", "traffic")
    monkeypatch.setenv("POPSERVE_HOME", "elsewhere")
    assert call("serve").exit_code == 0
    assert call("serve", "--port", "8200", "--home", "here", "--engine", "transformers", "--seed", "4").exit_code == 0
    first, second = served
    assert (first.port, first.profile, str(first.home)) == (8123, "traffic", "elsewhere")
    assert (second.port, second.profile, str(second.home)) == (8200, "traffic", "here")
    assert (second.engine, second.seed) == ("transformers", 4)


def test_serve_refuses_bad_settings_in_words(served: list[settings.AppSettings]) -> None:
    result = call("serve", "--profile", "nobody")
    assert result.exit_code == 2
    assert "POPSERVE_PROFILE" in result.stderr
    assert not served


def test_serve_says_when_the_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = call("serve", "--port", port, "--home", str(tmp_path / "home"))
    assert result.exit_code == 2
    assert f"Port {port} is in use" in result.stderr


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_serve_ends_at_a_signal(tmp_path: Path, stop: signal.Signals) -> None:
    """Also while the engine starts; it fails here, since the model folder is none."""
    words = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--home", str(tmp_path / "home")]
    root = Path(cli.__file__).parents[1]
    model = write_model(tmp_path / "model")
    with subprocess.Popen([*words, "--model", str(model)], cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "popserve is at http://127.0.0.1:" in process.stdout.readline()
        started = time.monotonic()
        process.send_signal(stop)
        process.wait(30)
        assert time.monotonic() - started < 20


def test_prepare_prints_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_model(tmp_path / "mine")
    monkeypatch.setenv("POPSERVE_MODEL", str(folder))
    assert call("prepare").output == f"Model: {folder}\n"
    (folder / "config.json").unlink()
    result = call("prepare")
    assert result.exit_code == 2
    assert "no config.json" in result.stderr


def test_prepare_says_that_it_takes_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(_: Path, folder: Path) -> None:
        write_model(folder)
        (folder / "popserve.json").write_text(json.dumps({"version": model_files.VERSION}))

    monkeypatch.setattr(model_files, "convert", convert)
    assert "Unpacking" in call("prepare").output
    assert "Unpacking" not in call("prepare").output
    assert model_files.is_prepared(Path("var"))


def test_every_option_is_explained() -> None:
    def options(command: Any) -> list[Any]:
        return [p for p in command.params if p.param_type_name == "option" and p.name != "help"]

    import typer

    for name, command in typer.main.get_command(cli.cli).commands.items():  # type: ignore[attr-defined]
        assert command.help, name
        assert all(option.help for option in options(command)), name
