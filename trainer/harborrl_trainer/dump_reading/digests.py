"""What the opener answers, checked on arrival: it comes from a process that a hostile file may have taken over."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.alias_generators import to_camel

Count = Annotated[int, Field(ge=0, lt=2**53)]
Text = Annotated[str, Field(max_length=255)]


class _Digest(BaseModel):
    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, extra="forbid", allow_inf_nan=False, strict=True
    )


class SampleDigest(_Digest):
    index: int | None
    group: int | None
    instance: Text
    status: Text
    reward: float | Literal["not finite"] | None
    """None also for a reward of several keys."""
    response: Count | None
    """Tokens after the prompt."""
    tokens: Count
    trained: Count | None
    """Tokens with a loss mask of 1."""
    oldest_version: Count | None
    newest_version: Count | None
    """Weights that its turns were generated with."""
    turns: Count


class RolloutDigest(_Digest):
    kind: Literal["rollout"]
    rollout: int | str | None
    samples: tuple[SampleDigest, ...]


class TrainRow(_Digest):
    index: int | None
    response: Count | None
    compared: Count | None = None
    """Trained tokens with a log-probability of both sides; None where one side dumped none."""
    not_finite: Count = 0
    absolute_sum: float = 0.0
    absolute_max: float = 0.0
    signed_sum: float = 0.0
    """Of trainer minus rollout, in nats."""


class TrainDigest(_Digest):
    kind: Literal["train"]
    rollout: int | str | None
    rank: Count | None
    cp_rank: Count
    cp_size: Count
    rows: tuple[TrainRow, ...]


class Refused(_Digest):
    refused: Annotated[str, Field(max_length=1000)]


ANSWER: TypeAdapter[RolloutDigest | TrainDigest | Refused] = TypeAdapter(RolloutDigest | TrainDigest | Refused)
