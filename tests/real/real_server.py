"""``popserve serve`` as a process of its own, with the real engine."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

START = 300.0
"""Seconds that a start may take on a busy machine."""


class RealServer:
    """A server on a free port; :meth:`start` and :meth:`kill` as often as one likes, on one home."""

    def __init__(self, home: Path, model: Path, **settings: Any):
        self.home = home
        named = {f"POPSERVE_{k.upper()}": str(v) for k, v in settings.items()}
        clean = {k: v for k, v in os.environ.items() if not k.startswith("POPSERVE_")}
        self.environment = clean | {"POPSERVE_HOME": str(home), "POPSERVE_MODEL": str(model), "PORT": "0"} | named
        self.process: subprocess.Popen[str] | None = None
        self.url = ""
        self.acknowledged: dict[str, bool] = {}
        """The ratings that the server has answered with 2xx."""
        self.sent: dict[str, bool] = {}
        """The last value sent for each reply, answered or not."""

    def start(self) -> RealServer:
        log = open(self.home.parent / "server.log", "a")  # noqa: SIM115
        command = [str(Path(sys.executable).with_name("popserve")), "serve"]
        self.process = subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.home.parent
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "http://" in line:
                self.url = line.split()[-1]
                break
        self.client = httpx.Client(base_url=self.url, timeout=120)
        deadline = time.monotonic() + START
        while (status := self.get("/api/status"))["state"] == "starting":
            assert time.monotonic() < deadline, status
            time.sleep(0.2)
        assert status["state"] in ("serving", "merging"), status
        return self

    def get(self, path: str) -> Any:
        return self.client.get(path).raise_for_status().json()

    def post(self, path: str, **body: Any) -> Any:
        return self.client.post(path, json=body).raise_for_status().json()

    def ask(self, question: str, **more: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": question}]
        return self.post("/v1/chat/completions", messages=messages, **{"max_tokens": 8, **more})

    def rate(self, inference_id: str, value: bool) -> dict[str, Any]:
        self.sent[inference_id] = value
        answer = self.post("/v1/feedback", inference_id=inference_id, metric_name="thumb", value=value)
        self.acknowledged[inference_id] = value
        return answer

    def stored(self) -> dict[str, bool]:
        """The newest rating of every reply, read from the database file."""
        database = sqlite3.connect(self.home / "popserve.db")
        try:
            rows = database.execute("select inference_id, value from rating_event order by id").fetchall()
        finally:
            database.close()
        return {inference_id: bool(value) for inference_id, value in rows}

    def kill(self) -> None:
        """kill -9 of the server; its engine's processes have to see for themselves."""
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def processes(self) -> list[psutil.Process]:
        """Everything that runs on this home, the engine's processes included."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("POPSERVE_HOME") == str(self.home) and process.status() != "zombie":
                    found.append(process)
            except (psutil.AccessDenied, psutil.NoSuchProcess):
                continue
        return found

    def all_gone(self, within: float) -> bool:
        deadline = time.monotonic() + within
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        return not self.processes()
