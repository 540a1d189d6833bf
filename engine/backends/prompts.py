"""From a conversation to the tokens that the model reads."""

from __future__ import annotations

import re
import uuid
from typing import Any

from engine.interface import BadRequest


def encode(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    """Token ids of a conversation, ready for the assistant's turn. Raises BadRequest when the template refuses.

    What people write is never read as a control token: a message that spells one out is tokenised letter by letter.
    """
    forged = [m["content"] for m in messages if any(t in m["content"] for t in tokenizer.all_special_tokens)]
    marks = {f"\ue000{uuid.uuid4().hex}\ue001": content for content in forged}
    keys = {content: mark for mark, content in marks.items()}
    safe = [dict(m, content=keys.get(m["content"], m["content"])) for m in messages]
    try:
        text = tokenizer.apply_chat_template(safe, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates raise whatever they like
        raise BadRequest(f"the model's chat template refuses this conversation: {error}") from error
    if not marks:
        return tokenizer.encode(text, add_special_tokens=False)
    tokens: list[int] = []
    for piece in re.split("(" + "|".join(map(re.escape, marks)) + ")", text):
        plain = piece in marks
        tokens += tokenizer.encode(marks.get(piece, piece), add_special_tokens=False, split_special_tokens=plain)
    return tokens


def default_length(config: dict[str, Any]) -> int:
    """The model's own limit, at most 4,096 tokens (the key-value cache is shared by all)."""
    return min(4096, int(config.get("max_position_embeddings", 4096)))
