"""What comes out of a sandbox, however it was packed."""

import io
import tarfile
from pathlib import Path

import pytest

from harborrl_agent_server.sandboxes.archives import unpack
from harborrl_agent_server.sandboxes.streams import TransferTooLargeError


def test_a_flood_of_empty_files_is_cut_off(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for number in range(12):
            tar.addfile(tarfile.TarInfo(f"empty-{number}"))
    archive.seek(0)
    with pytest.raises(TransferTooLargeError):
        unpack(archive, tmp_path, limit=1024, members=10)
    assert len(list(tmp_path.iterdir())) == 10
