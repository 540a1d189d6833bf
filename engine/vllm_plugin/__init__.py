"""What runs inside vLLM's processes: a linear method whose layers hold noise rows, and the worker's side of it.

vLLM loads :func:`register` in every process through the entry point group ``vllm.general_plugins``.
"""


def register() -> None:
    """Makes ``quantization="population"`` known; ties this process to its parent; mends the compilation cache."""
    from engine.vllm_plugin import linear  # noqa: F401  (registers on import)
    from engine.vllm_plugin.compile_cache import mend
    from engine.vllm_plugin.lifeline import die_with_parent

    die_with_parent()
    mend()
