"""Errors that end a trainer process, named after the boundary that broke; each carries its exit code.

The codes are those of docs/contracts.md, "Supervisor and driver".

The message of each is one sentence for a person: what broke, where, what to do. `TrainerError` itself is never raised.
"""

FINISHED = 0
STOPPED = 75
"""A stop was asked for and a checkpoint was written: not a failure, the next incarnation goes on from it."""
APPLICATION = 1
"""Anything that no other class names: a bug here or in the model code. Worth one retry, not an endless one."""
CRASHED = 70
"""A preflight that broke: 1 would read as a refusal."""


class TrainerError(Exception):
    exit_code: int = APPLICATION


class ConfigurationError(TrainerError):
    """The job document, the data or the model cannot work as they are. Trying again changes nothing."""

    exit_code = 64


class InfrastructureError(TrainerError):
    """The agent server, Ray or a node is gone. Trying again elsewhere may work."""

    exit_code = 69


class StorageError(TrainerError):
    """A volume is full, read-only or gone. Trying again works once a person has made room."""

    exit_code = 74


class RestartAtZeroError(StorageError):
    """The run would begin at rollout 0, or behind what it is known to have saved. Only a person may decide that."""

    exit_code = 65
