"""The folder of a server: one server at a time."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


class HomeInUse(Exception):
    """Another server runs on this folder, or it cannot be written; the message says what to do."""


@contextlib.contextmanager
def hold(home: Path) -> Iterator[None]:
    """Creates the folder and keeps it locked; the lock ends with the process, however it ends."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        file = (home / "lock").open("a")
    except OSError as error:
        raise HomeInUse(
            f"{home} cannot be written ({error.strerror}): set POPSERVE_HOME to a folder of yours."
        ) from error
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not flock: forked children would keep it
        except OSError:
            raise HomeInUse(
                f"Another popserve runs on {home}: stop it, or set POPSERVE_HOME to another folder."
            ) from None
        yield
