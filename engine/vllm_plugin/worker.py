"""The worker's side: noise is drawn here, coefficients are written before every step, folded weights are loaded.

vLLM mixes :class:`PopulationWorker` into its worker class (``worker_extension_cls``); the host calls its methods by
``collective_rpc``, between two steps of the engine.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from engine.noise import Direction, factors
from engine.vllm_plugin import seeds
from engine.vllm_plugin.linear import masks
from engine.vllm_plugin.mixer import Mixer


class PopulationWorker:
    """Mixed into ``vllm.v1.worker.gpu_worker.Worker`` (the CPU's is a subclass)."""

    model_runner: Any

    def population_install(self) -> dict[str, Any]:
        """Hooks the model runner; answers {weights: {checkpoint name: [out, in]}, columns, dtype}.

        Raises RuntimeError for tensor parallelism, which this version does not shard noise for.
        """
        self._parts = list(self._find_parts())
        columns = next(iter(masks.values())).shape[1] // next(iter(masks))
        self._mixer = Mixer(columns, masks)
        self._drawing: dict[str, Future] = {}
        self._pool = ThreadPoolExecutor(1, "noise")
        runner, prepare = self.model_runner, self.model_runner._prepare_inputs

        def prepare_inputs(scheduler_output: Any, num_scheduled_tokens: np.ndarray, *args: Any, **kwargs: Any) -> Any:
            ids = runner.input_batch.req_ids[: len(num_scheduled_tokens)]
            self._mixer.write(ids, num_scheduled_tokens, runner.requests)
            prepared = prepare(scheduler_output, num_scheduled_tokens, *args, **kwargs)
            if runner.device.type == "cpu":
                seeds.mend(runner, len(ids))
            return prepared

        runner._prepare_inputs = prepare_inputs
        return {
            "weights": {name: [size, layer.noise_a.shape[0]] for name, layer, _, _, size in self._parts},
            "columns": columns,
            "dtype": str(self._parts[0][1].noise_a.dtype).removeprefix("torch."),
        }

    def _find_parts(self) -> Any:
        """(checkpoint name, layer, part, output offset, output size) of every weight under noise."""
        model = self.model_runner.model
        if self.parallel_config.tensor_parallel_size > 1:
            raise RuntimeError("population serving does not shard noise yet: use tensor_parallel_size 1")
        packed = getattr(model, "packed_modules_mapping", {})
        for name, layer in model.named_modules():
            if not hasattr(layer, "noise_a"):
                continue
            prefix, _, last = name.rpartition(".")
            offset = 0
            for part, (sub, size) in enumerate(zip(packed.get(last, [last]), layer.noise_sizes, strict=True)):
                yield f"{prefix}.{sub}.weight", layer, part, offset, size
                offset += size

    def population_draw(self, ticket: str, directions: list[list]) -> None:
        """Begins to draw noise on another thread; the engine goes on meanwhile."""
        self._drawing[ticket] = self._pool.submit(self._draw, [Direction.from_json(d) for d in directions])

    def _draw(self, directions: list[Direction]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        drawn = []
        for name, layer, _, _, size in self._parts:
            pairs = [factors(d, name, (size, layer.noise_a.shape[0])) for d in directions]
            dtype = layer.noise_a.dtype
            a = torch.from_numpy(np.concatenate([a for _, a in pairs], axis=1)).to(dtype)
            b = torch.from_numpy(np.concatenate([b.T for b, _ in pairs], axis=0)).to(dtype)
            drawn.append((a, b))
        return drawn

    def population_drawn(self, ticket: str) -> bool:
        """Whether the noise of a ticket is ready to be placed. Raises what drawing raised."""
        future = self._drawing[ticket]
        return future.done() and future.result() is not None

    def population_place(self, ticket: str, columns: list[int]) -> None:
        """Copies drawn noise into columns that no request refers to."""
        where = torch.tensor(columns)
        capacity = self._mixer.columns
        drawn = self._drawing.pop(ticket).result()
        for (a, b), (_, layer, part, offset, size) in zip(drawn, self._parts, strict=True):
            at = (where + part * capacity).to(layer.noise_a.device)
            layer.noise_a[:, at] = a.to(layer.noise_a.device)
            layer.noise_b[at, offset : offset + size] = b.to(layer.noise_b.device)

    def population_load(self, file: str, coefficients: list[float] | None) -> None:
        """Loads weights by checkpoint name. With ``coefficients`` (C,) it is a fold: what running requests are
        served with changes its basis, so that their output does not change."""
        with safe_open(file, framework="pt") as f:
            self.model_runner.reload_weights(weights_iterator=((n, f.get_tensor(n)) for n in f.keys()))  # noqa: SIM118
        self._tie_head()
        if coefficients is not None:
            self._mixer.fold(np.asarray(coefficients, dtype=np.float32))

    def _tie_head(self) -> None:
        """A head that shares the embedding's weights has a packed copy of them, which a reload leaves behind."""
        model = self.model_runner.model
        head = getattr(model, "lm_head", None)
        if head is not None and getattr(model.config, "tie_word_embeddings", False):
            head.quant_method.process_weights_after_loading(head)
