"""One real vLLM engine (CPU, float32) for the whole session, small enough to queue, chunk and preempt."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import pytest_asyncio

from engine.backends.base import BackendConfig
from engine.backends.vllm_backend import VllmBackend
from engine.model_files import prepare_model
from tests.engine.vllm.oracle import Oracle

MAX_NUM_SEQS = 6


@pytest.fixture(scope="session")
def folder() -> Path:
    return prepare_model("embedded", Path(os.environ.get("POPSERVE_HOME", "var")))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def backend(folder: Path, tmp_path_factory: pytest.TempPathFactory):
    config = BackendConfig(
        folder=folder,
        scratch=tmp_path_factory.mktemp("weights"),
        dtype="float32",
        max_model_len=512,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=128,
        rows=16,
        kv_cache_gib=0.045,
    )
    backend = VllmBackend(config)
    try:
        await backend.start(lambda what: None)
        yield backend
    finally:
        await backend.close()


@pytest.fixture(scope="session")
def oracle(folder: Path) -> Oracle:
    return Oracle(folder)
