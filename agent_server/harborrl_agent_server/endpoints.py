"""Which model endpoints a request may name: `base_url` comes from outside and would otherwise reach anything we can."""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx

from harborrl_agent_server.errors import StartupError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

METADATA_HOSTS = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})

METADATA_ADDRESSES = frozenset(
    {"fd00:ec2::254", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "100.100.100.200", "168.63.129.16", "192.0.0.192"}
)
"""Cloud providers' metadata services outside the link-local range."""

ENDS_IN_IPV4 = tuple(
    ipaddress.IPv6Network(network)
    for network in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
)
"""IPv4-compatible, mapped and translated addresses, NAT64: their last 32 bits are where a packet arrives."""

LONGEST_LABEL = 63
"""Characters between two dots of a host name (RFC 1035)."""


class EndpointRefusedError(Exception):
    """The address is not one that a session server can have."""


@dataclass(frozen=True)
class HostRules:
    """`--allowed-model-hosts`. Without any, every host but metadata services and, unless `loopback`, this machine."""

    names: frozenset[str] = frozenset()
    """Exact names, lower case; whatever they resolve to is taken, metadata services excepted."""
    suffixes: tuple[str, ...] = ()
    """`.example.org` for `*.example.org`."""
    networks: tuple[Network, ...] = field(default=())
    loopback: bool = True

    @classmethod
    def parse(cls, entries: Sequence[str], *, loopback: bool) -> "HostRules":
        """Names, `*.names`, addresses and CIDRs; raises `StartupError` for what is none of them."""
        names, suffixes, networks = set[str](), list[str](), list[Network]()
        for entry in (entry.strip().rstrip(".").lower() for entry in entries if entry.strip()):
            try:
                networks.append(ipaddress.ip_network(entry, strict=False))
                continue
            except ValueError:
                pass
            bare = entry.removeprefix("*.")
            if not is_name(bare) or any(character in bare for character in "*/:@ ?#"):
                raise StartupError(f"--allowed-model-hosts {entry!r}: a host name, *.name, an address or a CIDR")
            if bare == entry:
                names.add(bare)
            else:
                suffixes.append(f".{bare}")
        return cls(frozenset(names), tuple(suffixes), tuple(networks), loopback)

    @property
    def restricted(self) -> bool:
        return bool(self.names or self.suffixes or self.networks)

    def knows(self, name: str) -> bool:
        """The name itself is allowed; its addresses need not be listed."""
        return name in self.names or name.endswith(self.suffixes)

    def judge(self, name: str, address: Address) -> None:
        """Raises `EndpointRefusedError` unless a connection to this address may serve this name."""
        plain = getattr(address, "ipv4_mapped", None) or address
        where = name if name == str(address) else f"{name} ({address})"
        every = list(meant(address))
        if any(is_nobodys(one) for one in every):
            raise EndpointRefusedError(
                f"base_url host {where}: link-local and metadata addresses are never a model endpoint"
            )
        if self.knows(name) or any(plain in network for network in self.networks):
            return
        if self.restricted:
            raise EndpointRefusedError(
                f"base_url host {where} is not among --allowed-model-hosts; add its name or CIDR"
            )
        if any(one.is_loopback for one in every) and not self.loopback:
            raise EndpointRefusedError(
                f"base_url host {where} is this machine itself; --allowed-model-hosts 127.0.0.0/8 allows it"
            )


def meant(address: Address) -> Iterator[Address]:
    """The address, and the IPv4 addresses for which relays and translators on the way may take it."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        if address.sixtofour is not None:
            yield address.sixtofour
        yield from address.teredo or ()
        if any(address in network for network in ENDS_IN_IPV4):
            yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def is_nobodys(address: Address) -> bool:
    """Whether no session server can be there."""
    special = address.is_link_local or address.is_multicast or address.is_unspecified
    return special or str(address) in METADATA_ADDRESSES


def checked_endpoint(base_url: str | None, rules: HostRules) -> str:
    """The base URL without a trailing slash.

    A name that is not listed is judged again by its addresses, at the moment of the connection (`gateway_connect`):
    what DNS says now says nothing about then.
    """
    if not base_url:
        raise EndpointRefusedError("base_url is missing: this agent asks a model; send the session's URL")
    if not base_url.isprintable() or " " in base_url:
        # Python's parser drops line ends and tabs, and the client of the requests fails on what is left of them.
        raise EndpointRefusedError(f"base_url {shown(base_url)}: blanks and control characters are in no address")
    try:
        parts = urlsplit(base_url)
        host = (parts.hostname or "").rstrip(".").lower()
        parts.port  # noqa: B018 - raises where there is no such port
        # Refuses more than that, some only when the name is looked at: in a trial that would be an error of no class.
        name_for_look_up(httpx.URL(base_url).host)
    except (ValueError, httpx.InvalidURL) as error:
        raise EndpointRefusedError(f"base_url {shown(base_url)}: {error}") from error
    if parts.scheme not in {"http", "https"} or not host:
        raise EndpointRefusedError(f"base_url {shown(base_url)}: only http:// and https:// URLs with a host")
    if parts.username or parts.password:
        raise EndpointRefusedError("base_url carries credentials; send api_key instead")
    if parts.query or parts.fragment or "?" in base_url or "#" in base_url:
        raise EndpointRefusedError("base_url carries a query or a fragment; send the session's URL up to and with /v1")
    if host in METADATA_HOSTS:
        raise EndpointRefusedError(
            f"base_url host {host}: link-local and metadata addresses are never a model endpoint"
        )
    judge_host(host, rules)
    return base_url.rstrip("/")


def is_name(host: str) -> bool:
    try:
        return bool(name_for_look_up(host))
    except ValueError:
        return False


def name_for_look_up(host: str) -> bytes:
    """Raises `ValueError` for a name that no name server can be asked for."""
    name = host.rstrip(".").encode("idna")
    if literal(host) is None and not all(0 < len(label) <= LONGEST_LABEL for label in name.split(b".")):
        raise ValueError("a label of the host name is empty or too long")
    return name


def judge_host(host: str, rules: HostRules) -> None:
    address = literal(host)
    if address is not None:
        rules.judge(host, address)
    elif rules.restricted and not rules.networks and not rules.knows(host):
        raise EndpointRefusedError(f"base_url host {host} is not among --allowed-model-hosts; add its name or CIDR")


def literal(host: str) -> Address | None:
    """The address that a host is written as, in brackets or without."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def shown(base_url: str) -> str:
    return repr(base_url[:120])
