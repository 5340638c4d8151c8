"""Every derived name, label set and path of a job (docs/contracts.md). Nothing else may build one."""

from dataclasses import dataclass

from harborrl_operator.constants import (
    LABEL_ATTEMPT,
    LABEL_JOB,
    LABEL_JOB_NAMESPACE,
    LABEL_JOB_UID,
    LABEL_MANAGED_BY,
    LABEL_ROLE,
    MANAGED_BY,
    Role,
)

MAX_JOB_NAME = 43
"""RayCluster names end at 53 characters and `<job>-preflight` adds ten."""

AGENT_SERVER_ACCOUNT = "harborrl-agent-server"
TRAINER_ACCOUNT = "harborrl-trainer"
"""Also the name of the ClusterRole that the trainer's pods are bound to."""

SUPERVISOR_ROLE = "harborrl-supervisor"
SANDBOX_ROLE = "harborrl-sandboxes"


@dataclass(frozen=True)
class JobNames:
    """Names of one job's objects; the attempt is part of a RayCluster's name alone."""

    namespace: str
    name: str
    uid: str

    @property
    def agent(self) -> str:
        return f"{self.name}-agent"

    def agent_deployment(self, version: str) -> str:
        """At most 58 characters; beyond 63 the ReplicaSet controller would cut the pods' names."""
        return f"{self.agent}-{version}"

    @property
    def agents(self) -> str:
        return f"{self.name}-agents"

    def network(self, of: str) -> str:
        """NetworkPolicy: `deny`, or of a group of pods."""
        return f"{self.name}-{of}"

    def disruption(self, role: Role) -> str:
        return f"{self.name}-{role.value}"

    @property
    def preflight(self) -> str:
        return f"{self.name}-preflight"

    @property
    def trainer(self) -> str:
        return f"{self.name}-trainer"

    @property
    def config(self) -> str:
        return f"{self.name}-config"

    @property
    def progress(self) -> str:
        return f"{self.name}-progress"

    @property
    def request(self) -> str:
        return f"{self.name}-request"

    def ray_cluster(self, attempt: int) -> str:
        return f"{self.name}-a{attempt}"

    @property
    def sandbox_binding(self) -> str:
        """RoleBinding in the sandbox namespace; the job's namespace keeps two tenants' bindings apart."""
        return f"{SANDBOX_ROLE}-{self.namespace}"

    @property
    def supervisor_role(self) -> str:
        """Role and RoleBinding of this job's supervisor; never a binding of an account, which may bear a job's name."""
        return f"{SUPERVISOR_ROLE}-{self.name}"

    @property
    def run_path(self) -> str:
        """Relative to each volume; the uid makes a name that is applied again a new run."""
        return f"{self.namespace}/{self.name}-{self.uid[:8]}"

    def labels(self, role: Role | None = None, attempt: int | None = None) -> dict[str, str]:
        labels = {
            LABEL_JOB: self.name,
            LABEL_JOB_NAMESPACE: self.namespace,
            LABEL_JOB_UID: self.uid,
            LABEL_MANAGED_BY: MANAGED_BY,
        }
        if role is not None:
            labels[LABEL_ROLE] = role.value
        if attempt is not None:
            labels[LABEL_ATTEMPT] = str(attempt)
        return labels
