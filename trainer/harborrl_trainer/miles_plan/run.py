"""`engine: miles` in one process: plan and drive. In Miles' own image the supervisor plans, and this is not there."""

import os

from harborrl_trainer.job import JobDocument
from harborrl_trainer.miles_engine import plan as plans
from harborrl_trainer.miles_engine.driver import drive
from harborrl_trainer.miles_plan.planning import Planner


def main(job: JobDocument, attempt: int, incarnation: int) -> int:
    from harborrl_trainer.launch import launch  # noqa: PLC0415 - reads the tables of Miles' versions

    return drive(plans.load(Planner(job, launch, os.environ).plan(attempt, incarnation)))
