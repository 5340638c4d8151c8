"""What a sandbox may reach: policies before its pod, names pinned, everything removed again."""

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes import commands, network
from harborrl_agent_server.sandboxes.cluster import KubeError
from harborrl_agent_server.sandboxes.network import Endpoint, reach_of
from harborrl_agent_server.sandboxes.sandbox_network import SandboxNetwork
from support.sandbox_api import Said, SandboxApi, provided, sandbox_of

NO_NETWORK = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)
GATEWAY = Endpoint("10.1.2.3", 30001)


def allowlist(*hosts: str) -> NetworkPolicy:
    return NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=list(hosts))


async def addresses(name: str) -> list[str]:
    known = {"pypi.example": ["93.184.216.34", "2606:2800:220::1"], "inner.example": ["10.9.8.7"]}
    if name not in known:
        raise OSError("Name or service not known")
    return known[name]


@pytest.mark.parametrize(
    ("entry", "blocks"),
    [
        pytest.param("93.184.216.34", [{"cidr": "93.184.216.34/32"}], id="an address"),
        pytest.param("2606:2800:220::1", [{"cidr": "2606:2800:220::1/128"}], id="an IPv6 address"),
        pytest.param("93.184.216.0/24", [{"cidr": "93.184.216.0/24"}], id="a network"),
        pytest.param("172.0.0.0/8", [{"cidr": "172.0.0.0/8", "except": ["172.16.0.0/12"]}], id="private in it"),
    ],
)
def test_an_entry_opens_what_it_names_without_what_is_private(entry: str, blocks: list[dict[str, Any]]) -> None:
    reach = reach_of(allowlist(entry), {}, None, ())
    assert (reach.labels(), reach.rules()) == (network.ALLOWLIST, [{"to": [{"ipBlock": block} for block in blocks]}])


@pytest.mark.parametrize("entry", ["10.0.0.1", "169.254.169.254", "127.0.0.1", "fe80::1", "192.168.0.0/24", "::1"])
def test_an_entry_of_the_cluster_or_its_metadata_service_is_refused_by_name(entry: str) -> None:
    with pytest.raises(SandboxStartError, match=r"HostRefused.*private.*privateHosts"):
        reach_of(allowlist(entry), {}, None, ())


def test_a_name_that_resolves_into_the_cluster_is_refused_too() -> None:
    with pytest.raises(SandboxStartError, match=r"inner\.example \(10\.9\.8\.7\)"):
        reach_of(allowlist("inner.example"), {"inner.example": ["10.9.8.7"]}, None, ())


def test_a_private_network_that_the_job_lists_is_opened_as_far_as_it_is_listed() -> None:
    private = [ip_network("10.9.0.0/16")]
    assert reach_of(allowlist("10.9.8.7"), {}, None, private).blocks == ({"cidr": "10.9.8.7/32"},)
    assert reach_of(allowlist("10.0.0.0/8"), {}, None, private).blocks == ({"cidr": "10.9.0.0/16"},)


def test_the_agents_way_to_its_model_is_one_port_of_one_address() -> None:
    rule = {"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}], "ports": [{"protocol": "TCP", "port": 30001}]}
    for policy in (NO_NETWORK, allowlist("10.1.2.3")):
        assert reach_of(policy, {}, GATEWAY, ()).rules() == [rule]


def test_without_any_opening_a_pod_is_one_of_those_without_network() -> None:
    assert reach_of(NO_NETWORK, {}, None, ()).labels() == network.NO_NETWORK
    assert reach_of(allowlist(), {}, None, ()).labels() == network.NO_NETWORK
    assert reach_of(NetworkPolicy(), {}, None, ()).labels() == {}


async def test_a_public_sandbox_has_no_policy_and_no_label(tmp_path: Path) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path) as provider:
        await sandbox_of(provider, tmp_path).start(force_build=False)
    assert api.names("networkpolicies") == ["harborrl-no-network"]
    (pod,) = api.of("pods")
    assert network.LABEL not in pod["metadata"]["labels"]
    assert not {"hostAliases", "dnsConfig"} & set(pod["spec"])


async def test_a_policy_is_there_before_its_pod_and_names_work_without_a_name_server(tmp_path: Path) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path) as provider:
        provider.network.resolve = addresses
        sandbox = sandbox_of(provider, tmp_path, allowlist("pypi.example", "192.0.2.7"))
        await sandbox.start(force_build=False)
        made = [path.split("/")[-1] for method, path in api.requests if method == "POST"]
        assert made[-2:] == ["networkpolicies", "pods"]
        (pod,) = api.of("pods")
        policy = next(one for one in api.of("networkpolicies") if one["metadata"]["name"] == sandbox.name)
        assert pod["metadata"]["labels"].items() >= policy["spec"]["podSelector"]["matchLabels"].items()
        assert policy["metadata"]["ownerReferences"] == pod["metadata"]["ownerReferences"]
        cidrs = [to["ipBlock"]["cidr"] for to in policy["spec"]["egress"][0]["to"]]
        assert cidrs == ["93.184.216.34/32", "2606:2800:220::1/128", "192.0.2.7/32"]
        assert [alias["hostnames"] for alias in pod["spec"]["hostAliases"]] == [["pypi.example"]] * 2
        assert pod["spec"]["dnsConfig"]["options"] == network.NO_DNS["options"]
        await sandbox.stop(delete=True)
        assert (api.names("pods"), api.names("networkpolicies")) == ([], ["harborrl-no-network"])


