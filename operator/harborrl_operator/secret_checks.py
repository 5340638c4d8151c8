"""What variables, flags and arguments hold: nothing of ours, and no secret where anybody may read it."""

import re

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.miles_rules.variables import variable_fault
from harborrl_operator.models.trainer import SECRET_NAME
from harborrl_operator.observed import Observed
from harborrl_operator.resolve import ResolvedJob


def environment_is_free(job: ResolvedJob, _: Observed) -> Verdict | None:
    """I8, and variables that the contract between the parts needs."""
    for variable in job.spec.trainer.env:
        if variable.name.startswith("HARBORRL_") or variable.name in ("POD_NAME", "POD_NAMESPACE"):
            return Verdict(
                Reason.RESERVED_ARGUMENT,
                f"trainer.env: {variable.name} is set by the operator. Remove it.",
            )
        if variable.value and _SECRET_NAME.search(variable.name):
            return Verdict(
                Reason.PLAIN_SECRET,
                f"trainer.env: {variable.name} looks like a secret and is readable by anyone who can read pods."
                " Put it into a Secret and use valueFrom.secretKeyRef.",
            )
    return None


def environment_leaves_ours_alone(job: ResolvedJob, _: Observed) -> Verdict | None:
    """With engine native none of these variables is read."""
    if job.spec.trainer.engine != "miles":
        return None
    said = variable_fault(variable.name for variable in job.spec.trainer.env)
    return None if said is None else Verdict(Reason.RESERVED_ARGUMENT, f"{said}.")


def no_secret_in_plain_text(job: ResolvedJob, _: Observed) -> Verdict | None:
    """I8: flags and agent arguments end in ConfigMaps and on command lines."""
    flags = [f"trainer's flag or YAML key {name}" for name, value in job.raw.values.items() if value]
    kwargs = [f"agentServer.agentKwargs: {name}" for name, value in job.spec.agent_server.agent_kwargs.items() if value]
    for where in (*flags, *kwargs):
        if _SECRET_ARGUMENT.search(where):
            return Verdict(
                Reason.PLAIN_SECRET,
                f"{where} looks like a secret and would be readable in ConfigMaps and process lists. Put it into a"
                " Secret and give it to the trainer by trainer.env with valueFrom.secretKeyRef.",
            )
    return None


_SECRET_NAME = re.compile(SECRET_NAME)


_SECRET_ARGUMENT = re.compile(
    r"(api[_-]?key|access_key|private_key|wandb_key|(hf|auth|access|api|bearer)_token|secret|password|passwd)$",
    re.IGNORECASE,
)
"""Narrower: engines have flags such as `--input-key` and `--pad-token`."""
