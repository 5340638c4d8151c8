"""Rights that somebody deletes come back before a driver needs them, and the condition names them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from harborrl_operator.constants import Phase
from harborrl_operator.models import HarborRLJob, JobStatus
from harborrl_operator.observed import Observed
from harborrl_operator.reconcile import Reconciler
from harborrl_operator.resolve import resolve
from harborrl_operator.resources import rbac
from harborrl_operator.rights import SILENT_SECONDS, read_rights
from support import hrl
from support.hrl import applied, condition, decide, message, then
from support.memory_cluster import MemoryCluster

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OWN = "harborrl-supervisor-quickstart"
GONE = {("Role", OWN): None, ("RoleBinding", OWN): None}


async def begun(phase: Phase) -> tuple[MemoryCluster, Reconciler]:
    """A job on its way to its trainer, all of whose rights have just been made."""
    cluster = MemoryCluster()
    reconciler = Reconciler(cluster, hrl.SETTINGS, lambda: NOW)
    await reconciler.reconcile("research", "quickstart")
    status = cluster.objects["HarborRLJob", "research", "quickstart"]["status"]
    assert status["phase"] == Phase.STARTING_AGENT_SERVER
    status["phase"] = phase
    return cluster, reconciler


FIRST = [(Phase.STARTING_AGENT_SERVER, right) for right in rbac.first_rights_in(hrl.job())]
ALL = [(Phase.PREFLIGHT, right) for right in rbac.rights_in(hrl.job())]


@pytest.mark.parametrize(("phase", "right"), [*FIRST, *ALL])
async def test_a_right_that_was_deleted_is_there_again_after_the_next_pass(phase: Phase, right: rbac.Right) -> None:
    cluster, reconciler = await begun(phase)
    kind, name = right
    del cluster.objects[kind, "research", name]
    await reconciler.reconcile("research", "quickstart")
    assert (kind, "research", name) in cluster.objects


async def test_a_role_whose_rules_were_taken_out_has_them_again() -> None:
    cluster, reconciler = await begun(Phase.PREFLIGHT)
    role = cluster.objects["Role", "research", OWN]
    rules, role["rules"] = role["rules"], []
    await reconciler.reconcile("research", "quickstart")
    assert cluster.objects["Role", "research", OWN]["rules"] == rules


def test_what_is_looked_at_is_what_is_made_in_the_jobs_namespace() -> None:
    named: list[dict[str, Any]] = [{}, {"trainer.serviceAccountName": "with-bucket"}]
    for changes in named:
        resolved = resolve(hrl.job(changes), hrl.SETTINGS)
        made = {
            (thing["kind"], thing["metadata"]["name"])
            for thing in rbac.accounts_and_bindings(resolved)
            if thing["metadata"]["namespace"] == "research"
        }
        assert set(rbac.rights_in(resolved.job)) == made


def test_while_the_agent_server_starts_a_supervisors_rights_are_nobodys_to_miss() -> None:
    assert {right[0] for right in rbac.first_rights_in(hrl.job())} == {"RoleBinding", "ServiceAccount"}
    assert len(rbac.first_rights_in(hrl.job())) == 3
    assert rbac.first_rights_in(hrl.job(hrl.BROUGHT)) == (("ServiceAccount", "harborrl-trainer"),)


def in_phase(phase: Phase | None) -> HarborRLJob:
    return hrl.job(status=JobStatus(phase=phase, attempt=1) if phase else None)


@pytest.mark.parametrize(
    ("phase", "age", "is_looked_at"),
    [
        (Phase.STARTING_TRAINER, None, True),
        (Phase.SUSPENDING, 1, True),
        (Phase.RUNNING, 1, False),
        (Phase.RUNNING, SILENT_SECONDS + 1, True),
        (Phase.RUNNING, None, True),
        (Phase.QUEUED, None, False),
        (Phase.REFUSED, None, False),
        (Phase.SUCCEEDED, None, False),
    ],
)
async def test_rights_are_looked_at_while_a_driver_begins_or_is_silent(
    phase: Phase, age: float | None, is_looked_at: bool
) -> None:
    report = None if age is None else hrl.progress("RUNNING", {"observedAt": hrl.ago(age)})
    seen = await read_rights(MemoryCluster(), in_phase(phase), report, hrl.NOW)
    assert bool(seen) is is_looked_at


def starting() -> tuple[HarborRLJob, Observed]:
    """Both pods are ready and no driver has been reported."""
    job = hrl.job()
    return job, hrl.running_world(job, rights=GONE)


def test_a_driver_that_does_not_report_is_told_from_one_whose_supervisor_may_not() -> None:
    decided = decide(*starting())
    assert condition(decided, "Progressing") == ("False", "NotRunning")
    for said in (message(decided, "Progressing"), decided.status.message):
        assert f"Missing and made again: Role {OWN}, RoleBinding {OWN}." in said
        assert "refuses (403)" in said
    assert f"Role/{OWN}" in applied(decided)


def test_nothing_is_said_while_no_right_is_missing() -> None:
    job = hrl.job()
    decided = decide(job, hrl.running_world(job, rights={("Role", OWN): {"rules": []}}))
    assert "Missing" not in message(decided, "Progressing")


def test_a_suspend_gives_back_the_right_by_which_its_request_is_read() -> None:
    job = hrl.job()
    running = then(job, decide(job, hrl.running_world(job, progress=hrl.progress())), suspend=True)
    asked = decide(running, hrl.running_world(job, progress=hrl.progress(), rights=GONE))
    assert applied(asked) == [f"Role/{OWN}", f"RoleBinding/{OWN}", "ConfigMap/quickstart-request"]


def test_an_attempt_whose_next_one_would_be_refused_keeps_its_rights() -> None:
    job = hrl.job()
    seen = hrl.running_world(job, rights=GONE, claims={"harborrl-data": None})
    decided = decide(job, seen)
    assert "the next one would be refused" in message(decided, "Admitted")
    assert f"Role/{OWN}" in applied(decided)
