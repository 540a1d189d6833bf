"""Seeded requests on the CPU.

When a prompt takes several steps, vLLM 0.32 draws a token after each of them, throws it away, and winds the request's
generator back by an offset. CPU generators have none, so a seeded request with a long prompt would end the engine.
"""

from __future__ import annotations

from typing import Any

import torch


class Rewindable(torch.Generator):
    """A CPU generator that winds back to its state before the present step."""

    def remember(self) -> None:
        self._before = self.get_state()

    def get_offset(self) -> int:
        return 0

    def set_offset(self, offset: int) -> None:
        self.set_state(self._before)


def mend(runner: Any, requests: int) -> None:
    """After a step of ``requests`` requests is prepared, before it is run: generators whose draw will be thrown away
    remember where they are."""
    batch = runner.input_batch
    if not batch.generators:
        return
    thrown_away = runner.discard_request_mask.np[:requests]
    for index, generator in list(batch.generators.items()):
        if index >= requests or not thrown_away[index]:
            continue
        if not isinstance(generator, Rewindable):
            known, generator = generator, Rewindable(device="cpu")
            generator.set_state(known.get_state())
            batch.generators[index] = generator
            runner.requests[batch.req_ids[index]].generator = generator
        generator.remember()
