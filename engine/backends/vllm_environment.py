"""What vLLM reads from the environment."""

from __future__ import annotations

import os


def prepare_environment() -> None:
    """Set before vLLM is imported; a value that is already set wins."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    defaults = {
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)) or "auto",
        # The coefficient hook sits in the V1 runner; V2 prepares a step elsewhere.
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_PLUGINS": "popserve",
        "POPSERVE_LIFELINE": "1",
    }
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
