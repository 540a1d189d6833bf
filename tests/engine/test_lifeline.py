"""A process with a lifeline ends when its parent is killed, at once and whatever it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PARENT = """
import multiprocessing, os, time
from engine.vllm_plugin.lifeline import die_with_parent

def child(pipe):
    die_with_parent()
    die_with_parent()
    pipe.send(os.getpid())
    while True:  # never back in the interpreter's main loop for long, never listening
        sum(range(10**5))

if __name__ == "__main__":
    die_with_parent()
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=child, args=(theirs,))
    process.start()
    print(ours.recv(), flush=True)
    time.sleep(60)
"""


def ended(pid: int) -> bool:
    """Gone, or dead and not yet reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("lifeline", [True, False])
def test_the_child_ends_within_a_second_of_its_killed_parent(tmp_path, lifeline):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    root = str(Path(__file__).parents[2])
    env = {k: v for k, v in os.environ.items() if k != "POPSERVE_LIFELINE"} | {"PYTHONPATH": root}
    if lifeline:
        env["POPSERVE_LIFELINE"] = "1"
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=env, text=True)
    child = 0
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.3)
        assert not ended(child)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        killed = time.monotonic()
        while not ended(child) and time.monotonic() - killed < 1:
            time.sleep(0.01)
        assert ended(child) is lifeline
    finally:
        parent.kill()
        if child and not ended(child):
            os.kill(child, signal.SIGKILL)
