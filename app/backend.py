"""The real engine, made from the settings."""

from __future__ import annotations

from app.settings import AppSettings
from engine.interface import Journal, PopulationServer


def real_server(settings: AppSettings, journal: Journal) -> PopulationServer:
    """A server that is not started yet. The engine's libraries are imported when it starts, so that the page answers
    at once."""
    from engine.server import Config, Server

    return Server(
        Config(
            home=settings.home,
            model=settings.model,
            engine=settings.engine,
            profile=settings.profile,
            seed=settings.seed,
            dtype=settings.dtype,
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            rows=settings.rows,
            enforce_eager=settings.enforce_eager,
            kv_cache_gib=settings.kv_cache_gib,
        ),
        journal,
    )
