"""What the engine and the application that embeds it say to each other.

The application gives the engine a :class:`Journal` (where things are kept) and gets a
:class:`PopulationServer` (who answers, who is credited, when it merges). Everything here is plain data or a
protocol; :class:`engine.server.Server` is the implementation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from engine.population import Generation, Settings

State = Literal["starting", "serving", "merging", "paused", "failed"]
Target = Literal["population", "source", "base"]
"""Who answers: a member of the population, the present source model, or θ_0, the model one started from."""


class EngineError(Exception):
    """Something the engine cannot do; the message is written for people."""


class NotReady(EngineError):
    """The engine still starts, has failed, or is closed: try again later."""


class CannotMerge(EngineError):
    """A merge was asked for that the ratings do not carry; the message says what is missing."""


class BadRequest(EngineError):
    """A request that can never be served (prompt too long, a setting out of range)."""


@dataclass(frozen=True)
class Sampling:
    """How a reply is drawn; the names and meanings are vLLM's ``SamplingParams``."""

    temperature: float = 0.7
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    seed: int | None = None
    choice: tuple[str, ...] = ()
    """The reply is one of these texts (structured output); empty: free."""


@dataclass(frozen=True)
class Delta:
    """A piece of a streamed reply: new text, tokens generated so far, and at the end why it ended."""

    text: str
    tokens: int
    finish_reason: Literal["stop", "length"] | None = None


class Reply(Protocol):
    """One admitted request: an async context manager and an async iterator of :class:`Delta`.

    Leaving the context (also by an exception or a cancelled task) stops the generation at once.
    """

    generation: int
    """The generation that answers (0 for the base model)."""
    member: int | None
    """The member that answers; None for the source or the base."""
    seed: int
    """The sampling seed used."""
    prompt_tokens: int

    async def __aenter__(self) -> Reply: ...

    async def __aexit__(self, *error: object) -> None: ...

    def __aiter__(self) -> AsyncIterator[Delta]: ...


@dataclass(frozen=True)
class RatedReply:
    """A reply with its reward in 0..1: what a merge is made of."""

    inference_id: str
    generation: int
    member: int
    reward: float | None
    """None: a rating that an earlier merge used was taken back."""
    weight: float = 1.0
    """Of the reward in its member's fitness, above 0."""


@dataclass(frozen=True)
class Credit:
    """What became of one rating.

    ``counted``: it is part of the present generation's fitness. ``late``: its generation has merged already; the
    correction goes into the next merge. ``recorded``: too old (or not a member's reply), kept but not credited.
    """

    kind: Literal["counted", "late", "recorded"]
    generation: int
    member: int | None
    ratings: int
    merge_after: int


@dataclass(frozen=True)
class MergeRecord:
    """One turn of generations: everything worth keeping about a merge, and the generation that follows it."""

    generation: int
    reason: str
    entry: dict[str, Any]
    """The ledger entry (JSON), see :mod:`engine.ledger`."""
    fitness: list[float | None]
    """Mean reward by member, None where a member has no rating."""
    counts: list[int]
    """Rated replies by member."""
    z: list[float]
    mean_reward: float | None
    ratings: int
    null: bool
    """True when there was nothing to learn: every rated member scored the same."""
    signal_share: float | None
    """Estimated share of the fitness spread that is signal and not luck (0..1)."""
    late: int
    """Ratings of earlier generations that were credited in this merge."""
    drift: float
    """‖θ − θ_0‖ / ‖θ_0‖ after the merge."""
    next: Generation
    used: list[RatedReply] = field(default_factory=list)
    """The rewards that this merge credits: those of its generation, and changed ones of earlier generations."""
    merged_at: float = 0.0
    """Unix seconds."""
    merge_ms: float = 0.0
    """From the decision to the first request that may be served by the next generation."""
    pause_ms: float = 0.0
    """Of it, how long new requests had to wait (0 when nobody waited)."""
    population: Generation | None = None
    """The generation that ended; late ratings are credited with its seeds."""
    alpha: float = 0.0
    """The α that the step was taken with (after shrinking)."""
    running_share: float = 1.0
    """The running signal share after this merge."""


