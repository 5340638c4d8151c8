"""What must hold of networks that a job names, or the NetworkPolicies that are made of them would be refused."""

import ipaddress

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.models.network import EgressRule
from harborrl_operator.observed import Observed
from harborrl_operator.resolve import ResolvedJob


def egress_names_networks(job: ResolvedJob, _: Observed) -> Verdict | None:
    for index, rule in enumerate(job.spec.network.egress):
        fault = _fault(rule)
        if fault:
            return Verdict(Reason.INVALID_EGRESS, f"network.egress[{index}]: {fault}")
    return None


def private_hosts_are_networks(job: ResolvedJob, _: Observed) -> Verdict | None:
    """The agent server would end at its start."""
    server = job.spec.agent_server
    for index, text in enumerate([] if server.url else server.sandbox.private_hosts):
        fault = _spelling(text)
        if fault:
            return Verdict(Reason.INVALID_EGRESS, f"agentServer.sandbox.privateHosts[{index}]: {fault}")
    return None


def _spelling(text: str) -> str | None:
    try:
        found = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return f"{text} is no network. Write an address and a prefix length, such as 203.0.113.0/24."
    return None if str(found) == text else f"{text} is not how that network is written. Write {found}."


def _fault(rule: EgressRule) -> str | None:
    for text in (rule.cidr, *rule.except_):
        fault = _spelling(text)
        if fault:
            return fault
    outer = ipaddress.ip_network(rule.cidr)
    for text in rule.except_:
        inner = ipaddress.ip_network(text)
        if inner.version != outer.version or inner == outer or not inner.subnet_of(outer):  # type: ignore[arg-type]  # same version
            return f"except {text} is not a part of {rule.cidr}. Name a smaller network within it."
    return None
