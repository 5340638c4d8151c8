"""The CustomResourceDefinition, generated from the models; `python -m harborrl_operator.crd` rewrites its copies."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from harborrl_operator.constants import API_VERSION, GROUP, KIND, PLURAL, VERSION
from harborrl_operator.frozen import frozen_rules
from harborrl_operator.models import JobSpec, JobStatus
from harborrl_operator.names import MAX_JOB_NAME
from harborrl_operator.schema import structural_schema

REFERENCE = "docs/reference.md"
COPIES = ("crds/harborrljobs.yaml", "charts/harborrl/templates/crd.yaml")

# Static messages over bounded integers: computed messages exceed the API server's cost budget (seen on 1.35).
# An owned server's budgets are ours to judge here; those of `url` are read live by preflight.
_SPEC_RULES = (
    (
        (
            "has(self.agentServer.url) || self.agentServer.environmentStartSeconds + self.agentServer.agentSetupSeconds"
            " + self.agentServer.agentTimeoutSeconds + self.agentServer.verifierSeconds"
            " + self.agentServer.cleanupSeconds <= self.rollout.agentTrialTimeoutSeconds"
        ),
        (
            "spec.agentServer.environmentStartSeconds + agentSetupSeconds + agentTimeoutSeconds + verifierSeconds +"
            " cleanupSeconds must be at most spec.rollout.agentTrialTimeoutSeconds, or the trainer gives up on trials"
            " that the agent server still runs: raise agentTrialTimeoutSeconds or lower the budgets"
        ),
    ),
    (
        (
            "!has(self.agentServer.maxConcurrent) || has(self.agentServer.url) || self.trainer.mode == 'async'"
            " || self.trainer.recipeArgs.contains('--rollout-batch-size')"
            " || self.trainer.recipeArgs.contains('--n-samples-per-prompt')"
            " || self.trainer.extraArgs.contains('--rollout-batch-size')"
            " || self.trainer.extraArgs.contains('--n-samples-per-prompt')"
            " || size(self.trainer.customConfigYaml) > 0"
            # A preset may set what the job leaves out, and only the trainer knows it.
            " || (has(self.trainer.preset)"
            " && !(has(self.trainer.config.rolloutBatchSize) && has(self.trainer.config.nSamplesPerPrompt)))"
            " || self.agentServer.maxConcurrent >="
            " (has(self.trainer.config.rolloutBatchSize) ? self.trainer.config.rolloutBatchSize : 64)"
            " * (has(self.trainer.config.nSamplesPerPrompt) ? self.trainer.config.nSamplesPerPrompt : 8)"
        ),
        (
            "spec.agentServer.maxConcurrent must be at least spec.trainer.config.rolloutBatchSize x nSamplesPerPrompt"
            " (defaults 64 x 8), or trials of every rollout wait for slots: raise maxConcurrent, or leave it out to get"
            " exactly what the job needs"
        ),
    ),
    (
        # A pattern, since the cost of url() and isIP() alone exceeds the budget (seen).
        (
            "!has(self.agentServer.url)"
            " || (self.agentServer.url.matches('^https?://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]+)?(/.*)?$')"
            # Its last label is a number as resolvers read it: 10.0.0.1, 2130706433, 0x7f000001.
            " && !self.agentServer.url.matches('^https?://([^/:]*\\\\.)?([0-9]+|0[xX][0-9a-fA-F]*)(:|/|$)')"
            # A dashed address in front, or a name in the zone of pods.
            " && !self.agentServer.url.matches('^https?://([0-9]+-){3}[0-9]+(\\\\.|:|/|$)')"
            " && !self.agentServer.url.matches('(?i)^https?://[^/:]+\\\\.[^/:.]+\\\\.pod(\\\\.|:|/|$)'))"
        ),
        (
            "spec.agentServer.url must be an http(s) URL with a stable name such as http://agents.team.svc:30000; an IP"
            " or pod address changes when the server restarts"
        ),
    ),
    (
        (
            "has(self.agentServer.url) || !has(self.agentServer.sandbox.timeoutSeconds)"
            " || self.agentServer.sandbox.timeoutSeconds"
            " > self.agentServer.agentTimeoutSeconds + self.agentServer.verifierSeconds"
        ),
        (
            "spec.agentServer.sandbox.timeoutSeconds must exceed agentTimeoutSeconds + verifierSeconds, or sandboxes"
            " end under their trials: raise it, or leave it out"
        ),
    ),
    (
        (
            "has(self.agentServer.url) || !has(self.agentServer.sandbox.timeoutSeconds)"
            " || !has(self.agentServer.sandbox.idleTimeoutSeconds)"
            " || self.agentServer.sandbox.idleTimeoutSeconds < self.agentServer.sandbox.timeoutSeconds"
        ),
        (
            "spec.agentServer.sandbox.idleTimeoutSeconds must be below timeoutSeconds, or it never acts: lower it, or"
            " leave it out"
        ),
    ),
    (
        "has(self.data.jsonl) != has(self.data.tasks)",
        "spec.data needs exactly one of jsonl and tasks",
    ),
    (
        "!has(self.workloadPriorityClass) || has(self.queueName)",
        "spec.workloadPriorityClass is an order within a queue: set spec.queueName as well",
    ),
    (
        "!(has(self.trainer.topology.required) && has(self.trainer.topology.preferred))",
        "spec.trainer.topology takes one of required and preferred",
    ),
    (
        "!has(self.resumeFrom) || has(self.resumeFrom.job) != has(self.resumeFrom.path)",
        "spec.resumeFrom needs exactly one of job and path",
    ),
)

_NAME_RULE = (
    f"size(self.metadata.name) <= {MAX_JOB_NAME} && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    (
        f"metadata.name must be at most {MAX_JOB_NAME} characters of a-z, 0-9 and '-', begin with a letter and end with"
        " a letter or digit: Services and Ray clusters are named after it"
    ),
)

_COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("Step", "string", ".status.step", 0),
    ("Reward", "number", ".status.rollout.rewardMean", 0),
    ("Attempt", "integer", ".status.attempt", 0),
    ("Reason", "string", ".status.reason", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Agents", "string", ".status.conditions[?(@.type=='AgentServerReady')].status", 1),
    ("Trainer", "string", ".status.conditions[?(@.type=='TrainerReady')].status", 1),
    ("Trials", "integer", ".status.agentServer.inFlight", 1),
    ("Checkpoint", "integer", ".status.checkpoint.rolloutId", 1),
    ("Queue", "string", ".spec.queueName", 1),
    ("Message", "string", ".status.message", 1),
)


def custom_resource_definition() -> dict[str, Any]:
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(*column) for column in _COLUMNS],
        "schema": {"openAPIV3Schema": _root_schema()},
    }
    names = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
        "shortNames": ["hrl"],
        "categories": ["harborrl"],
    }
    # `helm uninstall` must not delete every job of the cluster together with their status.
    metadata = {"name": f"{PLURAL}.{GROUP}", "annotations": {"helm.sh/resource-policy": "keep"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def _root_schema() -> dict[str, Any]:
    spec = structural_schema(JobSpec)
    spec["x-kubernetes-validations"] = [_rule(*rule) for rule in _SPEC_RULES]
    status = structural_schema(JobStatus)
    for field, key in (("conditions", "type"), ("attempts", "number")):
        status["properties"][field] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    return {
        "type": "object",
        "description": (
            "One agentic RL run: an agent server, a training cluster, and what became of them. While an attempt runs,"
            " model, data, eval, trainer, rollout, storage, resumeFrom, queueName, agentServer's url, agentName"
            " and adminSecretRef cannot change, nor does workloadPriorityClass unless it waits."
        ),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": [_rule(*_NAME_RULE), *frozen_rules(spec)],
    }


def _rule(rule: str, message: str) -> dict[str, str]:
    return {"rule": rule, "message": message}


def _column(name: str, kind: str, path: str, priority: int) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, "priority": priority}


def render() -> str:
    """YAML of the CRD; both copies hold exactly this text."""
    header = f"# Generated from {API_VERSION} models by `python -m harborrl_operator.crd`; do not edit.\n"
    plain = json.loads(
        json.dumps(custom_resource_definition())
    )  # breaks shared objects, which would become YAML anchors
    return header + yaml.safe_dump(plain, sort_keys=False, width=120)


def render_reference() -> str:
    """Every field of spec and status with its meaning, as a page for users."""
    head = ("| field | type | default | meaning |", "|---|---|---|---|")
    lines = [
        "# HarborRLJob reference",
        "",
        f"Generated from the models of {API_VERSION} by `python -m harborrl_operator.crd`; do not edit.",
        "",
        *head,
        *_rows("spec", structural_schema(JobSpec)),
        "",
        "## Status",
        "",
        "What the operator writes; nobody else does. Conditions and their reasons: [conditions.md](conditions.md).",
        "",
        *head,
        *_rows("status", structural_schema(JobStatus)),
    ]
    return "\n".join(lines) + "\n"


def _rows(path: str, schema: Mapping[str, Any]) -> Iterator[str]:
    for name, field in schema["properties"].items():
        required = "required" if name in schema.get("required", []) else ""
        default = "" if field.get("default") in (None, {}) else f"`{json.dumps(field['default'])}`"
        kind = (
            " ".join(str(word) for word in field["enum"]) if "enum" in field else field.get("type", "integer or string")
        )
        meaning = " ".join(str(field.get("description", "")).split()).replace("|", "\\|")
        yield f"| `{path}.{name}` | {kind} | {default or required} | {meaning} |"
        if "properties" in field:
            yield from _rows(f"{path}.{name}", field)
        elif "properties" in field.get("items", {}):
            yield from _rows(f"{path}.{name}[]", field["items"])


def main(root: Path) -> None:
    texts = {**dict.fromkeys(COPIES, render()), REFERENCE: render_reference()}
    for copy, text in texts.items():
        target = root / copy
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
