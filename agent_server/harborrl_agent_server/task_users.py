"""As whom a task's commands run: users that its image has to have."""

from collections.abc import Iterator
from dataclasses import dataclass

from harbor.models.task.config import TaskConfig, VerifierEnvironmentMode
from harbor.models.task.verifier_mode import resolve_task_verifier_mode

User = str | int


@dataclass(frozen=True)
class Users:
    """Each once; root is left out, for every image has it."""

    agents: tuple[User, ...] = ()
    """Of the sandbox in which the agent acts, a verifier that shares it included."""
    verifiers: tuple[User, ...] = ()
    """Of a verifier's own sandbox."""


def users_of(task: TaskConfig) -> Users:
    phases = list(phases_of(task))
    return Users(
        agents=distinct(user for user, has_own in phases if not has_own),
        verifiers=distinct(user for user, has_own in phases if has_own),
    )


def phases_of(task: TaskConfig) -> Iterator[tuple[User | None, bool]]:
    """The user of each phase, and whether the verifier's own sandbox is its place."""
    yield task.agent.user, False
    yield task.verifier.user, resolve_task_verifier_mode(task) is VerifierEnvironmentMode.SEPARATE


def distinct(users: Iterator[User | None]) -> tuple[User, ...]:
    return tuple(dict.fromkeys(user for user in users if user is not None and str(user) not in {"root", "0"}))