async def test_a_name_without_an_address_is_told_by_name(tmp_path: Path) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path) as provider:
        provider.network.resolve = addresses
        with pytest.raises(SandboxStartError, match=r"HostUnresolved: nowhere\.example.*task\.toml"):
            await sandbox_of(provider, tmp_path, allowlist("nowhere.example")).start(force_build=False)
    assert api.names("pods") == []


async def test_a_wildcard_is_refused_when_the_trial_is_built(tmp_path: Path) -> None:
    async with provided(SandboxApi(), tmp_path) as provider:
        with pytest.raises(ValueError, match="wildcard hostnames is not supported"):
            sandbox_of(provider, tmp_path, allowlist("*.example.com"))


async def test_a_policy_that_cannot_be_deleted_leaves_the_sandbox_left_until_it_can(tmp_path: Path) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path) as provider:
        sandbox = sandbox_of(provider, tmp_path, allowlist("192.0.2.7"))
        await sandbox.start(force_build=False)

        def away(method: str, path: str) -> None:
            if method == "DELETE" and "networkpolicies" in path:
                raise KubeError(403, "Forbidden", "not now")

        api.refuse = away
        for _ in range(2):
            await sandbox.destroy()
            assert (sandbox.left, api.names("pods")) == (True, [])
        api.refuse = lambda _method, _path: None
        await sandbox.destroy()
        assert (sandbox.left, api.names("networkpolicies")) == (False, ["harborrl-no-network"])


async def test_a_pod_that_was_refused_takes_its_policy_with_it(tmp_path: Path) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path) as provider:
        sandbox = sandbox_of(provider, tmp_path, allowlist("192.0.2.7"))

        def full(method: str, path: str) -> None:
            if method == "POST" and path.endswith("/pods"):
                raise KubeError(422, "Invalid", "no such thing")

        api.refuse = full
        with pytest.raises(SandboxStartError):
            await sandbox.start(force_build=False)
        await sandbox.stop(delete=True)
    assert api.names("networkpolicies") == ["harborrl-no-network"]


async def test_a_restarted_server_sweeps_policies_of_its_own_alone(tmp_path: Path) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path) as provider:
        await sandbox_of(provider, tmp_path, allowlist("192.0.2.7")).start(force_build=False)
        async with provided(api, tmp_path, pod_name="server-2") as other:
            theirs = sandbox_of(other, tmp_path, allowlist("192.0.2.7"))
            await theirs.start(force_build=False)
        async with provided(api, tmp_path):
            assert (api.names("networkpolicies"), api.names("pods")) == (
                ["harborrl-no-network", theirs.name],
                [theirs.name],
            )


async def test_an_agent_inside_a_restricted_sandbox_reaches_its_model_and_one_outside_needs_nothing(
    tmp_path: Path,
) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path) as provider:
        inside = SandboxNetwork(provider.network, "sb-1", reachable="http://10.1.2.3:30001", private=())
        await inside.prepare(NO_NETWORK, (), "image:1")
        outside = SandboxNetwork(provider.network, "sb-2", reachable=None, private=())
        await outside.prepare(NO_NETWORK, (), "image:1")
        assert [inside.labels()[network.LABEL], outside.labels()[network.LABEL]] == ["allowlist", "none"]
        assert api.names("networkpolicies") == ["harborrl-no-network", "sb-1"]
        assert await inside.remove()
        assert await outside.remove()


PHASES = [
    pytest.param(NetworkPolicy(), NO_NETWORK, id="public, then none"),
    pytest.param(NO_NETWORK, allowlist("pypi.example"), id="none, then a list"),
    pytest.param(allowlist("pypi.example"), NetworkPolicy(), id="a list, then public"),
    pytest.param(allowlist("192.0.2.7"), allowlist("pypi.example"), id="another list"),
]


