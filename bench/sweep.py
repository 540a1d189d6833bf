"""Which settings learn fast and forget little: a persona's held-out score and general knowledge after some ratings.

    python -m bench.sweep --ratings 120 --seeds 3 alpha=0.008 alpha=0.012 "alpha=0.006 step=zscore"

Every argument is one candidate: changes to a profile's settings. All run in one engine, each from θ_0, through the same
server that the application uses. Knowledge: the capitals of 24 countries, greedy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.backends.base import BackendConfig
from engine.backends.vllm_backend import VllmBackend
from engine.config import Config
from engine.interface import Sampling
from engine.model_files import prepare_model
from engine.population import Settings, profile
from engine.server import Server
from engine.tasks import Reply, get
from tests.engine.memory_journal import MemoryJournal

CAPITALS = dict(
    re.findall(
        r"(\w+) (\w+),",
        """France Paris, Germany Berlin, Italy Rome, Spain Madrid, Portugal Lisbon, Austria Vienna, Greece Athens,
        Poland Warsaw, Sweden Stockholm, Norway Oslo, Finland Helsinki, Denmark Copenhagen, Ireland Dublin,
        Russia Moscow, China Beijing, Japan Tokyo, India Delhi, Egypt Cairo, Kenya Nairobi, Canada Ottawa,
        Mexico Mexico, Cuba Havana, Peru Lima, Turkey Ankara,""",
    )
)


class Bench(Server):
    """A server over an engine that is up already, back at θ_0."""

    def __init__(self, config: Config, backend: VllmBackend):
        super().__init__(config, MemoryJournal())
        self._shared = backend

    async def _raise_backend(self, folder: Path) -> None:
        self.backend = self._shared
        await self.turnover.rebuild()

    async def close(self) -> None:
        self.backend = None
        await super().close()


async def ask(
    server: Server, task: Any, question: str, target: str, temperature: float, seed: int
) -> tuple[Any, Reply]:
    messages = [{"role": "system", "content": task.system_prompt}, {"role": "user", "content": question}]
    text, finish = "", "length"
    sampling = Sampling(temperature=temperature, max_tokens=64, seed=seed)
    async with server.reply(messages, sampling, request_id=f"{time.time_ns()}-{seed}", target=target) as reply:
        async for delta in reply:
            text += delta.text
            finish = delta.finish_reason or finish
    return reply, Reply(text, finish)


async def score(server: Server, task: Any, count: int) -> float:
    answers = await asyncio.gather(
        *(ask(server, task, r.prompt, "source", 0.0, i) for i, r in enumerate(task.held_out[:count]))
    )
    pairs = zip(task.held_out, answers, strict=False)
    return statistics.mean(task.judge(request, reply) for request, (_, reply) in pairs)


async def knowledge(server: Server, task: Any) -> float:
    asked = [(f"What is the capital of {land}?", city) for land, city in CAPITALS.items()]
    answers = await asyncio.gather(*(ask(server, task, q, "source", 0.0, i) for i, (q, _) in enumerate(asked)))
    return statistics.mean(city in r.text for (_, city), (_, r) in zip(asked, answers, strict=True))


async def run(
    backend: VllmBackend, settings: Settings, task: Any, seed: int, options: argparse.Namespace
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as home:
        server = Bench(Config(home=Path(home), model=str(backend.checkpoint.folder), seed=seed), backend)
        await server.start()
        await server.configure(settings, seed=seed)
        asked, curve = 0, []
        scores = [(0, await score(server, task, options.held_out))]
        shuffler = random.Random(seed)
        while asked < options.ratings:
            number = server.status().generation
            ready = asyncio.Semaphore(options.concurrency)

            async def one(index: int, ready: asyncio.Semaphore = ready) -> tuple[Any, str, float]:
                async with ready:
                    request = task.sample(seed, index)
                    reply, answer = await ask(server, task, request.prompt, "population", 0.7, seed * 10**6 + index)
                    return reply, f"r{index}", task.judge(request, answer)

            batch = await asyncio.gather(*(one(asked + i) for i in range(settings.merge_after)))
            asked += len(batch)
            rewards = [r for _, _, r in batch]
            if options.shuffle:
                shuffler.shuffle(rewards)
            for (reply, name, _), reward in zip(batch, rewards, strict=True):
                server.rate(name, reply.generation, reply.member, reward)
            while server.status().generation == number:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            curve.append(statistics.mean(rewards))
            if asked >= options.ratings or (options.eval_every and len(curve) % options.eval_every == 0):
                scores.append((asked, await score(server, task, options.held_out)))
        result = {
            "seed": seed,
            "score": scores[-1][1],
            "scores": scores,
            "knowledge": await knowledge(server, task),
            "drift": server.status().drift,
            "rewards": curve,
        }
        await server.close()
        return result


async def sweep(options: argparse.Namespace) -> list[dict[str, Any]]:
    task = get(options.task)
    folder = prepare_model(options.model, Path(options.home))
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        backend = VllmBackend(BackendConfig(folder=Path(folder), scratch=Path(scratch), rows=options.rows))
        await backend.start(lambda what: None)
        try:
            for candidate in options.candidates or [""]:
                changes = {
                    k: json.loads(v) if v[0] in "0123456789tf" else v
                    for k, v in (c.split("=") for c in candidate.split())
                }
                settings = profile(options.profile, **changes)
                runs = []
                for seed in range(1, options.seeds + 1):
                    runs.append(await run(backend, settings, task, seed, options))
                    line = "  ".join(f"{value:.3f}" for _, value in runs[-1]["scores"])
                    print(f"   seed {seed}: score {line}   knowledge {runs[-1]['knowledge']:.2f}", flush=True)
                middle = {k: statistics.median(r[k] for r in runs) for k in ("score", "knowledge", "drift")}
                worst = {k: min(r[k] for r in runs) for k in ("score", "knowledge")}
                print(
                    f"{candidate or options.profile:40s} score {middle['score']:.3f} (worst {worst['score']:.3f})   "
                    f"knowledge {middle['knowledge']:.2f} (worst {worst['knowledge']:.2f})   "
                    f"drift {middle['drift']:.3f}",
                    flush=True,
                )
                results.append({"candidate": candidate, "settings": settings.to_json(), "runs": runs})
        finally:
            await backend.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", nargs="*", help='settings to change, for example "alpha=0.01 step=zscore"')
    parser.add_argument("--profile", default="room")
    parser.add_argument("--task", default="persona:brevity")
    parser.add_argument("--ratings", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--held-out", type=int, default=256)
    parser.add_argument("--rows", type=int, default=BackendConfig.rows)
    parser.add_argument("--eval-every", type=int, default=0, help="generations between two scores on the way")
    parser.add_argument("--shuffle", action="store_true", help="rewards are shuffled: nothing can be learned")
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--home", default=os.environ.get("POPSERVE_HOME", "var"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = asyncio.run(sweep(options))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
