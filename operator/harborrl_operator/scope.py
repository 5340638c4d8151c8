"""Which of the namespaces that we are told to serve let us: one that is gone must not keep the others waiting."""

from dataclasses import replace

from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import KIND
from harborrl_operator.errors import ClusterError
from harborrl_operator.models import Settings


async def lets_us(cluster: Cluster, namespace: str) -> bool:
    """False when our Role there is gone, or the namespace with it."""
    try:
        await cluster.find(KIND, namespace)
    except ClusterError as error:
        return not error.is_refusal
    return True


async def served(cluster: Cluster, settings: Settings) -> tuple[Settings, tuple[str, ...]]:
    """The settings without the namespaces that do not let us, and those.

    All of them stay when none lets us: then something else is wrong, and the watch says what.
    """
    closed = tuple([name for name in settings.namespaces if not await lets_us(cluster, name)])
    kept = [name for name in settings.namespaces if name not in closed]
    return (replace(settings, watch_namespaces=",".join(kept)), closed) if kept else (settings, ())
