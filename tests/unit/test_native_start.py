"""What the native engine settles before it starts an actor, and what it listens to beside its loop."""

import asyncio
import errno
from pathlib import Path
from typing import override

import pytest

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.native.run import stop_tokens, watch_stop_request


def test_a_model_without_generation_config_ends_its_turns_by_the_tokenizers_token(tmp_path: Path) -> None:
    assert stop_tokens(tmp_path, 2) == {2}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert stop_tokens(tmp_path, 2) == {2, 5, 6}
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(ConfigurationError, match="names an end token"):
        stop_tokens(tmp_path, None)


class Broken(Path):
    """On a volume whose server is gone."""

    @override
    def exists(self, **_: bool) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")


async def test_a_volume_that_can_no_longer_be_asked_for_a_stop_stops_the_run(tmp_path: Path) -> None:
    stop = asyncio.Event()
    await watch_stop_request(Broken(tmp_path / "save-and-stop"), stop)
    assert stop.is_set()


async def test_a_stop_request_that_is_there_is_heard(tmp_path: Path) -> None:
    (tmp_path / "save-and-stop").touch()
    stop = asyncio.Event()
    await watch_stop_request(tmp_path / "save-and-stop", stop)
    assert stop.is_set()
