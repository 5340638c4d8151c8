"""Any exception of a trainer process -> its exit code and one sentence, without importing what raised it."""

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass

from harborrl_trainer.errors import (
    APPLICATION,
    CRASHED,
    InfrastructureError,
    StorageError,
    TrainerError,
)

_STORAGE_ERRNO = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE})
_RAY_INFRASTRUCTURE = frozenset(
    {
        "ActorDiedError",
        "ActorUnavailableError",
        "ActorUnschedulableError",
        "LocalRayletDiedError",
        "NodeDiedError",
        "ObjectLostError",
        "OwnerDiedError",
        "RayActorError",
        "RaySystemError",
        "RpcError",
        "TaskUnschedulableError",
        "WorkerCrashedError",
    }
)

_ERRNO = re.compile(r"\[Errno (\d+)\]")

MEMORY_ADVICE = "an actor's process died, most often at the memory limit: raise trainer.resources.limits.memory"


@dataclass(frozen=True)
class Failure:
    exit_code: int
    sentence: str
    """One line: what, where, what to do."""
    known: bool
    """True: the sentence is enough. False: a person will want the traceback above it."""

    def code_for(self, command: str) -> int:
        return CRASHED if command == "preflight" and self.exit_code == APPLICATION else self.exit_code


def failure_of(error: BaseException) -> Failure:
    """The first known error of the chain decides: Ray wraps what an actor raised, libraries wrap what the disk said."""
    for link in _chain(error):
        if isinstance(link, TrainerError):
            return Failure(link.exit_code, one_line(str(link)), known=True)
        if isinstance(link, OSError) and link.errno in _STORAGE_ERRNO:
            where = link.filename or "a volume"
            sentence = (
                f"{where}: {link.strerror}; make room on the volume or repair it, the run goes on from its checkpoint"
            )
            return Failure(StorageError.exit_code, one_line(sentence), known=True)
        if _is_of_constructor(link):
            return _constructor_failure(str(link))
        if _is_ray_infrastructure(link):
            sentence = f"Ray: {type(link).__name__}: {_advice(link)}; Ray said: {link}"
            return Failure(InfrastructureError.exit_code, one_line(sentence), known=True)
    sentence = f"{type(error).__name__}: {error}; the traceback above says where, report it if it is not your own code"
    return Failure(APPLICATION, one_line(sentence), known=False)


def _is_of_constructor(error: BaseException) -> bool:
    """Ray tells what an actor's `__init__` raised as the actor's death, with its traceback as text and no cause."""
    return _is_ray_infrastructure(error) and getattr(error, "actor_init_failed", False) and "OOM" not in str(error)


def _constructor_failure(text: str) -> Failure:
    """The last line is the exception's own. A new attempt would meet it again, unless it was the disk's."""
    raised = text.strip().rpartition("\n")[2].strip()
    number = _ERRNO.search(raised)
    if number and int(number[1]) in _STORAGE_ERRNO:
        sentence = f"{raised}; make room on the volume or repair it, the run goes on from its checkpoint"
        return Failure(StorageError.exit_code, one_line(sentence), known=True)
    sentence = f"model: an actor could not be built: {raised}; the traceback above says where, check model.path"
    return Failure(APPLICATION, one_line(sentence), known=False)


def _advice(error: BaseException) -> str:
    """Comes before Ray's own text, which is long enough to push it off the line."""
    if "OOM" in str(error):
        return MEMORY_ADVICE
    return "look at the trainer pods and nodes, a new attempt may succeed"


def one_line(text: str, limit: int = 600) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: limit - 1] + "…"


def _is_ray_infrastructure(error: BaseException) -> bool:
    kinds = type(error).__mro__
    return any(kind.__module__.startswith("ray.") and kind.__name__ in _RAY_INFRASTRUCTURE for kind in kinds)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        ray_cause = getattr(link, "cause", None)  # RayTaskError keeps the remote exception here
        link = ray_cause if isinstance(ray_cause, BaseException) else link.__cause__ or link.__context__
