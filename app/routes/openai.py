"""Chat completions in OpenAI's shape, answered by the population."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response
from fastapi.sse import format_sse_event
from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.deps import InferencesDep, ServerDep, ServicesDep
from app.errors import ApiError, body
from app.inference import Inference, ReplyFailed
from app.preferences import Chat
from app.streaming import ReplyResponse, while_connected
from app.text import Text
from engine.interface import NotReady, Sampling, Target

router = APIRouter(tags=["chat"])
MOST_TEXT = 1_000_000
UNSUPPORTED = ("tools", "functions", "logit_bias", "logprobs", "top_logprobs", "audio", "prediction", "best_of")

EXAMPLE = {
    "id": "chatcmpl-4f0c…",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "SmolLM2-135M-Instruct",
    "population": {"generation": 12, "member": 7},
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Many birds that move as one."},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 31, "completion_tokens": 8, "total_tokens": 39},
}


class Part(BaseModel):
    """A piece of a message; only text is understood."""

    type: Literal["text"]
    text: Text


class ChatMessage(BaseModel):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[Part], Field(min_length=1, max_length=100)]

    def plain(self) -> dict[str, str]:
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": content}


class StreamOptions(BaseModel):
    include_usage: bool = False


class ChatRequest(BaseModel):
    """OpenAI's request; what is not named here is ignored, unless it would change the answer: then it is refused."""

    model_config = ConfigDict(
        strict=True,
        extra="allow",
        json_schema_extra={
            "examples": [
                {"messages": [{"role": "user", "content": "What is a flock?"}], "max_tokens": 64},
                {"messages": [{"role": "user", "content": "Hello"}], "stream": True, "session": "game-7"},
            ]
        },
    )

    model: str | None = Field(None, description="As `/v1/models` lists it; may be left out.")
    messages: list[ChatMessage] = Field(min_length=1, max_length=2000)
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, description="1: a request is answered once, by one member.")
    temperature: float | None = Field(None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1, allow_inf_nan=False)
    top_k: int | None = Field(None, ge=-1, le=2**31 - 1, description="0 or -1: all tokens.")
    min_p: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)
    repetition_penalty: float | None = Field(None, gt=0, le=10, allow_inf_nan=False)
    presence_penalty: float | None = Field(None, ge=-2, le=2, allow_inf_nan=False)
    frequency_penalty: float | None = Field(None, ge=-2, le=2, allow_inf_nan=False)
    max_tokens: int | None = Field(None, ge=1, le=1_048_576)
    max_completion_tokens: int | None = Field(None, ge=1, le=1_048_576)
    stop: Text | Annotated[list[Text], Field(max_length=16)] | None = None
    seed: int | None = Field(None, ge=0, lt=2**63)
    population: bool | Literal["base"] = Field(
        True,
        description="true: a member answers. false: the present source model. `base`: the model one started from.",
    )
    session: Annotated[Text, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Keeps one member for all requests of a session, within a generation."
    )
    source: Annotated[Text, Field(min_length=1, max_length=200)] = Field("api", description="Who asks; stored.")
    priority: int | None = Field(
        None, ge=0, le=2, description="0 is served first. Default 0; 1 when `source` starts with `traffic:`."
    )

    @model_validator(mode="after")
    def _supported(self) -> ChatRequest:
        if self.n not in (None, 1):
            raise ValueError(f"n must be 1: a request is answered once, by one member, not {self.n} times")
        extra = self.model_extra or {}
        for name in UNSUPPORTED:
            if extra.get(name):
                raise ValueError(f"{name} is not supported here: leave it out")
        form = extra.get("response_format")
        if form is not None and form != {"type": "text"}:
            raise ValueError("response_format is not supported here: only {'type': 'text'} is")
        if sum(len(m.plain()["content"]) for m in self.messages) > MOST_TEXT:
            raise ValueError(f"the messages hold more than {MOST_TEXT:,} characters: send less")
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if any(not 1 <= len(s) <= 1000 for s in stops):
            raise ValueError("a stop string has 1 to 1,000 characters")
        return self

    def sampling(self, chat: Chat) -> Sampling:
        """Left-out values are those of chat, or neutral."""
        names = ("top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed")
        given: dict[str, Any] = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return Sampling(
            temperature=chat.temperature if self.temperature is None else self.temperature,
            top_k=max(0, self.top_k or 0),
            max_tokens=self.max_completion_tokens or self.max_tokens or chat.max_tokens,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ()),
            **given,
        )

    def target(self) -> Target:
        return "base" if self.population == "base" else "population" if self.population else "source"


