"""vLLM as a population: one continuous batch in which every request is its own vector of coefficients.

A merge writes numbers that later requests carry; running requests keep theirs. Weights change only in a fold.
Gaussian members, which have no low-rank form, take turns (:mod:`engine.backends.turns`).
"""

from __future__ import annotations

import asyncio
import importlib
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

import torch

from engine.backends.base import BackendConfig, Weights
from engine.backends.prompts import default_length, encode
from engine.backends.rows import Rows
from engine.backends.turns import Turns
from engine.backends.vllm_environment import prepare_environment
from engine.checkpoint import Checkpoint
from engine.interface import BadRequest, Delta, EngineError, NotReady, Sampling
from engine.master import Master
from engine.noise import Direction


class VllmBackend:
    """AsyncLLM with the population linear method; see :class:`engine.backends.base.Backend`."""

    def __init__(self, config: BackendConfig):
        self.config = config
        self.checkpoint = Checkpoint(config.folder)
        self.name = "vllm"
        self.max_model_len = 0
        self.rows = Rows(config.rows)
        self.master = Master(self.checkpoint)
        self.turns = Turns(self._load_whole)
        self._folds: list[dict[Direction, float]] = []
        self._llm: Any = None
        self._dtype = torch.float32
        self._drawing = asyncio.Lock()

    async def start(self, say: Callable[[str], None]) -> None:
        prepare_environment()
        say("loading vLLM")
        # Importing and starting vLLM takes a minute and must not stop the event loop.
        await asyncio.to_thread(importlib.import_module, "vllm.v1.engine.async_llm")
        from vllm import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM

        cpu = current_platform.is_cpu()
        eager = self.config.enforce_eager or (cpu and not shutil.which("g++") and not shutil.which("clang++"))
        args: dict[str, Any] = {
            "model": str(self.config.folder),
            "dtype": self.config.dtype,
            "quantization": "population",
            "hf_overrides": {
                "quantization_config": {
                    "quant_method": "population",
                    "columns": self.config.rows,
                    "max_tokens": self.config.max_num_batched_tokens,
                }
            },
            "worker_extension_cls": "engine.vllm_plugin.worker.PopulationWorker",
            "max_model_len": self.config.max_model_len or default_length(self.checkpoint.config),
            "max_num_seqs": self.config.max_num_seqs,
            "max_num_batched_tokens": self.config.max_num_batched_tokens,
            "enforce_eager": eager,
            "enable_prefix_caching": True,
            "scheduling_policy": "priority",
            "disable_log_stats": True,
            "seed": 0,
        }
        if cpu:
            args["kv_cache_memory_bytes"] = int(self.config.kv_cache_gib * 2**30)
        args.update(self.config.extra or {})
        say("loading the model into vLLM" if eager else "loading and compiling the model (the first time takes longer)")
        try:
            self._llm = await asyncio.to_thread(lambda: AsyncLLM.from_engine_args(AsyncEngineArgs(**args)))
            (found,) = await self._llm.collective_rpc("population_install")
        except Exception as error:
            await self.close()
            raise EngineError(f"vLLM did not start: {error}") from error
        resident = {name: tuple(shape) for name, shape in found["weights"].items()}
        wanted = {name: self.checkpoint.shape(name) for name in self.checkpoint.perturbed("lowrank")}
        if resident != wanted:
            odd = sorted(set(resident.items()) ^ set(wanted.items()))[:4]
            await self.close()
            raise EngineError(f"this model's layers do not match its checkpoint by name and shape: {odd}")
        self._dtype = getattr(torch, found["dtype"])
        self.max_model_len = args["max_model_len"]
        self.name = f"vllm ({'cpu' if cpu else 'cuda'}, {found['dtype']}{', eager' if eager else ''})"

    async def close(self) -> None:
        llm, self._llm = self._llm, None
        if llm is not None:
            await asyncio.to_thread(llm.shutdown)
        shutil.rmtree(self.config.scratch, ignore_errors=True)

    @property
    def basis(self) -> int:
        return len(self._folds)

    @property
    def alive(self) -> bool:
        return self._llm is not None and not self._llm.errored

    @property
    def running(self) -> int:
        return self.rows.running

    def encode(self, messages: list[dict[str, str]]) -> list[int]:
        return encode(self._ready().get_tokenizer(), messages)

    def _ready(self) -> Any:
        if self._llm is None:
            raise NotReady("the engine is not running")
        return self._llm

    async def draw(self, directions: list[Direction], keep: set[Direction]) -> None:
        async with self._drawing:
            wanted = [d for d in dict.fromkeys(directions) if d.kind == "lowrank"]
            self.rows.keep_only(keep | set(wanted))
            missing = self.rows.missing(wanted)
            if not missing:
                return
            llm, ticket = self._ready(), uuid.uuid4().hex
            placed = self.rows.allocate(missing)
            # One column a rank, ordered as the noise is drawn: all ranks of a direction together.
            columns = [column for d in missing for column in placed[d]]
            try:
                await llm.collective_rpc("population_draw", args=(ticket, [d.to_json() for d in missing]))
                while not all(await llm.collective_rpc("population_drawn", args=(ticket,))):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)  # drawn on a thread of another process
                await llm.collective_rpc("population_place", args=(ticket, columns))
            except BaseException:
                self.rows.forget(missing)
                raise

    def open(
        self, tokens: list[int], sampling: Sampling, weights: Weights, *, request_id: str, priority: int = 0
    ) -> VllmStream:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        if len(tokens) >= self.max_model_len:
            raise BadRequest(
                f"the conversation has {len(tokens)} tokens, the model takes {self.max_model_len - 1}: shorten it"
            )
        params = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            max_tokens=min(sampling.max_tokens, self.max_model_len - len(tokens)),
            stop=list(sampling.stop),
            seed=sampling.seed,
            structured_outputs=StructuredOutputsParams(choice=list(sampling.choice)) if sampling.choice else None,
            output_kind=RequestOutputKind.DELTA,
        )
        return VllmStream(self, tokens, params, weights, request_id, priority)

    async def score(self, tokens: list[int], weights: Weights) -> list[float]:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0, max_tokens=1, prompt_logprobs=0, output_kind=RequestOutputKind.FINAL_ONLY
        )
        stream = VllmStream(self, tokens, params, weights, f"score-{uuid.uuid4().hex}", 2)
        try:
            async for output in stream.outputs():
                scored = output.prompt_logprobs
        finally:
            await stream.close()
        return [entry[token].logprob for token, entry in zip(tokens[1:], scored[1:], strict=True)]

    async def fold(self, master: Master, coefficients: Mapping[Direction, float]) -> None:
        self.master = master
        vector = [0.0] * self.rows.columns
        for direction, c in coefficients.items():
            for column in self.rows.of(direction) if direction in self.rows else ():
                vector[column] = c
        async with self._drawing, self.turns.alone():
            await self._load(master, {}, vector)
            self._folds.append(dict(coefficients))

    async def _load_whole(self, weights: Weights | None) -> None:
        """Loads what gaussian coefficients say, or (None) the plain basis."""
        coefficients = dict(weights.coefficients) if weights else {}
        for folded in self._folds[weights.basis :] if weights else ():
            for direction, c in folded.items():
                coefficients[direction] = coefficients.get(direction, 0.0) - c
        await self._load(self.master, coefficients, None)

    async def _load(self, master: Master, coefficients: Mapping[Direction, float], vector: list[float] | None) -> None:
        self.config.scratch.mkdir(parents=True, exist_ok=True)
        file = self.config.scratch / f"weights-{uuid.uuid4().hex}.safetensors"
        try:
            await asyncio.to_thread(master.save, file, dict(coefficients), self._dtype)
            await self._ready().collective_rpc("population_load", args=(str(file), vector))
        finally:
            file.unlink(missing_ok=True)


