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


def check_imports(root: Path, search: str) -> str:
    """The script is `root`'s; Ray's actors import `miles` from the first directory of `search` (PYTHONPATH) with one.

    Raises ConfigurationError for two checkouts of different commits; returns what is not known of two.
    """
    there = next((Path(one) for one in search.split(":") if one and (Path(one) / "miles/__init__.py").is_file()), root)
    if there.resolve() == root.resolve():
        return ""
    commits = [head_of(place) for place in (root, there)]
    if None in commits:
        return f"train.py is of {root} and its actors import miles of {there}: whether both are one commit is not known"
    if commits[0] != commits[1]:
        own, theirs = (str(commit)[:9] for commit in commits)
        raise ConfigurationError(
            f"trainer.image: two checkouts of Miles, {root} at {own}, whose script runs, and {there} at {theirs},"
            f" which actors import; take an image with one, or let {ROOT_VARIABLE} of the image name the latter"
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
