"""Any exception of a trainer process -> its exit code and one sentence, without importing what raised it."""

import errno
import os
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

STORAGE_ERRNO = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE})
TORCH_WRITER = r"basic_ios::clear|unexpected pos \d+ vs|PytorchStreamWriter failed writing file"
"""What torch's zip writer says of a write that failed; it hides the cause, most often a full volume."""
_NUMBER = re.compile(r"\[Errno (\d+)\]|\(os error (\d+)\)")
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
        if isinstance(link, OSError) and link.errno in STORAGE_ERRNO:
            where = link.filename or "a volume"
            sentence = f"{where}: {link.strerror}; {advice(link.strerror)}, the run goes on from its checkpoint"
            return Failure(StorageError.exit_code, one_line(sentence), known=True)
        if _is_of_constructor(link):
            return _constructor_failure(str(link))
        if _is_ray_infrastructure(link):
            sentence = f"Ray: {type(link).__name__}: {_advice(link)}; Ray said: {link}"
            return Failure(InfrastructureError.exit_code, one_line(sentence), known=True)
    raised = _unwrapped(error)
    sentence = f"{type(raised).__name__}: {raised}; the traceback above says where, report it if it is not yours"
    return Failure(APPLICATION, one_line(sentence), known=False)


def storage_errno(text: str) -> int | None:
    """The error number that a library put into its text, where it is a volume's."""
    numbers = (int(found[1] or found[2]) for found in _NUMBER.finditer(text))
    return next((number for number in numbers if number in STORAGE_ERRNO), None)


def advice(said: str | None) -> str:
    """What to do about a volume, by the system's words for what ails it."""
    if said == os.strerror(errno.EROFS):
        return "make the volume writable: it is mounted read-only, or its file system gave up after an error"
    if said == os.strerror(errno.EDQUOT):
        return "make room below the quota or raise it"
    if said in {os.strerror(errno.EIO), os.strerror(errno.ESTALE)}:
        return "repair the volume or its server"
    return "make room on the volume or repair it"


def _is_of_constructor(error: BaseException) -> bool:
    """Ray tells what an actor's `__init__` raised as the actor's death, with its traceback as text and no cause."""
    return _is_ray_infrastructure(error) and getattr(error, "actor_init_failed", False) and "OOM" not in str(error)


def _constructor_failure(text: str) -> Failure:
    """The last line is the exception's own. A new attempt would meet it again, unless it was the disk's."""
    raised = text.strip().rpartition("\n")[2].strip()
    if storage_errno(raised):
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
        raised = _unwrapped(link)
        if raised is link:
            yield link
        link = raised if raised is not link else link.__cause__ or link.__context__


def _unwrapped(error: BaseException) -> BaseException:
    """What an actor raised, where Ray wraps it (RayTaskError).

    The wrapper is an instance of the cause's class too, but its text is the remote traceback, carets and addresses.
    """
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) and cause is not error else error
