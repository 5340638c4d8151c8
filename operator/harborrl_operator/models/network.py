"""`spec.network`, and what the chart says about the network of all jobs."""

from typing import Annotated, Any

from pydantic import Field

from harborrl_operator.models.base import Model, nested

PortNumber = Annotated[int, Field(ge=1, le=65535)]

Peers = list[dict[str, Any]]
"""NetworkPolicyPeers, as Kubernetes writes them."""


Cidr = Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$", max_length=43)]


class EgressRule(Model):
    """A destination outside."""

    cidr: Cidr
    """Addresses, for example `0.0.0.0/0` for all of IPv4."""
    except_: Annotated[list[Cidr], Field(alias="except", max_length=32)] = Field(default_factory=list)
    """Addresses in `cidr` that stay closed, for example the ranges of the cluster."""
    ports: Annotated[list[PortNumber], Field(max_length=32)] = Field(default_factory=list)
    """TCP ports. Empty: every port and protocol."""


class NetworkSpec(Model):
    """Traffic beyond what HarborRL itself needs; all else is denied (docs/network.md)."""

    egress: Annotated[list[EgressRule], Field(max_length=32)] = Field(default_factory=list)
    """Where trainer pods may connect to, for example W&B or a model hub. Default none: they reach nothing outside the
    job, so such a service must be named here or in the chart. A change takes effect at once while no other edit
    waits for the next attempt."""


def _usual_dns() -> Peers:
    """Where clusters run DNS, and NodeLocal DNSCache."""
    return [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
        {"ipBlock": {"cidr": "169.254.20.10/32"}},
    ]


class DnsSettings(Model):
    """Who answers DNS."""

    peers: Peers = Field(default_factory=_usual_dns)
    ports: list[PortNumber] = Field(default_factory=lambda: [53])


class ApiServerSettings(Model):
    """Addresses of the API server behind its Service. Empty: as its EndpointSlice says."""

    cidrs: list[Cidr] = Field(default_factory=list)
    ports: list[PortNumber] = Field(default_factory=list)


class NetworkSettings(Model):
    """`network` of the chart's values."""

    policies: bool = True
    dns: DnsSettings = nested(DnsSettings)
    api_server: ApiServerSettings = nested(ApiServerSettings)
    monitoring: Peers = Field(default_factory=list)
    egress: list[dict[str, Any]] = Field(default_factory=list)
    """NetworkPolicyEgressRules for the trainer pods of every job."""
