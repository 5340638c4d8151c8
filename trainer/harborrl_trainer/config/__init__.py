"""HarborFrameworkConfig and its base: every documented field, default, group and description; no torch, no Ray."""

from harborrl_trainer.config.harbor import HarborFrameworkConfig
from harborrl_trainer.config.miles import MilesFrameworkConfig
from harborrl_trainer.config.quirks import Quirk, warnings_of

__all__ = ["HarborFrameworkConfig", "MilesFrameworkConfig", "Quirk", "warnings_of"]
