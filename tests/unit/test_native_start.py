"""What the native engine settles before it starts an actor, and what it listens to beside its loop."""

from pathlib import Path

import pytest

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.native.run import stop_tokens


def test_a_model_without_generation_config_ends_its_turns_by_the_tokenizers_token(tmp_path: Path) -> None:
    assert stop_tokens(tmp_path, 2) == {2}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert stop_tokens(tmp_path, 2) == {2, 5, 6}
    (tmp_path / "generation_config.json").unlink()
    with pytest.raises(ConfigurationError, match="names an end token"):
        stop_tokens(tmp_path, None)
