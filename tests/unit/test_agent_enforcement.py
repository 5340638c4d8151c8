"""Whether the cluster enforces NetworkPolicies is proven by pods, once; only tasks that need to know wait for it."""

import asyncio
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, override

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes import network
from harborrl_agent_server.sandboxes.cluster import KubeError
from harborrl_agent_server.sandboxes.enforcement import UNPROVEN_SECONDS, Enforcement
from harborrl_agent_server.sandboxes.images import SandboxConfig
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.sandboxes.probe import TRY, Finding, Proof
from harborrl_agent_server.sandboxes.probing import probe
from harborrl_agent_server.settings import Settings
from support.agent_http import replies
from support.agent_server import MARKS, stage
from support.agent_tasks import write_task
from support.sandbox_api import ENFORCED, RUNNING, Said, SandboxApi, provided, sandbox_of

NO_NETWORK = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)
OPEN, SHUT = (0, "10.0.0.1:443\n"), (1, "")


def plugin(free: Said, cut: Said) -> Callable[[str, list[str]], Said]:
    return lambda pod, _: free if pod.endswith("-free") else cut


@pytest.mark.parametrize(
    ("free", "cut", "proof", "said"),
    [
        pytest.param(OPEN, SHUT, Proof.ENFORCED, "one that may reached 10.0.0.1:443", id="policies hold"),
        pytest.param(OPEN, OPEN, Proof.IGNORED, "a policy cuts off reached 10.0.0.1:443", id="policies do nothing"),
        pytest.param(SHUT, SHUT, Proof.UNPROVEN, "lets out reached nobody either", id="nothing gets out anyway"),
        pytest.param((9, ""), (9, ""), Proof.UNPROVEN, "none of nc, bash", id="no tool in the image"),
        pytest.param((126, ""), (126, ""), Proof.UNPROVEN, "exit code 126", id="no shell"),
    ],
)
async def test_two_pods_tell_whether_policies_hold(
    free: Said, cut: Said, proof: Proof, said: str, tmp_path: Path
) -> None:
    api = SandboxApi()
    api.answer = plugin(free, cut)
    async with provided(api, tmp_path) as provider:
        finding = await probe(provider, "sb-probe", "image:1", follow_s=0)
        assert (finding.proof, said in finding.message) == (proof, True), finding
        assert (api.names("pods"), api.names("networkpolicies")) == ([], ["harborrl-no-network"])


async def test_a_probes_pods_differ_in_their_policy_alone_and_are_swept_like_sandboxes(tmp_path: Path) -> None:
    api = SandboxApi()
    api.answer = plugin(OPEN, SHUT)
    seen: list[dict[str, Any]] = []

    def noted(pod: dict[str, Any]) -> dict[str, Any]:
        seen.append(pod)
        return RUNNING

    api.status = noted
    async with provided(api, tmp_path) as provider:
        await probe(provider, "sb-probe", "image:1", follow_s=0)
        free, cut = ({**pod["metadata"].pop("labels")} for pod in seen)
        assert provider.labels.items() <= free.items()
        assert provider.labels.items() <= cut.items()
    assert cut[network.LABEL] == "none"
    assert free[network.LABEL] == "probe"
    assert seen[0]["spec"] == seen[1]["spec"]


async def test_pods_that_never_start_prove_nothing_and_are_removed(tmp_path: Path) -> None:
    api = SandboxApi()
    api.status = lambda _: {"containerStatuses": [{"state": {"waiting": {"reason": "InvalidImageName"}}}]}
    async with provided(api, tmp_path) as provider:
        finding = await probe(provider, "sb-probe", "image:1", follow_s=0)
    assert (finding.proof, "InvalidImageName" in finding.message) == (Proof.UNPROVEN, True)
    assert api.names("pods") == []


class Tries:
    """A probe that a test answers."""

    def __init__(self, *findings: Finding) -> None:
        self.findings = list(findings)
        self.images: list[str] = []
        self.held = asyncio.Event()
        self.now = 0.0

    async def __call__(self, image: str) -> Finding:
        self.images.append(image)
        await self.held.wait()
        return self.findings.pop(0)

    def clock(self) -> float:
        return self.now


IGNORED = Finding(Proof.IGNORED, "seen")
UNPROVEN = Finding(Proof.UNPROVEN, "no room")


async def test_restricted_tasks_wait_for_one_try_and_take_its_verdict() -> None:
    tries = Tries(ENFORCED)
    enforcement = Enforcement(tries, tries.clock)
    enforcement.begin("server:1")
    waiting = [asyncio.ensure_future(enforcement.assured(f"task:{n}")) for n in range(3)]
    await asyncio.sleep(0)
    assert (enforcement.state(), [task.done() for task in waiting]) == ("unknown yet", [False] * 3)
    tries.held.set()
    await asyncio.gather(*waiting)
    await enforcement.assured("task:3")
    assert (tries.images, enforcement.state()) == (["server:1"], "enforced: as a test says")


