"""Which model endpoints a request may name: `base_url` comes from outside and would otherwise reach anything we can."""

import ipaddress
from urllib.parse import urlsplit

METADATA_HOSTS = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})


class EndpointRefusedError(Exception):
    """The address is not one that a session server can have."""


def checked_endpoint(base_url: str | None) -> str:
    """The base URL without a trailing slash.

    Only literal addresses are judged: names are resolved by the cluster's DNS, whose answers the NetworkPolicy bounds.
    """
    if not base_url:
        raise EndpointRefusedError("base_url is missing: this agent asks a model; send the session's URL")
    parts = urlsplit(base_url)
    host = (parts.hostname or "").rstrip(".").lower()
    if parts.scheme not in {"http", "https"} or not host:
        raise EndpointRefusedError(f"base_url {shown(base_url)}: only http:// and https:// URLs with a host")
    if parts.username or parts.password:
        raise EndpointRefusedError("base_url carries credentials; send api_key instead")
    if host in METADATA_HOSTS or is_link_local(host):
        raise EndpointRefusedError(
            f"base_url host {host}: link-local and metadata addresses are never a model endpoint"
        )
    return base_url.rstrip("/")


def is_link_local(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_link_local


def shown(base_url: str) -> str:
    return repr(base_url[:120])
