"""Users' own task files: stored in the home, checked line by line before they replace anything."""

from __future__ import annotations

import os
import re
import secrets

from app.traffic.views import OwnFileView, Problem
from engine.tasks import Surroundings, TaskError
from engine.tasks.own_file import read

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}")


def keep(where: Surroundings, name: str, content: bytes) -> OwnFileView:
    """Stores a file under its plain name and reports on its lines. Raises TaskError, and nothing is stored, for an
    unusable name and for a file without a single request."""
    if not NAME.fullmatch(name):
        raise TaskError(
            f"{name[:80]!r} cannot be a file's name: use letters, digits, spaces, dots, hyphens and underscores"
        )
    if where.files is None:
        raise TaskError("there is no folder of user files here: set one up before a file can be used")
    where.files.mkdir(parents=True, exist_ok=True)
    part = where.files / f".{secrets.token_hex(8)}.part"
    try:
        part.write_bytes(content)
        found = read(part)
        problems = [Problem(p.line, p.what) for p in found.problems]
        if not found.usable:
            first = f": line {problems[0].line}: {problems[0].what}" if problems else ": it is empty"
            raise TaskError(f"{name} has no line that is a request{first}")
        os.replace(part, where.files / name)
    finally:
        part.unlink(missing_ok=True)
    return OwnFileView(name, "file", found.usable, found.bad, problems)
