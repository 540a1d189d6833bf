"""An engine process must not outlive the server, also when the server was killed."""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing.connection import wait

_started = False


def die_with_parent() -> None:
    """In a child process: ends the process the moment its parent is gone. In the main process: nothing.

    vLLM heeds a lost parent only after minutes (and holds gigabytes meanwhile); the parent's sentinel, a pipe that
    the kernel closes, is prompt and needs no polling.
    """
    global _started
    parent = multiprocessing.parent_process()
    if parent is None or _started or not os.environ.get("POPSERVE_LIFELINE"):
        return
    _started = True

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="popserve-lifeline", daemon=True).start()
