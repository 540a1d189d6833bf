"""Who is served: the settings of a population, its members, and the present generation. Pure data, no effects."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from engine.noise import NOISE_VERSION, Direction, Kind

Step = Literal["zscore", "shrunk"]


@dataclass(frozen=True)
class Settings:
    """How a population is drawn and merged; every limit is checked here. Raises ValueError with what to do."""

    profile: str = "room"
    members: int = 8
    """N, the population size."""
    antithetic: bool = True
    """Members come in pairs (+ε, −ε)."""
    kind: Kind = "lowrank"
    rank: int = 1
    sigma: float = 0.0075
    """σ: a member is θ + σ ε. Not comparable between noise kinds and ranks."""
    alpha: float = 0.016
    """α of θ ← θ + (α / N) Σ Z_i ε_i; it already holds the 1/σ."""
    decay: float = 0.02
    """λ of anchored weight decay, a merge."""
    merge_after: int = 8
    """Ratings that make a merge due."""
    max_staleness: int = 4
    """Ratings this many generations late are still credited."""
    step: Step = "shrunk"
    """``zscore``: the plain step. ``shrunk``: α times the root of the running signal share (:mod:`engine.luck`)."""

    def __post_init__(self) -> None:
        def check(ok: bool, message: str) -> None:
            if not ok:
                raise ValueError(message)

        check(2 <= self.members <= 512, f"members must be between 2 and 512, not {self.members}")
        check(not (self.antithetic and self.members % 2), f"antithetic pairs need an even number, not {self.members}")
        check(self.kind in ("lowrank", "gaussian"), f"noise kind must be lowrank or gaussian, not {self.kind!r}")
        check(1 <= self.rank <= 64, f"rank must be between 1 and 64, not {self.rank}")
        check(0 < self.sigma <= 1, f"sigma must be above 0 and at most 1, not {self.sigma}")
        check(0 <= self.alpha <= 10, f"alpha must be between 0 and 10, not {self.alpha}")
        check(0 <= self.decay < 1, f"decay must be at least 0 and below 1, not {self.decay}")
        check(1 <= self.merge_after <= 10**7, f"merge_after must be between 1 and 10,000,000, not {self.merge_after}")
        check(0 <= self.max_staleness <= 64, f"max_staleness must be between 0 and 64, not {self.max_staleness}")
        check(self.step in ("zscore", "shrunk"), f"step must be zscore or shrunk, not {self.step!r}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Settings:
        names = {f.name for f in fields(cls)}
        unknown = sorted(set(data) - names)
        if unknown:
            raise ValueError(f"unknown setting {', '.join(unknown)}: choose from {', '.join(sorted(names))}")
        return cls(**data)


PROFILES: dict[str, Settings] = {
    "room": Settings(),
    "traffic": Settings(
        profile="traffic", members=16, sigma=0.006, alpha=0.012, decay=0.0, merge_after=64, step="zscore"
    ),
    "reference": Settings(
        profile="reference",
        members=30,
        antithetic=False,
        sigma=0.006,
        alpha=0.0165,
        decay=0.0,
        merge_after=6000,
        step="zscore",
    ),
}
"""``room``: one person's thumbs move it. ``traffic``: many users. ``reference``: the population and the ratings of
the source text (N = 30, independent draws, 200 requests a member); σ and α are those of low-rank noise, since the
source text's σ = 0.001, α = 0.0005 belong to gaussian noise on a 7B model."""


def profile(name: str, **changes: Any) -> Settings:
    """The settings of a profile, with changes. Raises ValueError for an unknown name."""
    if name not in PROFILES:
        raise ValueError(f"unknown profile {name!r}: choose from {', '.join(PROFILES)}")
    return replace(PROFILES[name], **changes)


@dataclass(frozen=True)
class Member:
    """One served perturbation: θ_i = θ + sign · σ · ε(direction)."""

    index: int
    direction: Direction
    sign: int


@dataclass(frozen=True)
class Generation:
    """A drawn population: its number, its settings and the seeds of its directions, one a pair when antithetic."""

    number: int
    settings: Settings
    seeds: tuple[int, ...]
    noise_version: int = NOISE_VERSION
    members: tuple[Member, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        s = self.settings
        needed = s.members // 2 if s.antithetic else s.members
        if len(self.seeds) != needed or len(set(self.seeds)) != needed:
            raise ValueError(f"a population of {s.members} members needs {needed} distinct seeds")
        members = []
        for i in range(s.members):
            seed = self.seeds[i // 2] if s.antithetic else self.seeds[i]
            direction = Direction(seed, s.kind, s.rank if s.kind == "lowrank" else 0, self.noise_version)
            members.append(Member(i, direction, -1 if s.antithetic and i % 2 else 1))
        object.__setattr__(self, "members", tuple(members))

    @property
    def directions(self) -> tuple[Direction, ...]:
        return tuple(dict.fromkeys(m.direction for m in self.members))

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "settings": self.settings.to_json(),
            "seeds": list(self.seeds),
            "noise_version": self.noise_version,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Generation:
        return cls(
            int(data["number"]),
            Settings.from_json(data["settings"]),
            tuple(int(s) for s in data["seeds"]),
            int(data["noise_version"]),
        )


def draw(number: int, settings: Settings, entropy: int) -> Generation:
    """The population of generation ``number``: 63-bit seeds, a pure function of (entropy, number, position)."""
    count = settings.members // 2 if settings.antithetic else settings.members
    seeds = tuple(
        int.from_bytes(hashlib.blake2b(f"popserve/{entropy}/{number}/{i}".encode(), digest_size=8).digest()) >> 1
        for i in range(count)
    )
    return Generation(number, settings, seeds)
