"""Errors of a trial, named after the boundary that broke.

None of them is a `TimeoutError`: Harbor takes every one that crosses an environment or an agent for a time-out of the
phase. What each means for the sample is decided in `outcomes`, by class name, because that is what Harbor records.
"""

from harbor.models.trial.error_policy import ErrorPolicyOverride


class SandboxStartError(Exception):
    """The sandbox never became ready. The policy has done nothing yet; the trial may be repeated elsewhere or later."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class SandboxLostError(Exception):
    """A running sandbox disappeared (node gone, pod deleted or preempted). Nothing of the trial can be trusted."""


class SandboxTransportError(Exception):
    """The connection to a sandbox broke before the command's status arrived. Never read as an exit code."""


class SandboxResourceError(Exception):
    """The sandbox was killed by its own limits (memory, ephemeral storage): the policy's doing, graded 0."""


class SandboxUnusableError(Exception):
    """The sandbox runs and can start nothing any more: its own files were removed. Once an agent acted, its doing."""


class ModelEndpointError(Exception):
    """The session server failed, refused, or no longer knows the session. The sample has no usable tokens."""


class StartupError(Exception):
    """The server cannot start as configured. One line: what, where, what to do."""


class InvalidAgentError(Exception):
    """The request's agent cannot run here."""


class HostError(Exception):
    """The server's own machine failed before the trial began: a full volume, no descriptor or memory left."""


HOST_FAULTS = (OSError, MemoryError)
"""Of this server's own machine, by exact class: a full or broken trials volume, no file descriptor or memory left.
Nothing that a policy does in its sandbox, or a task's author in its folder, ends in one of them."""


def is_host_fault(error: BaseException) -> bool:
    return type(error) in HOST_FAULTS


SANDBOX_FAULTS = (
    SandboxStartError,
    SandboxLostError,
    SandboxTransportError,
    SandboxResourceError,
    SandboxUnusableError,
)

NEVER_GRADED = ErrorPolicyOverride(should_retry=False, should_grade=False, has_valid_reward=False)

ERROR_POLICY: dict[str, ErrorPolicyOverride] = {
    error.__name__: NEVER_GRADED for error in (*SANDBOX_FAULTS, ModelEndpointError)
}
"""Harbor grades unknown exceptions and calls their reward valid; ours are known to be neither."""
