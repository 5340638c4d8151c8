"""`spec.agentServer`: the server that runs trials, its time budgets and its sandboxes."""

from typing import Annotated, Literal

from pydantic import Field

from harborrl_operator.models.base import TEXT, FreeForm, Image, Model, ObjectName, Seconds, nested
from harborrl_operator.models.trainer import Resources

DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class SecretRef(Model):
    """A key of a Secret in the job's namespace."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)] = "secret"
    """Key in the Secret."""


class SandboxImages(Model):
    """Where a task's image comes from when the task names none or names one by a key."""

    map: dict[str, Annotated[str, Field(min_length=1, json_schema_extra=TEXT)]] = Field(default_factory=dict)
    """Task directory or the image that a task names -> image to use."""
    template: Annotated[str, Field(min_length=1, max_length=1024, json_schema_extra=TEXT)] | None = None
    """Image for tasks that name none; `{task}` is its directory, `{hash}` its content. Unset: the operator's."""
    pull_secrets: Annotated[list[DnsLabel], Field(max_length=16)] = Field(default_factory=list)
    """Image pull secrets in the sandbox namespace."""


class SandboxSpec(Model):
    """The pods in which agents act."""

    backend: Literal["kubernetes", "local", "docker"] = "kubernetes"
    """`kubernetes`: one pod a trial. `local` (Linux namespaces, for tests) and `docker` need `url`."""
    namespace: DnsLabel | None = None
    """Namespace of the sandbox pods, labelled `harborrl.dev/sandboxes: "true"`. Unset: the operator's default."""
    allow_same_namespace: bool = False
    """Permit sandboxes beside the job. Off: an agent's pod should not live next to the job's secrets."""
    images: SandboxImages = nested(SandboxImages)
    """Where sandbox images come from."""
    limits: Resources | None = None
    """Most that a task may ask for (`limits` of it); preflight refuses a task that asks for more. Unset: no bound."""
    defaults: Resources | None = None
    """What a task gets that asks for nothing; a ResourceQuota refuses pods without what it counts. Unset: nothing."""
    node_selector: dict[str, Annotated[str, Field(json_schema_extra=TEXT)]] = Field(default_factory=dict)
    """Labels of the nodes that take sandboxes. Unset: any."""
    tolerations: Annotated[list[FreeForm], Field(max_length=32)] = Field(default_factory=list)
    """Taints that sandbox pods tolerate, as in a pod."""
    priority_class_name: ObjectName | None = None
    """Priority class of sandbox pods. Unset: the cluster's default."""
    runtime_class_name: ObjectName | None = None
    """Runtime class of sandbox pods, for example gvisor. Unset: the node's default runtime, a plain container."""
    timeout_seconds: Seconds | None = None
    """Life of a sandbox. Unset: trial ceiling + 300 s; the documented 1800 s would end before any 5400 s agent."""
    idle_timeout_seconds: Seconds | None = None
    """Life without activity; must be below `timeoutSeconds`. Checked, but not acted on yet: a sandbox ends with its
    trial or after `timeoutSeconds`."""


class AgentServerSpec(Model):
    """The agent server: ours (a Deployment for this job) or yours (`url`)."""

    max_concurrent: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Trials at once. Unset: exactly what the job keeps in flight. Below that the job is refused."""
    agent_timeout_seconds: Seconds = 5400
    """The authoritative limit of one agent run, s, counted from when the slot is taken; see
    `rollout.onAgentTimeout`.
    """
    environment_start_seconds: Seconds = 600
    """Hard cap on starting the sandbox, s. Default 600: pulling a large image to a cold node. Beyond it the trial
    is lost.
    """
    agent_setup_seconds: Seconds = 360
    """Hard cap on installing the agent in the sandbox, s. Default 360, Harbor's own; `bash` installs nothing."""
    verifier_seconds: Seconds = 600
    """Hard cap on the verifier, s. Default 600, Harbor's own. Beyond it there is no reward, which is never a zero."""
    cleanup_seconds: Seconds = 60
    """Hard cap on removing the sandbox, s; its slot is taken until then. Default 60: what a kubelet needs."""
    agent_name: Annotated[str, Field(min_length=1, max_length=256, json_schema_extra=TEXT)] = "bash"
    """`bash` or `nop` (does nothing, for tests of the rest); other agents need a server of your own (`url`).
    The trainer names it in every trial: it cannot change while an attempt runs."""
    agent_kwargs: FreeForm = Field(default_factory=dict)
    """Arguments of the agent, for example `maxTurns`."""
    reward_key: Annotated[str, Field(min_length=1, max_length=128, json_schema_extra=TEXT)] | None = None
    """Which key of a multi-key reward counts. Unset: rewards must have one key."""
    dashboard_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the server's read-only dashboard; 0: off. Reach it with `kubectl port-forward`: no NetworkPolicy opens
    it. It asks for the secret of `adminSecretRef` where there is one."""
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
