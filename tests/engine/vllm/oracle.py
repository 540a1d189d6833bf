"""The oracle: builds θ + Σ c ε explicitly (matrix products in float64) in a transformers model, apart from all code
that serves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from engine.noise import Direction, factors, gaussian


class Oracle:
    def __init__(self, folder: Path):
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.base = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        self.linear = {
            f"{n}.weight"
            for n, m in self.model.named_modules()
            if isinstance(m, torch.nn.Linear) and not n.endswith("lm_head")
        }

    def set(self, coefficients: Mapping[Direction, float], skip: str | None = None) -> None:
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                w = self.base[name].double()
                for d, c in coefficients.items():
                    if name == skip:
                        continue
                    if d.kind == "gaussian":
                        w = w + c * torch.from_numpy(gaussian(d, name, tuple(p.shape))).double()
                    elif name in self.linear:
                        b, a = factors(d, name, tuple(p.shape))
                        w = w + c * torch.from_numpy(b).double() @ torch.from_numpy(a).double().T
                p.copy_(w.float())

    def score(self, tokens: list[int]) -> np.ndarray:
        """Log-probabilities of tokens[1:]."""
        ids = torch.tensor([tokens])
        with torch.inference_mode():
            logits = self.model(ids).logits[0, :-1].double()
        return torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0].numpy()

    def greedy(self, tokens: list[int], count: int) -> list[int]:
        ids = torch.tensor([tokens])
        with torch.inference_mode():
            out = self.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count)
        return out[0, len(tokens) :].tolist()
