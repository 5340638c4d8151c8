"""NetworkPolicies of a job: nothing but the flows of `flows`, each written at both ends that are pods of the job."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from harborrl_operator.constants import LABEL_JOB_UID, LABEL_NODE_TYPE, LABEL_ROLE, Role
from harborrl_operator.flows import Flow, Group, Outside, flows
from harborrl_operator.observed import Address
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources.common import metadata


def policies(job: ResolvedJob, api_server: Sequence[Address]) -> list[dict[str, Any]]:
    """One that denies everything to every pod of the job, and one a group that opens its flows: policies add up."""
    allowed = flows(job, api_server)
    return [
        _policy(job, "deny", _all_pods(job), {"policyTypes": ["Ingress", "Egress"]}),
        *(_policy(job, group.value, _pods(job, group), _rules(job, group, allowed)) for group in Group),
    ]


def _policy(job: ResolvedJob, suffix: str, pods: dict[str, Any], rules: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(job.job, job.job.names.network(suffix)),
        "spec": {"podSelector": pods, **rules},
    }


def _rules(job: ResolvedJob, group: Group, allowed: Sequence[Flow]) -> dict[str, Any]:
    ingress = [_rule(job, "from", flow.source, flow) for flow in allowed if flow.target is group]
    egress = [_rule(job, "to", flow.target, flow) for flow in allowed if flow.source is group]
    types = [name for name, rules in (("Ingress", ingress), ("Egress", egress)) if rules]
    return {
        "policyTypes": types or ["Ingress"],
        **({"ingress": ingress} if ingress else {}),
        **({"egress": egress} if egress else {}),
    }


def _rule(job: ResolvedJob, side: str, other: Group | Outside, flow: Flow) -> dict[str, Any]:
    peers = list(other.peers) if isinstance(other, Outside) else [{"podSelector": _pods(job, other)}]
    return deepcopy({side: peers, **({"ports": list(flow.ports)} if flow.ports else {})})  # one flow is in two policies


def _all_pods(job: ResolvedJob) -> dict[str, Any]:
    return {"matchLabels": {LABEL_JOB_UID: job.job.uid}}


def _pods(job: ResolvedJob, group: Group) -> dict[str, Any]:
    match group:
        case Group.HEAD:
            chosen = {LABEL_ROLE: Role.TRAINER.value, LABEL_NODE_TYPE: "head"}
        case Group.TRAINER:
            chosen = {LABEL_ROLE: Role.TRAINER.value}
        case Group.AGENT_SERVER:
            chosen = {LABEL_ROLE: Role.AGENT_SERVER.value}
        case Group.PREFLIGHT:
            chosen = {LABEL_ROLE: Role.PREFLIGHT.value}
    return {"matchLabels": {LABEL_JOB_UID: job.job.uid, **chosen}}