@dataclass(frozen=True)
class Saved:
    """What a journal holds at start-up: enough to go on at the same generation with the same weights."""

    generation: Generation
    """The present generation."""
    entries: list[dict[str, Any]]
    """All ledger entries, oldest first."""
    merges: list[MergeRecord]
    """The last ``max_staleness`` merges (for late credit), oldest first."""
    rewards: list[RatedReply]
    """The rated replies of the present and the last ``max_staleness`` generations."""


class Journal(Protocol):
    """Where the engine's history is kept. Every method returns after the change is durable."""

    async def load(self) -> Saved | None: ...

    async def begin(self, generation: Generation) -> None:
        """The first generation of a new home, or another population under the same number before anyone was served
        by the first: replaces the present generation, closes nothing."""

    async def prepare(self, record: MergeRecord) -> None:
        """A merge is decided; if the process dies before :meth:`commit`, it never happened."""

    async def commit(self, record: MergeRecord) -> None:
        """In one transaction: the merge is committed with the ratings it used, ``record.next`` is present."""

    async def append(self, entry: dict[str, Any]) -> None:
        """A ledger entry that is no merge (a fold)."""


@dataclass(frozen=True)
class Status:
    """A picture of the server at one moment."""

    model: str
    engine: str
    """Backend and device, for example ``vllm (cpu)``."""
    state: State
    waiting_for: str
    """While starting: a sentence for people. When failed: what went wrong and what to do. Else empty."""
    generation: int
    members: int
    ratings: int
    """Rated replies of the present generation."""
    merge_after: int
    rated_members: int
    drift: float
    running: int
    """Requests being answered now."""
    waiting: int
    """Requests held back now."""
    tokens_per_second: float
    """Generated tokens a second over the last ten seconds."""
    profile: str
    settings: dict[str, Any]
    last_merge: dict[str, Any] | None
    """{generation, mean_reward, ratings, null, merged_at, message} of the newest merge."""


@dataclass(frozen=True)
class MemberStatus:
    """A member of the present generation."""

    member: int
    seed: int
    sign: int
    served: int
    running: int
    ratings: int
    fitness: float | None


Listener = Callable[[str, dict[str, Any]], None]
"""Called on the event loop with (kind, data): ``status``, ``rating``, ``merge``, ``served``, ``population``."""


class PopulationServer(Protocol):
    """One source model served as a population; the only door between the application and the engine."""

    async def start(self) -> None:
        """Loads the model, replays the journal, draws the population. Slow (20-90 s): run it as a task and read
        :meth:`status` meanwhile. Raises EngineError, with state ``failed``."""

    async def close(self) -> None: ...

    def status(self) -> Status: ...

    def members(self) -> list[MemberStatus]: ...

    def reply(
        self,
        messages: list[dict[str, str]],
        sampling: Sampling,
        *,
        request_id: str,
        target: Target = "population",
        session: str | None = None,
        member: int | None = None,
        priority: int = 0,
    ) -> Reply:
        """Asks for one reply to a conversation ([{role, content}]); ``session`` keeps a member within a
        generation, ``member`` names one of the present generation, without either the least-rated one answers.
        Smaller ``priority`` is served first (0 people, 1 simulated traffic, 2 measurements). Raises NotReady or
        BadRequest on entering."""

    def rate(
        self, inference_id: str, generation: int, member: int | None, reward: float | None, weight: float = 1.0
    ) -> Credit:
        """Sets (or with None takes back) the reward of one reply. Call it after the rating is durable; a merge
        that has become due is started in the background. A reward of weight 0 is ``recorded`` and left out."""

    async def merge(self, reason: str = "button") -> MergeRecord:
        """Merges now. Raises CannotMerge when fewer than half of the members (pairs) are rated."""

    async def configure(self, settings: Settings, *, seed: int | None = None) -> Generation:
        """Draws a new population from the present source under other settings. The generation that was being
        served ends without a step (reason ``settings``); its ratings are credited late. Raises BadRequest."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Subscribes; returns the function that unsubscribes."""
