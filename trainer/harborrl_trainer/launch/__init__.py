"""A job -> what Miles is started with: script and flags, environment, files. Pure: no clock, no file, no client."""

from harborrl_trainer.launch.plan import SENTINEL, launch
from harborrl_trainer.launch.seam import Adjustment, Launch, Start

__all__ = ["SENTINEL", "Adjustment", "Launch", "Start", "launch"]
