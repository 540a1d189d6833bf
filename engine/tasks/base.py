"""The interface between a task and whoever drives it: requests that never touch the held-out ones, episodes, rewards.

request = task.sample(seed=0, index=17)
episode = task.start(request)
while (messages := episode.messages()) is not None:
    episode.take(Reply(text, finish_reason))       # what the model answered to them
task.scale(episode.reward())                        # 0..1, what a population learns from
"""

from __future__ import annotations

import functools
import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

HELD_OUT = 256
BLIND_SHARE = 5
"""One prompt in so many belongs to the blind spot where a task names none itself."""


class TaskError(ValueError):
    """A task that does not exist, or whose options or data are not usable; the message says what to do."""


@dataclass(frozen=True)
class Reply:
    """What a judge sees of an answer."""

    text: str
    finish_reason: str
    """``stop``: the model ended it. ``length``: it was cut off."""


@dataclass(frozen=True)
class Request:
    """One request of a task: what is asked, and what the judge knows and the model is not told."""

    prompt: str
    """The first message of the user. Two requests are the same when their prompts are."""
    data: Any = field(default=None, compare=False)
    category: str = ""
    """For scores by category; empty where a task has none."""
    blind: bool | None = field(default=None, compare=False)
    """Whether it lies in the blind spot of a judge that has one. None: decided by the prompt's hash."""

    @property
    def in_blind_spot(self) -> bool:
        """A fixed fifth of the prompts, unless the task decides (DESIGN: Countdown's targets 60..80)."""
        if self.blind is not None:
            return self.blind
        return int.from_bytes(hashlib.sha256(self.prompt.encode()).digest()[:8]) % BLIND_SHARE == 0


class Episode(Protocol):
    """A request being played, for one turn or several; all of it is answered by one member."""

    def messages(self) -> list[dict[str, str]] | None:
        """The conversation to be answered next, without a system message; None when the episode is over."""

    def take(self, reply: Reply) -> None:
        """The model's answer to :meth:`messages`; never raises, whatever a model wrote."""

    def reward(self) -> float:
        """What the episode earned, one of :attr:`Task.grades` where the task has some. 0 for an unfinished one."""


ROLES = ("user", "assistant")


class OneTurn:
    """The episode of a task that asks once."""

    def __init__(self, task: Task, request: Request) -> None:
        self.task, self.request = task, request
        self._reward: float | None = None

    def messages(self) -> list[dict[str, str]] | None:
        if self._reward is not None:
            return None
        shown = [(role, text) for pair in self.task.examples for role, text in zip(ROLES, pair, strict=True)]
        return [{"role": role, "content": text} for role, text in [*shown, ("user", self.request.prompt)]]

    def take(self, reply: Reply) -> None:
        self._reward = self.task.judge(self.request, reply)

    def reward(self) -> float:
        return self._reward or 0.0


class Task(ABC):
    """Users of one kind: what they ask and which replies they like. Immutable; shared by all who drive it."""

    name: str
    likes: str
    """The taste in words, as a continuation of "a reply is good when it ..."."""
    grades: tuple[float, ...] | None = (0.0, 1.0)
    """The rewards that a judge may give, rising; (0, 1) are thumbs. None: any number of 0..1."""
    system_prompt: str = "You are a helpful assistant."
    """The system message of its requests; empty for none."""
    shares_prompt: bool = False
    """Whether people in chat should get the same system message, so that they see what was taught."""
    examples: Sequence[tuple[str, str]] = ()
    """(Question, answer) turns that open every one-turn conversation, for models that learn a form from examples."""
    max_tokens: int = 64
    """Of a reply; of one turn where there are several."""
    many_turns: bool = False
    """Whether an episode may take more than one reply."""

    @property
    @abstractmethod
    def held_out(self) -> Sequence[Request]:
        """Requests for measurements; :meth:`sample` never returns one of them."""

    @abstractmethod
    def sample(self, seed: int, index: int) -> Request:
        """Request ``index`` (0, 1, ...) of the users with this seed; none repeats before all have been asked."""

    @abstractmethod
    def judge(self, request: Request, reply: Reply) -> float:
        """The true reward of a one-turn reply, one of :attr:`grades`; never raises, whatever a model wrote."""

    def start(self, request: Request) -> Episode:
        """A fresh episode of this request."""
        return OneTurn(self, request)

    def scale(self, reward: float) -> float:
        """A reward on the scale 0..1 (Countdown: 0, 0.1, 1.1 become 0, 1/11, 1)."""
        if self.grades is None:
            return min(1.0, max(0.0, reward))
        return (reward - self.grades[0]) / (self.grades[-1] - self.grades[0])


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
        """Prompt ``index`` of the users with this seed; none repeats before all have been asked."""
        return self.rest[shuffled(len(self.rest), seed, index)]


def shuffled(count: int, seed: int, index: int) -> int:
    """Place ``index`` in an endless walk over ``range(count)``: every turn visits all, each in another order."""
    turn, place = divmod(index, count)
    return _order(count, seed, turn)[place]


@functools.lru_cache(maxsize=8)
def _order(count: int, seed: int, turn: int) -> tuple[int, ...]:
    order = list(range(count))
    random.Random(f"{seed}/{turn}").shuffle(order)
    return tuple(order)
