"""A job deleted in any phase of its life leaves its files and nothing else, whether or not the operator looks.

In phase Running: test_deletion.py. In a queue: test_deletion_in_queues.py.
"""

from collections.abc import Iterator

import pytest

from support.kubectl import Kubectl
from support.phases import WAYS, Lives, lives
from support.workspace import Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

GONE_SECONDS = 60


@pytest.fixture(scope="module", params=["running", "absent"])
def jobs(request: pytest.FixtureRequest, kubectl: Kubectl, workspace: Workspace) -> Iterator[Lives]:
    with lives(workspace, kubectl, request.param, WAYS) as made:
        yield made


@pytest.mark.parametrize("phase", WAYS)
def test_a_job_deleted_in_a_phase_of_its_life_leaves_its_files_and_nothing_else(jobs: Lives, phase: str) -> None:
    assert jobs.delete(phase, within=GONE_SECONDS) == set()


def test_a_job_deleted_before_anybody_looked_at_it_leaves_nothing(workspace: Workspace, jobs: Lives) -> None:
    workspace.until_held(lambda held: not held, jobs.name("pending"), timeout=GONE_SECONDS)
