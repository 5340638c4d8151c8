"""An adapter goes on only under the split of the model that it was saved under: a rank loads the file of its number."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.seam import Launch, Start
from harborrl_trainer.miles_engine import plan as plans
from harborrl_trainer.miles_engine import sealing
from harborrl_trainer.miles_plan import arguments, found
from harborrl_trainer.miles_plan.planning import MakeLaunch, Planner
from support.miles_files import lora_checkpoint
from support.miles_run import Run, launch

LORA = {"rank": 16, "alpha": 32, "targetModules": ["q_proj"]}
FOUR = {
    "tensor_model_parallel_size": 4,
    "pipeline_model_parallel_size": 1,
    "expert_model_parallel_size": 8,
    "expert_tensor_parallel_size": 1,
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.of(tmp_path, lora=LORA)


def split(*words: str) -> MakeLaunch:
    def make(job: JobDocument, start: Start) -> Launch:
        made = launch(job, start)
        return replace(made, argv=(*made.argv, *words))

    return make


def planned(run: Run, *words: str, attempt: int = 2) -> plans.Plan:
    return plans.load(Planner(run.job, split(*words), {}).plan(attempt, 1))


EIGHT_EXPERTS = ("--expert-model-parallel-size", "8", "--expert-tensor-parallel-size", "1")


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "by the plan of its incarnation"])
def test_another_split_over_as_many_gpus_is_refused_with_both_numbers(run: Run, sealed: bool) -> None:
    before = run.mine(1, 1).checkpoints
    first = planned(run, "--tensor-model-parallel-size", "4", *EIGHT_EXPERTS, attempt=1)
    assert first.ways == FOUR
    place = lora_checkpoint(before, 1)
    if sealed:
        sealing.seal(before, 1, ways=first.ways)
    ending = planned(run, "--tensor-model-parallel-size", "2", *EIGHT_EXPERTS).ending
    assert ending is not None
    assert ending.exit_code == 64
    assert f"{place} was saved with tensor model parallel size 4 and the job trains with 2" in ending.sentence


def test_the_same_split_goes_on_and_hands_it_to_the_late_seal(run: Run) -> None:
    before = run.mine(1, 1).checkpoints
    words = ("--tensor-model-parallel-size", "4", *EIGHT_EXPERTS)
    planned(run, *words, attempt=1)
    lora_checkpoint(before, 1)
    plan = planned(run, *words)
    assert (plan.ending, plan.first_rollout) == (None, 2)
    assert plan.seals == (plans.Seal(str(before), 1, data_state=True, ways=FOUR),)


def test_a_seal_that_tells_no_split_stops_nobody(run: Run) -> None:
    before = run.mine(1, 1).checkpoints
    lora_checkpoint(before, 1)
    sealing.seal(before, 1)
    assert found.ways_of(before / "iter_0000001") == {}
    assert planned(run, "--tensor-model-parallel-size", "4").ending is None


@pytest.mark.parametrize(
    ("argv", "sizes"),
    [
        ((), (1, 1, 1, 1)),
        (("--tensor-model-parallel-size", "4"), (4, 1, 1, 4)),
        (("--tensor-model-parallel-size", "4", "--expert-tensor-parallel-size", "1"), (4, 1, 1, 1)),
        (("--pipeline-model-parallel-size=2", "--expert-model-parallel-size", "x"), (1, 2, 1, 1)),
    ],
)
def test_sizes_are_read_as_megatron_completes_them(argv: tuple[str, ...], sizes: Any) -> None:
    assert tuple(arguments.ways(Launch(("train.py", *argv), {})).values()) == sizes
