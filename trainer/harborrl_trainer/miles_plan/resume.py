"""Where an incarnation of Miles begins, decided over what was found on the volume. Pure.

Miles begins at rollout 0, from the reference weights and in silence, wherever its tracker file is missing, and its LoRA
checkpoints have none. So the place to begin is ours to find, and to tell Miles in a form that it cannot misread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from harborrl_trainer import index
from harborrl_trainer.errors import RestartAtZeroError, StorageError
from harborrl_trainer.index import Claim
from harborrl_trainer.layout import IncarnationId

NO_RUN = IncarnationId(0, 0)
"""Of checkpoints that no incarnation of this run has saved."""


class How(StrEnum):
    MODEL = "model"
    """No checkpoint: the model's own weights."""
    FULL = "full"
    ADAPTER = "adapter"
    """LoRA: the base model and an adapter's directory."""
    RELEASE = "release"
    """Converted weights without an iteration (`release` in the tracker file): begun from, not continued."""


@dataclass(frozen=True)
class Found:
    """One `iter_*` directory, and what is known of it."""

    id: IncarnationId
    rollout: int
    path: Path
    sealed: bool = False
    """It bears `complete.json`."""
    damaged: bool = False
    """It bore the mark and was set aside."""
    problem: str = ""
    """Why its weights cannot be loaded; empty when they can. For a sealed one: against its seal."""
    data_problem: str = ""
    """Why Miles' place in the data set is not known from it."""
    adapter: bool = False
    optimizer: bool = True

    @property
    def checkpoints(self) -> Path:
        """The `--save` directory that it lies in."""
        return self.path.parent

    @property
    def whole(self) -> bool:
        return not self.problem and not self.data_problem


@dataclass(frozen=True)
class Foreign:
    """What `resumeFrom` names, if it is no checkpoint of this run."""

    found: Found | None = None
    release: Path | None = None


@dataclass(frozen=True)
class Resume:
    how: How
    first_rollout: int = 0
    checkpoint: Path | None = None
    """`iter_*` directory, or for RELEASE the directory with the tracker file."""
    optimizer: bool = False
    """Whether it holds the optimizer's state."""
    data_state: bool = True
    seals: tuple[Found, ...] = ()
    """Whole ones without their mark, by which others will know them."""
    set_aside: tuple[Found, ...] = ()
    """Marked ones that turned out damaged."""
    notices: tuple[str, ...] = ()


def decide(found: Sequence[Found], claims: Sequence[Claim], foreign: Foreign | None) -> Resume:
    """A run's own checkpoint comes before `resumeFrom`, so that a second attempt does not fall back to the other run.

    Raises RestartAtZeroError where the run would begin at 0 although it has a whole checkpoint that no claim gives it,
    StorageError where all that it has is damaged.
    """
    set_aside = tuple(one for one in found if one.sealed and one.problem)
    whole = [one for one in found if one.whole]
    owned = [one for one in whole if index.owner(claims, one.rollout) in {one.id, None}]
    if not owned:
        # Rather a data set from its beginning than a run from its own; not for an adapter, whose data state is the one
        # file that Miles writes after all ranks have saved.
        usable = [one for one in found if not one.problem and not one.adapter]
        owned = [one for one in usable if index.owner(claims, one.rollout) in {one.id, None}]
    best = max(owned, key=lambda one: (one.rollout, one.id), default=None)
    if best is not None:
        return _go_on(best, found, set_aside)
    _refuse_to_forget(whole, [one for one in found if one.damaged or (one.sealed and one.problem)])
    return _begin_elsewhere(foreign, _torn_notices(found, after=-1))


def _go_on(best: Found, found: Sequence[Found], set_aside: tuple[Found, ...]) -> Resume:
    late = tuple(one for one in found if one.whole and not one.sealed and one is not best)
    return Resume(
        how=How.ADAPTER if best.adapter else How.FULL,
        first_rollout=best.rollout + 1,
        checkpoint=best.path,
        optimizer=best.optimizer,
        data_state=not best.data_problem,
        seals=late if best.sealed else (*late, best),
        set_aside=set_aside,
        notices=(*_torn_notices(found, after=best.rollout), *_losses(best)),
    )


def _begin_elsewhere(foreign: Foreign | None, notices: tuple[str, ...]) -> Resume:
    if foreign is None:
        return Resume(how=How.MODEL, notices=notices)
    if foreign.release is not None:
        told = f"{foreign.release} holds converted weights without an iteration: rollout 0 begins from them"
        return Resume(how=How.RELEASE, checkpoint=foreign.release, data_state=False, notices=(*notices, told))
    if foreign.found is None:
        return Resume(how=How.MODEL, notices=notices)
    source = foreign.found
    return Resume(
        how=How.ADAPTER if source.adapter else How.FULL,
        first_rollout=source.rollout + 1,
        checkpoint=source.path,
        optimizer=source.optimizer,
        data_state=not source.data_problem,
        notices=(*notices, *_losses(source)),
    )


def _losses(found: Found) -> tuple[str, ...]:
    said = []
    if not found.optimizer:
        said.append(f"{found.path.name} holds no optimizer state: the optimizer starts cold (config.noSaveOptim)")
    if found.data_problem:
        said.append(f"{found.path.name}: {found.data_problem}: the data set starts from its beginning")
    return tuple(said)


def _torn_notices(found: Sequence[Found], after: int) -> tuple[str, ...]:
    """Newer ones that would have been taken; an older torn one is of no consequence."""
    torn = [one for one in found if not one.whole and one.rollout > after]
    return tuple(
        f"{one.path.name} of a{one.id.attempt}/i{one.id.incarnation} is not whole: {one.problem or one.data_problem}"
        for one in torn
    )


def _refuse_to_forget(whole: Sequence[Found], damaged: Sequence[Found]) -> None:
    if whole:
        newest = max(whole, key=lambda one: (one.rollout, one.id))
        raise RestartAtZeroError(
            f"{newest.path}: the run would begin at rollout 0 although it has this whole checkpoint of rollout "
            f"{newest.rollout}, which index.json gives to no one; move index.json away to go on from it, or move the "
            "checkpoint away to begin anew"
        )
    if damaged:
        raise StorageError(
            f"{damaged[-1].path}: every checkpoint of this run is damaged; restore one, or delete them if the run is "
            "to begin again"
        )
