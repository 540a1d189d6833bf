"""Tokens a second of a population against plain vLLM in its best configuration, same model, same requests.

    python -m bench.throughput --pairs 5 --streams 64 1 --members 16

Both engines are up at once and take turns, so that the machine's drift falls on both; the ratio is taken pair by pair.
Prints a table; --json FILE keeps every measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.backends.base import BackendConfig, Weights
from engine.backends.vllm_backend import VllmBackend, VllmStream
from engine.backends.vllm_environment import prepare_environment
from engine.model_files import prepare_model
from engine.population import draw, profile
from engine.tasks import get

TOKENS = 64
serial = itertools.count()


def prompts(backend: VllmBackend, count: int, round_: int) -> list[list[int]]:
    task = get("persona:brevity")
    texts = [task.sample(7, round_ * 1000 + i).prompt for i in range(count)]
    return [
        backend.encode([{"role": "system", "content": task.system_prompt}, {"role": "user", "content": t}])
        for t in texts
    ]


def params() -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(temperature=0.7, max_tokens=TOKENS, ignore_eos=True, output_kind=RequestOutputKind.DELTA)


async def plain_round(llm: Any, batch: list[list[int]]) -> float:
    async def one(tokens: list[int]) -> None:
        async for _ in llm.generate({"prompt_token_ids": tokens}, params(), f"p{next(serial)}"):
            pass

    return await timed([one(t) for t in batch])


async def population_round(backend: VllmBackend, models: list[Weights], batch: list[list[int]]) -> float:
    async def one(tokens: list[int], weights: Weights) -> None:
        stream = VllmStream(backend, tokens, params(), weights, f"m{next(serial)}", 0)
        async for _ in stream.outputs():
            pass
        await stream.close()

    return await timed([one(t, models[i % len(models)]) for i, t in enumerate(batch)])


async def timed(requests: list[Any]) -> float:
    """Generated tokens a second."""
    began = time.perf_counter()
    await asyncio.gather(*requests)
    return len(requests) * TOKENS / (time.perf_counter() - began)


async def population(backend: VllmBackend, members: int) -> list[Weights]:
    """The members of a generation whose source carries one unfolded merge (as many rows again)."""
    settings = profile("traffic", members=members)
    old, new = draw(0, settings, 1), draw(1, settings, 1)
    await backend.draw([*old.directions, *new.directions], set())
    source = Weights(dict.fromkeys(old.directions, 0.001), 0, "bench")
    return [source.plus(m.direction, m.sign * settings.sigma) for m in new.members]


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    prepare_environment()
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    folder = prepare_model(options.model, Path(os.environ.get("POPSERVE_HOME", "var")))
    limits = {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "max_model_len": 4096}
    with tempfile.TemporaryDirectory() as scratch:
        config = BackendConfig(folder=Path(folder), scratch=Path(scratch), rows=options.rows, **limits)
        backend = VllmBackend(config)
        await backend.start(print)
        llm = AsyncLLM.from_engine_args(
            AsyncEngineArgs(model=str(folder), kv_cache_memory_bytes=2**30, disable_log_stats=True, seed=0, **limits)
        )
        try:
            models = await population(backend, options.members)
            rows = []
            for streams in options.streams:
                pairs = []
                for round_ in range(options.pairs + 1):
                    batch = prompts(backend, streams, round_)
                    first, second = plain_round(llm, batch), population_round(backend, models, batch)
                    if round_ % 2:  # whoever is second runs on the warmer machine
                        b, a = await second, await first
                    else:
                        a, b = await first, await second
                    if round_:  # the first pair warms up
                        pairs.append({"plain": a, "population": b, "ratio": b / a})
                rows.append({"streams": streams, "pairs": pairs})
                print(line(rows[-1], options), flush=True)
            return rows
        finally:
            llm.shutdown()
            await backend.close()


def line(row: dict[str, Any], options: argparse.Namespace) -> str:
    middle = {k: statistics.median(p[k] for p in row["pairs"]) for k in ("plain", "population", "ratio")}
    ratios = [p["ratio"] for p in row["pairs"]]
    return (
        f"{row['streams']:4d} streams  N = {options.members}, {options.rows} rows:  "
        f"plain {middle['plain']:6.0f} tokens/s   population {middle['population']:6.0f}   "
        f"ratio {middle['ratio']:.3f} ({min(ratios):.3f}-{max(ratios):.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5, help="measured pairs (one more warms up)")
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 1])
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--rows", type=int, default=BackendConfig.rows, help="capacity in noise rows")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = asyncio.run(measure(options))
    if options.json:
        about = {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), "time": time.time()}
        settings = {k: v for k, v in vars(options).items() if k != "json"}
        options.json.write_text(json.dumps({"about": about, "settings": settings, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
