"""`agentServer.sandbox` as the agent server gets it: namespace, life and tools filled in, and what of it is said."""

from typing import Any

from harborrl_operator.models import Settings
from harborrl_operator.models.spec import JobSpec
from harborrl_operator.models.status import Adjustment

MARGIN_SECONDS = 300
"""Beyond the trial ceiling, so that a sandbox never ends before its trial."""

AGENTS = ("bash", "terminus-2", "mini-swe-agent", "nop")
"""What our agent server runs for training (a test compares them with its own list); `oracle` needs a flag."""

IN_SANDBOXES = frozenset({"mini-swe-agent"})
"""Agents that are programs of the sandbox; the others run in the server and only act there."""

NEED_TOOLS = IN_SANDBOXES | {"terminus-2"}
"""Agents that need more in a sandbox than a shell."""


def allowed_agents(spec: JobSpec) -> tuple[str, ...]:
    """What a request may name: what the trainer names, unless the job says more."""
    return tuple(spec.agent_server.allowed_agents) or (spec.agent_server.agent_name,)


def resolved_sandbox(spec: JobSpec, settings: Settings, adjustments: list[Adjustment]) -> dict[str, Any]:
    sandbox = spec.agent_server.sandbox.model_dump(by_alias=True, exclude_none=True)
    sandbox.setdefault("namespace", settings.sandbox_namespace)
    sandbox["tools"] = {"image": _tools(spec, settings, adjustments)}
    if "timeoutSeconds" not in sandbox:
        life = spec.rollout.agent_trial_timeout_seconds + MARGIN_SECONDS
        sandbox["timeoutSeconds"] = life
        said = f"trial ceiling + {MARGIN_SECONDS} s"
        adjustments.append(Adjustment(field="agentServer.sandbox.timeoutSeconds", value=str(life), reason=said))
    return sandbox


def _tools(spec: JobSpec, settings: Settings, adjustments: list[Adjustment]) -> str:
    """Empty: none. A shell is all that `bash` needs, so that its sandboxes pull one image less."""
    server, image = spec.agent_server, spec.agent_server.sandbox.tools.image
    needing = sorted(NEED_TOOLS.intersection(allowed_agents(spec))) if server.url is None else []
    if image is None:
        image = settings.tools_image if needing else ""
    if needing and not image:
        said = f"no bundle: each task's image must hold what {' and '.join(needing)} needs"
        adjustments.append(Adjustment(field="agentServer.sandbox.tools", value="none", reason=said))
    return image