@router.get("/v1/models")
async def models(server: ServerDep) -> dict[str, Any]:
    """The one model that is served."""
    model = {"id": server.status().model, "object": "model", "created": 0, "owned_by": "popserve"}
    return {"object": "list", "data": [model]}


@router.post(
    "/v1/chat/completions",
    response_model=None,
    responses={200: {"content": {"application/json": {"example": EXAMPLE}}}},
)
async def chat_completions(
    ask: ChatRequest,
    request: Request,
    services: ServicesDep,
    inferences: InferencesDep,
    x_session_id: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> Response | dict[str, Any]:
    """Answers a conversation. `id` is the inference id that `/v1/feedback` takes, `population` says which member of
    which generation answered. No system prompt is added. Leaving stops the generation."""
    status = services.server.status()
    if status.state in ("starting", "failed"):
        raise NotReady(status.waiting_for)
    if ask.model not in (None, status.model):
        raise ApiError(
            404, f"The model {ask.model[:200]!r} is not served here: use {status.model!r}.", "model_not_found"
        )
    opening = inferences.open(
        [message.plain() for message in ask.messages],
        ask.sampling(services.preferences.chat),
        source=ask.source,
        target=ask.target(),
        session=ask.session or x_session_id,
        priority=ask.priority if ask.priority is not None else int(ask.source.startswith("traffic:")),
    )
    inference = await while_connected(request, opening)
    if ask.stream:
        usage = ask.stream_options is not None and ask.stream_options.include_usage
        return ReplyResponse(inference, _stream(inference, status.model, usage))
    async with inference:
        return await while_connected(request, _whole(inference, status.model))


async def _whole(inference: Inference, model: str) -> dict[str, Any]:
    async for _ in inference:
        pass
    if inference.state != "done":
        raise NotReady("The server stopped while this reply was written. The text so far is kept.")
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": inference.text},
        "logprobs": None,
        "finish_reason": inference.finish_reason,
    }
    return _head(inference, model, "chat.completion") | {"choices": [choice], "usage": _usage(inference)}


async def _stream(inference: Inference, model: str, with_usage: bool) -> AsyncIterator[bytes]:
    head = _head(inference, model, "chat.completion.chunk") | ({"usage": None} if with_usage else {})

    def chunk(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _event(head | {"choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    try:
        async for delta in inference:
            if delta.text:
                yield chunk({"content": delta.text})
            if delta.finish_reason is not None:
                yield chunk({}, delta.finish_reason)
    except ReplyFailed as error:
        yield _event(body(502, str(error), "reply_failed"))
        return
    if inference.state != "done":
        yield _event(body(503, "The server stopped while this reply was written.", "not_ready"))
        return
    if with_usage:
        yield _event(head | {"choices": [], "usage": _usage(inference)})
    yield format_sse_event(data_str="[DONE]")


def _event(data: dict[str, Any]) -> bytes:
    return format_sse_event(data_str=json.dumps(data, ensure_ascii=True))


def _head(inference: Inference, model: str, kind: str) -> dict[str, Any]:
    return {
        "id": inference.id,
        "object": kind,
        "created": int(inference.row.created_at or time.time()),
        "model": model,
        "population": {"generation": inference.generation, "member": inference.member},
    }


def _usage(inference: Inference) -> dict[str, int]:
    prompt, completion = inference.prompt_tokens or 0, inference.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
