"""The API server alone refuses what can be known from the spec, with the operator absent."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from support import hrl

pytestmark = pytest.mark.api

Submit = Callable[..., subprocess.CompletedProcess[str]]

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "a trial ceiling below the budgets",
        {"rollout.agentTrialTimeoutSeconds": 659},
        "must be at most spec.rollout.agentTrialTimeoutSeconds",
    ),
    ("fewer slots than batch x samples", {"agentServer.maxConcurrent": 7}, "maxConcurrent must be at least"),
    ("both kinds of data", {"data.jsonl": "x.jsonl"}, "exactly one of jsonl and tasks"),
    ("neither kind of data", {"data": {}}, "exactly one of jsonl and tasks"),
    ("a priority without a queue", {"workloadPriorityClass": "high"}, "set spec.queueName as well"),
    (
        "a topology that is demanded and wished for",
        {"trainer.topology": {"required": "a", "preferred": "b"}},
        "one of required and preferred",
    ),
    ("a resume from two places", {"resumeFrom": {"job": "a", "path": "b"}}, "exactly one of job and path"),
    ("an IPv4 address", {"agentServer.url": "http://10.0.0.1:30000"}, "stable name"),
    ("an IPv6 address", {"agentServer.url": "http://[::1]:30000"}, "stable name"),
    ("a pod's address", {"agentServer.url": "http://10-0-0-1.research.pod.cluster.local"}, "stable name"),
    ("a pod's short name", {"agentServer.url": "http://10-0-0-1.research.pod"}, "stable name"),
    ("a pod's name in capitals", {"agentServer.url": "http://x.research.POD.cluster.local"}, "stable name"),
    ("a pod behind its Service", {"agentServer.url": "http://10-0-0-1.agents.team.svc"}, "stable name"),
    ("a hexadecimal address", {"agentServer.url": "http://0x7f000001:30000"}, "stable name"),
    ("a decimal address", {"agentServer.url": "http://2130706433/"}, "stable name"),
    ("an address with a hexadecimal end", {"agentServer.url": "http://127.0.0.0x1"}, "stable name"),
    ("a user in front", {"agentServer.url": "http://user:pass@agents.team.svc"}, "stable name"),
    ("no address at all", {"agentServer.url": ""}, "spec.agentServer.url: Invalid value"),
    ("another scheme", {"agentServer.url": "file:///etc/passwd"}, "stable name"),
    (
        "a sandbox that ends before its verifier",
        {"agentServer.sandbox.timeoutSeconds": 420},
        "must exceed agentTimeoutSeconds + verifierSeconds",
    ),
    (
        "an idle time-out that never acts",
        {"agentServer.sandbox": {"timeoutSeconds": 1000, "idleTimeoutSeconds": 1000}},
        "idleTimeoutSeconds must be below timeoutSeconds",
    ),
    (
        "a secret in plain text",
        {"trainer.env": [{"name": "ok", "value": "x"}, {"name": "wandb_api_key", "value": "canary"}]},
        "spec.trainer.env[1]: Invalid value: the name looks like a secret",
    ),
    ("a variable of ours", {"trainer.env": [{"name": "HARBORRL_JOB", "value": "x"}]}, "set by the operator"),
    ("an unknown field", {"trainer.config.learningRate": 1}, "unknown field"),
    *[
        (f"a way out by {path}", {path: value}, f'spec.{path}: Invalid value: "{value}": a relative path without')
        for path, value in (
            ("data.tasks.instructionPath", "/etc/passwd"),
            ("data.tasks.instructionPath", "../other/instruction.md"),
            ("data.tasks.glob", "a/../../*"),
            ("data.tasks.glob", "/*"),
        )
    ],
    (
        "a way out of a claim",
        {"storage.tasks": {"pvc": "tasks", "subPath": "a/.."}},
        "spec.storage.tasks.subPath: Invalid value: \"a/..\": a relative path without '..'",
    ),
    *[
        (f"a way out of a volume by {path}", {path: "../secrets"}, "'..' would lead out of the volume")
        for path in ("model.path", "model.refLoad", "data.tasks.root")
    ],
    ("a resume from beside the volume", {"resumeFrom": {"path": "a/../../b"}}, "'..' would lead out of the volume"),
    ("an evaluation from beside the volume", {"eval": {"jsonl": ".."}}, "'..' would lead out of the volume"),
    *[
        (f"a control character in {path}", {path: value}, "control characters (NUL, tab, line break)")
        for path, value in (
            ("storage.tasks", {"pvc": "tasks", "subPath": "a\0b"}),
            ("model.path", "a\nb"),
            ("data.tasks.glob", "a\tb"),
        )
    ],
    *[
        (f"a NUL in {path}", {path: value}, f"spec.{path}")
        for path, value in (
            ("trainer.env", [{"name": "A", "value": "a\0b"}]),
            ("trainer.recipeArgs", "--a\0b"),
            ("agentServer.sandbox.images.template", "a\0b"),
        )
    ],
    ("an unknown engine", {"trainer.engine": "verl"}, "Unsupported value"),
    ("a number out of range", {"retries.maxAttempts": 0}, "should be greater than or equal to 1"),
    ("a quantity below nothing", {"trainer.sharedMemory": -1}, "should be greater than or equal to 0"),
    ("a request below nothing", {"trainer.resources": {"requests": {"cpu": -1}}}, "greater than or equal to 0"),
    *[
        (f"a toleration that no pod may have: {toleration}", {"trainer.tolerations": [toleration]}, says)
        for toleration, says in (
            ({"effect": "NoSchedule"}, "needs operator Exists"),
            ({"key": "a", "operator": "Exists", "value": "b"}, "takes no value"),
            ({"key": "a", "tolerationSeconds": 5}, "is for effect NoExecute alone"),
            ({"key": "a b"}, "spec.trainer.tolerations[0].key"),
        )
    ],
    ("a learning rate of nothing", {"trainer.config.lr": 0}, "spec.trainer.config.lr"),
    ("a moment that never decays", {"trainer.config.adamBeta2": 1}, "spec.trainer.config.adamBeta2"),
]


@pytest.mark.parametrize(("changes", "says"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_is_refused_with_the_rule(submit: Submit, changes: dict[str, Any], says: str) -> None:
    done = submit(changes)
    assert done.returncode != 0
    assert says in done.stderr


@pytest.mark.parametrize("name", ["glm4.7-tb2", "4b-codegolf", "a" * 44, "ends-"])
def test_a_name_that_cannot_name_a_service_or_a_ray_cluster_is_refused(submit: Submit, name: str) -> None:
    done = submit(name=name)
    assert done.returncode != 0
    assert "metadata.name" in done.stderr


@pytest.mark.parametrize(
    ("base", "name"),
    [(hrl.MINIMAL_SPEC, "minimal"), (hrl.DESIGN_SPEC, "glm47-tb2"), (hrl.QUICKSTART_SPEC, "a" * 43)],
    ids=["only required fields", "the documented example", "the longest name"],
)
def test_is_accepted(submit: Submit, base: dict[str, Any], name: str) -> None:
    done = submit(base=base, name=name)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "changes",
    [
        {"rollout.agentTrialTimeoutSeconds": 660},
        {"agentServer.maxConcurrent": 8},
        {"agentServer.sandbox": {"timeoutSeconds": 421, "idleTimeoutSeconds": 420}},
        {"trainer.env": [{"name": "TOKENIZER", "value": "x"}, {"name": "API_KEY", "value": ""}]},
        {"trainer.env": [{"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "w", "key": "k"}}}]},
        {"agentServer.maxConcurrent": 4, "trainer.extraArgs": "--rollout-batch-size 1"},
        {"agentServer.maxConcurrent": 4, "trainer.mode": "async"},
        {"agentServer.url": "http://agents.team.svc:30000", "rollout.agentTrialTimeoutSeconds": 10},
        {"agentServer.url": "https://agents.example.com/harbor"},
        {"agentServer.url": "http://agents.pod.svc:30000/a.pod.b"},
        {
            "model.path": "/mnt/models/a..b/..c",
            "data.tasks": {"root": "x/.hidden", "glob": "..*", "instructionPath": "a/b.md"},
        },
        {"trainer.preset": "p", "trainer.config": {}, "agentServer.maxConcurrent": 8},
        {"trainer.tolerations": [{"operator": "Exists"}, {"key": "a.b/c"}]},
        {"trainer.tolerations": [{"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 0}]},
    ],
    ids=str,
)
def test_the_smallest_value_that_passes_is_accepted(submit: Submit, changes: dict[str, Any]) -> None:
    done = submit(changes)
    assert done.returncode == 0, done.stderr


def test_a_refused_spec_applies_once_corrected(submit: Submit) -> None:
    assert submit({"agentServer.maxConcurrent": 7}).returncode != 0
    assert submit({"agentServer.maxConcurrent": 8}).returncode == 0
