"""Which cluster the state folder belongs to: `own`, `kind` or `context:NAME`, as the last `up` wrote it down."""

import shutil
from pathlib import Path

from devcluster.errors import UnsuitableHostError
from devcluster.processes import write_atomically
from devcluster.settings import Settings

OWN, KIND, CONTEXT = "own", "kind", "context:"

STATE_MARKS = ("host.json", "backend")
"""Files of which one is in a state folder before anything else is."""


def recorded_choice(settings: Settings) -> str | None:
    """What the state folder is in use for, None where nothing is. What our own node left there outranks the record."""
    if (settings.state / "host.json").exists():
        return OWN
    try:
        return _record(settings).read_text().strip() or None
    except FileNotFoundError:
        return None


def choose(context: str | None, settings: Settings, *, docker_answers: bool, kind_installed: bool) -> str:
    """What `up` acts on. A cluster that exists stays the choice, and is not left behind for another one unasked."""
    recorded = recorded_choice(settings)
    if context:
        if recorded in (OWN, KIND):
            raise UnsuitableHostError(
                f"A cluster of ours ({recorded}) is recorded in {settings.state}, and would be left running without a"
                f" record. Run `make down` first, then `up --context {context}` again."
            )
        return f"{CONTEXT}{context}"
    if recorded:
        return recorded
    return KIND if docker_answers and kind_installed else OWN


def claim_state(settings: Settings, choice: str) -> None:
    """The first write into a state folder: from now on `down` may remove it, however far `up` comes."""
    refuse_foreign_state(settings.state)
    settings.state.mkdir(parents=True, exist_ok=True)
    write_atomically(_record(settings), f"{choice}\n")


def release_state(settings: Settings) -> None:
    """Removes a state folder that holds files only: what `up` noted of a cluster that is not our own node."""
    refuse_foreign_state(settings.state)
    shutil.rmtree(settings.state, ignore_errors=True)


def refuse_foreign_state(state: Path) -> None:
    """`down` deletes the state folder, so it has to be one that `up` made."""
    if state.exists() and any(state.iterdir()) and not any((state / name).exists() for name in STATE_MARKS):
        raise UnsuitableHostError(f"{state} is not empty and was not made by devcluster. Set HARBORRL_STATE elsewhere.")


def _record(settings: Settings) -> Path:
    return settings.state / "backend"
