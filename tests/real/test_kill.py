"""kill -9 of the server in a rating, in a merge and in a fold, on real vLLM."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from engine.config import scratch_candidates
from tests.real.real_server import RealServer

pytestmark = pytest.mark.engine


def probe(server: RealServer) -> list[str]:
    """What the source model says: equal answers (float32, greedy) mean equal weights."""
    questions = ("What is a volcano?", "How do bees make honey?", "Name a fruit.")
    answers = [server.ask(q, population=False, temperature=0, max_tokens=24) for q in questions]
    return [a["choices"][0]["message"]["content"] for a in answers]


def rate_a_generation(server: RealServer) -> None:
    """One rated reply of every member, so that a merge is due with the last."""
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda i: server.ask(f"Say something about the number {i}."), range(8)))
    for i, reply in enumerate(replies):
        server.rate(reply["id"], i % 3 == 0)


def settled(server: RealServer) -> dict:
    """The status when no merge is under way."""
    deadline = time.monotonic() + 60
    while (status := server.get("/api/status"))["state"] != "serving":
        assert time.monotonic() < deadline, status
        time.sleep(0.02)
    return status


def killed_and_restarted(server: RealServer) -> dict:
    """kill -9, and what must hold after every one: nothing left running, nothing acknowledged lost, a generation that
    is whole."""
    server.kill()
    assert server.all_gone(within=5), server.processes()
    stored = server.stored()
    for inference_id, value in server.acknowledged.items():
        # What was sent but never answered may have been stored or not.
        assert stored[inference_id] in {value, server.sent[inference_id]}
    server.start()
    status = settled(server)
    merged = server.get("/api/generations")
    assert [g["generation"] for g in merged if g["merged_at"]] == list(range(status["generation"]))
    return status


def test_fifty_ratings_at_once_and_a_kill_among_fifty_more(server):
    start = settled(server)["ratings_total"]
    with ThreadPoolExecutor(10) as pool:
        replies = [r["id"] for r in pool.map(lambda i: server.ask(f"Say {i}.", max_tokens=4), range(50))]
        credits = [a["credit"]["kind"] for a in pool.map(lambda i: server.rate(i, True), replies)]
    assert set(credits) <= {"counted", "late"}
    before = settled(server)
    assert before["ratings_total"] == start + 50
    weights = probe(server)

    def change(inference_id: str) -> None:
        try:
            server.rate(inference_id, False)
        except httpx.HTTPError:
            return

    threads = [threading.Thread(target=change, args=(i,)) for i in replies]
    for thread in threads:
        thread.start()
    while sum(not server.acknowledged[i] for i in replies) < 5:
        time.sleep(0.001)
    server.kill()
    for thread in threads:
        thread.join()
    after = killed_and_restarted(server)
    assert after["ratings_total"] == before["ratings_total"]
    if after["generation"] == before["generation"]:
        assert probe(server) == weights


def test_a_kill_in_a_merge(server):
    generation, weights = settled(server)["generation"], probe(server)
    rate_a_generation(server)
    while (status := server.get("/api/status"))["state"] != "merging" and status["generation"] == generation:
        pass
    status = killed_and_restarted(server)
    if status["generation"] == generation:
        assert probe(server) == weights
    else:
        assert status["generation"] == generation + 1
        assert server.get("/api/generations")[generation]["ratings"] == 8


def test_a_kill_in_a_fold(server):
    def folding() -> bool:
        return any(f for folder in scratch_candidates(server.home) for f in folder.glob("weights-*"))

    for _ in range(8):
        settled(server)
        rate_a_generation(server)
        while (caught := folding()) is False and server.get("/api/status")["ratings"]:
            pass
        if caught:
            break
    else:
        pytest.fail("no fold in eight merges")
    status = killed_and_restarted(server)
    assert status["drift"] > 0
    rate_a_generation(server)
    assert settled(server)["generation"] > status["generation"]
