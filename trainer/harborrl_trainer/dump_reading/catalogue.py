"""Which rollouts a folder holds, by names and times alone: no dump is opened for it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harborrl_trainer import dumps, index, layout
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.index import Claim
from harborrl_trainer.layout import IncarnationId, IncarnationLayout


@dataclass(frozen=True)
class Entry:
    """What one incarnation dumped of one rollout."""

    rollout: int
    evaluation: bool
    incarnation: IncarnationId | None
    """None in a folder that is no run's: --dump-details of a Miles without HarborRL."""
    owned: bool
    """False: a later incarnation collected this rollout again, and that one counts."""
    rollout_file: Path | None
    train_files: Mapping[int, Path]
    """By training rank."""
    ranks: int
    """Ranks that make a whole set: the widest of the incarnation."""
    trajectory: Path | None
    time: float | None
    """Of the rollout file, seconds since the epoch."""
    size: int = 0
    """Bytes of all its files."""

    @property
    def is_trained(self) -> bool:
        return bool(self.ranks) and len(self.train_files) == self.ranks


@dataclass(frozen=True)
class Catalogue:
    root: Path
    entries: Sequence[Entry]
    """By rollout, evaluations after the rollout of their number, earlier incarnations first."""
    claims: Sequence[Claim] = ()
    trial_logs: Sequence[Path] = field(default_factory=tuple)


def read(root: Path, checkpoints: Path | None = None) -> Catalogue:
    """`root` is a run's folder on the traces volume, or one that Miles was given as --dump-details.

    `checkpoints` is the run's folder on the checkpoints volume, where index.json says who owns what; by default it is
    looked for in `root` and where `root` would be if `traces` in its path were `checkpoints`. Raises ConfigurationError
    when there is neither kind of dump, when `checkpoints` has no index, or when a folder or the index cannot be read.
    """
    root = root.resolve()
    try:
        return _read(root, checkpoints)
    except OSError as error:
        raise ConfigurationError(
            f"{error.filename or root}: cannot be read ({error.strerror or error}); make it readable to you, or name"
            " another folder"
        ) from error


def _read(root: Path, checkpoints: Path | None) -> Catalogue:
    if not root.is_dir():
        said = "is no folder" if root.exists() else "there is no such folder"
        raise ConfigurationError(f"{root}: {said}; name a run's folder on the traces volume, or Miles' --dump-details")
    runs = dumps.scan_run(root)
    if not runs:
        plain = _plain(root)
        if plain is None:
            raise ConfigurationError(
                f"{root}: holds neither a<N>/i<M>/traces nor rollout_data, train_data or trajectory; name a run's"
                " folder on the traces volume, or what Miles had as --dump-details"
            )
        return Catalogue(root, _sorted(_entries(plain, None, ())), (), ())
    claims = _claims(root, checkpoints)
    found = [entry for id_ in runs for entry in _entries(_mine(root, id_), id_, claims)]
    return Catalogue(root, _sorted(found), claims, tuple(_trial_logs(root, runs)))


def _plain(root: Path) -> IncarnationLayout | None:
    for traces in (root, root / "traces"):
        if any((traces / name).is_dir() for name in ("rollout_data", "train_data", "trajectory")):
            return IncarnationLayout(IncarnationId(1, 1), traces, root, root)
    return None


def _mine(root: Path, id_: IncarnationId) -> IncarnationLayout:
    return layout.RunLayout(root, root, root).incarnation(*id_)


def _claims(root: Path, checkpoints: Path | None) -> tuple[Claim, ...]:
    folders = [checkpoints] if checkpoints else [root, _beside(root, "checkpoints")]
    if checkpoints and not (checkpoints / "index.json").exists():
        raise ConfigurationError(
            f"{checkpoints}: holds no index.json, which says whose rollouts count; name the run's folder on the"
            " checkpoints volume, or leave --checkpoints out to count every rollout"
        )
    for folder in folders:
        if folder is not None and (claims := index.read_claims(folder / "index.json")):
            return claims
    return ()


def _beside(root: Path, role: str) -> Path | None:
    """The run's folder on another volume, where volumes are directories of one: the last `traces` in the path."""
    parts = list(root.parts)
    for at in reversed(range(len(parts))):
        if parts[at] == "traces":
            return Path(*parts[:at], role, *parts[at + 1 :])
    return None


def _trial_logs(root: Path, runs: Mapping[IncarnationId, object]) -> Iterator[Path]:
    for id_ in runs:
        for folder in (root, _beside(root, "trials")):
            if folder is not None:
                yield from sorted(_mine(folder, id_).trials.glob("*.jsonl"))


def _entries(mine: IncarnationLayout, id_: IncarnationId | None, claims: Sequence[Claim]) -> Iterator[Entry]:
    scanned = dumps.scan_incarnation(mine)
    world = max((rank + 1 for ranks in scanned.trained.values() for rank in ranks), default=0)
    trajectories = {path.stem: path for path in (mine.traces / "trajectory").glob("*.jsonl")}
    spoken = {int(name) for name in trajectories if name.isdecimal()}
    judged = {int(name[5:]) for name in trajectories if name.startswith("eval_") and name[5:].isdecimal()}
    for rollout in scanned.collected.keys() | scanned.trained.keys() | spoken:
        collected = rollout in scanned.collected
        yield _sized(
            Entry(
                rollout=rollout,
                evaluation=False,
                incarnation=id_,
                owned=id_ is None or index.owner(claims, rollout) in {id_, None},
                rollout_file=mine.rollout_file(rollout) if collected else None,
                train_files={rank: mine.train_file(rollout, rank) for rank in scanned.trained.get(rollout, ())},
                ranks=world,
                trajectory=trajectories.get(str(rollout)),
                time=scanned.collected.get(rollout),
            )
        )
    for rollout in scanned.evaluated.keys() | judged:
        there = rollout in scanned.evaluated
        file = mine.rollout_file(rollout, evaluation=True) if there else None
        time = scanned.evaluated.get(rollout)
        owned = id_ is None or index.owner(claims, rollout) in {id_, None}
        yield _sized(Entry(rollout, True, id_, owned, file, {}, 0, trajectories.get(f"eval_{rollout}"), time))


def _sized(entry: Entry) -> Entry:
    files = [path for path in (entry.rollout_file, entry.trajectory, *entry.train_files.values()) if path]
    size = sum(path.stat().st_size for path in files if path.exists())
    return replace(entry, size=size)


def _sorted(entries: Iterator[Entry] | Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry.rollout, entry.evaluation, entry.incarnation or (0, 0)))
