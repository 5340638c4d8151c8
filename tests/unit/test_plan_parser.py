"""With engine miles the preflight asks the image's own parser, and what comes of that is told in Admitted."""

import json
from typing import Any

import pytest

from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob
from harborrl_operator.resolve import resolve
from harborrl_operator.resources.preflight import pod as preflight_pod
from support import hrl
from support.hrl import applied, condition, decide, message

IMAGE = "radixark/miles:dev-202604201238"


@pytest.fixture
def job() -> HarborRLJob:
    return hrl.job(base=hrl.DESIGN_SPEC)


def answer(severity: str, reason: str, said: str) -> dict[str, Any]:
    finding = {"check": "I7", "reason": reason, "severity": severity, "message": said}
    result = {"schemaVersion": 1, "ok": severity != "refuse", "findings": [finding]}
    return {"terminated": {"exitCode": 0, "message": json.dumps(result), "startedAt": hrl.ago(30)}}


WAITING = {"waiting": {"reason": "ContainerCreating"}}
NEVER_BEGAN = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "not located"}}


def told(job: HarborRLJob, parser: dict[str, Any], phase: str, own: str = hrl.PASSED) -> Plan:
    """What is decided when the preflight's own checks have ended and its parser's container is in state `parser`."""
    pod = hrl.preflight_pod(job, exit_code=0 if own == hrl.PASSED else 1, message=own)
    pod["spec"] = preflight_pod(resolve(job, hrl.SETTINGS), 1, {})["spec"]
    pod["status"]["phase"] = phase
    pod["status"]["containerStatuses"].append({"name": "parser", "image": IMAGE, "state": parser})
    claims = {role: hrl.claim(role) for role in ("models", "tasks", "checkpoints", "traces", "trials")}
    return decide(job, hrl.world(deployment=hrl.deployment(job), preflight_pod=pod, claims=claims))


def test_while_the_image_comes_or_its_parser_works_that_is_what_is_waited_for(job: HarborRLJob) -> None:
    for state, phase in ((WAITING, "Pending"), ({"running": {}}, "Running")):
        decided = told(job, state, phase)
        assert condition(decided, "Admitted") == ("Unknown", "AwaitingPreflight")
        assert f"asks Miles' parser in {IMAGE}" in message(decided, "Admitted")
        assert "RayCluster/quickstart-a1" not in applied(decided)


def test_arguments_that_the_parser_refuses_hold_no_gpu(job: HarborRLJob) -> None:
    decided = told(job, answer("refuse", "ArgumentConflict", "Miles' own parser refuses: --x"), "Succeeded")
    assert condition(decided, "Admitted") == ("False", "ArgumentConflict")
    assert message(decided, "Admitted") == "Miles' own parser refuses: --x"
    assert decided.status.phase == "Refused"
    assert "RayCluster/quickstart-a1" not in applied(decided)


def test_what_the_preflight_itself_refuses_is_told_while_the_image_is_still_pulled(job: HarborRLJob) -> None:
    finding = {"check": "I6", "reason": "NoTasks", "severity": "refuse", "message": "none"}
    own = json.dumps({"schemaVersion": 1, "ok": False, "findings": [finding]})
    assert condition(told(job, WAITING, "Pending", own), "Admitted") == ("False", "NoTasks")


def test_an_image_that_cannot_be_pulled_has_its_reason(job: HarborRLJob) -> None:
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "manifest unknown"}}
    decided = told(job, state, "Pending")
    assert condition(decided, "Admitted") == ("False", "ImagePullFailed")
    assert f"cannot get image {IMAGE} (ImagePullBackOff): manifest unknown" in message(decided, "Admitted")


@pytest.mark.parametrize("state", [WAITING, NEVER_BEGAN])
def test_an_image_that_did_not_come_in_the_preflights_time_does_not_reach_the_gpus(
    job: HarborRLJob, state: dict[str, Any]
) -> None:
    decided = told(job, state, "Failed")
    assert condition(decided, "Admitted") == ("False", "ImagePullFailed")
    assert f"before trainer.image {IMAGE} was there" in message(decided, "Admitted")
    assert "RayCluster/quickstart-a1" not in applied(decided)


