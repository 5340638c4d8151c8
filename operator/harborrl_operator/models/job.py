"""The door: a raw object from the API server becomes a typed job or one clear error."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from harborrl_operator.models.base import Model
from harborrl_operator.models.spec import JobSpec
from harborrl_operator.models.status import JobStatus
from harborrl_operator.names import JobNames


class InvalidJobError(ValueError):
    """The object is not a HarborRLJob of this version; retrying does not help until its spec changes."""


@dataclass(frozen=True)
class HarborRLJob:
    """A parsed job."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: JobSpec
    status: JobStatus
    version: str = ""
    """resourceVersion that was read: a status decided on it is not written over a newer one."""
    created_at: str = ""
    """Of the object, as the API server wrote it."""

    @property
    def names(self) -> JobNames:
        return JobNames(self.namespace, self.name, self.uid)


def parse_job(raw: Mapping[str, Any]) -> HarborRLJob:
    """Parse a raw object; raises InvalidJobError naming each wrong field."""
    metadata = raw["metadata"]
    return HarborRLJob(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        spec=_parse(JobSpec, "spec", raw.get("spec", {})),
        status=_parse(JobStatus, "status", raw.get("status") or {}),
        version=metadata.get("resourceVersion", ""),
        created_at=metadata.get("creationTimestamp", ""),
    )


def _parse[T: Model](model: type[T], root: str, value: Mapping[str, Any]) -> T:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = "; ".join(
            f"{root}.{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()
        )
        raise InvalidJobError(f"{faults}. Correct the {root} and apply it again.") from None
