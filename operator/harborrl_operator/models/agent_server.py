"""`spec.agentServer`: the server that runs trials, its time budgets and its sandboxes."""

from typing import Annotated, Literal

from pydantic import Field

from harborrl_operator.models.base import TEXT, FreeForm, Image, Model, ObjectName, Seconds, nested
from harborrl_operator.models.sandbox import SandboxSpec
from harborrl_operator.models.trainer import Resources

AGENT_NAME = r"^[a-z][-a-z0-9]{0,62}$"
"""As the agent server takes it."""

AgentName = Annotated[str, Field(pattern=AGENT_NAME)]
ImportPath = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$", max_length=253),
]


class SecretRef(Model):
    """A key of a Secret in the job's namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)] = "secret"
    """Key in the Secret."""


class AgentServerSpec(Model):
    """The agent server: ours (a Deployment for this job) or yours (`url`)."""

    max_concurrent: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Trials at once. Unset: exactly what the job keeps in flight. Below that the job is refused."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes of the server, which share its slots. Default 1: one holds hundreds of trials on one processor. More
    need as many processors in `resources`; above `maxConcurrent` some would have no slot, which is refused."""
    start_concurrency: Annotated[int, Field(ge=0, le=100_000)] = 16
    """Sandboxes that are made at once. Default 16: hundreds together are slow for all of them at the API server, the
    registry and the nodes. The rest waits in its slot, before `environmentStartSeconds` begin. 0: no limit."""
    agent_timeout_seconds: Seconds = 5400
    """The authoritative limit of one agent run, s, counted from when the slot is taken; see
    `rollout.onAgentTimeout`.
    """
    environment_start_seconds: Seconds = 600
    """Hard cap on starting the sandbox, s. Default 600: pulling a large image to a cold node. Beyond it the trial
    is lost. A verifier's own sandbox has as much at most, of what start, setup and agent have left of their budgets.
    """
    agent_setup_seconds: Seconds = 360
    """Hard cap on installing the agent in the sandbox, s. Default 360, Harbor's own; `bash` installs nothing."""
    verifier_seconds: Seconds = 600
    """Hard cap on the verifier, s. Default 600, Harbor's own. Beyond it the trial is graded 0 (`VerifierError`)."""
    cleanup_seconds: Seconds = 60
    """Hard cap on removing the sandbox, s; its slot is taken until then. Default 60: what a kubelet needs."""
    agent_name: Annotated[str, Field(min_length=1, max_length=256, json_schema_extra=TEXT)] = "bash"
    """`bash`, `terminus-2`, `mini-swe-agent`, `nop` (does nothing, for tests of the rest) or one of `agents`; others
    need a server of your own (`url`). The trainer names it in every trial: it cannot change while an attempt runs."""
    agents: Annotated[dict[str, ImportPath], Field(max_length=16)] = Field(default_factory=dict)
    """Agents of your own: name -> class (`pkg.mod:Class`), which `image`, or a volume of `podOverrides`, must hold;
    docs/agent-server.md, "Agents of your own". They run in the server, with its rights."""
    allowed_agents: Annotated[list[AgentName], Field(max_length=16)] = Field(default_factory=list)
    """Agents that a request may name; `agentName` must be among them. Default: `agentName` alone, which is what the
    trainer names. With `mini-swe-agent` or one of `agents`, sandboxes of this job may connect to the server's model
    gateway."""
    agent_kwargs: FreeForm = Field(default_factory=dict)
    """Arguments of the agent that `agentName` names, for example `maxTurns` of `bash`."""
    reward_key: Annotated[str, Field(min_length=1, max_length=128, json_schema_extra=TEXT)] | None = None
    """Which key of a multi-key reward counts. Unset: rewards must have one key."""
    dashboard_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the server's read-only dashboard, one for all workers; 0: off. Reach it with `kubectl port-forward`: no
    NetworkPolicy opens it. It asks for the secret of `adminSecretRef` where there is one."""
    admin_secret_ref: SecretRef | None = None
    """Secret that `/flush` demands. Unset: no secret. The trainer's pods hold it too: it cannot change while an attempt
    runs."""
    image: Image | None = None
    """Agent server image. Unset: the operator's default."""
    resources: Resources | None = None
    """Requests and limits of the server's container. Unset: none, so give memory on shared nodes."""
    sandbox: SandboxSpec = nested(SandboxSpec)
    """Where and how trials run."""
    url: Annotated[str, Field(min_length=1, max_length=512, json_schema_extra=TEXT)] | None = None
    """Your own agent server behind a stable name: nothing is started, and preflight judges its live values. Beside it
    stand agentName, adminSecretRef and the five budgets; what only a server of ours reads is refused."""
    pod_overrides: FreeForm = Field(default_factory=dict)
    """Merged into the server's pod spec (objects merge, named things such as containers
    merge by name, other lists replace)."""


class RolloutSpec(Model):
    """The trainer's side of a trial."""

    agent_trial_timeout_seconds: Seconds = 7200
    """The client's ceiling on one trial, s, queueing included. It must cover the five budgets of `agentServer`, or
    groups are lost.
    """
    on_agent_timeout: Literal["grade", "zero", "abort"] = "grade"
    """What an agent that ran out of time is worth: the verifier's reward, 0, or nothing (the sample is dropped)."""
