"""Every file that a page loads: our own out of static/, htmx and plotly.js out of their installed packages.

    url("popserve.css")    # "/static/popserve.css?v=1f0c…": changes with the content, so it may be kept for ever
    load("popserve.css")   # Asset(body, gzipped, digest, media_type)

Packages are read as data through their metadata; nothing of them is imported.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

STATIC = Path(__file__).resolve().parent.parent / "static"
PACKAGED = {
    "htmx.js": ("django-htmx", "django_htmx/static/django_htmx/htmx-4.min.js"),
    "htmx-sse.js": ("django-htmx", "django_htmx/static/django_htmx/ext/hx-sse-4.min.js"),
    "plotly.js": ("plotly", "plotly/package_data/plotly.min.js"),
}
"""(distribution, file in it) by the name that pages use."""
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class NoAsset(Exception):
    """There is no such file; the message is written for people."""


@dataclass(frozen=True)
class Asset:
    """A file as it is sent."""

    body: bytes
    gzipped: bytes
    digest: str
    media_type: str


def place(name: str) -> Path:
    """Where a file lies. Raises NoAsset, also for names that point out of static/."""
    if name in PACKAGED:
        package, inside = PACKAGED[name]
        try:
            path = Path(str(distribution(package).locate_file(inside)))
        except PackageNotFoundError:
            raise NoAsset(f"The package {package} is not installed: run make run, which installs it.") from None
    else:
        path = STATIC / name
        if path.parent != STATIC or path.suffix not in TYPES:
            raise NoAsset("There is no such file.")
    if not path.is_file():
        raise NoAsset(f"{name} is missing: install the packages again.")
    return path


def load(name: str) -> Asset:
    """The file, read and compressed once until it changes. Raises NoAsset."""
    path = place(name)
    stat = path.stat()
    return _load(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=64)
def _load(path: Path, _modified: int, _size: int) -> Asset:
    body = path.read_bytes()
    return Asset(body, gzip.compress(body, 6, mtime=0), hashlib.sha256(body).hexdigest()[:16], TYPES[path.suffix])


@lru_cache(maxsize=64)
def _digest(path: Path, _modified: int, _size: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def url(name: str) -> str:
    """The address that a page links; its query names the content. Raises NoAsset."""
    path = place(name)
    stat = path.stat()
    return f"/static/{name}?v={_digest(path, stat.st_mtime_ns, stat.st_size)}"
