"""Why the API server does not take a sandbox's pod, whether asking again may help, and what to do: pure.

The words looked for are those of Kubernetes' admission plugins, which have no codes for them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harborrl_agent_server.sandboxes.cluster import KubeError


@dataclass(frozen=True)
class Refusal:
    reason: str
    advice: str
    passes: bool = False
    """Busy servers and full quotas may take the next request."""


REFUSED: Sequence[tuple[re.Pattern[str], Refusal]] = [
    (re.compile(pattern), Refusal(reason, advice, passes=passes))
    for pattern, reason, passes, advice in (
        (
            "exceeded quota",
            "QuotaExceeded",
            True,
            "raise the quota of the sandbox namespace or lower --max-concurrent",
        ),
        (
            "Operation cannot be fulfilled on resourcequotas",
            "QuotaBusy",
            True,
            "the quota of the sandbox namespace is changed by many at once; lower --start-concurrency",
        ),
        (
            "failed quota",
            "ResourcesUnstated",
            False,
            (
                "the quota of the sandbox namespace wants every sandbox to state them: set"
                " agentServer.sandbox.defaults, the task's [environment], or a LimitRange in that namespace"
            ),
        ),
        (
            "violates PodSecurity",
            "PodSecurityRefused",
            False,
            (
                "label the sandbox namespace pod-security.kubernetes.io/enforce=baseline (sandboxes run as root),"
                " or take what exceeds it out of podOverrides"
            ),
        ),
        (
            r"RuntimeClass .* not found",
            "RuntimeClassMissing",
            False,
            "create the RuntimeClass or correct agentServer.sandbox.runtimeClassName",
        ),
        (
            "no PriorityClass with name",
            "PriorityClassMissing",
            False,
            "create the PriorityClass or correct agentServer.sandbox.priorityClassName",
        ),
        (
            "(maximum|minimum) .* usage per",
            "LimitRangeRefused",
            False,
            "the LimitRange of the sandbox namespace has other bounds than the task or agentServer.sandbox.defaults",
        ),
        (
            "is being terminated",
            "NamespaceEnding",
            False,
            "the sandbox namespace is being deleted; create it again, with its labels and policies",
        ),
        (
            "error looking up service account",
            "NamespaceNew",
            True,
            "the sandbox namespace has no service account `default` yet; a controller of the cluster makes it",
        ),
        ("namespaces .* not found", "NamespaceMissing", False, "create the sandbox namespace, or correct its name"),
        (
            "failed calling webhook",
            "WebhookFailed",
            True,
            "an admission webhook of the cluster does not answer; repair it or leave the sandbox namespace out of it",
        ),
        (
            "admission webhook .* denied|denied the request|ValidatingAdmissionPolicy",
            "PolicyDenied",
            False,
            "a policy of this cluster refuses the pod; change agentServer.sandbox or the policy",
        ),
        (r"pods is forbidden: User", "RightsMissing", False, "bind the chart's ClusterRole harborrl-sandboxes there"),
    )
]

INVALID = Refusal("PodInvalid", "the task's [environment] or podOverrides hold what no pod may have; correct them")
OTHER = "check the sandbox namespace, its Pod Security level and the chart's RBAC"


def refusal_of(error: KubeError) -> Refusal:
    """Of a pod that the API server does not take; the first row that applies."""
    for pattern, refusal in REFUSED:
        if pattern.search(error.message):
            return refusal
    if error.status == 422:
        return INVALID
    return Refusal("PodRefused", OTHER, passes=error.status == 429 or error.status >= 500)
