"""θ_0: the checkpoint folder one starts from, mapped and never written."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from engine.noise import Kind

NOT_LINEAR = ("embed", "lm_head", "wte", "wpe", "norm", "rotary")
"""Name parts of matrices that are no linear layer inside the network: low-rank noise leaves them alone."""


class Checkpoint:
    """Parameters by checkpoint name, read lazily. Raises ValueError when the folder holds no safetensors."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self._files = sorted(self.folder.glob("*.safetensors"))
        if not self._files:
            raise ValueError(f"{self.folder} holds no *.safetensors: give a Hugging Face model folder")
        self._open = [safe_open(f, framework="pt") for f in self._files]
        self._where = {name: handle for handle in self._open for name in handle.keys()}  # noqa: SIM118

    @property
    def names(self) -> list[str]:
        """All parameter names, sorted."""
        return sorted(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._where[name].get_slice(name).get_shape())

    def tensor(self, name: str) -> torch.Tensor:
        """The parameter as stored."""
        return self._where[name].get_tensor(name)

    def weights(self, name: str) -> np.ndarray:
        """The parameter as a float32 array of its own (a copy that may be written)."""
        return self.tensor(name).to(torch.float32, copy=True).numpy()

    def perturbed(self, kind: Kind) -> list[str]:
        """Names under noise, sorted: linear weights for low-rank noise, every parameter for gaussian noise."""
        if kind == "gaussian":
            return self.names
        return [
            name
            for name in self.names
            if name.endswith(".weight") and len(self.shape(name)) == 2 and not any(part in name for part in NOT_LINEAR)
        ]

    def size(self, kind: Kind) -> int:
        """Number of weights under noise."""
        return sum(math.prod(self.shape(name)) for name in self.perturbed(kind))

    @cached_property
    def norm(self) -> float:
        """‖θ_0‖ over all parameters."""
        squares = (self.tensor(n).to(torch.float32).square().sum(dtype=torch.float64) for n in self.names)
        return math.sqrt(sum(map(float, squares)))

    @cached_property
    def config(self) -> dict:
        return json.loads((self.folder / "config.json").read_text())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)
