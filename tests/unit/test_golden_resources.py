"""What a job becomes, object by object, as YAML that a person can review."""

from datetime import timedelta
from typing import Any

import pytest
import yaml

from harborrl_operator import announcer
from harborrl_operator.liveness import heartbeat
from harborrl_operator.models import HarborRLJob
from harborrl_operator.observed import Address, Observed
from harborrl_operator.resolve import ResolvedJob, resolve
from harborrl_operator.resources import config_maps, disruption, network, preflight, rbac, services
from harborrl_operator.resources.agent_server import deployment
from harborrl_operator.resources.common import storage_volumes
from harborrl_operator.resources.ray_cluster import ray_cluster
from harborrl_operator.transitions import transitions
from support import golden, hrl

CASES = {"quickstart": "ReadWriteOnce", "design": "ReadWriteMany", "gang": "ReadWriteMany"}


def input_of(case: str) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((golden.DATA / "operator" / case / "input.yaml").read_text())
    return manifest


def resolved(case: str) -> ResolvedJob:
    manifest = input_of(case)
    return resolve(hrl.job(base=manifest["spec"], name=manifest["metadata"]["name"]), hrl.SETTINGS)


@pytest.mark.parametrize("case", CASES)
def test_a_job_becomes_exactly_these_objects(case: str, pytestconfig: pytest.Config) -> None:
    job = resolved(case)
    claims = {volume.pvc: hrl.claim(volume.pvc, CASES[case]) for volume in job.volumes.values()}
    objects: dict[str, Any] = {
        "rbac": rbac.accounts_and_bindings(job),
        "services": [services.trainer(job, 1), *services.agent_server(job, "0a1b2c3d")],
        "network_policies": network.policies(job, (Address("203.0.113.7/32", 6443),)),
        "disruption": disruption.budgets(job),
        "config": config_maps.job_config(job, 1),
        "progress": config_maps.progress(job.job),
        "request": config_maps.stop_request(job.job, "a1-i2-2026-01-01T12:00:00Z", 1, 2),
        "deployment": deployment(job, claims),
        "preflight": preflight.pod(job, 1, claims),
        "ray_cluster": ray_cluster(job, 1, claims),
    }
    for name, value in objects.items():
        golden.check(pytestconfig, f"operator/{case}/{name}.yaml", value)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_dashboard_is_a_port_of_the_pod_and_no_service_leads_to_it(workers: int) -> None:
    job = resolve(hrl.job({"agentServer": {"dashboardPort": 8080, "workers": workers}}), hrl.SETTINGS)
    claims = {volume.pvc: hrl.claim(volume.pvc) for volume in job.volumes.values()}
    container = deployment(job, claims)["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "dashboard", "containerPort": 8080} in container["ports"]
    assert container["args"][container["args"].index("--dashboard-port") + 1] == "8080"
    assert "8080" not in str([*services.agent_server(job, "0a1b2c3d"), *network.policies(job, ())])


def test_the_operator_itself_writes_this_heartbeat(pytestconfig: pytest.Config) -> None:
    golden.check(pytestconfig, "operator/heartbeat.yaml", heartbeat("harborrl-system", 1767268800))


def test_a_life_is_told_in_exactly_these_events(pytestconfig: pytest.Config) -> None:
    """From the first pass to a failed attempt, each as it is sent to the API server."""
    told: list[dict[str, Any]] = []
    job = hrl.job()
    worlds: tuple[tuple[float, dict[str, Any]], ...] = (
        (0, {}),
        (60, {"deployment": hrl.deployment()}),
        (
            90,
            {"deployment": hrl.deployment(), "preflight_pod": hrl.preflight_pod(job, exit_code=0, message=hrl.PASSED)},
        ),
    )
    for seconds, seen in worlds:
        job = told_by(job, hrl.world(**seen), seconds, told)
    job = told_by(job, hrl.running_world(job, progress=hrl.progress()), 120, told)
    lost = hrl.progress("FAILED", failure="infrastructure", message="NCCL watchdog: a peer is gone")
    told_by(job, hrl.running_world(job, progress=lost), 150, told)
    golden.check(pytestconfig, "operator/events.yaml", told)


def told_by(job: HarborRLJob, seen: Observed, seconds: float, told: list[dict[str, Any]]) -> HarborRLJob:
    decided = hrl.decide(job, seen, after=seconds)
    now = hrl.NOW + timedelta(seconds=seconds)
    told += [announcer.event(job, one, now) for one in transitions(job.status, decided.status)]
    return hrl.then(job, decided)


def pods(case: str) -> list[dict[str, Any]]:
    job = resolved(case)
    spec = ray_cluster(job, 1, {})["spec"]
    groups = [spec["headGroupSpec"], *spec.get("workerGroupSpecs", [])]
    return [group["template"]["spec"] for group in groups]


def test_only_the_supervisor_sees_a_token() -> None:
    for pod in pods("quickstart"):
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert "token" not in [mount["name"] for mount in container["volumeMounts"]]
    supervisor = pods("quickstart")[0]["initContainers"][0]
    assert "token" in [mount["name"] for mount in supervisor["volumeMounts"]]
    assert supervisor["restartPolicy"] == "Always"


def test_every_ray_container_has_probes_of_its_own_so_that_kuberay_adds_none_that_calls_wget() -> None:
    for pod in pods("quickstart"):
        assert {"readinessProbe", "livenessProbe", "lifecycle"} <= pod["containers"][0].keys()
        assert "wget" not in str(pod)


def test_a_claim_of_several_roles_is_one_volume() -> None:
    for pod in pods("quickstart"):
        claims = [v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v]
        assert claims == ["harborrl-data"]


def test_no_secret_value_is_in_any_argument_or_literal_environment() -> None:
    pod = deployment(resolved("design"), {})["spec"]["template"]["spec"]
    secrets = [e for e in pod["containers"][0]["env"] if e["name"] == "HARBOR_ADMIN_SECRET"]
    assert secrets == [
        {"name": "HARBOR_ADMIN_SECRET", "valueFrom": {"secretKeyRef": {"name": "harbor-admin", "key": "secret"}}}
    ]


def test_whoever_flushes_has_the_secret_that_the_agent_server_demands_of_it() -> None:
    job = resolve(hrl.job({"agentServer.adminSecretRef": {"name": "harbor-admin"}}), hrl.SETTINGS)
    spec = ray_cluster(job, 1, {})["spec"]
    head = spec["headGroupSpec"]["template"]["spec"]
    worker = spec["workerGroupSpecs"][0]["template"]["spec"]
    held = {
        container["name"]: [e["valueFrom"] for e in container["env"] if e["name"] == "HARBOR_ADMIN_SECRET"]
        for container in (*head["containers"], *head["initContainers"], *worker["containers"])
    }
    reference = [{"secretKeyRef": {"name": "harbor-admin", "key": "secret"}}]
    assert held == {"ray-head": reference, "supervisor": reference, "ray-worker": []}


def test_small_containers_request_what_a_quota_on_requests_asks_for() -> None:
    stated = resolve(
        hrl.job({"trainer.resources": {"requests": {"cpu": 1}, "limits": {"memory": "4Gi"}}}), hrl.SETTINGS
    )
    (supervisor,) = ray_cluster(stated, 1, {})["spec"]["headGroupSpec"]["template"]["spec"]["initContainers"]
    assert set(supervisor["resources"]["requests"]) == {"cpu", "memory"}
    (checker,) = preflight.pod(stated, 1, {})["spec"]["containers"]
    assert set(checker["resources"]["requests"]) == {"cpu", "memory"}
    silent = ray_cluster(resolve(hrl.job(), hrl.SETTINGS), 1, {})["spec"]["headGroupSpec"]["template"]["spec"]
    assert silent["initContainers"][0]["resources"] == {}


def test_a_reward_key_reaches_the_agent_server_and_only_when_it_is_set() -> None:
    def flags(changes: dict[str, Any]) -> list[str]:
        job = resolve(hrl.job(changes), hrl.SETTINGS)
        return list(deployment(job, {})["spec"]["template"]["spec"]["containers"][0]["args"])

    chosen = flags({"agentServer.rewardKey": "passed"})
    assert chosen[chosen.index("--reward-key") + 1] == "passed"
    assert "--reward-key" not in flags({})


def test_pod_overrides_merge_into_objects_and_replace_lists() -> None:
    overrides = {"nodeSelector": {"zone": "a"}, "tolerations": [{"operator": "Exists"}]}
    job = resolve(hrl.job({"trainer.podOverrides": overrides}), hrl.SETTINGS)
    pod = ray_cluster(job, 1, {})["spec"]["headGroupSpec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"zone": "a"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["containers"][0]["name"] == "ray-head"


def test_the_users_environment_cannot_replace_ours() -> None:
    env = [{"name": "HARBORRL_JOB", "value": "/mine"}, {"name": "MINE", "value": "x"}]
    job = resolve(hrl.job({"trainer.env": env}), hrl.SETTINGS)
    head = ray_cluster(job, 1, {})["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    values = {variable["name"]: variable.get("value") for variable in head["env"]}
    assert values["HARBORRL_JOB"] == "/etc/harborrl/job.json"
    assert values["MINE"] == "x"


def _resolved(changes: dict[str, Any]) -> ResolvedJob:
    return resolve(hrl.job(changes), hrl.SETTINGS)


def test_dollars_in_an_agents_arguments_reach_the_server_as_they_were_written() -> None:
    """The kubelet expands $(VAR) and reads $$ as one dollar."""
    job = _resolved({"agentServer.agentKwargs": {"prompt": "pay $$5 to $(HARBOR_ADMIN_SECRET)"}})
    (container,) = deployment(job, {})["spec"]["template"]["spec"]["containers"]
    words = container["args"]
    assert words[words.index("--agent-kwargs") + 1] == '{"prompt":"pay $$$$5 to $$(HARBOR_ADMIN_SECRET)"}'


def test_two_long_claims_that_differ_at_their_end_are_two_volumes() -> None:
    job = _resolved({"storage": {"models": {"pvc": "a" * 62 + "b"}, "tasks": {"pvc": "a" * 62 + "c"}}})
    names = [volume["name"] for volume in storage_volumes(job, ("models", "tasks"))]
    assert len(set(names)) == 2
    assert max(map(len, names)) <= 63


def test_a_preflight_pulls_and_is_placed_like_the_trainer_but_needs_no_gpu_node() -> None:
    overrides = {
        "imagePullSecrets": [{"name": "r"}],
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"gpu": "1"},
    }
    spec = preflight.pod(_resolved({"trainer.podOverrides": overrides}), 1, {})["spec"]
    assert spec["imagePullSecrets"] == [{"name": "r"}]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert "nodeSelector" not in spec


def test_in_miles_own_image_our_code_is_copied_into_every_ray_pod_and_the_supervisor_keeps_to_ours() -> None:
    ours = hrl.SETTINGS.trainer_image
    for pod in pods("gang"):
        copier, *others = pod["initContainers"]
        (ray,) = pod["containers"]
        assert (copier["name"], copier["image"]) == ("code", ours)
        assert {"name": "code", "mountPath": "/opt/harborrl-code", "readOnly": True} in ray["volumeMounts"]
        assert ray["image"] == "radixark/miles:dev-202604201238"
        assert [other["image"] for other in others] == [ours] * len(others)
    head = pods("gang")[0]
    assert [each["name"] for each in head["initContainers"]] == ["code", "supervisor"]
    assert {"name": "HARBORRL_CODE", "value": "/opt/harborrl-code"} in head["initContainers"][1]["env"]


def test_the_native_engines_pods_hold_our_image_and_no_copy() -> None:
    assert all("code" not in [volume["name"] for volume in pod["volumes"]] for pod in pods("quickstart"))
