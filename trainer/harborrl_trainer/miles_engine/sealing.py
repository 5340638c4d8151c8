"""Is a checkpoint that Miles saved whole, and the mark that says so. Only names, sizes and heads are read, no pickle.

Miles writes `iter_<rollout>/` in place, then its tracker file (full checkpoints), then its place in the data set. So
what is last in that order and whole vouches for the rest. `complete.json` in `iter_<rollout>/` is ours: with it a
checkpoint counts for the supervisor, for retention and for the next incarnation, as the native engine's does.
"""

import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harborrl_trainer import files

COMPLETE_MARK = "complete.json"
"""As `harborrl_trainer.layout` has it (a test compares them)."""
DAMAGED_NOTE = "damaged.txt"
TRACKER = "latest_checkpointed_iteration.txt"
RELEASE = "release"
"""What the tracker of a converted checkpoint says: weights alone, no iteration."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Saved:
    """One `iter_*` directory."""

    rollout: int
    path: Path
    sealed: bool


def iterations(checkpoints: Path) -> list[Saved]:
    """Those below `--save`, in the order of their rollouts."""
    try:
        paths = list(checkpoints.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [(re.fullmatch(r"iter_(\d{7,})", path.name), path) for path in paths]
    saved = [Saved(int(match[1]), path, (path / COMPLETE_MARK).is_file()) for match, path in found if match]
    return sorted(saved, key=lambda one: one.rollout)


def tracker(checkpoints: Path) -> str | None:
    """What the tracker file says, None where there is none."""
    try:
        return (checkpoints / TRACKER).read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def data_state(checkpoints: Path, rollout: int) -> Path:
    return checkpoints / "rollout" / f"global_dataset_state_dict_{rollout}.pt"


def problem(checkpoints: Path, rollout: int, *, data_state: bool = True, ranks: int = 0) -> str:
    """What a checkpoint lacks to be whole; empty when nothing. `ranks`: those that save an adapter; 0: not known."""
    return weights_problem(checkpoints, rollout, ranks=ranks) or (
        data_problem(checkpoints, rollout) if data_state else ""
    )


def weights_problem(checkpoints: Path, rollout: int, *, ranks: int = 0) -> str:
    place = checkpoints / f"iter_{rollout:07d}"
    adapter = place / "adapter"
    return _adapter_problem(adapter, ranks) if adapter.is_dir() else _full_problem(checkpoints, place, rollout)


def data_problem(checkpoints: Path, rollout: int) -> str:
    state = data_state(checkpoints, rollout)
    return "" if _is_torch_file(state) else f"rollout/{state.name} is missing or torn"


def _full_problem(checkpoints: Path, place: Path, rollout: int) -> str:
    said = tracker(checkpoints) or "nothing"
    if not said.isdecimal() or int(said) < rollout:
        return f"the tracker file says {said}"
    sizes = _sizes(place)
    empty = [name for name, size in sizes.items() if size == 0]
    if empty or not sizes:
        return f"{empty[0]} is empty" if empty else "the directory is empty"
    sharded = any(name.endswith(".distcp") for name in sizes)
    missing = [name for name in (".metadata", "metadata.json", "common.pt") if name not in sizes] if sharded else []
    return f"{missing[0]} is missing" if missing else ""


def _adapter_problem(adapter: Path, wanted: int) -> str:
    shards = sorted(adapter.glob("adapter_megatron_*.pt"))
    states = sorted(adapter.glob("training_state_rank*.pt"))
    if not shards:
        return "there is no adapter/adapter_megatron_*.pt"
    if not states:
        # Without it the optimizer's copy of the weights stays as initialised, and the first step undoes the adapter.
        return "there is no adapter/training_state_rank*.pt, without which an adapter cannot be trained on"
    torn = [path.name for path in (*shards, *states) if not _is_torch_file(path)]
    if torn:
        return f"adapter/{torn[0]} is torn"
    ranks = [path.name.rpartition("rank")[2] for path in shards if "_rank" in path.name]
    unmatched = [rank for rank in ranks if not (adapter / f"training_state_rank{rank}").is_file()]
    if unmatched:
        return f"adapter/training_state_rank{unmatched[0]} is missing"
    # A rank that finds no file of its own begins at 0 while the others go on, and Miles ends.
    expected = {f"{rank}.pt" for rank in range(wanted)}
    there = [{path.name.rpartition("rank")[2] for path in states}, *([set(ranks)] if ranks else [])]
    torn_off = next((found for found in there if wanted and found != expected), None)
    return "" if torn_off is None else f"adapter/ holds {len(torn_off)} ranks, and {wanted} GPUs train"


def adapter_ranks(adapter: Path) -> int:
    """GPUs that saved it: each leaves a training state."""
    return sum(1 for _ in adapter.glob("training_state_rank*.pt"))


def holds_optimizer(place: Path) -> bool:
    """Whether a full checkpoint has optimizer state, by the names in its index (`--no-save-optim` leaves them out)."""
    if (place / "adapter").is_dir():
        return any((place / "adapter").glob("training_state_rank*.pt"))
    try:
        with (place / ".metadata").open("rb") as stream:
            before = b""
            while True:
                chunk = stream.read(_CHUNK)
                if b"optimizer" in before + chunk:
                    return True
                if not chunk:
                    return False
                before = chunk[-16:]
    except (FileNotFoundError, NotADirectoryError):
        return any(place.glob("mp_rank_*/distrib_optim.pt")) or any(place.glob("mp_rank_*/model_optim_rng.pt"))


def seal(
    checkpoints: Path, rollout: int, *, data_state_too: bool = True, ways: Mapping[str, int] | None = None
) -> None:
    """Put the mark. The files are made durable first: the mark must not outlive what it vouches for."""
    place = checkpoints / f"iter_{rollout:07d}"
    state = data_state(checkpoints, rollout)
    beside = {f"../rollout/{state.name}": state.stat().st_size} if data_state_too else {}
    sizes = _sizes(place)
    for name in (*sizes, *beside):
        files.sync(place / name)
    document = {
        "rollout_id": rollout,
        "engine": "miles",
        "adapter": (place / "adapter").is_dir(),
        "optimizer": holds_optimizer(place),
        "ways": dict(ways or {}),
        "files": {**sizes, **beside},
    }
    files.replace(place / COMPLETE_MARK, json.dumps(document, indent=1))


def damage(place: Path) -> str:
    """What is wrong with a sealed checkpoint; empty when each file has the size it was sealed with."""
    try:
        sealed = json.loads((place / COMPLETE_MARK).read_bytes())["files"]
        wrong = [name for name, size in sealed.items() if (place / name).stat().st_size != size]
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"cannot be verified ({error})"
    return f"{wrong[0]} has not the size it was sealed with" if wrong else ""


def set_aside(place: Path, reason: str) -> None:
    """Takes the mark from a damaged checkpoint; the note keeps a run with no other one from beginning anew."""
    (place / DAMAGED_NOTE).write_text(reason + "\n", encoding="utf-8")
    (place / COMPLETE_MARK).unlink(missing_ok=True)


def _sizes(place: Path) -> dict[str, int]:
    return {
        str(path.relative_to(place)): path.stat().st_size
        for path in sorted(place.rglob("*"))
        if path.is_file() and path.name not in (COMPLETE_MARK, DAMAGED_NOTE) and not path.name.endswith(".tmp")
    }


def _is_torch_file(path: Path) -> bool:
    """torch.save writes a zip archive whose directory is its end: a file that was cut short has none."""
    try:
        return zipfile.is_zipfile(path)
    except OSError:
        return False
