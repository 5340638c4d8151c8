"""One trial's claim of agent-sandbox, from its creation to its deletion, and the pod that it gets."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Protocol

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes import claims
from harborrl_agent_server.sandboxes.allocating import NOT_ASKED, Ground, Pod, until_ready, with_events
from harborrl_agent_server.sandboxes.anchors import Anchor
from harborrl_agent_server.sandboxes.claims import EXTENSIONS, claim, disagreements, judge_claim
from harborrl_agent_server.sandboxes.cluster import KubeError, KubeUnreachableError
from harborrl_agent_server.sandboxes.creating import Creation
from harborrl_agent_server.sandboxes.pods import State, Verdict, judge
from harborrl_agent_server.sandboxes.policies import removed
from harborrl_agent_server.sandboxes.reasons import advice
from harborrl_agent_server.sandboxes.watch import PodView, PodWatch

LOOK_SECONDS = 2.0
"""Longest wait for a change of a claim before its pod is looked for again: the API server may have been away."""

Now = Callable[[], datetime]


class ClaimGround(Ground, Protocol):
    """What claims need of the server besides."""

    namespace: str
    labels: dict[str, str]

    @property
    def anchor(self) -> Anchor: ...
    def life_s(self) -> float: ...


class Office:
    """What the claims of one server share. `pool`: whose sandboxes they take."""

    def __init__(self, ground: ClaimGround, template: str, now: Now) -> None:
        self.ground = ground
        self.template = template
        self.now = now
        self.pool = ""
        self.warm_starts = 0
        self.cold_starts = 0
        self.path = f"/apis/{EXTENSIONS}/namespaces/{ground.namespace}"
        self.claims_path = f"{self.path}/sandboxclaims"
        self.selector = ",".join(f"{key}={value}" for key, value in ground.labels.items())
        self.watch = PodWatch(ground.cluster, ground.namespace, self.selector, path=self.claims_path)

    async def read_template(self) -> dict[str, Any]:
        """Raises `KubeError`, `KubeUnreachableError`."""
        return await self.ground.cluster.request("GET", f"{self.path}/sandboxtemplates/{self.template}")

    def count(self, sandbox: dict[str, Any]) -> None:
        if claims.came_warm(sandbox):
            self.warm_starts += 1
        else:
            self.cold_starts += 1


class ClaimLease:
    """One claim, and the pod that it gets."""

    def __init__(self, office: Office, manifest: dict[str, Any]) -> None:
        ground = office.ground
        expires = office.now() + timedelta(seconds=ground.life_s())
        body = claim(manifest, office.pool, expires)
        self._office = office
        self._ground = ground
        self._manifest = manifest
        self._creation = Creation(ground.cluster, office.claims_path, body, ground.patience)
        self._claim = office.watch.expect(self._creation.name)
        self._pod: PodView | None = None
        self._pod_name = ""

    async def ready(self) -> Pod:
        await self._agrees()
        await self._creation.made()
        pod = await self._bound()
        view = self._pod = self._ground.watch.expect(self._pod_name)
        view.update(pod)
        pull_s = self._ground.patience.pull_s
        await until_ready(lambda: view, lambda: judge(view.pod or pod, gone=view.gone), self.told, pull_s)
        await until_ready(lambda: self._claim, self._judge, self.told, pull_s)
        container = pod["spec"]["containers"][0]["name"]
        return Pod(self._pod_name, pod["metadata"]["uid"], view, container)

    async def _agrees(self) -> None:
        try:
            template = await self._office.read_template()
        except (KubeError, KubeUnreachableError) as error:
            raise SandboxStartError("TemplateUnreadable", str(error)) from error
        if found := disagreements(template, self._manifest):
            raise SandboxStartError(
                "TemplateDisagrees",
                f"SandboxTemplate {self._office.template}: {'; '.join(found)}. Change one, or leave such tasks to"
                " allocator: pods",
            )

    async def _bound(self) -> dict[str, Any]:
        """The claim's pod, with the labels of the trial: from then on the watch of all sandboxes follows it."""
        while True:
            change = asyncio.ensure_future(self._claim.change())
            try:
                verdict = self._judge()
                if verdict.state is State.FAILED:
                    raise SandboxStartError(verdict.reason, f"{verdict.message}; {advice(verdict)}")
                if (name := claims.sandbox_of(self._claim.pod or {})) and (pod := await self._labelled(name)):
                    return pod
                await asyncio.wait({change}, timeout=LOOK_SECONDS)
            finally:
                change.cancel()

    async def _labelled(self, sandbox: str) -> dict[str, Any] | None:
        """None while the pod is not there: the claim changes when it comes."""
        cluster, namespace = self._ground.cluster, self._ground.namespace
        labels = self._manifest["metadata"]["labels"]
        with contextlib.suppress(KubeUnreachableError):
            try:
                found = await cluster.request("GET", f"/apis/{claims.CORE}/namespaces/{namespace}/sandboxes/{sandbox}")
                self._pod_name = claims.pod_of(found)
                path = f"{self._ground.pods_path}/{self._pod_name}"
                pod = await cluster.request("PATCH", path, body={"metadata": {"labels": labels}})
            except KubeError as error:
                if error.status != 404:
                    raise SandboxStartError("ClaimUnusable", f"{error}; check the chart's RBAC") from error
            else:
                self._office.count(found)
                return pod
        return None

    def _judge(self) -> Verdict:
        return judge_claim(self._claim.pod, gone=self._claim.gone) if self._claim.pod else NOT_ASKED

    async def told(self) -> Verdict:
        if self._pod is None or self._pod.pod is None:
            return self._judge()
        verdict = judge(self._pod.pod, gone=self._pod.gone)
        return await with_events(self._ground, self._pod_name, verdict if verdict.reason else self._judge())

    async def give_back(self) -> bool:
        asked, uid = await self._creation.settled()
        path = f"{self._office.claims_path}/{self._creation.name}"
        if asked and not await removed(self._ground.cluster, path, uid):
            return False
        self._office.watch.forget(self._creation.name)
        self._ground.watch.forget(self._pod_name)
        return True
