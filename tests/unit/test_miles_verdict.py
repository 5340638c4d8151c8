"""How Miles' end is read: outputs as they look, and the exit code and the advice that come of them."""

import json
from pathlib import Path

import pytest

from harborrl_trainer.miles_engine.verdict import Ended, ended, given_up

TRACEBACK = """\
[2026-08-21 10:11:12] INFO model.py:900 - rollout 3: step 3 done
Traceback (most recent call last):
  File "/root/miles/train.py", line 155, in <module>
    asyncio.run(train(args))
  File "/root/miles/train.py", line 118, in train
    await actor_model.train(rollout_id, rollout_data_pack)
"""
RAY = (
    TRACEBACK
    + "ray.exceptions.RayTaskError(OutOfMemoryError): ray::MegatronTrainRayActor.train() (pid=4711, ip=10.0.0.3)\n"
)
ARGUMENTS = """\
Traceback (most recent call last):
  File "/root/miles/train.py", line 154, in <module>
    args = parse_args()
  File "/root/miles/miles/utils/arguments.py", line 2729, in parse_args
    miles_validate_args(args)
  File "/root/miles/miles/utils/arguments.py", line 3072, in miles_validate_args
    assert args.save is not None, "'--save' is required when save_interval is set."
AssertionError: '--save' is required when save_interval is set.
"""
MEGATRON = """\
Traceback (most recent call last):
  File "/root/Megatron-LM/megatron/training/arguments.py", line 612, in validate_args
    assert args.world_size % total_model_size == 0
AssertionError: world size (8) is not divisible by total_model_size
"""
ACTOR_DIED = TRACEBACK + (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: MegatronTrainRayActor\n\tactor_id: 25bd\n\tpid: 4711\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n"
)


@pytest.mark.parametrize(
    ("case", "code", "output", "exit_code", "advice", "quoted"),
    [
        ("trained", 0, "rollout 199 done\n", 0, "trained until its last rollout", ""),
        ("cuda", 1, RAY + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", 1,
         "CUDA out of memory: lower max-tokens-per-gpu", "Tried to allocate 2.00 GiB"),
        ("host memory", 1, TRACEBACK + "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low "
         "on memory.\n", 69, "raise trainer.resources.limits.memory", "running low on memory"),
        ("nccl", 1, RAY + "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251\n", 69,
         "NCCL failed", "ProcessGroupNCCL"),
        ("nccl watchdog", -6, "(MegatronTrainRayActor pid=12, ip=10.0.0.3) [rank3]:[E] Watchdog caught collective "
         "operation timeout: WorkNCCL(SeqNum=12)\n" + ACTOR_DIED, 69, "NCCL failed", "Watchdog caught"),
        ("disk", 1, TRACEBACK + "OSError: [Errno 28] No space left on device: '/mnt/checkpoints/x'\n" + ACTOR_DIED, 74,
         "a volume is full or gone", "No space left on device"),
        ("disk, as torch tells it", 1, TRACEBACK + "RuntimeError: basic_ios::clear: iostream error\n" + ACTOR_DIED, 74,
         "a volume is full or gone", "basic_ios::clear"),
        ("disk, as torch's writer tells it", 1, TRACEBACK + "RuntimeError: [enforce fail at inline_container.cc:671] . "
         "unexpected pos 576 vs 534\n", 74, "a volume is full or gone", "unexpected pos"),
        ("disk, as safetensors tells it", 1, TRACEBACK + "SafetensorError: I/O error: (os error 122)\n", 74,
         "a volume is full or gone", "os error 122"),
        ("disk of an actor", 1, "(Actor pid=12) OSError: [Errno 122] Disk quota exceeded\n" + ACTOR_DIED,
         74, "a volume is full or gone", "Disk quota exceeded"),
        ("unknown flag", 2, "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --bogus 3\n", 64,
         "does not take its arguments", "--bogus 3"),
        ("rule of Miles", 1, ARGUMENTS, 64, "refuses its arguments", "'--save' is required"),
        ("rule of Megatron", 1, MEGATRON, 64, "refuses its arguments", "not divisible"),
        ("an assertion elsewhere", 1, ARGUMENTS + TRACEBACK + "AssertionError: x\n", 1, "exit code 1",
         "AssertionError: x"),
        ("no task can run", 1, TRACEBACK + "harborrl_trainer.rollout.groups.EveryGroupHopeless: every group met "
         "TaskNotFound\n", 64, "no task of the data set can be run", "TaskNotFound"),
        ("agent server gone", 1, TRACEBACK + "harborrl_trainer.rollout.groups.EveryGroupAborted: every group met "
         "SandboxUnavailable\n", 69, "the agent server fails every trial", "SandboxUnavailable"),
        ("actor", 1, ACTOR_DIED, 69, "Ray lost an actor or a node", "ActorDiedError"),
        ("gpu", 1, RAY + "RuntimeError: CUDA error: uncorrectable ECC error encountered\n" + ACTOR_DIED, 69,
         "a GPU failed", "uncorrectable ECC"),
        ("port", 1, TRACEBACK + "RuntimeError: Port 30000 is already in use — a stale session server may run\n", 69,
         "give this job other trainer.ports", "Port 30000"),
        ("no reference", 1, TRACEBACK + "FileNotFoundError: ref_load /mnt/models/x does not exist, please check the "
         "path.\n", 64, "is not there", "ref_load /mnt/models/x"),
        ("a module", 1, TRACEBACK + "ModuleNotFoundError: No module named 'miles_plugins'\n", 64,
         "the image lacks a module", "miles_plugins"),
        ("a bug", 1, TRACEBACK + "ZeroDivisionError: division by zero\n", 1, "exit code 1", "division by zero"),
        ("killed", -9, TRACEBACK, 137, "was killed (signal 9)", ""),
        ("ended by another", -15, "rollout 3\n", 69, "was ended from outside (SIGTERM)", ""),
        ("crashed", -11, "rollout 3\n", 1, "its driver crashed (SIGSEGV)", ""),
        ("silent", 3, "", 1, "it wrote nothing", ""),
        ("colours", 1, TRACEBACK + "\x1b[31mtorch.OutOfMemoryError: CUDA out of memory.\x1b[0m\n", 1,
         "CUDA out of memory", "torch.OutOfMemoryError: CUDA out of memory."),
    ],
)  # fmt: skip
def test_an_end_of_miles_becomes_a_code_and_one_sentence(
    *, case: str, code: int, output: str, exit_code: int, advice: str, quoted: str
) -> None:
    found = ended(code, output)
    assert found.exit_code == exit_code, (case, found)
    assert advice in found.sentence
    assert quoted in found.sentence
    assert "\n" not in found.sentence
    assert "\x1b" not in found.sentence


