"""``POST /v1/feedback``: a rating of one reply, in TensorZero's shape."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header
from pydantic import BaseModel, ConfigDict, Field

from app.deps import RatingsDep
from app.text import Text

router = APIRouter(tags=["feedback"])
Word = Annotated[Text, Field(min_length=1, max_length=200)]


class Feedback(BaseModel):
    """A rating."""

    model_config = ConfigDict(
        strict=True,
        json_schema_extra={
            "examples": [
                {"inference_id": "chatcmpl-…", "metric_name": "thumb", "value": True},
                {"inference_id": "chatcmpl-…", "metric_name": "score", "value": 0.8, "comment": "Short and right."},
            ]
        },
    )

    inference_id: Word = Field(description="The `id` of a chat completion.")
    metric_name: Word = Field(description="A declared metric: `thumb` (true or false) and `score` (0 to 1) by default.")
    value: Any = Field(description="What the metric takes, or null to take the rating back.")
    comment: Annotated[Text, Field(max_length=10_000)] | None = Field(
        None, description="Kept until another one replaces it; an empty one removes it."
    )
    tags: dict[Word, Annotated[Text, Field(max_length=1000)]] | None = Field(None, max_length=50)
    rater: Word = Field("api", description="Who rates. Each rater has one present value a reply and metric.")


class Credit(BaseModel):
    """What became of the rating. `counted`: part of the present generation's fitness. `late`: its generation has
    merged; the next merge corrects for it. `recorded`: kept, too old to be credited. `waiting`: stored; credited as
    soon as the engine serves."""

    kind: str
    generation: int
    member: int | None
    ratings: int
    merge_after: int


class FeedbackAnswer(BaseModel):
    inference_id: str
    metric_name: str
    value: bool | float | None
    credit: Credit


@router.post("/v1/feedback")
async def feedback(
    rating: Feedback,
    ratings: RatingsDep,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> FeedbackAnswer:
    """Rates a finished reply. It is on the disk when this answers. With an `Idempotency-Key` a repeated request is
    stored once."""
    rated = await ratings.rate(
        rating.inference_id,
        rating.metric_name,
        rating.value,
        rater=rating.rater,
        source="api",
        comment=rating.comment,
        tags=rating.tags,
        key=idempotency_key,
    )
    return FeedbackAnswer.model_validate(rated, from_attributes=True)
