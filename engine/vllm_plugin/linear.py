"""A linear layer that serves many models at once: y = x Wᵀ + ((x A) ∘ M) B.

Columns of A (in × C) and rows of B (C × out) hold low-rank noise, one column a rank of a direction; M (tokens × C)
holds, for every token of the step, how much of each its request is served with. Zeros serve the source. Registered
out of tree as the quantisation method ``population``, so that vLLM builds it into any model and torch.compile traces
it; it needs no adapters, no slots and no gather.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig

masks: dict[int, torch.Tensor] = {}
"""M by number of packed parts, shared by all layers of the process: (max tokens × parts · C)."""


class PopulationLinearMethod(UnquantizedLinearMethod):
    """The unquantised method plus noise rows. A packed layer (q/k/v, gate/up) has its own C columns for each part;
    its B is block-wise, part by part."""

    def __init__(self, columns: int, max_tokens: int):
        super().__init__()
        self.columns = columns
        self.max_tokens = max_tokens

    def create_weights(
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra: Any,
    ) -> None:
        super().create_weights(
            layer, input_size_per_partition, output_partition_sizes, input_size, output_size, params_dtype, **extra
        )
        parts = len(output_partition_sizes)
        width = parts * self.columns
        if parts not in masks:
            masks[parts] = torch.zeros(self.max_tokens, width, dtype=params_dtype)
        layer.noise_sizes = list(output_partition_sizes)
        layer.noise_a = torch.zeros(input_size_per_partition, width, dtype=params_dtype)
        layer.noise_b = torch.zeros(width, sum(output_partition_sizes), dtype=params_dtype)
        layer.noise_m = masks[parts]

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        y = super().apply(layer, x, bias)
        s = torch.mm(x, layer.noise_a) * layer.noise_m[: x.shape[0]]
        return torch.addmm(y, s, layer.noise_b)


@register_quantization_config("population")
class PopulationConfig(QuantizationConfig):
    """Carries the capacity (``columns``, ``max_tokens``) from the engine's arguments to the layers."""

    def __init__(self, columns: int, max_tokens: int):
        super().__init__()
        self.columns = columns
        self.max_tokens = max_tokens

    @classmethod
    def get_name(cls) -> str:
        return "population"

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    def get_min_capability(cls) -> int:
        return 0

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> PopulationConfig:
        return cls(int(config["columns"]), int(config["max_tokens"]))

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> PopulationLinearMethod | None:
        if isinstance(layer, LinearBase):
            return PopulationLinearMethod(self.columns, self.max_tokens)
        return None
