"""A run that is known to have saved a checkpoint is not begun anew because its volume is another one."""

import json
from typing import Any

import pytest

from harborrl_operator.models import HarborRLJob
from harborrl_operator.models.status import CheckpointStatus
from harborrl_operator.resolve import resolve
from support import hrl
from support.hrl import condition, decide, job, message, progress, running_world, then

PATH = "research/quickstart-5f0c2a9e/a1/i1/checkpoints/iter_0000039"
AT_39 = {"rollout.trained": 41, "checkpoint": {"rolloutId": 39, "path": PATH}, "resume": {"firstRollout": 0}}
NOTHING = {"rollout.trained": 0, "checkpoint": None}


def has_saved() -> HarborRLJob:
    began = job()
    return then(began, decide(began, running_world(began, progress=progress(changes=AT_39))))


def report(changes: dict[str, Any], incarnation: int = 2) -> str:
    return progress(changes=changes, incarnation=incarnation)


def test_the_document_of_the_next_start_bears_what_status_remembers_and_the_first_ones_nothing() -> None:
    assert resolve(job(), hrl.SETTINGS).document(1)["knownCheckpoint"] is None
    assert resolve(has_saved(), hrl.SETTINGS).document(2)["knownCheckpoint"] == {"rolloutId": 39, "path": PATH}


def test_what_is_remembered_is_no_edit_of_the_job() -> None:
    before, after = resolve(job(), hrl.SETTINGS), resolve(has_saved(), hrl.SETTINGS)
    assert (before.config_hash, before.attempt_hash) == (after.config_hash, after.attempt_hash)


def test_a_suspended_run_resumes_with_a_preflight_that_reads_it() -> None:
    resumed = job(status=has_saved().status.model_copy(update={"trainer": None}))
    applied = {thing["metadata"]["name"]: thing for thing in decide(resumed, hrl.world()).apply}
    document = json.loads(applied["quickstart-config"]["data"]["job.json"])
    assert document["knownCheckpoint"] == {"rolloutId": 39, "path": PATH}


@pytest.mark.parametrize("first", [0, 7], ids=["from the model", "from another run"])
def test_an_incarnation_that_begins_on_an_emptied_volume_ends_the_run_and_forgets_nothing(first: int) -> None:
    before = has_saved()
    decided = decide(before, running_world(before, progress=report(NOTHING | {"resume": {"firstRollout": first}})))
    assert condition(decided, "Failed") == ("True", "RestartAtZero")
    assert "rollout 39" in message(decided, "Failed")
    assert decided.status.checkpoint == CheckpointStatus(rollout_id=39, path=PATH)
    assert decided.status.attempts[-1].cause == "RestartAtZero"


def test_a_volume_that_holds_less_is_not_believed_before_a_driver_went_on_from_it() -> None:
    before = has_saved()
    for less in (None, {"rolloutId": 20, "path": "older"}):
        decided = decide(before, running_world(before, progress=report({"checkpoint": less})))
        assert decided.status.phase == "Running"
        assert decided.status.checkpoint == CheckpointStatus(rollout_id=39, path=PATH)


def test_a_checkpoint_that_was_set_aside_as_damaged_is_known_no_longer() -> None:
    before = has_saved()
    start = {"firstRollout": 21, "optimizer": True, "setAside": [PATH]}
    decided = decide(before, running_world(before, progress=report({"checkpoint.rolloutId": 20, "resume": start})))
    assert decided.status.phase == "Running"
    assert decided.status.checkpoint is not None
    assert decided.status.checkpoint.rollout_id == 20


def test_an_incarnation_that_trains_on_is_not_ended_for_a_listing_that_came_back_empty() -> None:
    before = has_saved()
    decided = decide(before, running_world(before, progress=report(AT_39 | {"checkpoint": None}, incarnation=1)))
    assert decided.status.phase == "Running"
