"""Services outside that a job means to reach and no flow leads to: their libraries hang, or give up in silence."""

from harborrl_operator.models import Settings
from harborrl_operator.models.spec import JobSpec

_WANTS_WANDB = "WANDB_API_KEY"
_WANDB_STAYS = ("offline", "disabled", "dryrun")


def unreachable(spec: JobSpec, settings: Settings) -> str:
    """A sentence; empty where the job or the platform opens something, which is then believed to be enough."""
    named = {variable.name: variable.value for variable in spec.trainer.env}
    closed = settings.network.policies and not (spec.network.egress or settings.network.egress)
    if _WANTS_WANDB not in named or not closed or named.get("WANDB_MODE") in _WANDB_STAYS:
        return ""
    return (
        f"trainer.env has {_WANTS_WANDB} and network.egress nothing: trainer pods reach no address outside the job, so"
        " that logging to W&B hangs or gives up. Name it, for example {cidr: 0.0.0.0/0, ports: [443]}, or set"
        " WANDB_MODE to offline"
    )
