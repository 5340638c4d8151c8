"""Files of a Hugging Face data set. huggingface_hub is optional; its cache and HF_HUB_OFFLINE work as everywhere.

Files are fetched and read as they are: no code of a data set is ever run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harborrl_trainer.data import splits
from harborrl_trainer.errors import ConfigurationError

REPOSITORY = "dataset"


@dataclass(frozen=True)
class Downloaded:
    files: Sequence[tuple[str, Path]]
    revision: str
    """Commit that was read, so that a run can name its data."""


def download(name: str, split: str, config: str | None, revision: str | None) -> Downloaded:
    """ConfigurationError when the library is absent or the hub has no such thing for us; one line either way."""
    try:
        import huggingface_hub as library  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{name}: reading from the Hugging Face hub needs huggingface_hub; pip install 'harborrl[data]', or name a"
            " file that is here"
        ) from error
    try:
        return fetch(library, name, split, config, revision)
    except ConfigurationError:
        raise
    except (
        Exception
    ) as error:  # the library's own errors, its HTTP client's and the system's; some carry pages of advice
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise ConfigurationError(
            f"{name}: no file or folder here, and the hub does not give it ({type(error).__name__}: {reason})"
        ) from error


def fetch(library: Any, name: str, split: str, config: str | None, revision: str | None) -> Downloaded:
    wanted = {"repo_id": name, "repo_type": REPOSITORY, "revision": revision}
    if library.is_offline_mode():
        root = Path(library.snapshot_download(**wanted, local_files_only=True))
        names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
        card = root / splits.CARD
        text = card.read_text(errors="replace") if card.is_file() else ""
        return Downloaded([(one, root / one) for one in splits.files_of(names, text, split, config, name)], root.name)
    info = library.HfApi().dataset_info(name, revision=revision)
    wanted["revision"] = info.sha
    names = [one.rfilename for one in info.siblings]
    card_text = ""
    if splits.CARD in names:
        card_text = Path(library.hf_hub_download(filename=splits.CARD, **wanted)).read_text(errors="replace")
    chosen = splits.files_of(names, card_text, split, config, name)
    return Downloaded([(one, Path(library.hf_hub_download(filename=one, **wanted))) for one in chosen], info.sha)
