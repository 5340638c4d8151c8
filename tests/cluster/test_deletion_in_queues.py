"""A job deleted while Kueue decides about it leaves no pod and no quota, whether or not the operator looks."""

from collections.abc import Iterator

import pytest

from support.kube import WORKLOADS
from support.kubectl import Kubectl
from support.phases import QUEUED_WAYS, Lives, lives
from support.queues import Queues, queues_in
from support.workspace import Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.kueue]

GONE_SECONDS = 60


@pytest.fixture(scope="module")
def queues(kubectl: Kubectl, workspace: Workspace) -> Iterator[Queues]:
    with queues_in(workspace, kubectl) as queues:
        yield queues


@pytest.fixture(scope="module", params=["running", "absent"])
def jobs(request: pytest.FixtureRequest, kubectl: Kubectl, queues: Queues) -> Iterator[Lives]:
    with lives(queues.workspace, kubectl, request.param, QUEUED_WAYS) as made:
        made.reach_all()  # before any is deleted: one waits for the quota that the other has
        yield made
        # Kueue lets no queue go that somebody is in.
        made.remove()
        for phase in QUEUED_WAYS:
            queues.workspace.until_held(lambda held: not held, made.name(phase), timeout=2 * GONE_SECONDS)


@pytest.mark.parametrize("phase", ["queued", "restarting-in-place"])  # who waits before who would let it in
def test_a_job_deleted_in_its_queue_leaves_its_files_and_nothing_else(jobs: Lives, queues: Queues, phase: str) -> None:
    assert jobs.delete(phase, within=GONE_SECONDS) == set()
    kube, namespace, name = queues.workspace.kube, queues.workspace.namespace, jobs.name(phase)
    kube.until(lambda _: queues.workloads_of(name) == [], WORKLOADS, namespace, timeout=GONE_SECONDS)
