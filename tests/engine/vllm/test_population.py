"""Real vLLM serves exactly the models that the mathematics names, in any mix, across merges and folds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import numpy as np
import pytest

from engine.backends.base import Weights
from engine.backends.vllm_backend import VllmBackend
from engine.interface import Sampling
from engine.master import Master
from engine.noise import Direction
from tests.engine.vllm.conftest import MAX_NUM_SEQS
from tests.engine.vllm.oracle import Oracle

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

SIGMA = 0.006
ROWS = [Direction(seed) for seed in (11, 12, 13, 14)]
WIDE = Direction(15, rank=4)
QUESTIONS = ["What is a volcano?", "How do bees make honey?", "Name a fruit.", "Why is the sky blue?"]
SYSTEM = {"role": "system", "content": "You are a helpful assistant. Answer in one short sentence."}
REPLY = " It is a natural process that people have watched for thousands of years, and it is still being studied."
serial = iter(range(10**9))


class State:
    """Folds so far, so that the tests of one session do not depend on their order."""

    folds: list[dict[Direction, float]] = []  # noqa: RUF012
    master: Master | None = None


def weights(coefficients: dict[Direction, float]) -> Weights:
    """θ_0 + Σ c ε in the engine's present basis."""
    now = dict(coefficients)
    for folded in State.folds:
        for direction, c in folded.items():
            now[direction] = now.get(direction, 0.0) - c
    return Weights(now, len(State.folds), "test")


async def fold(backend: VllmBackend, coefficients: dict[Direction, float]) -> None:
    State.master = State.master or Master(backend.checkpoint)
    State.master.fold(coefficients)
    await backend.fold(State.master, coefficients)
    State.folds.append(dict(coefficients))


async def resident(backend: VllmBackend, directions: Iterable[Direction]) -> None:
    await backend.draw(list(directions), {d for folded in State.folds for d in folded} | set(directions))


def prompt(backend: VllmBackend, question: str) -> list[int]:
    return backend.encode([SYSTEM, {"role": "user", "content": question}])


def texts(backend: VllmBackend) -> list[list[int]]:
    tokenizer = backend._ready().get_tokenizer()
    return [prompt(backend, q) + tokenizer.encode(REPLY) for q in QUESTIONS]


async def greedy(backend: VllmBackend, tokens: list[int], w: Weights, count: int = 40) -> list[int]:
    stream = backend.open(
        tokens, Sampling(temperature=0, max_tokens=count), w, request_id=f"t{next(serial)}", priority=next(serial) % 3
    )
    produced: list[int] = []
    try:
        async for output in stream.outputs():
            produced += output.outputs[0].token_ids
    finally:
        await stream.close()
    return produced


async def scores(backend: VllmBackend, coefficients: dict[Direction, float]) -> np.ndarray:
    parts = [await backend.score(t, weights(coefficients)) for t in texts(backend)]
    return np.concatenate(parts)


def truth(
    oracle: Oracle, backend: VllmBackend, coefficients: dict[Direction, float], skip: str | None = None
) -> np.ndarray:
    oracle.set(coefficients, skip)
    return np.concatenate([oracle.score(t) for t in texts(backend)])


def off(served: np.ndarray, expected: np.ndarray, source: np.ndarray) -> float:
    """How far what was served is from what was expected, as a share of what the member differs from the source."""
    return float(np.abs(served - expected).mean() / np.abs(expected - source).mean())


@pytest.mark.parametrize(
    "coefficients",
    [
        {ROWS[0]: SIGMA},
        {ROWS[0]: -SIGMA},
        {ROWS[1]: SIGMA},
        {WIDE: SIGMA},
        {ROWS[0]: 0.002, ROWS[1]: -SIGMA, WIDE: 0.001},
    ],
    ids=["member", "its antithetic", "another", "rank 4", "merged and perturbed"],
)
async def test_a_member_is_served_as_defined(backend, oracle, coefficients):
    await resident(backend, [*ROWS, WIDE])
    served = await scores(backend, coefficients)
    assert off(served, truth(oracle, backend, coefficients), truth(oracle, backend, {})) <= 0.01


