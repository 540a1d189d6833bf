"""The files that a page loads: from here, versioned, compressed, and no others."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from app import assets
from tests.api.conftest import Live, shared_loop

PAGES = ("/", "/dashboard")


@shared_loop
@pytest.mark.parametrize("path", PAGES)
async def test_pages_load_only_versioned_files_of_this_server(shared: Live, path: str) -> None:
    html = (await shared.client.get(path)).text
    addresses = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', html)
    assert len(addresses) >= 6
    for address in addresses:
        assert re.fullmatch(r"/static/[\w.-]+\?v=[0-9a-f]{16}", address)
        answer = await shared.client.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert not re.search(r"<script(?![^>]*\bsrc=)", html)
    assert " style=" not in html
    assert not re.search(r"\son\w+=", html)


@shared_loop
async def test_a_first_load_is_small(shared: Live) -> None:
    page = await shared.client.get("/")
    total = len(page.content)
    for address in set(re.findall(r'"(/static/[^"]+)"', page.text)):
        assert "plotly" not in address
        total += len(assets.load(address.removeprefix("/static/").partition("?")[0]).gzipped)
    assert total < 60_000


@shared_loop
async def test_cache_and_compression(shared: Live) -> None:
    address = assets.url("popserve.css")
    plain = await shared.client.get(address, headers={"Accept-Encoding": "identity"})
    packed = await shared.client.get(address, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.content == packed.content == (assets.STATIC / "popserve.css").read_bytes()
    unchanged = await shared.client.get("/static/popserve.css", headers={"If-None-Match": plain.headers["etag"]})
    assert unchanged.status_code == 304
    stale = await shared.client.get("/static/popserve.css?v=0000000000000000")
    assert stale.headers["cache-control"] == "no-cache"


@shared_loop
@pytest.mark.parametrize("name", ["nothing.css", "..%2fREADME.md", "%2e%2e", "icon.svg%00.js", "popserve.css.py"])
async def test_nothing_else_is_served(shared: Live, name: str) -> None:
    answer = await shared.client.get(f"/static/{name}")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"]


def test_packages_are_read_and_not_imported() -> None:
    for name in assets.PACKAGED:
        asset = assets.load(name)
        assert asset.media_type == "text/javascript"
        assert gzip.decompress(asset.gzipped) == asset.body
    assert b"4.0.0" in assets.load("htmx.js").body
    with pytest.raises(assets.NoAsset):
        assets.place("../pyproject.toml")


def test_a_changed_file_gets_another_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "STATIC", tmp_path)
    (tmp_path / "a.css").write_text("a {}")
    first = assets.url("a.css")
    (tmp_path / "a.css").write_text("a { color: red }")
    assert assets.url("a.css") != first
    assert assets.load("a.css").body == b"a { color: red }"
