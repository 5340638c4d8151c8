"""What a fresh operator, or one that decided on what is no longer so, does to a job that is there."""

import secrets
import subprocess
from typing import Any

import pytest
from devcluster.controlplane import RunningControlPlane

from harborrl_operator.cluster import Cluster
from harborrl_operator.models import HarborRLJob
from harborrl_operator.reconcile import CONFLICT_SECONDS, Reconciler
from harborrl_operator.resolve import resolve
from harborrl_operator.resources import rbac
from harborrl_operator.transport import Answer, Request, Send
from support import hrl
from support.simulated_life import JOB, KINDS, STAGES, Life

pytestmark = pytest.mark.api


@pytest.fixture
async def life(bare_cluster: Cluster) -> Life:
    begun = Life(bare_cluster, f"again-{secrets.token_hex(3)}")
    await begun.begin()
    return begun


def operator(life: Life, cluster: Cluster | None = None) -> Reconciler:
    return Reconciler(cluster or life.cluster, hrl.SETTINGS, life.now)


async def walk_to_cluster(life: Life) -> None:
    for stage in STAGES[:3]:
        await stage.act(life)
        for _ in range(2):
            await operator(life).reconcile(life.namespace, JOB)
        assert await stage.reached(life), stage.name


async def versions(life: Life) -> dict[str, str]:
    things = [(kind, thing["metadata"]) for kind in KINDS for thing in await life.cluster.find(kind, life.namespace)]
    return {f"{kind}/{meta['name']}": f"{meta['uid']} {meta['resourceVersion']}" for kind, meta in things}


async def test_an_operator_that_is_started_ten_times_changes_no_child(life: Life) -> None:
    await walk_to_cluster(life)
    before = await versions(life)
    for _ in range(10):
        await operator(life).reconcile(life.namespace, JOB)
    assert await versions(life) == before


async def test_a_status_that_was_decided_on_an_older_job_is_not_written(life: Life) -> None:
    def edited_meanwhile(send: Send) -> Send:
        async def edit_first(request: Request) -> Answer:
            if request.path.endswith("/status"):
                await life.patch("HarborRLJob", JOB, {"spec": {"activeDeadlineSeconds": 4711}})
            return await send(request)

        return edit_first

    late = operator(life, life.cluster.through(edited_meanwhile))
    assert await late.reconcile(life.namespace, JOB) == CONFLICT_SECONDS
    assert await life.status() == {}
    await operator(life).reconcile(life.namespace, JOB)
    assert (await life.status())["observedGeneration"] == 2


async def test_a_pod_that_another_operator_made_meanwhile_is_left_as_it_is(life: Life) -> None:
    await walk_to_cluster(life)
    made = await life.cluster.get("RayCluster", life.namespace, f"{JOB}-a1")
    assert made is not None

    def blind(send: Send) -> Send:
        async def unseen(request: Request) -> Answer:
            if request.kind == "RayCluster" and request.verb in ("list", "get") and blindness:
                return Answer(200, '{"items": []}') if request.verb == "list" else Answer(404, "{}")
            if request.kind == "RayCluster" and request.verb == "create":
                blindness.clear()
            return await send(request)

        return unseen

    blindness = [True]
    await operator(life, life.cluster.through(blind)).reconcile(life.namespace, JOB)
    assert blindness == []
    again = await life.cluster.get("RayCluster", life.namespace, f"{JOB}-a1")
    assert again == made
    assert (await life.status())["reason"] != "ApplyFailed"


def supervisor_of(namespace: str, name: str) -> list[dict[str, Any]]:
    """Role and RoleBinding of another job's supervisor."""
    quickstart = hrl.job(name=name)
    job = HarborRLJob(namespace, name, quickstart.uid, 1, quickstart.spec, quickstart.status)
    made = rbac.accounts_and_bindings(resolve(job, hrl.SETTINGS))
    return [thing for thing in made if thing["metadata"]["name"] == job.names.supervisor_role]


async def test_supervisors_may_write_the_reports_of_their_namespace_and_no_other_config_map(
    life: Life, bare_plane: RunningControlPlane
) -> None:
    """They share one account: of two jobs in one namespace, each supervisor may write both reports (decision 0072)."""
    await walk_to_cluster(life)
    for thing in supervisor_of(life.namespace, "other"):
        await life.cluster.apply(thing)
    account = f"system:serviceaccount:{life.namespace}:harborrl-trainer"

    def may(verb: str, what: str) -> bool:
        command = [bare_plane.kubectl, "--kubeconfig", str(bare_plane.kubeconfig), "auth", "can-i", verb, what]
        command += ["--namespace", life.namespace, "--as", account]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - our own binary
        return answer.stdout.strip() == "yes"

    assert may("patch", f"configmaps/{JOB}-progress")
    assert may("get", f"configmaps/{JOB}-progress")
    assert may("get", f"configmaps/{JOB}-request")
    assert may("patch", "configmaps/other-progress")
    refused = [
        ("patch", f"configmaps/{JOB}-config"),
        ("patch", f"configmaps/{JOB}-request"),
        ("patch", "configmaps/other-request"),
        ("get", "configmaps/other-config"),
        ("list", "configmaps"),
    ]
    refused += [("create", "configmaps"), ("delete", f"configmaps/{JOB}-progress"), ("get", "secrets")]
    assert [what for what in refused if may(*what)] == []
