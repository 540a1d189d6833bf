"""The reference: builds θ + σ ε explicitly and answers one request at a time with transformers.

Small, plain and correct. Used where vLLM cannot be installed, and as the oracle of the tests.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

from engine.backends.base import BackendConfig, Weights
from engine.backends.prompts import default_length, encode
from engine.checkpoint import Checkpoint
from engine.interface import BadRequest, Delta, NotReady, Sampling
from engine.master import Master
from engine.noise import Direction


class TransformersBackend:
    """See :class:`engine.backends.base.Backend`. All torch work runs on one thread, in the order of the requests."""

    def __init__(self, config: BackendConfig):
        self.config = config
        self.checkpoint = Checkpoint(config.folder)
        self.name = "transformers"
        self.max_model_len = config.max_model_len or default_length(self.checkpoint.config)
        self.master = Master(self.checkpoint)
        self.running = 0
        self._folds: list[dict[Direction, float]] = []
        self._loaded = ""
        self._model: Any = None
        self._tokenizer: Any = None
        self._thread = ThreadPoolExecutor(1, "transformers")

    async def start(self, say: Callable[[str], None]) -> None:
        say("loading the model into transformers")
        self._tokenizer, self._model = await self._do(self._read)
        self.name = f"transformers ({self._model.device.type}, {str(self._model.dtype).removeprefix('torch.')})"

    def _read(self) -> tuple[Any, Any]:
        dtype = torch.float32 if self.config.dtype == "auto" else getattr(torch, self.config.dtype)
        tokenizer = AutoTokenizer.from_pretrained(self.config.folder)
        model = AutoModelForCausalLM.from_pretrained(self.config.folder, dtype=dtype).eval()
        return tokenizer, model.to("cuda" if torch.cuda.is_available() else "cpu")

    async def close(self) -> None:
        self._model = None
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def basis(self) -> int:
        return len(self._folds)

    @property
    def alive(self) -> bool:
        return self._model is not None

    def encode(self, messages: list[dict[str, str]]) -> list[int]:
        return encode(self._tokenizer, messages)

    async def draw(self, directions: list[Direction], keep: set[Direction]) -> None:
        """Nothing to do: noise is drawn when a member answers."""

    async def fold(self, master: Master, coefficients: Mapping[Direction, float]) -> None:
        self.master = master
        self._folds.append(dict(coefficients))
        self._loaded = ""

    def open(
        self, tokens: list[int], sampling: Sampling, weights: Weights, *, request_id: str, priority: int = 0
    ) -> TransformersStream:
        if len(tokens) >= self.max_model_len:
            raise BadRequest(f"the conversation has {len(tokens)} tokens, the model takes {self.max_model_len - 1}")
        if sampling.choice:
            raise BadRequest("the transformers engine has no structured output: use vLLM, or leave choice out")
        if sampling.presence_penalty or sampling.frequency_penalty:
            raise BadRequest("the transformers engine has no presence or frequency penalty: set them to 0")
        self.running += 1
        return TransformersStream(self, tokens, sampling, weights)

    async def score(self, tokens: list[int], weights: Weights) -> list[float]:
        def work() -> list[float]:
            self._use(weights)
            ids = torch.tensor([tokens], device=self._model.device)
            with torch.inference_mode():
                logits = self._model(ids).logits[0, :-1].float()
            return torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0].tolist()

        return await self._do(work)

    async def _do(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _use(self, weights: Weights) -> None:
        """Loads θ_0 + F + Σ c ε into the model; on its thread."""
        if self._model is None:
            raise NotReady("the engine is closed")
        if weights.key == self._loaded:
            return
        coefficients = dict(weights.coefficients)
        for folded in self._folds[weights.basis :]:
            for direction, c in folded.items():
                coefficients[direction] = coefficients.get(direction, 0.0) - c
        state = self._model.state_dict()
        self._loaded = ""
        for name, theta in self.master.all_weights(coefficients):
            state[name].copy_(torch.from_numpy(theta))
        self._loaded = weights.key


class _Words(TextStreamer):
    """Hands text to the stream as soon as it is whole words, and stops when told to."""

    def __init__(self, stream: TransformersStream, tokenizer: Any):
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.stream, self.count = stream, -1

    def put(self, value: torch.Tensor) -> None:
        self.count += 1  # the first one is the prompt
        if self.stream.closed.is_set():
            raise InterruptedError
        super().put(value)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self.stream.say(text, self.count)


class TransformersStream:
    """A request: runs on the backend's thread, is read on the event loop."""

    def __init__(self, backend: TransformersBackend, tokens: list[int], sampling: Sampling, weights: Weights):
        self._backend, self._tokens, self._sampling, self._weights = backend, tokens, sampling, weights
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Delta | Exception] = asyncio.Queue()
        self._text, self._sent = "", 0
        self._open = True
        self._done = False
        self.closed = threading.Event()
        self._work = self._loop.run_in_executor(backend._thread, self._generate)
        self._work.add_done_callback(self._dropped)

    def say(self, text: str, tokens: int, end: str | None = None) -> None:
        """From the backend's thread: more text. Text that may be the beginning of a stop string waits."""
        self._text += text
        for stop in self._sampling.stop:
            if (at := self._text.find(stop)) >= 0:
                self._text, end = self._text[:at], "stop"
        hold = 0 if end else max((len(s) - 1 for s in self._sampling.stop), default=0)
        upto = max(self._sent, len(self._text) - hold)
        self._put(Delta(self._text[self._sent : upto], tokens, end))  # type: ignore[arg-type]
        self._sent = upto
        if end and text:
            raise InterruptedError

    def _dropped(self, work: asyncio.Future[None]) -> None:
        """The backend was closed before this request's turn came: nobody will say more."""
        if work.cancelled():
            self._queue.put_nowait(NotReady("the engine is closed"))

    def _put(self, item: Delta | Exception) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    def _generate(self) -> None:
        try:
            if self.closed.is_set():
                return
            backend, s = self._backend, self._sampling
            backend._use(self._weights)
            room = backend.max_model_len - len(self._tokens)
            ids = torch.tensor([self._tokens], device=backend._model.device)
            options: dict[str, Any] = {}
            if s.temperature > 0:
                options = {"temperature": s.temperature, "top_p": s.top_p, "top_k": s.top_k, "min_p": s.min_p}
            torch.manual_seed(s.seed or 0)
            words = _Words(self, backend._tokenizer)
            with torch.inference_mode():
                out = backend._model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    do_sample=s.temperature > 0,
                    max_new_tokens=min(s.max_tokens, room),
                    repetition_penalty=s.repetition_penalty,
                    streamer=words,
                    **options,
                )
            ends = backend._model.generation_config.eos_token_id
            ends = ends if isinstance(ends, list) else [ends]
            produced = out.shape[1] - ids.shape[1]
            self.say("", produced, "stop" if out[0, -1].item() in ends else "length")
        except InterruptedError:
            pass
        except Exception as error:
            self._put(error)

    def __aiter__(self) -> TransformersStream:
        return self

    async def __anext__(self) -> Delta:
        if self._done:
            raise StopAsyncIteration
        item = await self._queue.get()
        if isinstance(item, Exception):
            self._done = True
            raise item
        self._done = item.finish_reason is not None
        return item

    async def close(self) -> None:
        self.closed.set()
        if self._open:
            self._open = False
            self._backend.running -= 1
