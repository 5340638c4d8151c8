"""Trials on claims of agent-sandbox, over an API server and a controller in memory."""

import asyncio
from pathlib import Path

import pytest

from harborrl_agent_server.errors import SandboxStartError, StartupError
from harborrl_agent_server.sandboxes.kubernetes import KubernetesSandbox
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.warmth import Warmth
from support.agent_http import eventually
from support.claim_controller import CONFIG, EXTENSIONS, PODS, SANDBOXES, Controller, ready
from support.sandbox_api import SandboxApi, provided, sandbox_of

POOLS = f"{EXTENSIONS}/sandboxwarmpools"


async def begun(provider: KubernetesProvider, folder: Path) -> KubernetesSandbox:
    sandbox = sandbox_of(provider, folder)
    await sandbox.start(force_build=False)
    return sandbox


async def test_a_trial_runs_in_the_pod_of_its_claim_and_ends_with_the_claim(tmp_path: Path) -> None:
    api = SandboxApi()
    Controller(api)
    containers: list[str] = []
    api.entered = containers.append
    async with provided(api, tmp_path, CONFIG) as provider:
        sandbox = await begun(provider, tmp_path)
        claim = api.of("sandboxclaims")[0]
        assert claim["metadata"]["ownerReferences"] == [provider.anchor.owner()]
        assert sandbox.name.startswith("pool-")
        labels = api.objects[f"{PODS}/{sandbox.name}"]["metadata"]["labels"]
        assert labels["harborrl.dev/trial"] == sandbox.scope.run_id
        assert (await sandbox.exec("true")).return_code == 0
        assert set(containers) == {"shell"}
        await sandbox.stop(delete=True)
        assert api.of("sandboxclaims") == []
        assert provider.warmth() == Warmth(warm_starts=1)


async def test_a_pod_that_comes_after_its_sandbox_is_waited_for(tmp_path: Path) -> None:
    api = SandboxApi()
    controller = Controller(api, by_hand=True, launch="cold")
    async with provided(api, tmp_path, CONFIG) as provider:
        sandbox = sandbox_of(provider, tmp_path)
        start = asyncio.ensure_future(sandbox.start(force_build=False))
        await eventually(lambda: bool(api.of("sandboxclaims")))
        pending = {"sandbox": {"name": sandbox.own_name}, "conditions": ready("False", "DependenciesNotReady")}
        controller.put(f"{SANDBOXES}/{sandbox.own_name}", {})
        api.change(sandbox.own_name, "sandboxclaims", **pending)
        await eventually(lambda: ("PATCH", f"{PODS}/{sandbox.own_name}") in api.requests)
        controller.bind(sandbox.own_name)
        await start
        assert provider.warmth() == Warmth(cold_starts=1)


async def test_a_template_that_disagrees_with_the_task_is_refused_before_anything_is_claimed(tmp_path: Path) -> None:
    api = SandboxApi()
    controller = Controller(api)
    controller.put(f"{EXTENSIONS}/sandboxtemplates/shell", controller.template(image="other:1"))
    async with provided(api, tmp_path, CONFIG) as provider:
        with pytest.raises(SandboxStartError, match=r"TemplateDisagrees.*image is other:1, the task's image:1"):
            await begun(provider, tmp_path)
        assert api.of("sandboxclaims") == []


async def test_a_claim_that_the_controller_refuses_fails_its_trial_with_the_controllers_words(tmp_path: Path) -> None:
    api = SandboxApi()
    Controller(api, by_hand=True)
    async with provided(api, tmp_path, CONFIG) as provider:
        sandbox = sandbox_of(provider, tmp_path)
        start = asyncio.ensure_future(sandbox.start(force_build=False))
        await eventually(lambda: bool(api.of("sandboxclaims")))
        api.change(sandbox.own_name, "sandboxclaims", conditions=ready("False", "WarmPoolNotFound"))
        with pytest.raises(SandboxStartError, match="WarmPoolNotFound: says the controller"):
            await start
        await sandbox.destroy()
        assert api.of("sandboxclaims") == []


async def test_a_trial_that_is_cut_off_while_it_waits_deletes_its_claim(tmp_path: Path) -> None:
    api = SandboxApi()
    Controller(api, by_hand=True)
    async with provided(api, tmp_path, CONFIG) as provider:
        sandbox = sandbox_of(provider, tmp_path)
        start = asyncio.ensure_future(sandbox.start(force_build=False))
        await eventually(lambda: bool(api.of("sandboxclaims")))
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        await sandbox.destroy()
        assert (api.of("sandboxclaims"), sandbox.left) == ([], False)


async def test_the_pool_that_the_namespace_has_for_the_template_is_used(tmp_path: Path) -> None:
    api = SandboxApi()
    controller = Controller(api)
    controller.put(f"{POOLS}/shared", {"spec": {"replicas": 3, "sandboxTemplateRef": {"name": "shell"}}})
    async with provided(api, tmp_path, CONFIG) as provider:
        await begun(provider, tmp_path)
        assert api.names("sandboxwarmpools") == ["shared"]
        assert api.of("sandboxclaims")[0]["spec"]["warmPoolRef"] == {"name": "shared"}


async def test_without_one_a_pool_is_made_that_goes_with_the_server(tmp_path: Path) -> None:
    api = SandboxApi()
    Controller(api)
    async with provided(api, tmp_path, {**CONFIG, "warmPool": {"size": 2}}) as provider:
        pool = api.of("sandboxwarmpools")[0]
        assert pool["spec"] == {"replicas": 2, "sandboxTemplateRef": {"name": "shell"}}
        assert pool["metadata"]["ownerReferences"] == [provider.anchor.owner()]


async def test_a_restarted_server_deletes_the_claims_of_its_last_life(tmp_path: Path) -> None:
    api = SandboxApi()
    Controller(api)
    async with provided(api, tmp_path, CONFIG) as provider:
        await begun(provider, tmp_path)
    async with provided(api, tmp_path, CONFIG):
        assert api.of("sandboxclaims") == []


async def test_a_template_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"claims\.template shell: namespace harborrl-sandboxes has no such"):
        async with provided(SandboxApi(), tmp_path, CONFIG):
            pass
