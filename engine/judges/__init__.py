"""Who says how good a reply was when no task knows: a reward model, a language model with a rubric, people's actions.

judge = await open_judge("llm", {"url": "http://localhost:8000/v1", "model": "some-model", "rubric": "Is it polite?"})
verdict = await judge.verdict([{"role": "user", "content": "Hello"}], "Hello! How can I help?")
await judge.close()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

KINDS = ("llm", "reward_model")


class JudgeFault(ValueError):
    """A judge that cannot be opened as it was asked for; the message says what to do."""


@dataclass(frozen=True)
class Verdict:
    """What a judge says of one reply."""

    score: float | None
    """0..1. None: it could not judge; the reply stays unrated."""
    why: str = ""
    """The judge's reason, or why there is no score. Where a model wrote it, it is not to be trusted."""
    cost: float = 0.0
    """In the currency of the price that the judge was given; 0 where it has none."""


class Judge(Protocol):
    """Scores replies; may be asked several things at once."""

    async def verdict(self, prompt: list[dict[str, str]], reply: str) -> Verdict:
        """Judges ``reply`` to the conversation ``prompt`` (role, content). Never raises, whatever anybody wrote."""

    async def close(self) -> None:
        """Frees what it holds; verdicts asked for later have no score."""


async def open_judge(kind: str, options: Mapping[str, Any]) -> Judge:
    """The judge of that kind, one of :data:`KINDS`; its module documents the options. Raises JudgeFault."""
    if kind == "llm":
        from engine.judges import llm

        return llm.make(options)
    if kind == "reward_model":
        from engine.judges import reward_model

        return await reward_model.RewardModel.open(options)
    raise JudgeFault(f"unknown kind of judge {kind[:80]!r}: choose from {', '.join(KINDS)}")


def number(options: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    """Option ``name`` within ``low..high``. Raises JudgeFault."""
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise JudgeFault(f"{name} must be a number from {low:g} to {high:g}, not {str(value)[:40]!r}")
    return value


def known(options: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Raises JudgeFault for an option that is not among ``names``."""
    for name in options:
        if name not in names:
            raise JudgeFault(f"unknown option {str(name)[:40]!r}: choose from {', '.join(names)}")


def writable(text: str) -> str:
    """``text`` with every lone surrogate replaced, so that it can be encoded."""
    return text.encode("utf-8", "replace").decode("utf-8")
