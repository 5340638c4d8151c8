"""Miles' source in its image: where it lies, and which commit it is."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from harborrl_trainer.errors import ConfigurationError

ROOT_VARIABLE = "HARBORRL_MILES_ROOT"
"""Environment variable with the directory of Miles' checkout, where it is not at its usual place."""


def root_of(script: str, roots: Sequence[str], environment: Mapping[str, str]) -> Path:
    """The first of `roots` that has `script`. Raises ConfigurationError."""
    named = environment.get(ROOT_VARIABLE)
    roots = [named] if named else list(roots)
    for root in map(Path, roots):
        if (root / script).is_file():
            return root
    raise ConfigurationError(
        f"trainer.image: {script} of Miles is not in {' or '.join(roots)}; take an image of Miles, or name its "
        f"checkout in {ROOT_VARIABLE}"
    )


def check_source(root: Path, commit: str) -> str:
    found = head_of(root)
    if not commit or found is None:
        return f"{root} does not tell its commit: whether it is {commit[:9]} is not known" if commit else ""
    if not (found.startswith(commit) or commit.startswith(found)):
        raise ConfigurationError(
            f"trainer.image: {root} is Miles at {found[:9]}, but the job is written for {commit[:9]}; "
            "set config.milesSrcCommit to the image's commit or take an image of that commit"
        )
    return ""


def head_of(root: Path) -> str | None:
    """The commit of a git checkout, read without git."""
    folder = root / ".git"
    try:
        if folder.is_file():  # a worktree or a submodule
            folder = (root / folder.read_text().partition("gitdir:")[2].strip()).resolve()
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.partition(":")[2].strip()
        common = folder / "commondir"
        places = [folder, *([(folder / common.read_text().strip()).resolve()] if common.exists() else [])]
        return next((found for place in places if (found := _ref(place, name))), None)
    except OSError:
        return None


def _ref(folder: Path, name: str) -> str | None:
    if (folder / name).is_file():
        return (folder / name).read_text().strip()
    if not (folder / "packed-refs").is_file():
        return None
    lines = (folder / "packed-refs").read_text().splitlines()
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), None)
