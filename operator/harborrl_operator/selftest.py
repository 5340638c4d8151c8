"""`python -m harborrl_operator.selftest NAMESPACE`: what `helm test` runs. Nothing is stored.

The API server must admit a sound HarborRLJob and refuse one whose trials cannot fit their ceiling.
"""

import asyncio
import sys
from typing import Any

from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import API_VERSION, KIND
from harborrl_operator.errors import ClusterError

_SOUND: dict[str, Any] = {"model": {"path": "model"}, "data": {"jsonl": "train.jsonl"}}
_TOO_TIGHT = _SOUND | {"rollout": {"agentTrialTimeoutSeconds": 60}}


async def admit(cluster: Cluster, namespace: str) -> str | None:
    """What is wrong with admission, None when all is well."""
    try:
        if not await cluster.serves(KIND):
            return f"no {API_VERSION} {KIND} served: the CustomResourceDefinition is missing; `helm upgrade` makes it"
        await cluster.check(_job(namespace, _SOUND))
    except ClusterError as error:
        return f"a sound job is refused: {error}"
    try:
        await cluster.check(_job(namespace, _TOO_TIGHT))
    except ClusterError as error:
        return None if error.status == 422 else f"a job that must fail is refused for another reason: {error}"
    return "a job whose trials cannot fit their ceiling is admitted: is the CustomResourceDefinition an old one?"


def _job(namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": "harborrl-selftest", "namespace": namespace}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec}


async def main(namespace: str) -> int:
    cluster = await Cluster.connect()
    try:
        fault = await admit(cluster, namespace)
    finally:
        await cluster.close()
    sys.stdout.write(f"{fault or 'admission works'}\n")
    return 1 if fault else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
