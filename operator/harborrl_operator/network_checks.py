"""What must hold of `spec.network`, or the API server would refuse the NetworkPolicy that is made of it."""

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


def _fault(rule: EgressRule) -> str | None:
    for text in (rule.cidr, *rule.except_):
        try:
            found = ipaddress.ip_network(text, strict=False)
        except ValueError:
            return f"{text} is no network. Write an address and a prefix length, such as 203.0.113.0/24."
        if str(found) != text:
            return f"{text} is not how that network is written. Write {found}."
    outer = ipaddress.ip_network(rule.cidr)
    for text in rule.except_:
        inner = ipaddress.ip_network(text)
        if inner.version != outer.version or inner == outer or not inner.subnet_of(outer):  # type: ignore[arg-type]  # same version
            return f"except {text} is not a part of {rule.cidr}. Name a smaller network within it."
    return None
