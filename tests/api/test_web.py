"""What every answer has in common: one error shape, the guard against other web pages, the API page."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from app.db import DatabaseUnavailable
from tests.api.conftest import Live, isolated, shared_loop

MERGE = "/api/merge"


@shared_loop
@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, False),
        ({"Sec-Fetch-Site": "same-origin"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, True),
        ({"Sec-Fetch-Site": "same-site"}, True),
        ({"Origin": "https://evil.example"}, True),
        ({"Origin": "null"}, True),
        ({"Origin": "http://127.0.0.1:1"}, True),
        ({"Origin": "{self}"}, False),
        ({"Origin": "{self}.evil.example"}, True),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", MERGE), ("PUT", "/api/settings"), ("POST", "/v1/feedback"), ("POST", "/v1/chat/completions")],
)
async def test_other_web_pages_change_nothing(
    shared: Live, headers: dict[str, str], refused: bool, method: str, path: str
) -> None:
    headers = {name: value.replace("{self}", f"http://127.0.0.1:{shared.port}") for name, value in headers.items()}
    answer = await shared.client.request(method, path, headers=headers, json={})
    assert (answer.status_code == 403) == refused
    if refused:
        assert "Another web page" in answer.json()["error"]["message"]


@shared_loop
async def test_every_route_that_changes_something_is_guarded(shared: Live) -> None:
    paths = (await shared.client.get("/openapi.json")).json()["paths"]
    tried = 0
    for path, methods in paths.items():
        for method in set(methods) & {"post", "put", "patch", "delete"}:
            answer = await shared.client.request(method, path, headers={"Sec-Fetch-Site": "cross-site"})
            assert answer.status_code == 403, path
            tried += 1
    assert tried >= 4


@shared_loop
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[::1", "10.0.0.1"]
)
async def test_a_foreign_host_name_is_refused(shared: Live, host: str) -> None:
    answer = await shared.client.get("/api/status", headers={"Host": host})
    assert answer.status_code in (400, 403)
    assert "ratings_total" not in answer.text


@shared_loop
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "[::1]:8000", "127.0.0.1"])
async def test_this_machines_names_are_served(shared: Live, host: str) -> None:
    assert (await shared.client.get("/api/status", headers={"Host": host})).status_code == 200


@shared_loop
@pytest.mark.parametrize("path", ["/healthz", "/nope", "/docs"])
async def test_security_headers_are_on_every_answer(shared: Live, path: str) -> None:
    headers = (await shared.client.get(path)).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


@shared_loop
async def test_errors_have_one_shape(shared: Live) -> None:
    for method, path in (("GET", "/nope"), ("DELETE", MERGE), ("POST", "/v1/feedback"), ("GET", "/v1/nope")):
        answer = await shared.client.request(method, path)
        assert answer.status_code in (404, 405, 422)
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@shared_loop
async def test_a_browser_gets_a_page_and_an_api_client_json(shared: Live) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml"}
    answer = await shared.client.get("/<script>", headers=browser)
    assert answer.headers["content-type"].startswith("text/html")
    assert "<script>" not in answer.text
    assert "nothing at this address" in answer.text
    assert (await shared.client.get("/api/nope", headers=browser)).json()["error"]["code"] == "not_found"


async def test_a_fault_says_nothing_of_the_inside(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("secret")

    live.server.members = broken  # type: ignore[assignment,method-assign]
    transport = httpx.ASGITransport(live.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/api/members")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["error"]["code"] == "internal_error"


async def test_a_database_outage_is_a_503(live: Live) -> None:
    def broken(session: object) -> None:
        raise DatabaseUnavailable("The database popserve.db is not available; the disk is full.")

    live.services.db._read = broken  # type: ignore[method-assign]
    answer = await live.client.get("/api/generations")
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
    assert "the disk is full" in answer.json()["error"]["message"]


@shared_loop
async def test_the_api_page_loads_nothing_from_another_host(shared: Live) -> None:
    page = (await shared.client.get("/docs")).text
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(loaded) == 3
    for path in loaded:
        assert path.startswith("/docs/")
        answer = await shared.client.get(path)
        assert answer.status_code == 200
        assert len(answer.content) > 100
    assert (await shared.client.get("/docs/../main.py")).status_code == 404
    assert (await shared.client.get("/docs/..%2fmain.py")).status_code == 404


@shared_loop
async def test_the_api_is_described_with_examples(shared: Live) -> None:
    description = (await shared.client.get("/openapi.json")).json()
    for path in ("/healthz", "/api/status", "/api/generations", "/api/members", "/api/merge", "/api/events"):
        assert path in description["paths"]
    for methods in description["paths"].values():
        for operation in methods.values():
            assert operation["description"]
    for name in ("ChatRequest", "Feedback", "SettingsChange"):
        assert description["components"]["schemas"][name]["examples"]


def test_settings_are_isolated_in_tests(tmp_path: Path) -> None:
    assert isolated(tmp_path).home == tmp_path
