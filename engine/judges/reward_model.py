"""A reward model: a transformers sequence classifier with one number at its head.

Options: ``model`` (a folder or a hub id), ``scale`` (``sigmoid``: 1 / (1 + e^-x), the default; ``clip``: x held within
0..1), ``max_length`` (tokens, default 4096, never more than the model takes), ``device`` (``cpu``, the default, so that
it takes no memory from the engine, or ``cuda``).

The conversation goes through the tokenizer's chat template where there is one, else as ``prompt, empty line, reply``.
What is too long loses its beginning: the end of the prompt stays, and the whole reply if it fits.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from engine.judges import JudgeFault, Verdict, known, number, writable

OPTIONS = ("model", "scale", "max_length", "device")
SCALES = ("sigmoid", "clip")
MOST_AT_ONCE = 16
MOST_TOKENS = 4096
MOST_CHARACTERS = 100_000
"""Of one message; only its end is read."""
MOST_MESSAGES = 200

Waiting = tuple[list[dict[str, str]], str, "asyncio.Future[Verdict]"]


class RewardModel:
    """See :class:`engine.judges.Judge`. All torch work runs on one thread, up to 16 replies at once."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        scale: Literal["sigmoid", "clip"] = "sigmoid",
        max_length: int = MOST_TOKENS,
    ) -> None:
        self.model, self.tokenizer, self.scale = model, tokenizer, scale
        text_config = model.config.get_text_config()
        limits = (max_length, getattr(text_config, "max_position_embeddings", None), tokenizer.model_max_length)
        self.max_length = min(int(limit) for limit in limits if limit)
        self._pad: int | None = text_config.pad_token_id
        special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
        special.update(tokenizer.all_special_tokens)
        self._special = re.compile("|".join(re.escape(t) for t in sorted(special, key=len, reverse=True) if len(t) > 1))
        self._forgeable = bool(self._special.pattern)
        self._thread = ThreadPoolExecutor(1, "reward-model")
        self._waiting: list[Waiting] = []
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    async def open(cls, options: Mapping[str, Any]) -> RewardModel:
        """Reads the model, off the event loop. Raises JudgeFault."""
        known(options, OPTIONS)
        where = options.get("model")
        if not isinstance(where, str) or not where.strip():
            raise JudgeFault("a reward model needs the option model: a folder or a hub id")
        scale = options.get("scale", "sigmoid")
        if scale not in SCALES:
            raise JudgeFault(f"scale must be {' or '.join(SCALES)}, not {str(scale)[:40]!r}")
        device = options.get("device", "cpu")
        if device != "cpu" and not (device == "cuda" and torch.cuda.is_available()):
            raise JudgeFault(f"device must be cpu, or cuda where there is a GPU, not {str(device)[:40]!r}")
        max_length = int(number(options, "max_length", MOST_TOKENS, 16, 131_072))
        model, tokenizer = await asyncio.to_thread(_read, where.strip(), device)
        return cls(model, tokenizer, scale=scale, max_length=max_length)

    async def verdict(self, prompt: list[dict[str, str]], reply: str) -> Verdict:
        if self._closed:
            return Verdict(None, "the judge is closed")
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt, reply, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def close(self) -> None:
        """Waits for the batch under way; what still waits has no score."""
        self._closed = True
        for *_, future in self._waiting:
            if not future.done():
                future.set_result(Verdict(None, "the judge was closed"))
        self._waiting.clear()
        if self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.model = None

    async def _work(self) -> None:
        await asyncio.sleep(0)  # whoever asks in the same round shares the first batch
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = [entry for entry in self._waiting[:MOST_AT_ONCE] if not entry[2].done()]
            del self._waiting[:MOST_AT_ONCE]
            verdicts = await loop.run_in_executor(self._thread, self._judge, [entry[:2] for entry in batch])
            for (*_, future), verdict in zip(batch, verdicts, strict=True):
                if not future.done():
                    future.set_result(verdict)

    def _judge(self, batch: Sequence[tuple[list[dict[str, str]], str]]) -> list[Verdict]:
        """One verdict each; what cannot be read or scored does not harm the others."""
        verdicts: list[Verdict] = [Verdict(None, "")] * len(batch)
        rows: dict[int, list[int]] = {}
        for place, (prompt, reply) in enumerate(batch):
            try:
                rows[place] = self.encode(prompt, reply)
            except Exception as error:  # chat templates raise whatever they like
                verdicts[place] = Verdict(None, f"the model's chat template refuses this conversation: {error}"[:300])
        # Without a padding token the model finds the last token of a single row only.
        parts = [list(rows)] if self._pad is not None else [[place] for place in rows]
        for places in parts:
            if not places:
                continue
            try:
                scores = self._scores([rows[place] for place in places])
            except Exception as error:  # out of memory, a token beyond the embedding: the loop must go on
                scores = [f"the reward model failed: {type(error).__name__}"] * len(places)
            for place, score in zip(places, scores, strict=True):
                verdicts[place] = self._scaled(score) if isinstance(score, float) else Verdict(None, score)
        return verdicts

    def encode(self, prompt: list[dict[str, str]], reply: str) -> list[int]:
        """The tokens that the model reads, at most ``max_length``. Raises what a chat template raises."""
        messages = [dict(m, content=self._harmless(m["content"])) for m in prompt[-MOST_MESSAGES:]]
        answer = self._harmless(reply)
        templated = bool(self.tokenizer.chat_template)
        if templated:
            messages.append({"role": "assistant", "content": answer})
            text = self._templated(messages)
        else:
            text = "\n\n".join([*(m["content"] for m in messages), answer])
        tokens = list(self.tokenizer.encode(text, add_special_tokens=not templated))
        if len(tokens) <= self.max_length:
            return tokens
        head = tokens[:1] if tokens[0] in self.tokenizer.all_special_ids else []
        return head + tokens[len(tokens) - self.max_length + len(head) :]

    def _templated(self, messages: list[dict[str, str]]) -> str:
        try:
            return self.tokenizer.apply_chat_template(messages, tokenize=False)
        except Exception:  # some templates know no system message: it then opens the first message of the user
            if messages[0]["role"] != "system" or len(messages) < 3:
                raise
            first = dict(messages[1], content=f"{messages[0]['content']}\n\n{messages[1]['content']}")
            return self.tokenizer.apply_chat_template([first, *messages[2:]], tokenize=False)

    def _harmless(self, text: str) -> str:
        """``text`` with every control token that somebody spelled out broken up, so that no turn can be forged."""
        text = writable(text[-MOST_CHARACTERS:])
        return self._special.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text) if self._forgeable else text

    @torch.inference_mode()
    def _scores(self, rows: list[list[int]]) -> list[float]:
        longest = max(map(len, rows))
        tokens = torch.full((len(rows), longest), self._pad or 0, dtype=torch.long)
        mask = torch.zeros_like(tokens)
        for place, row in enumerate(rows):
            tokens[place, : len(row)] = torch.tensor(row, dtype=torch.long)
            mask[place, : len(row)] = 1
        device = self.model.device
        logits = self.model(input_ids=tokens.to(device), attention_mask=mask.to(device)).logits
        return [float(value) for value in logits[:, 0].float().cpu()]

    def _scaled(self, raw: float) -> Verdict:
        if not math.isfinite(raw):
            return Verdict(None, "the reward model gave no finite number")
        if self.scale == "clip":
            return Verdict(min(1.0, max(0.0, raw)))
        return Verdict(1.0 / (1.0 + math.exp(-raw)) if raw > -700.0 else 0.0)


def _read(where: str, device: str) -> tuple[Any, Any]:
    """Model and tokenizer. Raises JudgeFault."""
    folder = Path(where).is_dir()
    named = f"the reward model in {where}" if folder else f"the reward model {where}"
    try:
        config = AutoConfig.from_pretrained(where)
        if config.num_labels != 1:
            raise JudgeFault(f"{named} has {config.num_labels} outputs: choose a classifier with one (num_labels 1)")
        dtype: Any = torch.float32 if device == "cpu" else "auto"
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            where, dtype=dtype, output_loading_info=True
        )
        tokenizer = AutoTokenizer.from_pretrained(where)
    except JudgeFault:
        raise
    except Exception as error:  # the loader raises OSError, ValueError, KeyError and whatever its files lead to
        place = "check that the folder is complete" if folder else "name a folder that exists, or a hub id"
        raise JudgeFault(f"{named} cannot be read: {place} ({_first_line(error)})") from error
    if missing := sorted(loading["missing_keys"]):
        raise JudgeFault(f"{named} is no reward model: its files hold no {missing[0]}; choose one that was trained")
    return model.eval().to(device), tokenizer


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
