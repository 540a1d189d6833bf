"""The settings of chat that may change while the server runs; kept in the database, the environment is the default."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from app.settings import AppSettings
from app.store import Store


@dataclass(frozen=True)
class Chat:
    """How chat asks: the system prompt (shared with simulated users), the temperature, the most tokens of a reply."""

    system_prompt: str
    temperature: float
    max_tokens: int


class Preferences:
    """The present :class:`Chat`; :meth:`change` stores before it takes effect."""

    def __init__(self, store: Store, settings: AppSettings) -> None:
        self.store = store
        self.chat = Chat(settings.system_prompt, settings.temperature, settings.max_tokens)

    async def open(self) -> None:
        saved = await self.store.settings()
        self.chat = replace(self.chat, **{k: v for k, v in saved.items() if k in asdict(self.chat)})  # type: ignore[arg-type]

    async def change(self, **values: Any) -> None:
        chat = replace(self.chat, **values)
        await self.store.save_settings(values)
        self.chat = chat
