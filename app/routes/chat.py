"""Chat: the pages, one answer as a stream, votes, and the sheet behind the status line."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, Response

from app.deps import Services, ServicesDep
from app.errors import ApiError
from app.routes import sheet
from app.store import NotFound
from app.tables import Message
from app.talk import RATER, AnswerResponse, answer, find_turn, reply_view, turn_view
from app.templating import fragment, page
from app.text import Text
from app.words import credited
from engine.interface import NotReady, PopulationServer

router = APIRouter(include_in_schema=False)
router.include_router(sheet.router)
MOST_TEXT = 100_000
EXAMPLES = (
    "What is a flock?",
    "Name three things that a good host does.",
    "How do bees decide where to live?",
)
Word = Annotated[Text, Form(max_length=200)]


async def _chat(request: Request, services: Services, conversation: str = "") -> HTMLResponse:
    talk = await services.store.conversation(conversation) if conversation else None
    turns = await services.store.thread(conversation, RATER) if conversation else []
    return page(
        request,
        "chat.html",
        services,
        talk=talk,
        current=conversation,
        turns=[turn_view(turn, services.inferences) for turn in turns],
        talks=await services.store.conversations(),
        examples=EXAMPLES,
    )


@router.get("/")
async def new_conversation(request: Request, services: ServicesDep) -> HTMLResponse:
    return await _chat(request, services)


@router.get("/c/{conversation}")
async def conversation(conversation: str, request: Request, services: ServicesDep) -> HTMLResponse:
    return await _chat(request, services, conversation)


@router.get("/c/{conversation}/turns")
async def turns(conversation: str, services: ServicesDep) -> HTMLResponse:
    """The conversation's turns, for a page that has lost its stream."""
    rows = await services.store.thread(conversation, RATER)
    views = [turn_view(turn, services.inferences) for turn in rows]
    return HTMLResponse(fragment("_turns.html", turns=views))


@router.post("/chat")
async def send(
    content: Annotated[Text, Form(max_length=MOST_TEXT)], services: ServicesDep, conversation: Word = ""
) -> AnswerResponse:
    """Says something, in a conversation or in a new one, and streams the answer."""
    _ready(services.server)
    if not content.strip():
        raise ApiError(422, "Write something first.", "empty")
    before = await services.store.thread(conversation, RATER) if conversation else []
    if not conversation:
        conversation = (await services.store.create_conversation()).id
    user = await services.store.add_turn(conversation, content.strip())
    if before and before[-1].shown:
        await services.implicit.said(before[-1].user.content, before[-1].shown.message, user.content)
    return AnswerResponse(answer(services, user, new=True))


@router.post("/chat/again")
async def again(turn: Word, services: ServicesDep) -> AnswerResponse:
    """Answers a message once more; the earlier answer is kept."""
    _ready(services.server)
    user = await _user(services, turn)
    earlier = (await find_turn(services, user.conversation_id or "", user.id)).shown
    if earlier:
        await services.implicit.did(earlier.message, "regenerate")
    return AnswerResponse(answer(services, user, new=False))


@router.post("/chat/stop")
async def stop(turn: Word, services: ServicesDep) -> Response:
    """Stops what answers a message; its text so far is kept."""
    await services.inferences.stop_answer(turn)
    return Response(status_code=204)


@router.get("/turns/{turn}")
async def one_turn(turn: str, services: ServicesDep) -> HTMLResponse:
    """A turn as it is now (while another page has it written)."""
    user = await _user(services, turn)
    found = await find_turn(services, user.conversation_id or "", user.id)
    return HTMLResponse(fragment("_turn.html", turn=turn_view(found, services.inferences)))


@router.post("/replies/{reply}/thumb")
async def vote(reply: str, services: ServicesDep, value: Word = "") -> HTMLResponse:
    """``up``, ``down``, or empty to take the vote back. A vote that switches loses its comment."""
    thumbs: dict[str, bool | None] = {"up": True, "down": False, "": None}
    if value not in thumbs:
        raise ApiError(422, "A vote is up, down or empty.", "bad_vote")
    thumb = thumbs[value]
    before = await services.store.rated_message(reply, RATER)
    switched = "" if thumb is not None and before.comment else None
    rated = await services.ratings.rate(reply, "thumb", thumb, rater=RATER, source="chat", comment=switched)
    return await _foot(services, reply, credited(rated.credit, thumb))


@router.post("/replies/{reply}/copied")
async def copied(reply: str, services: ServicesDep) -> Response:
    """The reply was copied with the button."""
    await services.implicit.did(await services.store.message(reply), "copy")
    return Response(status_code=204)


@router.post("/replies/{reply}/comment")
async def comment(
    reply: str, services: ServicesDep, text: Annotated[Text, Form(max_length=10_000)] = ""
) -> HTMLResponse:
    """Why the present vote; empty removes it."""
    now = await services.store.rated_message(reply, RATER)
    thumb = now.ratings.get("thumb")
    if thumb is None:
        raise ApiError(409, "Give a thumb first: a comment says why.", "no_vote")
    await services.ratings.rate(reply, "thumb", thumb >= 0.5, rater=RATER, source="chat", comment=text.strip())
    return await _foot(services, reply, "comment kept" if text.strip() else "comment removed")


async def _foot(services: Services, reply: str, said: str) -> HTMLResponse:
    rated = await services.store.rated_message(reply, RATER)
    return HTMLResponse(fragment("_foot.html", reply=reply_view(rated, services.inferences, said)))


async def _user(services: Services, turn: str) -> Message:
    row = await services.store.message(turn)
    if row.role != "user" or row.conversation_id is None:
        raise NotFound("This message does not exist.")
    await services.store.conversation(row.conversation_id)
    return row


def _ready(server: PopulationServer) -> None:
    """Raises NotReady before anything is stored, so that the draft stays in the page."""
    status = server.status()
    if status.state in ("starting", "failed"):
        raise NotReady(f"{status.waiting_for} Your message stays in the field below.")
