"""Settings from the environment: read, limited, documented; and a start that fails in words."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.main import PortTaken, bind
from app.settings import AppSettings, Metric, SettingsError, load
from tests.api.conftest import isolated

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("POPSERVE_") or name == "PORT":
            monkeypatch.delenv(name)


def test_the_environment_and_the_env_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load().port == 8000
    (tmp_path / ".env").write_text("POPSERVE_PROFILE=traffic\nPORT=8111\nOTHER=1\n")
    assert (load().profile, load().port) == ("traffic", 8111)
    monkeypatch.setenv("PORT", "8123")
    assert load().port == 8123
    monkeypatch.setenv("POPSERVE_PORT", "8124")
    assert load().port == 8124
    monkeypatch.setenv("POPSERVE_METRICS", '{"thumb": {"kind": "bool"}, "stars": {"low": 1, "high": 5}}')
    assert load().metrics["stars"].reward(3) == 0.5


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("POPSERVE_HOST", "0.0.0.0", "no accounts yet"),
        ("POPSERVE_HOST", "example.com", "no accounts yet"),
        ("POPSERVE_PORT", "70000", "65535"),
        ("POPSERVE_ENGINE", "magic", "vllm"),
        ("POPSERVE_PROFILE", "huge", "choose from room"),
        ("POPSERVE_SEED", "-1", "greater than or equal to 0"),
        ("POPSERVE_TEMPERATURE", "nan", "finite"),
        ("POPSERVE_MAX_TOKENS", "0", "greater than or equal to 1"),
        ("POPSERVE_METRICS", '{"thumb": {"kind": "number"}}', "of kind 'bool'"),
        ("POPSERVE_METRICS", '{"thumb": {"kind": "bool"}, "a b": {}}', "a word of letters"),
        ("POPSERVE_METRICS", '{"x": {"low": 2, "high": 1}}', "below high"),
        ("POPSERVE_KV_CACHE_GIB", "0", "greater than 0"),
    ],
)
def test_values_that_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str, word: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load()
    assert str(caught.value).startswith(name)
    assert word in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_loopback_hosts_are_allowed(host: str) -> None:
    assert load(host=host).host == host


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.1, 10**400, True, "0.5", None])
def test_a_number_metric_takes_only_its_range(value: object) -> None:
    with pytest.raises(ValueError, match="a number from 0 to 1"):
        Metric().parse(value)


def test_every_setting_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    rows = "\n".join(line for line in readme.splitlines() if line.startswith("|"))
    missing = [name for name in AppSettings.model_fields if f"`POPSERVE_{name.upper()}`" not in rows]
    assert missing == []


def test_a_taken_port_is_said_in_words(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"Port {port} is in use: .*PORT="):
            bind(isolated(tmp_path, port=port))


def start(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("POPSERVE_")} | environment
    command = [sys.executable, "-m", "app.main", *args]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_bad_setting_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    ended = start(POPSERVE_HOME=str(tmp_path), POPSERVE_HOST="0.0.0.0", PORT="0")
    assert ended.returncode == 2
    assert ended.stderr.startswith("POPSERVE_HOST: ")
    assert "Traceback" not in ended.stderr


def test_one_server_a_home(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from app.home import hold\n"
            "with hold(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()",
            str(tmp_path),
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        ended = start(POPSERVE_HOME=str(tmp_path), PORT="0")
    finally:
        holder.kill()
        holder.communicate()
    assert ended.returncode == 2
    assert "Another popserve runs on" in ended.stderr