def test_troubles_that_were_overcome_long_before_are_not_the_cause() -> None:
    overcome = "OSError: [Errno 28] No space left on device\n" + "rollout went on\n" * 200
    assert ended(1, overcome + "ZeroDivisionError: division by zero\n").exit_code == 1


KEY_ERROR = TRACEBACK + "KeyError: 'score'\n"


@pytest.mark.parametrize(
    "written",
    [
        "(RolloutManager pid=7) First rollout sample: text_preview=OSError: [Errno 28] No space left on device\n",
        "(RolloutManager pid=7) First rollout sample: text_preview=CUDA out of memory\n",
        "(RolloutManager pid=7) cp: cannot create regular file: No space left on device\n",
        "(RolloutManager pid=7) OSError: [Errno 28] No space left on device\n",
        "WARNING trial failed: AgentServerError: 503\n",
        "(RolloutManager pid=7) ModuleNotFoundError: No module named 'x'\n",
        "(RolloutManager pid=7) train.py: error: unrecognized arguments: --x\n",
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_text_of_a_model_or_a_sandbox_does_not_decide_over_the_drivers_own_exception(
    *, written: str, late: bool
) -> None:
    after = late and written.startswith("(")
    found = ended(1, KEY_ERROR + written if after else written + KEY_ERROR)
    assert (found.exit_code, "KeyError: 'score'" in found.sentence) == (1, True), found


def test_what_an_actor_could_not_import_is_not_why_ray_lost_one() -> None:
    found = ended(1, "(RolloutManager pid=7) ModuleNotFoundError: No module named 'x'\n" + ACTOR_DIED)
    assert (found.exit_code, "Ray lost an actor" in found.sentence) == (69, True)


def test_the_exception_that_the_last_one_was_raised_from_is_its_cause() -> None:
    full = TRACEBACK + "OSError: [Errno 28] No space left on device: '/mnt/checkpoints/x'\n\n"
    chain = "During handling of the above exception, another exception occurred:\n\n"
    logged, _, raised = KEY_ERROR.partition("\n")
    assert ended(1, logged + "\n" + full + chain + raised).exit_code == 74
    assert ended(1, full + KEY_ERROR).exit_code == 1


def test_what_our_rollout_layer_gave_up_for_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    assert given_up(path) is None
    path.write_text("{")
    assert given_up(path) is None
    path.write_text(json.dumps({"schemaVersion": 1, "exitCode": 69, "message": "every group aborted:\n x"}))
    found = given_up(path)
    assert found is not None
    assert (found.exit_code, found.sentence) == (69, "rollout: every group aborted: x")


def test_exit_code_0_is_the_end_only_at_the_last_rollout() -> None:
    assert ended(0, "", reached=199, rollouts=200) == Ended(0, "Miles: trained until its last rollout")
    early = ended(0, "", reached=0, rollouts=200)
    assert (early.exit_code, "after 1 of 200 rollouts" in early.sentence) == (1, True)
    assert ended(0, "").exit_code == 0