class VllmStream:
    """A request in vLLM: holds its rows until it ends."""

    def __init__(
        self, backend: VllmBackend, tokens: list[int], params: Any, weights: Weights, request_id: str, priority: int
    ):
        from engine.vllm_plugin.mixer import KEY

        self._backend, self._tokens, self._params = backend, tokens, params
        self._id, self._priority = request_id, priority
        self._weights = weights
        self._whole = weights if any(d.kind == "gaussian" and c for d, c in weights.coefficients.items()) else None
        columns, coefficients = [], []
        if self._whole is None:
            for direction, c in weights.coefficients.items():
                for column in backend.rows.of(direction) if c else ():
                    columns.append(column)
                    coefficients.append(c)
        params.extra_args = {KEY: [weights.basis, columns, coefficients]}
        self._epoch: int | None = backend.rows.enter()
        self._outputs = self.outputs()
        self._produced = 0

    async def outputs(self) -> AsyncIterator[Any]:
        """vLLM's own outputs; closing this generator aborts the request."""
        backend = self._backend
        prompt = {"prompt_token_ids": self._tokens, "cache_salt": self._weights.key}
        async with backend.turns.turn(self._whole):
            generator = backend._ready().generate(prompt, self._params, self._id, priority=self._priority)
            try:
                async for output in generator:
                    yield output
            finally:
                await generator.aclose()

    def __aiter__(self) -> VllmStream:
        return self

    async def __anext__(self) -> Delta:
        output = await anext(self._outputs)
        (choice,) = output.outputs
        self._produced += len(choice.token_ids)
        return Delta(choice.text, self._produced, choice.finish_reason)

    async def close(self) -> None:
        # A task that was cancelled while it read has closed the generator itself.
        with suppress(RuntimeError):
            await self._outputs.aclose()
        if self._epoch is not None:
            self._backend.rows.leave(self._epoch)
            self._epoch = None
