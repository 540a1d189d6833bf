"""Text that can be stored."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def _unicode(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half a surrogate pair, which is no Unicode text") from None
    return value


Text = Annotated[str, AfterValidator(_unicode)]
"""Text that can be stored."""
