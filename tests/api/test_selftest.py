"""What `helm test` says of a cluster on which something of the installation is missing, old or forbidden."""

import copy
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from devcluster.controlplane import RunningControlPlane, control_plane

from harborrl_operator.cluster import Cluster
from harborrl_operator.selftest import admit
from support import hrl
from support.operator_process import until
from support.programs import program

pytestmark = pytest.mark.api

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "default"
SERVED_SECONDS = 120.0
"""For the API server to follow a changed definition; it takes one on an idle machine."""


@pytest.fixture(scope="module")
def definition() -> dict[str, Any]:
    """The CustomResourceDefinition of this version."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "crds" / "harborrljobs.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def unprepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningControlPlane]:
    """An API server that has never heard of HarborRL."""
    with control_plane(tmp_path_factory.mktemp("unprepared")) as running:
        yield running


def apply(plane: RunningControlPlane, *things: dict[str, Any]) -> None:
    command = [plane.kubectl, "--kubeconfig", str(plane.kubeconfig), "apply", "--server-side", "--force-conflicts"]
    text = hrl.text({"apiVersion": "v1", "kind": "List", "items": list(things)})
    subprocess.run([*command, "--filename", "-"], input=text, text=True, check=True, timeout=180)  # noqa: S603 - our own binary


@asynccontextmanager
async def connected(plane: RunningControlPlane, user: str | None = None) -> AsyncIterator[Cluster]:
    """As administrator, or as the user."""
    cluster = await Cluster.connect(str(plane.kubeconfig), impersonate=user)
    try:
        yield cluster
    finally:
        await cluster.close()


def without_rules(schema: Any) -> Any:
    """The schema as one that knows the fields and compares none with another."""
    if isinstance(schema, dict):
        return {key: without_rules(part) for key, part in schema.items() if key != "x-kubernetes-validations"}
    return [without_rules(part) for part in schema] if isinstance(schema, list) else schema


async def test_a_definition_that_is_missing_is_told_from_one_that_is_old(
    unprepared: RunningControlPlane, definition: dict[str, Any]
) -> None:
    async with connected(unprepared) as cluster:
        missing = await admit(cluster, NAMESPACE)
        assert missing is not None
        assert "the CustomResourceDefinition is missing" in missing

        old = copy.deepcopy(definition)
        (version,) = old["spec"]["versions"]
        version["schema"] = without_rules(version["schema"])
        apply(unprepared, old)

        async def is_served() -> bool:
            return await admit(cluster, NAMESPACE) != missing

        await until(is_served, SERVED_SECONDS, "the old definition is served")
        fault = await admit(cluster, NAMESPACE)
        assert fault is not None
        assert "is the CustomResourceDefinition an old one?" in fault

        apply(unprepared, definition)

        async def is_well() -> bool:
            return await admit(cluster, NAMESPACE) is None

        await until(is_well, SERVED_SECONDS, "this version's definition is served")


def hooks() -> dict[str, dict[str, Any]]:
    """What `helm test` makes, by kind."""
    command = [program("helm"), "template", "h", str(ROOT / "charts" / "harborrl"), "--kube-version", "1.35.0"]
    command += ["--namespace", NAMESPACE, "-s", "templates/tests/admission.yaml"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own binary
    return {thing["kind"]: thing for thing in yaml.safe_load_all(text)}


async def test_the_hooks_own_account_may_do_what_the_test_does_and_without_its_role_the_message_says_who_may_not(
    unprepared: RunningControlPlane, definition: dict[str, Any]
) -> None:
    apply(unprepared, definition)
    made = hooks()
    user = f"system:serviceaccount:{NAMESPACE}:{made['Pod']['spec']['serviceAccountName']}"
    async with connected(unprepared, user) as cluster:

        async def is_forbidden() -> bool:
            return "HTTP 403" in (await admit(cluster, NAMESPACE) or "")

        await until(is_forbidden, SERVED_SECONDS, "the definition is served")
        fault = await admit(cluster, NAMESPACE)
        assert fault is not None
        assert f'User "{user}" cannot create resource "harborrljobs"' in fault
        apply(unprepared, made["ServiceAccount"], made["Role"], made["RoleBinding"])

        async def is_well() -> bool:
            return await admit(cluster, NAMESPACE) is None

        await until(is_well, SERVED_SECONDS, "the role is in force")
