"""Each field of the spec is refused while an attempt runs, or takes effect in it: none is stored and ignored."""

from collections.abc import Mapping

import pytest

from harborrl_operator.frozen import ONLY_WHILE_QUEUED
from harborrl_operator.models import HarborRLJob
from harborrl_operator.resolve import resolve
from support import hrl
from support.hrl import decide
from support.leaves import FULL_SPEC, LEAVES, change_of, is_frozen

READ_IN_EVERY_PASS: Mapping[str, str] = {
    "suspend": "the job is suspended or goes on",
    "progress.stallFactor": "the next look at the newest rollout goes by it",
    "progress.onStall": "the same",
    "checkpoint.suspendWaitSeconds": "the patience of a suspend, also of one under way",
    "retries.maxAttempts": "the budget at the next failure",
    "retries.maxApplicationFailures": "the same",
    "retries.maxStorageFailures": "the same",
    "retries.keepClusterSeconds": "at the end and after it",
    "activeDeadlineSeconds": "the deadline from now on",
    "ttlSecondsAfterFinished": "at the end and after it",
    "trainer.startDeadlineSeconds": "the deadline of a start that is under way",
    "trainer.allowPartialStart": "the next judgement; a cluster that exists is not taken back",
    "network.egress": "the policies of the running pods",
}
"""Free fields and what a change does to a running job."""

NAMED_BY_A_LABEL = {"queueName", "workloadPriorityClass"}
"""Kueue's: on the RayCluster alone, which is made anew when they change (test_queue.py)."""

AGENT_SERVER = {path for path in LEAVES if path.startswith("agentServer.") and not is_frozen(path)}
FROZEN_LEAVES = [path for path in LEAVES if is_frozen(path)]


def changed(path: str) -> HarborRLJob:
    return hrl.job(change_of(path), base=FULL_SPEC)


def as_it_was(path: str) -> HarborRLJob:
    return hrl.job({"trainer.topology": {}} if path == "trainer.topology.required" else {}, base=FULL_SPEC)


def attempt_of(job: HarborRLJob) -> str:
    """Hash of what an attempt keeps to its end."""
    return resolve(job, hrl.SETTINGS).attempt_hash


def test_every_field_is_classified() -> None:
    free = {path for path in LEAVES if not is_frozen(path)}
    assert free == READ_IN_EVERY_PASS.keys() | AGENT_SERVER | set(ONLY_WHILE_QUEUED)


@pytest.mark.parametrize("path", sorted(AGENT_SERVER))
def test_a_free_field_of_the_agent_server_starts_a_new_version_within_the_attempt(path: str) -> None:
    before, after = as_it_was(path), changed(path)
    assert hrl.agent_version(after) != hrl.agent_version(before)
    assert attempt_of(after) == attempt_of(before)


@pytest.mark.parametrize("path", sorted(READ_IN_EVERY_PASS.keys() | NAMED_BY_A_LABEL))
def test_what_is_read_in_every_pass_makes_no_attempt_wait(path: str) -> None:
    assert attempt_of(changed(path)) == attempt_of(as_it_was(path))


@pytest.mark.parametrize("path", [path for path in FROZEN_LEAVES if path not in NAMED_BY_A_LABEL])
def test_a_frozen_field_that_slips_through_is_known_to_wait_for_the_next_attempt(path: str) -> None:
    """An edit may come in the second between the cluster's creation and the status that tells of it."""
    assert attempt_of(changed(path)) != attempt_of(as_it_was(path))


def test_an_edit_of_the_patience_of_a_suspend_leaves_the_agent_server_in_care() -> None:
    job = hrl.job({"checkpoint.suspendWaitSeconds": 60}, generation=2)
    seen = hrl.running_world(job, ray_clusters={"quickstart-a1": hrl.ray_cluster(hrl.job())}, progress=hrl.progress())
    decided = decide(job, seen)
    assert "next attempt" not in hrl.message(decided, "Admitted")
    assert hrl.SERVER in hrl.applied(decided)