@pytest.mark.parametrize("wrong", ["another member", "the other sign", "one projection skipped"])
async def test_the_measure_sees_a_wrong_member(backend, oracle, wrong):
    await resident(backend, [*ROWS, WIDE])
    served = await scores(backend, {ROWS[0]: SIGMA})
    coefficients = {"another member": {ROWS[1]: SIGMA}, "the other sign": {ROWS[0]: -SIGMA}}.get(
        wrong, {ROWS[0]: SIGMA}
    )
    skip = "model.layers.17.self_attn.v_proj.weight" if wrong == "one projection skipped" else None
    assert off(served, truth(oracle, backend, coefficients, skip), truth(oracle, backend, {})) > 0.01


async def test_the_source_is_untouched_by_resident_noise(backend, oracle):
    await resident(backend, [*ROWS, WIDE])
    assert np.abs(await scores(backend, {}) - truth(oracle, backend, {})).max() < 2e-3


async def test_every_request_of_a_mixed_batch_gets_what_it_gets_alone(backend):
    """More streams than slots, prompts longer than a step, and twice all running requests lose their cache."""
    await resident(backend, [*ROWS, WIDE])
    long = "Here is some background that you need not repeat. " * 18
    models = [{}, *({d: s * SIGMA} for d in ROWS for s in (1, -1)), {ROWS[0]: 0.003, ROWS[2]: -0.004}, {WIDE: SIGMA}]
    jobs = [
        (prompt(backend, (long if i % 4 else "") + QUESTIONS[i % 4]), weights(models[i % len(models)]))
        for i in range(2 * MAX_NUM_SEQS + 2)
    ]
    alone = [await greedy(backend, tokens, w, 90) for tokens, w in jobs]
    running = [asyncio.ensure_future(greedy(backend, tokens, w, 90)) for tokens, w in jobs]
    for _ in range(2):
        await asyncio.sleep(1.5)
        assert not all(r.done() for r in running), "nothing runs that could be preempted"
        assert await backend._ready().reset_prefix_cache(reset_running_requests=True), "nothing was preempted"
    together = await asyncio.gather(*running)
    assert max(len(t) for t, _ in jobs) > 128, "no prompt is chunked"
    assert together == alone
    assert len({tuple(a) for (t, _), a in zip(jobs, alone, strict=True) if t == jobs[1][0]}) > 1


async def test_a_cached_prefix_never_answers_for_other_weights(backend, oracle):
    await resident(backend, [*ROWS, WIDE])
    tokens = prompt(backend, "Please read this carefully before you answer. " * 32 + QUESTIONS[0])

    async def cached(w: Weights) -> tuple[int, list[int]]:
        stream = backend.open(tokens, Sampling(temperature=0, max_tokens=12), w, request_id=f"t{next(serial)}")
        produced: list[int] = []
        hits = 0
        async for output in stream.outputs():
            produced += output.outputs[0].token_ids
            hits = max(hits, output.num_cached_tokens or 0)
        await stream.close()
        return hits, produced

    source, member = weights({}), weights({ROWS[3]: 2 * SIGMA})
    await cached(source)
    hits, _ = await cached(source)
    assert hits > 0, "the prefix cache is off: this test shows nothing"
    hits, produced = await cached(member)
    assert hits == 0
    oracle.set({ROWS[3]: 2 * SIGMA})
    expected = oracle.greedy(tokens, 12)
    assert produced[: len(expected)] == expected


async def test_merge_and_fold_serve_the_exported_master(backend, oracle, tmp_path):
    await resident(backend, [*ROWS, WIDE])
    merged = {ROWS[0]: 0.002, ROWS[1]: -0.003, ROWS[2]: 0.001, WIDE: 0.0005}
    before = await scores(backend, merged)
    exported = Master(backend.checkpoint)
    exported.export(tmp_path / "export", merged)
    expected = np.concatenate([Oracle(tmp_path / "export").score(t) for t in texts(backend)])
    source = truth(oracle, backend, {})
    assert off(before, expected, source) <= 0.01, "after a merge"
    await fold(backend, merged)
    assert off(await scores(backend, merged), expected, source) <= 0.01, "after a fold"
    assert off(await scores(backend, {ROWS[3]: SIGMA}), truth(oracle, backend, {ROWS[3]: SIGMA}), source) <= 0.01
    assert np.abs(await scores(backend, {}) - source).max() < 2e-3, "θ_0 beside it, as long as its rows are resident"


