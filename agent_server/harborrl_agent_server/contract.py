"""Wire types of `/run`, `/flush` and `/health` (docs/contracts.md; fixtures in tests/contract)."""

import json
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator


class ExitStatus(StrEnum):
    """How a trial ended: a closed vocabulary. The first group may train, the second never does."""

    SUBMITTED = "Submitted"
    TURN_LIMIT = "TurnLimitExceeded"
    TIME_LIMIT = "TimeLimitExceeded"
    SEQUENCE_LENGTH_LIMIT = "SequenceLengthLimitExceeded"
    VERIFIER_ERROR = "VerifierError"
    AGENT_ERROR = "AgentError"

    ABORTED = "Aborted"
    SANDBOX_UNAVAILABLE = "SandboxUnavailable"
    SANDBOX_LOST = "SandboxLost"
    MODEL_ENDPOINT_FAILED = "ModelEndpointFailed"
    QUEUE_TIMEOUT = "QueueTimeout"
    TASK_NOT_FOUND = "TaskNotFound"
    INVALID_INSTANCE_ID = "InvalidInstanceId"
    INVALID_AGENT = "InvalidAgent"
    SERVER_ERROR = "ServerError"


LONGEST_ID = 256
"""Characters of an id that are kept: more than name any task, so what is longer is refused by what is left of it."""

Word = Annotated[str, StringConstraints(max_length=4096)]
"""Bounded, because a request is kept as long as its trial is shown."""


class RunRequest(BaseModel):
    """One trial. Further keys are columns of the data set: large, or the gold patch, so they are dropped here."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    instance_id: Annotated[str, AfterValidator(lambda text: text[:LONGEST_ID])]
    agent_name: Word | None = None
    """Unset: the server's `--agent-name`."""
    base_url: Word | None = None
    """The session, up to and including `/v1`. Agents that ask no model need none."""
    model: Word = "model"
    api_key: Word = Field(default="dummy", repr=False)
    sampling_params: dict[str, Any] = Field(default_factory=dict)
    """ChatCompletionRequest fields, forwarded unchanged with every model request."""
    max_seq_len: int | None = Field(default=None, gt=0)
    """Tokens of prompt and completions together; judged by the `usage` of each reply."""
    session_server_id: Word | None = None
    session_server_instance_id: Word | None = None
    """Names the training session that `/flush` cancels."""
    deadline_s: float | None = Field(default=None, gt=0)
    """Seconds from receipt in which the client will still read an answer."""

    @field_validator("max_seq_len", "deadline_s", mode="before")
    @classmethod
    def _counted(cls, value: Any) -> Any:
        """Python takes true for 1: a sequence of one token would end every trial, graded."""
        if isinstance(value, bool):
            raise ValueError("true and false are no numbers")  # noqa: TRY004 - pydantic's word for a refusal
        return value

    @field_validator("sampling_params")
    @classmethod
    def _sendable(cls, value: dict[str, Any]) -> dict[str, Any]:
        """NaN and infinities are no JSON: they would break the first model request, when a sandbox has been made."""
        try:
            json.dumps(value, allow_nan=False)
        except ValueError as error:
            raise ValueError("holds a number that JSON cannot say") from error
        return value


class RunResponse(BaseModel):
    reward: float = 0.0
    """Meaningful only when `eval_report` is not empty."""
    exit_status: ExitStatus
    eval_report: dict[str, float] = Field(default_factory=dict)
    agent_metrics: dict[str, float] = Field(default_factory=dict)
    """Finite numbers; what was not measured is absent, never 0."""
    trial_name: str | None = None
    infra_failure: bool
    exception_type: str | None = None
    message: str | None = None
    """One line for people: what broke, where, what to do. Null when nothing did."""
    phase_seconds: dict[str, float] = Field(default_factory=dict)
    warnings: list[str] = Field(default_factory=list)


class FlushRequest(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    session_server_instance_id: str | None = None
    session_server_instance_ids: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        """A misspelt field is dropped: answered with a zero, nobody would learn that trials run on."""
        if not any(self.ids()):
            raise ValueError("name a session: session_server_instance_id, or one or more session_server_instance_ids")
        return self

    def ids(self) -> list[str]:
        """The named instances, each once, in the order given."""
        single = [self.session_server_instance_id] if self.session_server_instance_id else []
        return list(dict.fromkeys([*single, *self.session_server_instance_ids]))


class FlushResponse(BaseModel):
    cancelled: int
    pending: int
    """Cancelled trials whose teardown had not finished when this answer was written."""
    ids: list[str]
    unreached: int = 0
    """Other servers of the job that may run trials of these sessions and did not answer."""


class Warm(BaseModel):
    """Of sandboxes that can be ready before a trial asks for one; zeros where every sandbox is made for its trial."""

    ready: int = 0
    starting: int = 0
    warm_starts: int = 0
    cold_starts: int = 0


class Health(BaseModel):
    status: str
    version: str
    instance: str
    capacity: int
    in_flight: int
    queued: int
    free: int
    oldest_trial_s: float | None
    budgets: dict[str, float]
    outcomes: dict[str, int]
    network_policies: str = "not used"
    """Whether restricted sandboxes are known to be cut off; `not used` where sandboxes are no pods."""
    warm: Warm = Field(default_factory=Warm)
