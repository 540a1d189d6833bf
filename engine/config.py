"""How the engine is set up, and which backend that makes."""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from engine.interface import EngineError

if TYPE_CHECKING:
    from engine.backends.base import Backend

SHARED_MEMORY = Path("/dev/shm")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Config:
    """Settings of one engine; None leaves a limit to the backend."""

    home: Path = Path("var")
    """Where the model, the snapshots and weights on their way are kept."""
    model: str = "embedded"
    """``embedded``, a local Hugging Face folder, or a hub id."""
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    profile: str = "room"
    seed: int | None = None
    """Entropy of the populations; None draws it anew at every start."""
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    rows: int | None = None
    enforce_eager: bool = False
    kv_cache_gib: float | None = None


def choose(engine: str) -> str:
    """``vllm`` or ``transformers``; ``auto`` takes vLLM where it imports. Slow: tries the import.

    Raises EngineError when what was asked for cannot be had.
    """
    if engine == "transformers":
        return engine
    from engine.backends.vllm_environment import prepare_environment

    prepare_environment()
    try:
        importlib.import_module("vllm.v1.engine.async_llm")
    except Exception as error:  # a broken installation fails in many ways
        if engine == "vllm":
            raise EngineError(
                f"vLLM cannot be imported here ({error}): install it, or set POPSERVE_ENGINE=transformers"
            ) from error
        log.warning("vLLM cannot be imported (%s): serving with transformers, which is slower", error)
        return "transformers"
    return "vllm"


def scratch_candidates(home: Path) -> list[Path]:
    """Where :func:`scratch_folder` may lie, best first."""
    name = f"popserve-{hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]}"
    return [SHARED_MEMORY / name, home / name]


def scratch_folder(home: Path, size: int) -> Path:
    """An empty folder of this home's own for ``size`` bytes of weights on their way to the engine, which live for a
    second: in memory where there is room. What a killed server left there goes. Raises EngineError."""
    for folder in scratch_candidates(home):
        if not folder.parent.exists() or shutil.disk_usage(folder.parent).free < size:
            continue
        if folder.is_symlink() or (folder.exists() and folder.stat().st_uid != os.getuid()):
            continue  # somebody else's
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        return folder
    raise EngineError(
        f"neither {SHARED_MEMORY} nor {home} has room for {size / 2**20:.0f} MiB of temporary weights: free some space"
    )


def make_backend(config: Config, folder: Path) -> Backend:
    """The backend for a checkpoint folder, not started yet. Slow: imports torch."""
    from engine.backends.base import BackendConfig

    # Twice: in float32 the weights are twice as large as in the usual checkpoint.
    scratch = scratch_folder(config.home, 2 * sum(f.stat().st_size for f in folder.glob("*.safetensors")))
    limits = {
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "rows": config.rows,
        "kv_cache_gib": config.kv_cache_gib,
    }
    settings = BackendConfig(
        folder=folder,
        scratch=scratch,
        dtype=config.dtype,
        max_model_len=config.max_model_len,
        enforce_eager=config.enforce_eager,
        **{name: value for name, value in limits.items() if value is not None},
    )
    if choose(config.engine) == "vllm":
        from engine.backends.vllm_backend import VllmBackend

        return VllmBackend(settings)
    from engine.backends.transformers_backend import TransformersBackend

    return TransformersBackend(settings)


def fetch(config: Config) -> Path:
    """The checkpoint's folder: converted, found, or fetched from the hub. Slow. Raises EngineError."""
    from engine.model_files import ModelError, prepare_model

    try:
        found = prepare_model(config.model, config.home)
    except ModelError as error:
        raise EngineError(str(error)) from error
    if isinstance(found, Path):
        return found
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(snapshot_download(found, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]))
    except (OSError, ValueError, HfHubHTTPError) as error:
        raise EngineError(f"the model {found!r} cannot be fetched: {error}. Give a local folder instead.") from error
