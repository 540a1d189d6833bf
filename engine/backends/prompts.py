"""From a conversation to the tokens that the model reads."""

from __future__ import annotations

from typing import Any

from engine.interface import BadRequest


def encode(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    """Token ids of a conversation, ready for the assistant's turn. Raises BadRequest when the template refuses."""
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates raise whatever they like
        raise BadRequest(f"the model's chat template refuses this conversation: {error}") from error
    return tokenizer.encode(text, add_special_tokens=False)


def default_length(config: dict[str, Any]) -> int:
    """The model's own limit, at most 4,096 tokens (the key-value cache is shared by all)."""
    return min(4096, int(config.get("max_position_embeddings", 4096)))
