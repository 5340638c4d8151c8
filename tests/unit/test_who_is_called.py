"""The operator asks the API server and nobody else, and requests that hang take no connection from the others."""

import ast
import asyncio
import json
from pathlib import Path

from aiohttp import web

from harborrl_operator.cluster import Cluster

PACKAGE = Path(__file__).resolve().parents[2] / "operator" / "harborrl_operator"
SPEAKERS = {
    "aiohttp": {"probes", "transport"},  # a server for kubelet; the errors of the API server's client
    "kubernetes": {"cluster", "transport"},
    "kopf": {"handlers", "watching"},
}
"""Modules of the operator that import what can open a connection."""
OTHERS = {"http", "httpx", "requests", "socketserver", "urllib3", "websockets"}
HANGING = 150
"""More than aiohttp would allow at once by itself, 100."""


def imports(source: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module}
    return found


def test_no_module_can_speak_to_anybody_but_the_api_server() -> None:
    by_module = {source.stem: imports(source) for source in PACKAGE.rglob("*.py")}
    roots = {module: {name.partition(".")[0] for name in names} for module, names in by_module.items()}
    assert {module for module, names in roots.items() if names & OTHERS} == set()
    assert {module for module, names in by_module.items() if "urllib.request" in names} == set()
    assert {root: {m for m, names in roots.items() if root in names} for root in SPEAKERS} == SPEAKERS
    for source in PACKAGE.rglob("*.py"):
        assert "ClientSession" not in source.read_text(), source
        assert "create_connection" not in source.read_text(), source


async def test_a_hundred_and_fifty_requests_that_hang_do_not_hold_up_the_lease(tmp_path: Path) -> None:
    hanging, release = 0, asyncio.Event()
    all_hang = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        nonlocal hanging
        if "leases" not in request.path:
            hanging += 1
            if hanging == HANGING:
                all_hang.set()
            await release.wait()
        return web.json_response({"metadata": {"name": "it"}})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(kubeconfig(runner.addresses[0][1])))
    cluster = await Cluster.connect(str(config))
    requests = [asyncio.create_task(cluster.get("Pod", "n", f"p{index}")) for index in range(HANGING)]
    try:
        await asyncio.wait_for(all_hang.wait(), 25)
        lease = await asyncio.wait_for(cluster.get("Lease", "n", "it"), 25)
        assert lease == {"metadata": {"name": "it"}}
    finally:
        release.set()
        await asyncio.gather(*requests, return_exceptions=True)
        await cluster.close()
        await runner.cleanup()


def kubeconfig(port: int) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {}}],
    }
