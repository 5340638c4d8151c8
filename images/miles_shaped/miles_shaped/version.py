"""Which Miles this pretends to be: MILES_SHAPED_COMMIT, else the checkout's own HEAD, else the newer of the two."""

import os
from pathlib import Path

OLD, NEW = "9a003644739f4e6dd509e2e8337e8ae7e571941c", "31f1ca961"
ROOT = Path(__file__).resolve().parents[1]


def commit() -> str:
    head = ROOT / ".git" / "HEAD"
    return os.environ.get("MILES_SHAPED_COMMIT") or (head.read_text().strip() if head.is_file() else NEW)


def is_old() -> bool:
    return commit().startswith(OLD[:7])
