"""Checkpoints that the engine's fast tests share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.checkpoint import Checkpoint
from engine.model_files import prepare_model


@pytest.fixture(scope="session")
def embedded() -> Path:
    """The embedded model's folder."""
    return Path(prepare_model("embedded", Path(os.environ.get("POPSERVE_HOME", "var"))))


def random_llama(folder: Path, vocabulary: int, **config: Any) -> Path:
    """A random Llama (2 layers, 64 wide, float32) in ``folder``, without a tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        **config,
    )
    torch.manual_seed(7)
    LlamaForCausalLM(shape).float().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with few words: weights only."""
    return random_llama(tmp_path_factory.mktemp("small") / "small-llama", 211)


@pytest.fixture(scope="session")
def tiny(embedded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with the embedded model's tokenizer: a whole model folder."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(embedded)
    folder = tmp_path_factory.mktemp("tiny") / "tiny-llama"
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    random_llama(folder, len(tokenizer), **ends)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def checkpoint(small: Path) -> Checkpoint:
    return Checkpoint(small)


@pytest_asyncio.fixture
async def world(server_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Servers on the scripted backend, see :mod:`tests.engine.harness`."""
    from tests.engine.harness import World

    world = World(server_folder, tmp_path, monkeypatch)
    yield world
    await world.close()


@pytest.fixture(scope="session")
def server_folder(small: Path) -> Path:
    """The small model passes for a whole one: the scripted backend reads no text."""
    (small / "tokenizer.json").write_text("{}")
    return small
