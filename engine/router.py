"""Which member answers: the least-rated one, or the one a session stays on within a generation."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from engine.population import Generation

SESSIONS = 10_000
"""Sessions remembered; the longest idle ones are forgotten first, so that a client that never leaves costs nothing."""


class Router:
    """Spreads requests over the present generation's members."""

    def __init__(self, generation: Generation):
        self._sessions: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self.turn(generation)

    def turn(self, generation: Generation, fresh: bool = True) -> None:
        """A new generation is served. ``fresh``: certainly nobody has been served by it yet (after a restart one
        cannot know)."""
        self.generation = generation
        self._fresh = fresh
        self.served = [0] * generation.settings.members
        self.running = [0] * generation.settings.members

    @property
    def untouched(self) -> bool:
        """Whether nobody has been served by the present generation."""
        return self._fresh and not any(self.served)

    def choose(self, counts: np.ndarray, session: str | None = None, named: int | None = None) -> int:
        """The member for a request. ``counts`` (N,): rated replies by member.

        Without a session: fewest (ratings + requests being answered), then fewest served, then the first. So one
        long chat cannot put all its ratings on one member, and the halves of a pair fill together. A ``named`` member
        answers in any case.
        """
        number = self.generation.number
        member = named
        if session is not None and member is None:
            generation, known = self._sessions.get(session, (-1, -1))
            member = known if generation == number else None
        if member is None:
            member = min(range(len(self.served)), key=lambda i: (int(counts[i]) + self.running[i], self.served[i], i))
        if session is not None:
            self._sessions[session] = (number, member)
            self._sessions.move_to_end(session)
            if len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)
        self.served[member] += 1
        self.running[member] += 1
        return member

    def done(self, generation: int, member: int) -> None:
        """A request that :meth:`choose` placed has ended."""
        if generation == self.generation.number:
            self.running[member] -= 1
