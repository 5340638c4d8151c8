"""index.json: which attempt and incarnation owns each rollout id of a run.

An incarnation that starts at rollout F owns every id from F on until a later one starts. So one claim an incarnation
says it all, and what an overtaken incarnation (a zombie) goes on to write is counted by nobody.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from harborrl_trainer import files
from harborrl_trainer.errors import InfrastructureError, StorageError
from harborrl_trainer.layout import IncarnationId


class Claim(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    attempt: int
    incarnation: int
    first_rollout: int
    """First rollout id that this incarnation collects."""
    resumed_from: str | None = None
    """Checkpoint it loaded, relative to the checkpoints volume; null for a start from the model."""
    optimizer: bool | None = None
    """Whether that checkpoint held the optimizer's state; null for a start from the model, or where nobody said."""
    set_aside: tuple[str, ...] = ()
    """Newer checkpoints that turned out damaged when this incarnation began, relative to the checkpoints volume."""

    @property
    def id(self) -> IncarnationId:
        return IncarnationId(self.attempt, self.incarnation)


class _Document(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    schema_version: Literal[1] = 1
    claims: tuple[Claim, ...] = ()


def read_claims(path: Path) -> tuple[Claim, ...]:
    """Claims in the order they were made; none before the first start."""
    try:
        return _Document.model_validate_json(path.read_bytes()).claims
    except FileNotFoundError:
        return ()
    except ValidationError as error:
        raise StorageError(
            f"{path}: the index of the run is damaged; restore it, or move it away to let every checkpoint count"
        ) from error


def add_claim(path: Path, claim: Claim) -> tuple[Claim, ...]:
    """Record `claim` atomically, also beside another writer.

    InfrastructureError when a later incarnation has claimed, or claims in the same moment on a volume without locks:
    this one must end.
    """
    try:
        with files.locked(path):
            claims = _add(path, claim)
    except TimeoutError as error:
        raise InfrastructureError(f"{path}: another driver holds its lock; a new attempt may find it free") from error
    if claim not in read_claims(path):
        raise InfrastructureError(f"{path}: another driver has claimed this run in the same moment; this one ends")
    return claims


def _add(path: Path, claim: Claim) -> tuple[Claim, ...]:
    before = read_claims(path)
    newest = max((existing.id for existing in before), default=claim.id)
    if newest > claim.id:
        raise InfrastructureError(
            f"{path}: a{newest.attempt}/i{newest.incarnation} owns this run now; "
            f"a{claim.attempt}/i{claim.incarnation} ends without writing"
        )
    claims = (*(existing for existing in before if existing.id != claim.id), claim)
    files.replace(path, _Document(claims=claims).model_dump_json(by_alias=True, indent=1) + "\n")
    return claims


def owner(claims: Sequence[Claim], rollout: int) -> IncarnationId | None:
    """Who owns a rollout id; None where no claim reaches down to it."""
    return next((claim.id for claim in reversed(claims) if claim.first_rollout <= rollout), None)
