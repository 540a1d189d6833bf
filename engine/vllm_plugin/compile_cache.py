"""Lets vLLM 0.32 load its own compilation cache on the CPU, which saves most of a second start.

There the compiled artefact is a plain function, but vLLM's loader asks it for ``finalize_loading``, a step that only
its GPU backend's artefacts have; the load fails and everything is compiled again.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


def mend() -> None:
    """Gives loaded plain functions a ``finalize_loading`` that does nothing. Idempotent."""
    load = torch.compiler.load_compiled_function
    if getattr(load, "mended", False):
        return

    @functools.wraps(load)
    def load_compiled_function(*args: Any, **kwargs: Any) -> Any:
        loaded = load(*args, **kwargs)
        compiled = getattr(getattr(loaded, "_artifacts", None), "compiled_fn", None)
        if compiled is not None and not hasattr(compiled, "finalize_loading"):
            compiled.finalize_loading = lambda config: None
        return loaded

    load_compiled_function.mended = True  # type: ignore[attr-defined]
    torch.compiler.load_compiled_function = load_compiled_function
