"""ServiceAccounts of a namespace, their bindings to the chart's fixed ClusterRoles, and one Role a job.

What belongs to the namespace is owned by no job: an agent server must keep its rights while the job's deletion makes it
clean up. The job's own Role names two ConfigMaps: the report, which supervisors of the namespace may write, and the
request, which they may read.
"""

from typing import Any

from harborrl_operator.constants import LABEL_JOB_NAMESPACE, LABEL_MANAGED_BY, MANAGED_BY, Role
from harborrl_operator.models import HarborRLJob
from harborrl_operator.names import AGENT_SERVER_ACCOUNT, SANDBOX_ROLE, TRAINER_ACCOUNT
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources.common import metadata, trainer_account

Right = tuple[str, str]
"""Kind and name."""

_LABELS = {LABEL_MANAGED_BY: MANAGED_BY}


def accounts_and_bindings(job: ResolvedJob) -> list[dict[str, Any]]:
    namespace = job.job.namespace
    out = [*_trainer(namespace, trainer_account(job.spec)), *supervisor(job.job)]
    if not job.spec.agent_server.url:
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
    binding = _binding(namespace, _trainer_binding(account), role=TRAINER_ACCOUNT, account=account, of=namespace)
    return [_account(namespace, account), binding] if account == TRAINER_ACCOUNT else [binding]


def supervisor(job: HarborRLJob) -> list[dict[str, Any]]:
    """The right to report and to read requests: two ConfigMaps by name, for as long as the job exists."""
    names = job.names
    meta = metadata(job, names.supervisor_role, Role.TRAINER)
    rules = [_named("get", names.progress, names.request), _named("patch", names.progress)]
    api_version = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": api_version, "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": api_version,
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": names.supervisor_role},
            "subjects": [{"kind": "ServiceAccount", "name": trainer_account(job.spec), "namespace": job.namespace}],
        },
    ]


def rights_in(job: HarborRLJob) -> tuple[Right, ...]:
    """Of `accounts_and_bindings`, what is made in the job's namespace."""
    account, own = trainer_account(job.spec), job.names.supervisor_role
    made: list[Right] = [("Role", own), ("RoleBinding", own), ("RoleBinding", _trainer_binding(account))]
    accounts = [account] if account == TRAINER_ACCOUNT else []
    if not job.spec.agent_server.url:
        made.append(("RoleBinding", AGENT_SERVER_ACCOUNT))
        accounts.append(AGENT_SERVER_ACCOUNT)
    return (*made, *(("ServiceAccount", name) for name in accounts))


def first_rights_in(job: HarborRLJob) -> tuple[Right, ...]:
    """What the first pods need: the accounts of agent server and preflight, and what the former may do."""
    first = (
        ("RoleBinding", AGENT_SERVER_ACCOUNT),
        ("ServiceAccount", TRAINER_ACCOUNT),
        ("ServiceAccount", AGENT_SERVER_ACCOUNT),
    )
    return tuple(right for right in rights_in(job) if right in first)


def _trainer_binding(account: str) -> str:
    return account if account == TRAINER_ACCOUNT else f"{TRAINER_ACCOUNT}-{account}"


def _named(verb: str, *config_maps: str) -> dict[str, Any]:
    return {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": list(config_maps), "verbs": [verb]}


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
        # The sweeper takes a binding away whose namespace is gone.
        "metadata": {"name": name, "namespace": namespace, "labels": _LABELS | {LABEL_JOB_NAMESPACE: of}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": of}],
    }
