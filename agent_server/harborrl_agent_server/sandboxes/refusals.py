"""Why the API server does not take a sandbox's pod, and whether asking again may help: pure."""

from dataclasses import dataclass

from harborrl_agent_server.sandboxes.cluster import KubeError


@dataclass(frozen=True)
class Refusal:
    reason: str
    advice: str
    passes: bool = False
    """Busy servers and full quotas may take the next request."""


def refusal_of(error: KubeError) -> Refusal:
    """The words are those of Kubernetes' quota admission: it says `failed quota` of what a pod leaves unstated."""
    if error.status == 403 and "exceeded quota" in error.message:
        return Refusal(
            "QuotaExceeded", "raise the quota of the sandbox namespace or lower --max-concurrent", passes=True
        )
    if error.status == 403 and "failed quota" in error.message:
        return Refusal(
            "ResourcesUnstated",
            "the quota of the sandbox namespace wants every sandbox to state them: set agentServer.sandbox.defaults,"
            " the task's [environment], or a LimitRange in that namespace",
        )
    return Refusal(
        "PodRefused",
        "check the sandbox namespace, its Pod Security level and the chart's RBAC",
        passes=error.status == 429 or error.status >= 500,
    )
