"""Which settings learn fast and forget little: a persona's held-out score and general knowledge after some ratings.

    python -m bench.sweep --ratings 120 --seeds 3 alpha=0.008 alpha=0.012 "alpha=0.006 step=zscore"

    python -m bench.sweep --profile traffic --ratings 768 --eval-every 3 regime=fixed regime=fresh regime=hetero
    python -m bench.sweep --task persona:lists judge=stingy:0.5 judge=random:0.6,@10,perfect

Every argument is one candidate: changes to a profile's settings, and perhaps the data regime and how the judge errs (a
schedule with commas, generations counted from 0). All run in one engine, each from θ_0, through the same server that
the application uses. Knowledge: the capitals of 24 countries, greedy.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import random
import re
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.backends.base import BackendConfig
from engine.backends.vllm_backend import VllmBackend
from engine.interface import Sampling
from engine.judges.errors import PERFECT, JudgeError
from engine.judges.schedule import Schedule, parse_schedule
from engine.model_files import prepare_model
from engine.population import Settings, profile
from engine.regimes import REGIMES, Ask, Regime, plan
from engine.server import Server
from engine.tasks import Reply, Request, Task, get
from tests.engine.shared_server import SharedServer

CAPITALS = dict(
    re.findall(
        r"(\w+) (\w+),",
        """France Paris, Germany Berlin, Italy Rome, Spain Madrid, Portugal Lisbon, Austria Vienna, Greece Athens,
        Poland Warsaw, Sweden Stockholm, Norway Oslo, Finland Helsinki, Denmark Copenhagen, Ireland Dublin,
        Russia Moscow, China Beijing, Japan Tokyo, India Delhi, Egypt Cairo, Kenya Nairobi, Canada Ottawa,
        Mexico Mexico, Cuba Havana, Peru Lima, Turkey Ankara,""",
    )
)


@dataclass(frozen=True)
class Candidate:
    """One condition to be compared with others."""

    text: str
    settings: Settings
    regime: Regime
    judge: Schedule

    @classmethod
    def parse(cls, text: str, profile_name: str) -> Candidate:
        """``name=value`` words. Raises ValueError for what there is not."""
        words = dict(word.split("=", 1) for word in text.split())
        regime, judge = words.pop("regime", "hetero+sample"), words.pop("judge", "perfect")
        if regime not in REGIMES:
            raise ValueError(f"unknown regime {regime}: choose from {', '.join(REGIMES)}")
        changes = {k: json.loads(v) if v[0] in "0123456789tf" else v for k, v in words.items()}
        return cls(text, profile(profile_name, **changes), regime, parse_schedule(judge))


async def play(
    server: Server, task: Task, request: Request, target: str, temperature: float, seed: int, member: int | None = None
) -> tuple[Any, str, float]:
    """Plays one episode: (its last reply, the text, the reward on 0..1)."""
    episode, text, reply = task.start(request), "", None
    while (messages := episode.messages()) is not None:
        system = [{"role": "system", "content": task.system_prompt}] if task.system_prompt else []
        text, finish = "", "length"
        sampling = Sampling(temperature=temperature, max_tokens=task.max_tokens, seed=seed)
        name = f"{time.time_ns()}-{seed}"
        entered = server.reply(system + messages, sampling, request_id=name, target=target, member=member)
        async with entered as opened:
            async for delta in opened:
                text += delta.text
                finish = delta.finish_reason or finish
        reply, member = opened, opened.member
        episode.take(Reply(text, finish))
    return reply, text, task.scale(episode.reward())


async def score(server: Server, task: Task, count: int) -> float:
    """Of the source model, greedy, on held-out requests."""
    asked = task.held_out[:count]
    answers = await asyncio.gather(*(play(server, task, r, "source", 0.0, i) for i, r in enumerate(asked)))
    return statistics.mean(reward for _, _, reward in answers)


async def knowledge(server: Server, task: Task) -> float:
    """The share of capitals that the source model names under the task's system prompt."""
    shown = copy.copy(get("persona:brevity"))
    shown.system_prompt = task.system_prompt
    asked = [(Request(f"What is the capital of {land}?"), city) for land, city in CAPITALS.items()]
    answers = await asyncio.gather(*(play(server, shown, r, "source", 0.0, i) for i, (r, _) in enumerate(asked)))
    return statistics.mean(city in text for (_, city), (_, text, _) in zip(asked, answers, strict=True))


