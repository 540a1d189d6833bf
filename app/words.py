"""What the pages say, as sentences: pure functions of plain data."""

from __future__ import annotations

from typing import Any

from engine.interface import Status


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 rating``, ``2,000 ratings``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def credited(credit: dict[str, Any], value: bool | None) -> str:
    """What a vote did."""
    who = f"member {credit['member']} in generation {credit['generation']}"
    if credit["kind"] == "waiting":
        return "stored; it counts as soon as the engine serves"
    if credit["kind"] == "recorded":
        if credit["member"] is None:
            return "recorded only: no member of the population wrote this reply"
        return f"recorded only: generation {credit['generation']} is too long ago to be credited"
    if credit["kind"] == "late":
        what = "taken back" if value is None else "counted late"
        return f"{what} for {who}, which has merged; the next merge corrects for it"
    left = credit["merge_after"] - credit["ratings"]
    until = f"{left:,} more until the next merge" if left > 0 else "the next merge is due"
    return f"{'taken back' if value is None else 'counted'} for {who}; {until}"


def happening(status: Status) -> tuple[str, str]:
    """Two sentences: what is going on, and how far it is."""
    if status.state == "starting":
        return status.waiting_for, "Chat works as soon as it is ready; what was learned before is kept."
    if status.state == "failed":
        return status.waiting_for, "Conversations and ratings are kept: see the server's log, then start it again."
    first = (
        f"{count(status.members, 'slightly different copy', 'slightly different copies')} of {status.model} take turns "
        "to answer, and your thumbs tell which of them answer better."
    )
    if status.state == "merging":
        return first, f"Generation {status.generation} is being merged into the next one right now."
    left = status.merge_after - status.ratings
    if left > 0:
        return first, (
            f"Generation {status.generation} has {status.ratings:,} of the {count(status.merge_after, 'rating')} that "
            "it needs; then its members are merged into the next model, the better ones with more weight."
        )
    return first, (
        f"Generation {status.generation} has its {count(status.ratings, 'rating')}; it merges when at least half of "
        f"its members are rated ({status.rated_members} of {status.members} are)."
    )


def merged(merge: dict[str, Any] | None) -> str:
    """The newest merge in a line; empty before the first one."""
    if merge is None:
        return ""
    text = str(merge.get("message") or f"Merged {count(merge['ratings'], 'rating')}.")
    return f"Generation {merge.get('next_generation', merge['generation'] + 1)}: {text[:1].lower()}{text[1:]}"


def percent(value: float) -> str:
    """A share of 0..1 for reading: whole per cents, one more digit where a whole one would say nothing."""
    points = 100 * value
    return f"{points:.0f}%" if points >= 10 or points == 0 else f"{points:.2g}%"


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
