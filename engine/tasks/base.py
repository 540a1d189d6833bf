"""The interface between a task and whoever drives it: requests that never touch the held-out ones, and a judge."""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

HELD_OUT = 256


@dataclass(frozen=True)
class Reply:
    """What a judge sees of an answer."""

    text: str
    finish_reason: str
    """``stop``: the model ended it. ``length``: it was cut off."""


@dataclass(frozen=True)
class Prompts:
    """A set of distinct prompts, divided into held-out ones and the rest by nothing but their text."""

    held_out: tuple[str, ...]
    rest: tuple[str, ...]

    @classmethod
    def divide(cls, prompts: Sequence[str], held_out: int = HELD_OUT) -> Prompts:
        """The ``held_out`` prompts with the smallest SHA-256 are set aside. Raises ValueError for repeats."""
        ordered = sorted(prompts, key=lambda prompt: hashlib.sha256(prompt.encode()).digest())
        if len(set(ordered)) != len(ordered):
            raise ValueError("a prompt occurs twice")
        if len(ordered) <= held_out:
            raise ValueError(f"{len(ordered)} prompts leave nothing beside {held_out} held-out ones")
        return cls(tuple(ordered[:held_out]), tuple(ordered[held_out:]))

    def sample(self, seed: int, index: int) -> str:
        """Request ``index`` of the users with this seed; none repeats before all have been asked."""
        turn, place = divmod(index, len(self.rest))
        return self.rest[_order(len(self.rest), seed, turn)[place]]


@functools.lru_cache(maxsize=8)
def _order(count: int, seed: int, turn: int) -> tuple[int, ...]:
    order = list(range(count))
    random.Random(f"{seed}/{turn}").shuffle(order)
    return tuple(order)


@dataclass(frozen=True)
class Task:
    """Users of one kind: what they ask and which replies they like."""

    name: str
    likes: str
    """The taste in words, as a continuation of "a reply is good when it ..."."""
    prompts: Prompts
    judge: Callable[[Reply], float]
    """The reward of a reply, 0..1; 0 and 1 are given as thumbs."""
    system_prompt: str
    """The system prompt that it was measured with."""

    @property
    def held_out(self) -> tuple[str, ...]:
        """Prompts for measurements; :meth:`sample` never returns one of them."""
        return self.prompts.held_out

    def sample(self, seed: int, index: int) -> str:
        """The ``index``-th request of the users with this seed."""
        return self.prompts.sample(seed, index)
