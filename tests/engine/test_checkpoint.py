"""θ_0: read by name, never written."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from engine.checkpoint import Checkpoint


def test_lowrank_noise_is_on_the_linear_weights_and_nothing_else(checkpoint, small):
    model = AutoModelForCausalLM.from_pretrained(small, dtype=torch.float32)
    linear = {f"{n}.weight" for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)} - {"lm_head.weight"}
    assert set(checkpoint.perturbed("lowrank")) == linear
    assert len(linear) == 2 * 7
    assert checkpoint.size("lowrank") == sum(model.get_parameter(n).numel() for n in linear)


def test_gaussian_noise_is_on_every_parameter(checkpoint, small):
    model = AutoModelForCausalLM.from_pretrained(small, dtype=torch.float32)
    assert set(checkpoint.perturbed("gaussian")) == {n for n, _ in model.named_parameters()}
    assert checkpoint.size("gaussian") == sum(p.numel() for p in model.parameters())
    exact = math.sqrt(sum(float(p.detach().double().square().sum()) for p in model.parameters()))
    assert checkpoint.norm == pytest.approx(exact, rel=1e-6)


def test_weights_are_a_copy(checkpoint):
    name = checkpoint.names[0]
    first = checkpoint.weights(name)
    kept = first.copy()
    first += 1
    np.testing.assert_array_equal(checkpoint.weights(name), kept)
    assert first.dtype == np.float32


def test_bf16_is_widened_exactly_and_shards_are_one_checkpoint(tmp_path):
    a, b = torch.randn(4, 3).bfloat16(), torch.randn(2, 3)
    save_file({"a.weight": a}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"b.weight": b}, tmp_path / "model-00002-of-00002.safetensors")
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.names == list(checkpoint) == ["a.weight", "b.weight"]
    np.testing.assert_array_equal(checkpoint.weights("a.weight"), a.float().numpy())
    assert checkpoint.tensor("a.weight").dtype == torch.bfloat16
    assert checkpoint.shape("b.weight") == (2, 3)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(ValueError, match="safetensors"):
        Checkpoint(tmp_path)
