"""A server of the user's own (`agentServer.url`): what it never hears of is refused, what counts beside it is not."""

from typing import Any

import pytest

from harborrl_cli.validation.findings import Finding
from harborrl_cli.validation.jobs import Assumed, judge
from harborrl_operator.manifests.form import stored_spec
from support import hrl
from support.hrl import condition, decide, message

UNHEARD: list[tuple[str, Any]] = [
    ("maxConcurrent", 2),
    ("agentKwargs", {"maxTurns": 3}),
    ("rewardKey", "score"),
    ("dashboardPort", 8080),
    ("image", "registry.example/server:1"),
    ("resources.limits.memory", "1Gi"),
    ("podOverrides", {"hostNetwork": True}),
    ("sandbox.runtimeClassName", "gvisor"),
    ("sandbox.images.template", "registry.example/{task}:1"),
    ("sandbox.nodeSelector", {"pool.example/a": "b"}),
    ("sandbox.tolerations", [{"operator": "Exists"}]),
    ("sandbox.timeoutSeconds", 7500),
]


@pytest.mark.parametrize(("field", "value"), UNHEARD, ids=[name for name, _ in UNHEARD])
def test_what_only_a_server_of_ours_reads_is_refused_by_its_name(field: str, value: Any) -> None:
    decided = decide(hrl.job(hrl.BROUGHT | {f"agentServer.{field}": value}), hrl.world())
    assert condition(decided, "Admitted") == ("False", "FieldUnsupported")
    assert message(decided, "Admitted").startswith(f"agentServer.{field}: a server of your own (agentServer.url) never")


def test_all_of_them_are_named_at_once() -> None:
    changes = {f"agentServer.{field}": value for field, value in UNHEARD}
    said = message(decide(hrl.job(hrl.BROUGHT | changes), hrl.world()), "Admitted")
    assert all(f"agentServer.{field}" in said for field, _ in UNHEARD)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"agentName": "mine", "adminSecretRef": {"name": "admin"}, "agentTimeoutSeconds": 60},
        {"sandbox": {"backend": "docker"}},
        {"dashboardPort": 0, "sandbox": {"images": {"map": {}}, "allowSameNamespace": False}, "resources": {}},
    ],
    ids=str,
)
def test_what_counts_and_what_the_api_server_fills_in_may_stand(changes: dict[str, Any]) -> None:
    asked = hrl.merged(hrl.QUICKSTART_SPEC, hrl.BROUGHT | {f"agentServer.{name}": v for name, v in changes.items()})
    job = hrl.job(base=stored_spec({"spec": asked}))
    assert condition(decide(job, hrl.world()), "Admitted")[1] == "AwaitingPreflight"


def judged(changes: dict[str, Any]) -> tuple[Finding, ...]:
    spec = hrl.merged(hrl.QUICKSTART_SPEC, changes)
    job = {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "metadata": {"name": "j"}, "spec": spec}
    return judge(job, Assumed()).findings


def test_validate_says_it_with_the_field() -> None:
    found = judged(hrl.BROUGHT | {"agentServer.sandbox.runtimeClassName": "gvisor"})
    refused = [one.path for one in found if one.reason == "FieldUnsupported"]
    assert refused == ["spec.agentServer.sandbox.runtimeClassName"]


@pytest.mark.parametrize(("ceiling", "warned"), [(660, True), (661, False)])
def test_a_ceiling_that_leaves_no_second_try_is_said_by_validate_and_in_adjustments(ceiling: int, warned: bool) -> None:
    changes = hrl.BROUGHT | {"rollout.agentTrialTimeoutSeconds": ceiling}
    status = decide(hrl.job(changes), hrl.world()).status
    noted = [one.reason for one in status.adjustments if one.field == "second try of a trial"]
    found = [one.message for one in judged(changes) if one.severity == "warning" and "budgets" in one.message]
    assert len(noted) == len(found) == int(warned)
    assert all(
        "five budgets are 660 s together and rollout.agentTrialTimeoutSeconds 660" in one for one in (*noted, *found)
    )


def test_default_budgets_under_a_lower_ceiling_are_told_apart_from_a_servers_own() -> None:
    own = {"agentServer": {"url": hrl.BROUGHT["agentServer.url"]}, "rollout.agentTrialTimeoutSeconds": 900}
    assert "7020 s together" in " ".join(one.message for one in judged(own))