def test_a_container_that_cannot_run_python_is_no_image_of_miles(job: HarborRLJob) -> None:
    state = {"terminated": {"exitCode": 128, "reason": "StartError", "message": 'exec: "python3": not found'}}
    decided = told(job, state, "Failed")
    assert condition(decided, "Admitted") == ("False", "EngineUnavailable")
    assert 'does not run python3 (exec: "python3": not found)' in message(decided, "Admitted")


@pytest.mark.parametrize(
    ("state", "phase", "said"),
    [
        (answer("accept", "", ""), "Succeeded", "All checks and the preflight passed."),
        (answer("warn", "ParserNotAsked", "libcuda is missing."), "Succeeded", "libcuda is missing."),
        (
            {"terminated": {"exitCode": 137, "reason": "OOMKilled", "startedAt": hrl.ago(9)}},
            "Failed",
            f"Miles' own parser could not be asked in {IMAGE} (exit code 137 (OOMKilled))",
        ),
        (
            {"terminated": {"exitCode": 1, "message": "Traceback\nKeyError: 3\n", "startedAt": hrl.ago(9)}},
            "Failed",
            "(KeyError: 3): the driver asks it at its start.",
        ),
        ({"running": {"startedAt": hrl.ago(9)}}, "Failed", "(its pod was lost meanwhile): the driver asks it"),
    ],
    ids=["accepted", "a remark", "killed for memory", "broken", "node lost"],
)
def test_a_parser_that_does_not_refuse_lets_the_job_start_and_is_quoted(
    job: HarborRLJob, state: dict[str, Any], phase: str, said: str
) -> None:
    decided = told(job, state, phase)
    assert condition(decided, "Admitted") == ("True", "Admitted")
    assert said in message(decided, "Admitted")
    assert "RayCluster/quickstart-a1" in applied(decided)


def test_a_preflight_that_an_earlier_operator_made_is_judged_by_its_own_result(job: HarborRLJob) -> None:
    pod = hrl.preflight_pod(job, exit_code=0, message=hrl.PASSED)
    claims = {role: hrl.claim(role) for role in ("models", "tasks", "checkpoints", "traces", "trials")}
    decided = decide(job, hrl.world(deployment=hrl.deployment(job), preflight_pod=pod, claims=claims))
    assert condition(decided, "Admitted") == ("True", "Admitted")


def test_it_needs_no_gpu_sees_none_and_is_bounded(job: HarborRLJob) -> None:
    spec = preflight_pod(resolve(job, hrl.SETTINGS), 1, {})["spec"]
    parser = spec["containers"][1]
    assert "nvidia.com/gpu" not in str([one["resources"] for one in spec["containers"]])
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"} in parser["env"]
    assert parser["resources"]["limits"] == {"memory": "8Gi"}
    assert "nodeSelector" not in spec
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in spec["affinity"]["nodeAffinity"]


def test_it_sees_the_code_that_the_job_mounts_into_ray_and_still_no_gpu() -> None:
    """Miles skips a function that it cannot import, whose flags are unknown then: the job would be refused for them."""
    mounts = [{"name": "plugins", "mountPath": "/plugins"}]
    gpus = {"name": "CUDA_VISIBLE_DEVICES", "value": "0"}
    ray = {"name": "ray-head", "volumeMounts": mounts, "env": [{"name": "PLUGINS", "value": "1"}, gpus]}
    volumes = [{"name": "plugins", "configMap": {"name": "plugins"}}, {"name": "other", "emptyDir": {}}]
    job = hrl.job({"trainer.podOverrides": {"containers": [ray], "volumes": volumes}}, base=hrl.DESIGN_SPEC)
    spec = preflight_pod(resolve(job, hrl.SETTINGS), 1, {})["spec"]
    parser = spec["containers"][1]
    assert mounts[0] in parser["volumeMounts"]
    assert {"name": "PLUGINS", "value": "1"} in parser["env"]
    assert [one["value"] for one in parser["env"] if one["name"] == "CUDA_VISIBLE_DEVICES"] == [""]
    assert "nvidia.com/gpu" not in str(parser["resources"])
    names = [volume["name"] for volume in spec["volumes"]]
    assert ("plugins" in names, "other" in names) == (True, False)
    assert "plugins" not in str(spec["containers"][0])


def test_the_native_engine_has_no_such_container() -> None:
    spec = preflight_pod(resolve(hrl.job(), hrl.SETTINGS), 1, {})["spec"]
    assert ([one["name"] for one in spec["containers"]], "initContainers" in spec) == (["preflight"], False)
