"""What the user's environment lacks for our programs: administrators' folders on PATH, and the way past a proxy."""

import shlex
from collections.abc import Mapping

from devcluster.settings import Network, Settings

SYSTEM_FOLDERS = ("/usr/sbin", "/sbin")
"""Absent from PATH after `su` without `-`; debootstrap, iptables and ipset lie there."""

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
NO_PROXY = ("NO_PROXY", "no_proxy")


def completed(environment: Mapping[str, str], network: Network | None = None) -> dict[str, str]:
    """`environment` with what it lacks; what the user set comes first. Completing it twice changes nothing."""
    path = environment.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    whole = {**environment, "PATH": _joined(":", path, SYSTEM_FOLDERS)}
    if not any(environment.get(name) for name in PROXIES):
        return whole
    # Programs read either spelling, some of them only one: both get the same list.
    given = next((environment[name] for name in NO_PROXY if environment.get(name)), "")
    return whole | dict.fromkeys(NO_PROXY, _joined(",", given, _direct(network or Network())))


def _direct(network: Network) -> tuple[str, ...]:
    """The cluster's own addresses and names. The API server's also by itself: not every client reads ranges."""
    return ("localhost", "127.0.0.1", network.gateway, network.pods, network.services, ".svc", ".cluster.local")


def _joined(separator: str, given: str, wanted: tuple[str, ...]) -> str:
    present = [word for word in given.split(separator) if word]
    return separator.join([*present, *(word for word in wanted if word not in present)])


def exports(settings: Settings, environment: Mapping[str, str]) -> str:
    """The line after which kubectl and helm, typed into the user's own shell, speak to this cluster."""
    words = [
        f"KUBECONFIG={shlex.quote(str(settings.kubeconfig))}",
        f"PATH={shlex.quote(str(settings.cache / 'bin'))}:$PATH",
    ]
    past = completed(environment, settings.network).get("NO_PROXY")
    if past:
        words.append(f"NO_PROXY={shlex.quote(past)}")
    return f"export {' '.join(words)}"
