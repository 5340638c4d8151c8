"""Leader and spare on the real cluster, while a job trains: killed, killed under an edit, and cut off.

The tests share the run and follow each other.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from harborrl_operator.election import Timing
from support.kube import EVENTS, RAY_CLUSTERS, Kube, Manifest, condition, name_of, status_of
from support.kubectl import SYSTEM, Kubectl, operator_running
from support.leading import Leader, end_of, leader, moment, successor
from support.node import signal
from support.workspace import Workspace, example, trained

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

NAME = "steady"
SECONDS = 300
"""Longest wait for one thing; a rollout takes 15 s on an idle machine of two cores."""
TAKEOVER_SECONDS = 20
"""What docs/operator.md and the chart's values promise."""


@pytest.fixture(scope="module", autouse=True)
def _run(kubectl: Kubectl, workspace: Workspace) -> Iterator[None]:
    changes = {"trainer.config.numRollout": 1000, "trainer.config.saveInterval": 1000}
    workspace.apply(example("job.yaml", changes, name=NAME))
    yield
    workspace.delete(NAME)
    operator_running(kubectl)
    workspace.until_held(lambda held: not held, NAME, timeout=60)


def advanced(workspace: Workspace, steps: int) -> Manifest:
    """The job once it trains and has trained so many rollouts."""
    return workspace.until_job(
        NAME, lambda job: status_of(job).get("phase") == "Running" and trained(job) >= steps, timeout=2 * SECONDS
    )


def set_suspend(workspace: Workspace, value: str) -> None:
    workspace.kubectl.ok("patch", "hrl", NAME, "--type=merge", "--patch", f'{{"spec":{{"suspend":{value}}}}}')


def clusters(workspace: Workspace) -> set[str]:
    """The uids of the job's RayClusters that exist."""
    found = workspace.kube.objects(RAY_CLUSTERS, workspace.namespace, f"harborrl.dev/job={NAME}")
    return {cluster["metadata"]["uid"] for cluster in found}


def clusters_ever(workspace: Workspace) -> set[str]:
    """The uids of the job's RayClusters for which KubeRay has ever made something: its events outlive them."""
    about = [event["involvedObject"] for event in workspace.kube.objects(EVENTS, workspace.namespace)]
    return {one["uid"] for one in about if one["kind"] == "RayCluster" and one["name"].startswith(f"{NAME}-a")}


@pytest.fixture(scope="module")
def before(kubectl: Kubectl, workspace: Workspace) -> Manifest:
    """The job as it trains under a leader with a spare."""
    job = advanced(workspace, 1)
    operator_running(kubectl)
    return job


@pytest.fixture(scope="module")
def killed(before: Manifest, kube: Kube, workspace: Workspace) -> tuple[Leader, Leader]:
    """The leader that was killed, and its successor."""
    assert before["status"]["phase"] == "Running"
    old = leader(kube)
    signal(workspace, old.container, "KILL")
    return successor(kube, old, timeout=60)


def test_the_spare_leads_within_20_seconds_of_the_leaders_death_and_never_beside_it(
    killed: tuple[Leader, Leader], kube: Kube, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = killed
    died = end_of(kube, old, timeout=60)
    assert died["exitCode"] == 128 + 9
    taken = moment(new.lease["spec"]["acquireTime"])
    since_death = taken - moment(died["finishedAt"])
    since_renewal = taken - moment(old.lease["spec"]["renewTime"])
    with capsys.disabled():
        print(  # noqa: T201 - a figure for whoever runs it
            f"\n{old.pod} died at {died['finishedAt']}; {new.pod} leads {since_death.total_seconds():.1f} s after that"
            f" and {since_renewal.total_seconds():.1f} s after the last renewal"
        )
    assert new.pod != old.pod
    assert since_death <= timedelta(seconds=TAKEOVER_SECONDS)
    assert since_renewal > timedelta(seconds=Timing().deadline)
    assert new.lease["spec"]["leaseTransitions"] == old.lease["spec"]["leaseTransitions"] + 1


def test_a_job_does_not_notice_that_its_leader_was_killed(
    killed: tuple[Leader, Leader], before: Manifest, workspace: Workspace
) -> None:
    assert killed
    there = clusters(workspace)
    # Two more: what the report told the old leader's successor at once may have been trained under the old one.
    job = advanced(workspace, trained(before) + 2)
    assert (job["status"]["attempt"], job["status"]["incarnation"]) == (1, before["status"]["incarnation"])
    assert [attempt["outcome"] for attempt in job["status"]["attempts"]] == ["Running"]
    assert clusters(workspace) == clusters_ever(workspace) == there
    assert len(there) == 1


@pytest.fixture(scope="module")
def suspended(killed: tuple[Leader, Leader], kubectl: Kubectl, kube: Kube, workspace: Workspace) -> Manifest:
    """The job after its leader was killed once more and `spec.suspend` was set while nobody led."""
    assert killed
    operator_running(kubectl)
    old = leader(kube)
    signal(workspace, old.container, "KILL")
    set_suspend(workspace, "true")
    assert leader(kube).holder == old.holder, "the edit came too late to be one that nobody saw"
    successor(kube, old, timeout=60)
    return workspace.until_job(NAME, lambda job: condition(job, "Suspended")["status"] == "True", timeout=SECONDS)


def test_an_edit_made_while_nobody_leads_is_carried_out_by_the_next_leader(
    suspended: Manifest, workspace: Workspace
) -> None:
    assert condition(suspended, "Suspended")["reason"] == "Suspended", condition(suspended, "Suspended")["message"]
    assert suspended["status"]["suspension"]["lostRollouts"] == 0
    assert suspended["status"]["attempt"] == 1
    assert clusters(workspace) == set()


def test_a_leader_that_was_cut_off_ends_when_it_is_back_and_makes_nothing_twice(
    suspended: Manifest, kubectl: Kubectl, kube: Kube, workspace: Workspace
) -> None:
    operator_running(kubectl)
    made = clusters_ever(workspace)
    old = leader(kube)
    signal(workspace, old.container, "STOP")
    try:
        set_suspend(workspace, "false")  # whoever leads makes a RayCluster
        _, new = successor(kube, old, timeout=60)
    finally:
        signal(workspace, old.container, "CONT")
    ended = end_of(kube, old, timeout=60)
    assert ended["exitCode"] == 1, kubectl.within(SYSTEM)("logs", old.pod, "--previous", "--tail=20").stdout
    assert new.pod != old.pod
    job = advanced(workspace, trained(suspended) + 1)
    assert (job["status"]["attempt"], job["status"]["incarnation"]) == (1, 2)
    assert leader(kube).holder == new.holder
    assert clusters_ever(workspace) == made | clusters(workspace)
    assert len(clusters(workspace)) == 1
    names = {name_of(one) for one in workspace.kube.objects(RAY_CLUSTERS, workspace.namespace)}
    assert names == {f"{NAME}-a1"}