@pytest.mark.parametrize(("first", "second"), PHASES)
async def test_a_phase_has_its_own_network_and_the_next_one_the_first_again(
    first: NetworkPolicy, second: NetworkPolicy, tmp_path: Path
) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path) as provider:
        provider.network.resolve = addresses
        provider.network.settle_s = 0
        sandbox = sandbox_of(provider, tmp_path, first, later=[second])
        await sandbox.start(force_build=False)

        def seen() -> tuple[str | None, list[str]]:
            (pod,) = api.of("pods")
            own = [one for one in api.of("networkpolicies") if one["metadata"]["name"] == sandbox.name]
            cidrs = [to["ipBlock"]["cidr"] for one in own for rule in one["spec"]["egress"] for to in rule["to"]]
            return pod["metadata"]["labels"].get(network.LABEL), cidrs

        def expected(policy: NetworkPolicy) -> tuple[str | None, list[str]]:
            known = {"pypi.example": ["93.184.216.34/32", "2606:2800:220::1/128"], "192.0.2.7": ["192.0.2.7/32"]}
            cidrs = [cidr for host in policy.allowed_hosts for cidr in known[host]]
            modes = {NetworkMode.PUBLIC: None, NetworkMode.NO_NETWORK: "none", NetworkMode.ALLOWLIST: "allowlist"}
            return modes[policy.network_mode], cidrs

        for policy in (first, second, first):
            await sandbox.set_network_policy(policy)
            assert seen() == expected(policy)
        await sandbox.stop(delete=True)
    assert api.names("networkpolicies") == ["harborrl-no-network"]


@pytest.mark.parametrize("is_over", [False, True], ids=["before the agent", "behind the agent"])
async def test_processes_of_a_restricted_phase_end_before_the_network_opens(tmp_path: Path, is_over: bool) -> None:
    api = SandboxApi()
    order: list[str] = []

    def answer(_: str, argv: list[str]) -> tuple[int, str]:
        if any(commands.QUIESCE in word for word in argv):
            order.append("quiesce")
        return 0, ""

    async with provided(api, tmp_path) as provider:
        provider.network.settle_s = 0
        sandbox = sandbox_of(provider, tmp_path, NO_NETWORK, later=[NetworkPolicy()])
        await sandbox.start(force_build=False)
        api.answer = answer
        api.refuse = lambda method, _: order.append(method)
        if is_over:
            sandbox.agent_ended([])
        await sandbox.set_network_policy(NetworkPolicy())
    assert order[:2] == ["quiesce", "PATCH"]


async def test_a_narrower_network_is_waited_for_until_the_sandbox_itself_is_cut_off(tmp_path: Path) -> None:
    api = SandboxApi()
    replies = [(0, "10.0.0.1:443"), (0, "10.0.0.1:443"), (1, ""), (1, "")]
    async with provided(api, tmp_path) as provider:
        sandbox = sandbox_of(provider, tmp_path, later=[NO_NETWORK])
        await sandbox.start(force_build=False)
        api.answer = lambda _pod, _argv: replies.pop(0)
        await sandbox.set_network_policy(NO_NETWORK)
    assert replies == []


async def test_the_agents_phase_does_not_begin_while_its_network_is_wider_than_it_says(tmp_path: Path) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path) as provider:
        provider.network.follow_s = 0
        sandbox = sandbox_of(provider, tmp_path, later=[NO_NETWORK])
        await sandbox.start(force_build=False)
        api.answer = lambda _pod, _argv: (0, "10.0.0.1:443")
        with pytest.raises(SandboxStartError, match=r"NetworkNotSwitched.*10\.0\.0\.1:443"):
            await sandbox.set_network_policy(NO_NETWORK)


@pytest.mark.parametrize("said", [(0, "10.0.0.1:443"), (0, "nonsense"), (5, "")])
async def test_nothing_that_an_agent_can_arrange_has_its_trial_thrown_away(said: Said, tmp_path: Path) -> None:
    """The agent's phase had the first network, so it was there before the verifier's narrower one."""
    api = SandboxApi()
    async with provided(api, tmp_path) as provider:
        provider.network.follow_s = provider.network.settle_s = 0
        sandbox = sandbox_of(provider, tmp_path, later=[NetworkPolicy(), NO_NETWORK])
        await sandbox.start(force_build=False)
        for policy in (NO_NETWORK, NetworkPolicy()):
            api.answer = lambda _pod, argv: (0, "") if commands.QUIESCE in argv else said
            await sandbox.set_network_policy(policy)
        assert sandbox.scope.fault is None


async def test_a_policy_that_cannot_be_deleted_does_not_leave_a_wider_phase_narrow(tmp_path: Path) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path) as provider:
        sandbox = sandbox_of(provider, tmp_path, allowlist("192.0.2.7"), later=[NetworkPolicy()])
        await sandbox.start(force_build=False)

        def away(method: str, _: str) -> None:
            if method == "DELETE":
                raise KubeError(403, "Forbidden", "not now")

        api.refuse = away
        with pytest.raises(SandboxStartError, match="NetworkNotSwitched"):
            await sandbox.set_network_policy(NetworkPolicy())