async def run(
    backend: VllmBackend, candidate: Candidate, task: Task, seed: int, options: argparse.Namespace
) -> dict[str, Any]:
    settings = candidate.settings
    with tempfile.TemporaryDirectory() as home:
        server = SharedServer(backend, Path(home), seed)
        await server.start()
        await server.configure(settings, seed=seed)
        first = server.status().generation
        rated, index, truths, observed = 0, 0, [], []
        scores = [(0, await score(server, task, options.held_out))]
        shuffler = random.Random(seed)
        while rated < options.ratings:
            number = server.status().generation
            error = candidate.judge.at(number - first) or PERFECT
            ready = asyncio.Semaphore(options.concurrency)

            async def one(ask: Ask, error: JudgeError = error, ready: asyncio.Semaphore = ready) -> tuple[Any, ...]:
                async with ready:
                    request = task.sample(seed, ask.index)
                    temperature = 0.7 if ask.temperature is None else ask.temperature
                    place = seed * 10**6 + ask.index
                    reply, _, truth = await play(server, task, request, "population", temperature, place, ask.member)
                    key = f"{reply.generation}/{reply.member}/{ask.index}"
                    said = _observed(error, task, truth, request, key, seed)
                    return reply, key, truth, said

            asks = plan(candidate.regime, settings.members, settings.merge_after, index)
            batch = await asyncio.gather(*(one(ask) for ask in asks))
            rated, index = rated + len(batch), max(index, *(ask.index + 1 for ask in asks))
            rewards = [said for _, _, _, said in batch]
            if options.shuffle:
                shuffler.shuffle(rewards)
            for (reply, name, _, _), reward in zip(batch, rewards, strict=True):
                server.rate(name, reply.generation, reply.member, reward)
            while server.status().generation == number:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            truths.append(statistics.mean(truth for _, _, truth, _ in batch))
            observed.append(statistics.mean(rewards))
            if rated >= options.ratings or (options.eval_every and len(truths) % options.eval_every == 0):
                scores.append((rated, await score(server, task, options.held_out)))
        result = {
            "seed": seed,
            "score": scores[-1][1],
            "scores": scores,
            "knowledge": await knowledge(server, task),
            "drift": server.status().drift,
            "rewards": truths,
            "observed": observed,
        }
        await server.close()
        return result


def _observed(error: JudgeError, task: Task, truth: float, request: Request, key: str, seed: int) -> float:
    """What the judge says of a reward on 0..1, on the same scale."""
    grades = task.grades and tuple(task.scale(grade) for grade in task.grades)
    return error.observe(truth, grades=grades, blind=request.in_blind_spot, key=key, seed=seed)


async def sweep(options: argparse.Namespace) -> list[dict[str, Any]]:
    task = get(options.task, json.loads(options.options))
    candidates = [Candidate.parse(text, options.profile) for text in options.candidates or [""]]
    folder = prepare_model(options.model, Path(options.home))
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        backend = VllmBackend(BackendConfig(folder=Path(folder), scratch=Path(scratch), rows=options.rows))
        await backend.start(lambda what: None)
        try:
            for candidate in candidates:
                runs: list[dict[str, Any]] = []
                for seed in range(1, options.seeds + 1):
                    runs.append(await run(backend, candidate, task, seed, options))
                    line = "  ".join(f"{value:.3f}" for _, value in runs[-1]["scores"])
                    print(f"   seed {seed}: score {line}   knowledge {runs[-1]['knowledge']:.2f}", flush=True)
                middle = {k: statistics.median(r[k] for r in runs) for k in ("score", "knowledge", "drift")}
                worst = {k: min(r[k] for r in runs) for k in ("score", "knowledge")}
                print(
                    f"{candidate.text or options.profile:40s} "
                    f"score {middle['score']:.3f} (worst {worst['score']:.3f})   "
                    f"knowledge {middle['knowledge']:.2f} (worst {worst['knowledge']:.2f})   "
                    f"drift {middle['drift']:.3f}",
                    flush=True,
                )
                results.append({"candidate": candidate.text, "settings": candidate.settings.to_json(), "runs": runs})
        finally:
            await backend.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("candidates", nargs="*", help='settings to change, for example "alpha=0.01 step=zscore"')
    parser.add_argument("--profile", default="room")
    parser.add_argument("--task", default="persona:brevity")
    parser.add_argument("--options", default="{}", help="of the task, as JSON")
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