async def test_a_stream_that_runs_across_a_fold_is_what_it_would_have_been(backend):
    await resident(backend, [*ROWS, WIDE])
    models = [{}, {ROWS[0]: SIGMA}, {ROWS[1]: -SIGMA, ROWS[2]: 0.002}, {WIDE: -SIGMA}]
    jobs = [(prompt(backend, q), weights(m)) for q, m in zip(QUESTIONS, models, strict=True)]
    undisturbed = [await greedy(backend, t, w, 80) for t, w in jobs]
    running = [asyncio.ensure_future(greedy(backend, t, w, 80)) for t, w in jobs]
    await asyncio.sleep(0.5)
    assert not any(r.done() for r in running), "nothing runs across the fold"
    await fold(backend, {ROWS[1]: 0.002, ROWS[2]: -0.001})
    assert await asyncio.gather(*running) == undisturbed


async def test_noise_is_drawn_and_dropped_while_streams_run(backend, oracle):
    """A turn of generations under load: new rows take the place of retired ones, running requests keep theirs."""
    await resident(backend, [*ROWS, WIDE])
    old = weights({ROWS[3]: SIGMA})
    undisturbed = await greedy(backend, prompt(backend, QUESTIONS[1]), old, 120)
    running = asyncio.ensure_future(greedy(backend, prompt(backend, QUESTIONS[1]), old, 120))
    await asyncio.sleep(0.2)
    folded = {d for f in State.folds for d in f}
    fresh = [Direction(100), Direction(101)]
    await backend.draw(fresh, folded)
    assert not running.done()
    served = await scores(backend, {fresh[0]: SIGMA})
    assert off(served, truth(oracle, backend, {fresh[0]: SIGMA}), truth(oracle, backend, {})) <= 0.01
    assert await running == undisturbed


async def test_a_seeded_reply_is_reproducible_also_when_its_prompt_takes_several_steps(backend):
    await resident(backend, [*ROWS, WIDE])
    long = prompt(backend, "Please read this carefully before you answer. " * 30 + QUESTIONS[2])
    assert len(long) > 2 * 128, "the prompt is not chunked"

    async def sampled(seed: int) -> str:
        sampling = Sampling(temperature=1.0, max_tokens=16, seed=seed)
        stream = backend.open(long, sampling, weights({ROWS[0]: SIGMA}), request_id=f"t{next(serial)}")
        text = "".join([delta.text async for delta in stream])
        await stream.close()
        return text

    first = await sampled(5)
    assert await asyncio.gather(*(sampled(seed) for seed in (5, 6, 5))) == [first, await sampled(6), first]
    assert first != await sampled(6)


async def test_leaving_before_the_first_token_ends_the_request(backend):
    await resident(backend, [*ROWS, WIDE])
    streams = [
        backend.open(
            prompt(backend, QUESTIONS[0]),
            Sampling(max_tokens=400, temperature=0),
            weights({ROWS[0]: SIGMA}),
            request_id=f"t{next(serial)}",
        )
        for _ in range(2 * MAX_NUM_SEQS)
    ]
    reading = [asyncio.ensure_future(anext(s)) for s in streams]
    await asyncio.sleep(0)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    for stream in streams:
        await stream.close()
    assert backend.running == 0
    async with asyncio.timeout(5):
        while backend._ready().output_processor.has_unfinished_requests():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_gaussian_members_take_turns(backend, oracle):
    w = [{Direction(7, "gaussian", 0): 0.002}, {Direction(8, "gaussian", 0): 0.002}]
    source = truth(oracle, backend, {})
    served = await asyncio.gather(*(scores(backend, c) for c in [w[0], w[1], {}, w[0]]))
    for c, got in zip([w[0], w[1]], served, strict=False):
        assert off(got, truth(oracle, backend, c), source) <= 0.01
    assert np.abs(served[2] - source).max() < 2e-3
    assert np.abs(served[3] - served[0]).max() < 1e-4
