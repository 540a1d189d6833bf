"""The reference backend serves exactly the model that the coefficients name."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import pytest_asyncio
import torch
from transformers import AutoModelForCausalLM

from engine.backends.base import BackendConfig, Weights
from engine.backends.transformers_backend import TransformersBackend
from engine.interface import BadRequest, NotReady, Sampling
from engine.master import Master
from engine.noise import Direction, factors, gaussian

A, B, G = Direction(1), Direction(2, rank=4), Direction(3, "gaussian", 0)
SAID = [{"role": "user", "content": "What is a volcano?"}]
GREEDY = Sampling(temperature=0, max_tokens=12)


@pytest_asyncio.fixture
async def backend(tiny, tmp_path):
    backend = TransformersBackend(BackendConfig(folder=tiny, scratch=tmp_path, max_model_len=128))
    await backend.start(lambda what: None)
    yield backend
    await backend.close()


def weights(coefficients=None, basis: int = 0, source: str = "zero") -> Weights:
    return Weights(coefficients or {}, basis, source)


def oracle(folder, tokens, coefficients=None) -> np.ndarray:
    """Log-probabilities of tokens[1:] under θ_0 + Σ c ε, built here in float64."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        for name, p in model.named_parameters():
            w = p.double()
            for d, c in (coefficients or {}).items():
                if d.kind == "gaussian":
                    w = w + c * torch.from_numpy(gaussian(d, name, tuple(p.shape))).double()
                elif "_proj" in name:
                    b, a = (torch.from_numpy(x).double() for x in factors(d, name, tuple(p.shape)))
                    w = w + c * b @ a.T
            p.copy_(w.float())
        logits = model(torch.tensor([tokens])).logits[0, :-1].double()
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].numpy()


async def read(stream) -> tuple[str, list]:
    deltas = [d async for d in stream]
    await stream.close()
    return "".join(d.text for d in deltas), deltas


@pytest.mark.parametrize(
    "coefficients", [{}, {A: 0.05}, {A: -0.05}, {A: 0.02, B: 0.03}, {G: 0.02}, {A: 0.05, G: 0.01}], ids=str
)
async def test_scores_are_the_oracles(backend, tiny, coefficients):
    tokens = backend.encode(SAID)
    got = np.array(await backend.score(tokens, weights(coefficients)))
    expected = oracle(tiny, tokens, coefficients)
    np.testing.assert_allclose(got, expected, atol=2e-4)
    if coefficients:
        assert np.abs(expected - oracle(tiny, tokens)).max() > 0.02, "the member differs from the source"


async def test_an_export_scores_what_the_backend_scored(backend, tmp_path):
    coefficients = {A: 0.03, B: -0.02}
    tokens = backend.encode(SAID)
    served = await backend.score(tokens, weights(coefficients))
    Master(backend.checkpoint).export(tmp_path / "export", coefficients)
    np.testing.assert_allclose(served, oracle(tmp_path / "export", tokens), atol=1e-5)


async def test_a_fold_changes_nobodys_model(backend, tiny):
    tokens, merged = backend.encode(SAID), {A: 0.03, B: 0.01}
    before = await backend.score(tokens, weights(merged))
    master = Master(backend.checkpoint)
    master.fold(merged)
    await backend.fold(master, merged)
    assert await backend.score(tokens, weights({}, 1, "folded")) == before
    np.testing.assert_allclose(await backend.score(tokens, weights(merged, 0)), before, atol=1e-5)
    np.testing.assert_allclose(
        await backend.score(tokens, weights({A: -0.03, B: -0.01}, 1)), oracle(tiny, tokens), atol=1e-4
    )


async def test_weights_that_come_back_are_the_same_bits(backend):
    """Members are built from the master each time, never by adding and subtracting."""
    tokens = backend.encode(SAID)
    first = await backend.score(tokens, weights())
    for _ in range(5):
        await backend.score(tokens, weights({A: 0.1}))
        await backend.score(tokens, weights({G: 0.1}))
    assert await backend.score(tokens, weights()) == first


async def test_greedy_text_is_transformers_own(backend, tiny):
    tokens = backend.encode(SAID)
    text, deltas = await read(backend.open(tokens, GREEDY, weights(), request_id="a"))
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    ids = torch.tensor([tokens])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12)[0, len(tokens) :]
    assert text == backend._tokenizer.decode(out, skip_special_tokens=True)
    assert deltas[-1].finish_reason == "length"
    assert deltas[-1].tokens == 12
    assert [d.tokens for d in deltas] == sorted(d.tokens for d in deltas)
    assert all(d.finish_reason is None for d in deltas[:-1])


async def test_members_answer_differently_and_a_seed_repeats(backend):
    tokens, drawn = backend.encode(SAID), Sampling(temperature=1.0, max_tokens=12, seed=5)

    async def say(sampling, w):
        return (await read(backend.open(tokens, sampling, w, request_id="x")))[0]

    assert await say(drawn, weights()) == await say(drawn, weights())
    assert await say(drawn, weights()) != await say(replace(drawn, seed=6), weights())
    assert await say(GREEDY, weights()) != await say(GREEDY, weights({A: 0.3}))


async def test_a_stop_string_ends_the_reply_and_is_not_shown(backend):
    tokens = backend.encode(SAID)
    whole, _ = await read(backend.open(tokens, GREEDY, weights(), request_id="a"))
    stop = whole[len(whole) // 2 : len(whole) // 2 + 3]
    text, deltas = await read(backend.open(tokens, replace(GREEDY, stop=(stop,)), weights(), request_id="b"))
    assert text == whole[: whole.index(stop)]
    assert deltas[-1].finish_reason == "stop"


async def test_the_length_of_the_model_limits_a_reply(backend):
    backend.max_model_len = len(backend.encode(SAID)) + 4
    _, deltas = await read(
        backend.open(backend.encode(SAID), replace(GREEDY, max_tokens=50), weights(), request_id="a")
    )
    assert deltas[-1].tokens == 4
    with pytest.raises(BadRequest, match="tokens"):
        backend.open(list(range(backend.max_model_len)), GREEDY, weights(), request_id="b")
    with pytest.raises(BadRequest, match="penalty"):
        backend.open([1, 2], replace(GREEDY, presence_penalty=1.0), weights(), request_id="c")


async def test_a_closed_stream_stops_its_generation(backend):
    endless = Sampling(temperature=1.0, max_tokens=100, seed=1)
    stream = backend.open(backend.encode(SAID), endless, weights(), request_id="a")
    await anext(stream)
    assert backend.running == 1
    await stream.close()
    await stream.close()
    assert backend.running == 0
    await asyncio.wait_for(stream._work, 5)
    assert stream._queue.qsize() < 90, "stopped well before its length"


async def test_a_backend_that_closes_leaves_no_stream_waiting(backend):
    long = replace(GREEDY, max_tokens=100)
    streams = [backend.open(backend.encode(SAID), long, weights(), request_id=str(i)) for i in range(3)]
    await anext(streams[0])
    await backend.close()
    assert not backend.alive
    for stream in streams[1:]:
        with pytest.raises(NotReady):
            await asyncio.wait_for(read(stream), 10)
