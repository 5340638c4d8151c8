"""Which image a task's sandbox runs, and what it may use: pure."""

import re
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Literal, Self

from harbor.models.task.config import EnvironmentConfig
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.overrides import checked

SUFFIXES = {
    **{
        letter: Decimal(1000) ** power
        for power, letter in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
    },
    **{f"{letter}i": Decimal(1024) ** (power + 1) for power, letter in enumerate("KMGTPE")},
}
GPU = "nvidia.com/gpu"

QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:e([0-9]+)|E([0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
"""As the CRD admits it; `1E` is an exa, `1E3` a thousand."""


def _readable(amount: int | str) -> int | str:
    quantity(str(amount))
    return amount


Range = Annotated[IPv4Network | IPv6Network, BeforeValidator(ip_network)]

Amount = Annotated[int | str, AfterValidator(_readable)]


class Images(BaseModel):
    model_config = ConfigDict(extra="ignore", alias_generator=to_camel, populate_by_name=True)

    map: dict[str, str] = Field(default_factory=dict)
    """From a task directory's name, or the image that a task names, to the image to run."""
    template: str | None = None
    """Image of every other task: `{task}` is its directory's name, `{hash}` its environment's content hash."""
    pull_secrets: list[str] = Field(default_factory=list)
    """Secrets of the sandbox namespace."""

    @field_validator("template")
    @classmethod
    def _known_names(cls, template: str | None) -> str | None:
        try:
            (template or "").format(task="", hash="")
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise ValueError(f"{template!r} may hold {{task}} and {{hash}} in braces, and no others") from error
        return template


class Resources(BaseModel):
    """Requests and limits by Kubernetes resource name, as in a pod."""

    requests: dict[str, Amount] = Field(default_factory=dict)
    limits: dict[str, Amount] = Field(default_factory=dict)


class Tools(BaseModel):
    image: str | None = None
    """The tools bundle's; unset or empty: agents find what they need in the task's image, or fail."""


class WarmPool(BaseModel):
    """Pods that run before a trial asks for them."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel, populate_by_name=True)

    size: int = Field(default=0, ge=0)
    """Ready pods of each image; 0: every pod is created for its trial. They count against the namespace's quota."""
    images: int = Field(default=4, ge=1)
    """Most images that have any, those used last."""


class Claims(BaseModel):
    """Of kubernetes-sigs/agent-sandbox."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel, populate_by_name=True)

    template: str | None = None
    """SandboxTemplate of the sandbox namespace that all trials run on."""


class SandboxConfig(BaseModel):
    """`agentServer.sandbox` of the job, resolved. What it does not know is ignored."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel, populate_by_name=True)

    images: Images = Field(default_factory=Images)
    tools: Tools = Field(default_factory=Tools)
    limits: Resources | None = None
    """`limits` of it: most that one sandbox may ask for; a task that asks for more is refused."""
    defaults: Resources | None = None
    """`requests` of it: what a task gets that asks for nothing; `limits` bound it besides."""
    idle_timeout_seconds: float | None = Field(default=None, gt=0)
    """Of a pod in which no command runs; None: it stays as long as its trial."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: list[dict[str, Any]] = Field(default_factory=list)
    priority_class_name: str | None = None
    runtime_class_name: str | None = None
    node_selector_for_gpu: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Labels of the nodes that have a type of GPU, by the name that tasks use (`gpu_types`)."""
    private_hosts: list[Range] = Field(default_factory=list)
    """Networks of the cluster or its surroundings that a task's `allowed_hosts` may name."""
    pod_overrides: Annotated[dict[str, Any], AfterValidator(checked)] = Field(default_factory=dict)
    """Merged into the pod's spec; what weakens a sandbox is refused."""
    warm_pool: WarmPool = Field(default_factory=WarmPool)
    allocator: Literal["pods", "agent-sandbox"] = "pods"
    """Who makes the pods of trials: this server, or the controller of agent-sandbox from `claims.template`."""
    claims: Claims = Field(default_factory=Claims)
    timeout_seconds: float | None = None
    """Life of a sandbox pod; unset: all budgets and ten minutes."""

    @model_validator(mode="after")
    def _a_claim_needs_a_template(self) -> Self:
        if self.allocator == "agent-sandbox" and not self.claims.template:
            raise ValueError("allocator agent-sandbox needs claims.template, a SandboxTemplate of the namespace")
        return self


TAG_HASH = 12
"""Digits of an environment's content hash in `{hash}`."""


def image_names(task: str, environment: str, *, own_tests: bool) -> list[str]:
    """What `images` of the job may call it. A verifier whose image brings its tests is not the task's own image."""
    return [f"{task}/tests"] if own_tests else [task, environment]


def image_of(
    task: EnvironmentConfig, names: list[str], content_hash: str, config: SandboxConfig, fallback: str | None
) -> str:
    """The task's own image (through the map), the map's for the task, the template's, or the server's default."""
    images = config.images
    if task.docker_image:
        own: str = task.docker_image
        return images.map.get(own, own)
    for name in names:
        if name in images.map:
            return images.map[name]
    if images.template:
        return images.template.format(task=names[0], hash=content_hash)
    if fallback:
        return fallback
    raise SandboxStartError(
        "NoImage",
        f"{names[0]} names no docker_image; set it in task.toml, agentServer.sandbox.images or --sandbox-image",
    )


def resources_of(task: EnvironmentConfig, config: SandboxConfig) -> dict[str, dict[str, str]]:
    """Requests and limits of the container. Memory and storage are limits too; cpu is a request that may burst."""
    defaults, most = config.defaults or Resources(), config.limits or Resources()
    asked = {
        "cpu": None if task.cpus is None else f"{int(task.cpus * 1000)}m",
        "memory": None if task.memory_mb is None else f"{task.memory_mb}Mi",
        "ephemeral-storage": None if task.storage_mb is None else f"{task.storage_mb}Mi",
        GPU: str(task.gpus) if task.gpus else None,
    }
    own = {name: amount for name, amount in asked.items() if amount is not None}
    requests = {name: str(amount) for name, amount in defaults.requests.items()} | own
    bounds = {name: amount for name, amount in most.limits.items() if name != GPU}  # a bound on GPUs is no wish for any
    limits = {name: str(amount) for name, amount in (bounds | defaults.limits).items()}
    limits |= {name: amount for name, amount in own.items() if name != "cpu"}
    for name, amount in own.items():
        if QUANTITY.fullmatch(amount) is None:
            raise SandboxStartError("ResourcesRefused", f"the task asks for {name} {amount}; correct task.toml")
    for name, ceiling in most.limits.items():
        if name in own and quantity(own[name]) > quantity(str(ceiling)):
            raise SandboxStartError(
                "ResourcesRefused",
                f"the task asks for {name} {own[name]}, agentServer.sandbox.limits allows {ceiling}; change one",
            )
    if "cpu" in own and "cpu" in limits and quantity(own["cpu"]) > quantity(limits["cpu"]):
        limits["cpu"] = own["cpu"]  # what the task states ranks above a default
    return {"requests": requests, "limits": limits}


def quantity(text: str) -> Decimal:
    """A Kubernetes quantity as a number; raises ValueError for anything else."""
    match = QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no Kubernetes quantity")
    exponent = match[2] or match[3]
    return Decimal(match[1]) * (Decimal(10) ** int(exponent) if exponent else SUFFIXES[match[4] or ""])