async def test_a_server_without_an_image_of_its_own_tries_with_the_first_tasks() -> None:
    tries = Tries(ENFORCED)
    tries.held.set()
    enforcement = Enforcement(tries, tries.clock)
    await enforcement.assured("task:1")
    assert tries.images == ["task:1"]


async def test_a_task_that_stops_waiting_leaves_the_try_to_the_others() -> None:
    tries = Tries(ENFORCED)
    enforcement = Enforcement(tries, tries.clock)
    first, second = (asyncio.ensure_future(enforcement.assured("task:1")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    tries.held.set()
    await second
    assert tries.images == ["task:1"]


async def test_where_policies_do_nothing_restricted_tasks_are_told_of_the_flag() -> None:
    tries = Tries(IGNORED)
    tries.held.set()
    enforcement = Enforcement(tries, tries.clock)
    for _ in range(2):
        with pytest.raises(SandboxStartError, match=r"does not enforce.*--unsafe-ignore-network-policy"):
            await enforcement.assured("task:1")
    assert len(tries.images) == 1


async def test_a_try_that_proved_nothing_is_repeated_after_a_while_with_the_tasks_image() -> None:
    tries = Tries(UNPROVEN, ENFORCED)
    tries.held.set()
    enforcement = Enforcement(tries, tries.clock)
    for _ in range(2):
        with pytest.raises(SandboxStartError, match=r"NetworkNotEnforced: it is not proven.*no room"):
            await enforcement.assured("task:1")
    tries.now = UNPROVEN_SECONDS
    await enforcement.assured("task:2")
    assert tries.images == ["task:1", "task:2"]


async def test_whoever_accepts_it_is_never_asked_to_wait() -> None:
    tries = Tries()
    enforcement = Enforcement(tries, tries.clock, ignored=True)
    enforcement.begin("server:1")
    await enforcement.assured("task:1")
    assert (tries.images, enforcement.state()) == ([], "not checked, as told")


async def test_a_server_that_may_make_no_policies_refuses_restricted_tasks_alone(tmp_path: Path) -> None:
    api = SandboxApi()

    def forbidden(method: str, path: str) -> None:
        if method == "POST" and path.endswith("networkpolicies"):
            raise KubeError(403, "Forbidden", "no rights")

    api.refuse = forbidden
    async with provided(api, tmp_path) as provider:
        await sandbox_of(provider, tmp_path).start(force_build=False)
        with pytest.raises(SandboxStartError, match=r"NetworkNotEnforced.*cannot be made.*no rights"):
            await sandbox_of(provider, tmp_path, NO_NETWORK).start(force_build=False)


async def test_a_server_is_open_before_its_probe_has_ended_and_takes_the_probe_along(tmp_path: Path) -> None:
    api = SandboxApi()
    made = asyncio.Event()

    def slow(pod: dict[str, Any]) -> dict[str, Any]:
        if pod["metadata"]["name"].endswith("-cut"):
            made.set()
        return {"phase": "Pending"}

    api.status = slow
    settings = Settings(tasks_dir=tmp_path, trials_dir=tmp_path, sandbox_image="image:1", pod_name="server-1")
    provider = KubernetesProvider(settings, SandboxConfig())
    await provider.start(api)
    assert provider.enforcement.state() == "unknown yet"
    await made.wait()
    await provider.close()
    assert api.names("pods") == []


def test_an_image_without_any_tool_says_so_itself(tmp_path: Path) -> None:
    """The shell of this machine with no program in reach; /bin/bash is taken out, which would do."""
    script = re.sub(r"\[ -x /bin/bash \]", "false", TRY)
    env = {"PATH": str(tmp_path), "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    done = subprocess.run(["/bin/sh", "-c", script], env=env, capture_output=True, check=False, timeout=60)  # noqa: S603 - a constant
    assert done.returncode == 9, done


class InMemory(KubernetesProvider):
    """Opens over an API server in memory."""

    @override
    async def open(self) -> None:
        await self.start(self.api)

    api: SandboxApi


@MARKS[1]
async def test_a_trial_that_cannot_be_restricted_is_no_training_signal_and_names_the_flag(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    write_task(tasks, environment='workdir = "/app"\nnetwork_mode = "no-network"')
    settings = Settings(tasks_dir=tasks, trials_dir=tmp_path / "trials", sandbox_image="image:1", pod_name="server-1")
    provider = InMemory(settings, SandboxConfig())
    provider.api = SandboxApi()
    provider.enforcement.settle(IGNORED)
    async with stage(tasks, replies("TASK_DONE"), provider=provider) as server:
        answer = await server.run()
        assert (await server.health())["network_policies"] == "ignored: seen"
    assert (answer["exit_status"], answer["infra_failure"]) == ("SandboxUnavailable", True)
    assert "--unsafe-ignore-network-policy" in answer["message"]
