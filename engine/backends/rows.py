"""Which columns of noise are resident, and which are free: reclaimed only when no request can refer to them.

A request remembers the epoch it was admitted in; a column that was retired in epoch e is free once every running
request is of a later epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from engine.noise import Direction


class NoRoom(Exception):
    """The columns do not suffice for the directions asked for, for now."""


class Rows:
    """Bookkeeping of ``columns`` columns; a direction of rank r takes r of them."""

    def __init__(self, columns: int):
        self.columns = columns
        self.epoch = 0
        self._resident: dict[Direction, list[int]] = {}
        self._retired: dict[Direction, int] = {}
        self._free = list(range(columns))
        self._running: Counter[int] = Counter()

    def enter(self) -> int:
        """A request is admitted: returns its epoch, to be given to :meth:`leave`."""
        self._running[self.epoch] += 1
        return self.epoch

    def leave(self, epoch: int) -> None:
        self._running[epoch] -= 1
        if not self._running[epoch]:
            del self._running[epoch]

    @property
    def running(self) -> int:
        return sum(self._running.values())

    def of(self, direction: Direction) -> list[int]:
        """The columns of a resident direction. Raises KeyError for another one."""
        return self._resident[direction]

    def __contains__(self, direction: Direction) -> bool:
        return direction in self._resident

    def missing(self, directions: Iterable[Direction]) -> list[Direction]:
        return [d for d in directions if d not in self._resident]

    def keep_only(self, needed: Iterable[Direction]) -> None:
        """Retires every resident direction that is not needed from now on, and un-retires the needed ones."""
        needed = set(needed)
        for direction in self._resident:
            if direction in needed:
                self._retired.pop(direction, None)
            else:
                self._retired.setdefault(direction, self.epoch)
        self.epoch += 1

    def allocate(self, directions: list[Direction]) -> dict[Direction, list[int]]:
        """Columns for directions that are not resident. Raises NoRoom and changes nothing when they do not fit."""
        self._reclaim()
        need = sum(d.rank for d in directions)
        if need > len(self._free):
            raise NoRoom(f"{need} noise rows are needed, {len(self._free)} of {self.columns} are free")
        placed = {}
        for direction in directions:
            placed[direction] = self._resident[direction] = [self._free.pop(0) for _ in range(direction.rank)]
        return placed

    def forget(self, directions: list[Direction]) -> None:
        """Their noise was never placed: the columns are free again."""
        for direction in directions:
            self._free += self._resident.pop(direction, [])
            self._retired.pop(direction, None)

    def _reclaim(self) -> None:
        oldest = min(self._running, default=self.epoch)
        for direction, retired in list(self._retired.items()):
            if retired < oldest:
                self._free += self._resident.pop(direction)
                del self._retired[direction]
