"""Evaluation on engines of its own: `--eval-num-gpus` of Miles, which come on top of training and rollout."""

from pathlib import Path

import pytest
import yaml

from harborrl_cli.validation.trainer_side import config_warnings
from harborrl_operator.models import JobSpec
from harborrl_trainer.errors import ConfigurationError
from support.launches import launched, of_preset, plain, value

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "miles"
ASKED = "--eval-num-gpus 8 --eval-num-gpus-per-engine 8 --eval-sglang-mem-fraction-static 0.8 --eval-hf-dir /scratch/hf"
DATA = {"jsonl": "/e", "interval": 20, "samplesPerPrompt": 1}


def test_room_for_the_fleet_is_made_by_rollout_num_gpus() -> None:
    job = of_preset("glm47-flash-async", extraArgs=ASKED, eval=DATA, config__rolloutNumGpus=48)
    assert value(launched(job), "--rollout-num-gpus") == ["48"]


def test_a_preset_takes_no_more_rollout_gpus_than_training_leaves() -> None:
    with pytest.raises(ConfigurationError, match="64 GPUs for rollout, but 1 of 8 nodes train and leave 56"):
        launched(of_preset("glm47-flash-async", config__rolloutNumGpus=64))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (ASKED, "--eval-num-gpus 8 come on top of 8 training and 56 rollout GPUs, and the job has 64; set"),
        ("--eval-sglang-mem-fraction-static 0.8", "--eval-sglang-* set up the engines of --eval-num-gpus, which is 0"),
    ],
)
def test_a_fleet_without_gpus_is_refused_before_ray_waits_for_them(asked: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        launched(of_preset("glm47-flash-async", extraArgs=asked, eval=DATA))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (ASKED.replace("engine 8", "engine 3"), "8 cannot be split into engines of --eval-num-gpus-per-engine 3"),
        (ASKED.partition(" --eval-hf-dir")[0], "--eval-num-gpus needs --eval-hf-dir or --save-hf"),
    ],
)
def test_a_fleet_that_fits_and_that_miles_refuses_is_refused(asked: str, says: str) -> None:
    beside = {"nodes": 3, "config__colocate": False, "config__actorNodes": 1, "config__rolloutNumGpus": 8}
    with pytest.raises(ConfigurationError) as caught:
        launched(plain(extraArgs=asked, eval=DATA, **beside))
    assert says in str(caught.value)
    assert launched(plain(extraArgs=ASKED, eval=DATA, **beside)).argv[0] == "train.py"
    with pytest.raises(ConfigurationError, match="needs an evaluation; set eval"):
        launched(plain(extraArgs=ASKED, **beside))
    with pytest.raises(ConfigurationError, match="cannot be used with --colocate"):
        launched(plain(extraArgs=ASKED, eval=DATA))


@pytest.mark.parametrize(
    ("example", "said"), [("glm47-flash-async", []), ("smoke", ["8 is ignored while colocate is true"])]
)
def test_rollout_gpus_of_mode_async_are_not_said_to_be_ignored(example: str, said: list[str]) -> None:
    spec = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())["spec"]
    spec["trainer"]["config"] = {"rolloutNumGpus": 8}
    assert [one.message for one in config_warnings(JobSpec.model_validate(spec))] == said
