"""`python -m harborrl_trainer.miles_engine.export DIRECTORY`: our half of a Miles container, copied into a volume.

Runs in our image, as an init container of every Ray pod. What it copies must run on Python 3.10 with the standard
library and httpx (tests/unit/test_miles_portability.py).
"""

import shutil
import sys
from pathlib import Path

PACKAGE = "harborrl_trainer"
PARTS = (
    "__init__.py",
    "errors.py",
    "failures.py",
    "files.py",
    "launch/parser_check.py",
    "miles",
    "miles_engine",
    "rollout",
)
"""Of the package; a missing one is another version's."""


SOURCE = Path(__file__).resolve().parents[1]


def export(target: Path, source: Path = SOURCE) -> Path:
    """The package below `target`. Another container may see the directory at any time: it is put in place whole."""
    place, building = target / PACKAGE, target / f".{PACKAGE}.new"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    for name in PARTS:
        part = source / name
        if part.is_dir():
            shutil.copytree(part, building / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif part.exists():
            (building / name).parent.mkdir(exist_ok=True)
            shutil.copy(part, building / name)
    shutil.rmtree(place, ignore_errors=True)
    building.rename(place)
    return place


if __name__ == "__main__":
    sys.stdout.write(f"copied to {export(Path(sys.argv[1]))}\n")
