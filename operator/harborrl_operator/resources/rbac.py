"""ServiceAccounts of a namespace and their bindings to the chart's fixed ClusterRoles.

None is owned by a job: an agent server must keep its rights while the job's deletion makes it clean up.
"""

from typing import Any

from harborrl_operator.constants import LABEL_MANAGED_BY, MANAGED_BY
from harborrl_operator.names import AGENT_SERVER_ACCOUNT, SANDBOX_ROLE, TRAINER_ACCOUNT
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources.common import trainer_account

_LABELS = {LABEL_MANAGED_BY: MANAGED_BY}


def accounts_and_bindings(job: ResolvedJob) -> list[dict[str, Any]]:
    namespace = job.job.namespace
    out = _trainer(namespace, trainer_account(job.spec))
    if job.spec.agent_server.url is None:
        out += [
            _account(namespace, AGENT_SERVER_ACCOUNT),
            _binding(
                namespace, AGENT_SERVER_ACCOUNT, role=AGENT_SERVER_ACCOUNT, account=AGENT_SERVER_ACCOUNT, of=namespace
            ),
        ]
        if job.sandbox["backend"] == "kubernetes":
            out.append(
                _binding(
                    job.sandbox["namespace"],
                    job.job.names.sandbox_binding,
                    role=SANDBOX_ROLE,
                    account=AGENT_SERVER_ACCOUNT,
                    of=namespace,
                )
            )
    return out


def _trainer(namespace: str, account: str) -> list[dict[str, Any]]:
    """An account that the user names is the user's: it is bound, never made or changed."""
    if account == TRAINER_ACCOUNT:
        binding = _binding(namespace, TRAINER_ACCOUNT, role=TRAINER_ACCOUNT, account=account, of=namespace)
        return [_account(namespace, account), binding]
    return [_binding(namespace, f"{TRAINER_ACCOUNT}-{account}", role=TRAINER_ACCOUNT, account=account, of=namespace)]


def _account(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "labels": _LABELS},
    }


def _binding(namespace: str, name: str, *, role: str, account: str, of: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace, "labels": _LABELS},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": of}],
    }
