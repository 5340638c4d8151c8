"""Where kubectl and helm are."""

import shutil

from devcluster.settings import Settings


def find_program(name: str, settings: Settings) -> str | None:
    """The dev cluster's own build, else the one on PATH, else None."""
    return shutil.which(name, path=str(settings.cache / "bin")) or shutil.which(name)
