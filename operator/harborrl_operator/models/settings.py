"""What the chart decides for all jobs, handed to the operator by environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from harborrl_operator.models.network import NetworkSettings

NO_IMAGE = ("miles_image", "tools_image")
"""Settings in which empty says that there is none."""


@dataclass(frozen=True)
class Settings:
    """Defaults for what a job leaves out."""

    agent_server_image: str = "localhost/harborrl/agent-server:dev"
    trainer_image: str = "localhost/harborrl/trainer:dev"
    """Image of the native engine and of preflight for it."""
    miles_image: str = "radixark/miles:dev-202604201238"
    """Image of engine miles: Miles' own, of the documented date. Empty: jobs have to name one in `trainer.image`."""
    sandbox_image: str = "localhost/harborrl/base:dev"
    """Image of tasks that name none when the job gives no template either."""
    tools_image: str = "localhost/harborrl/agent-tools:dev"
    """Bundle for agents that need more in a sandbox than a shell, in jobs that name none; empty: none."""
    image_pull_policy: str = "IfNotPresent"
    sandbox_namespace: str = "harborrl-sandboxes"
    default_claim: str = "harborrl-data"
    """Claim of every storage role that the job does not name; each role has its own directory in it."""
    operator_namespace: str = "harborrl-system"
    network: NetworkSettings = field(default_factory=NetworkSettings)
    """NetworkPolicies of all jobs."""
    agent_sandbox: bool = False
    """Whether jobs may claim sandboxes of kubernetes-sigs/agent-sandbox: the chart gives the rights for it."""
    gang_scheduler: str = ""
    """Batch scheduler that KubeRay was started with, which places all pods of a RayCluster or none; empty: none."""
    watch_namespaces: str = ""
    """Namespaces whose jobs are served, by commas; empty: all. With a list, no right on the whole cluster is needed."""

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Empty: all."""
        return tuple(name for name in self.watch_namespaces.replace(" ", "").split(",") if name)

    @property
    def heartbeat_namespace(self) -> str:
        """One that is watched."""
        return self.namespaces[0] if self.namespaces else self.operator_namespace

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Reads `HARBORRL_<FIELD>`, of which the network is JSON; an empty value counts as absent, but for `NO_IMAGE`.

        Raises ValueError when the network is not what the chart's values allow.
        """
        given = {name: environment.get(f"HARBORRL_{name.upper()}") for name in cls.__dataclass_fields__}
        values: dict[str, Any] = {name: value for name, value in given.items() if value}
        values |= {name: "" for name in NO_IMAGE if given[name] == ""}
        values["agent_sandbox"] = given["agent_sandbox"] == "true"
        if "network" in values:
            values["network"] = NetworkSettings.model_validate_json(values["network"])
        return cls(**values)
