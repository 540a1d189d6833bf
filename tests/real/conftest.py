"""One ``popserve serve`` with the real engine for all tests of this folder, restarted by those that kill it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.model_files import prepare_model
from tests.real.real_server import RealServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    home = tmp_path_factory.mktemp("real") / "home"
    model = Path(prepare_model("embedded", Path(os.environ.get("POPSERVE_HOME", "var")))).resolve()
    # Eight rows hold two generations of four pairs and nothing else: every second merge has to fold.
    server = RealServer(
        home, model, dtype="float32", enforce_eager=1, rows=8, max_model_len=2048, max_tokens=24, seed=4
    )
    try:
        yield server.start()
        server.stop()
        assert server.all_gone(within=20), server.processes()
    finally:
        for process in server.processes():
            process.kill()
