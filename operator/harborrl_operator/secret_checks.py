"""What variables, flags and arguments hold: nothing of ours, and no secret where anybody may read it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

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
        if variable.value and (_SECRET_NAME.search(variable.name) or _holds_token(variable.value)):
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
    for name, value in job.raw.values.items():
        if value and (_SECRET_ARGUMENT.search(name) or _holds_token(value)):
            return _plain(f"trainer's flag or YAML key {name}", _FOR_THE_TRAINER)
    for path, name, value in _written(job.spec.agent_server.agent_kwargs, "agentServer.agentKwargs"):
        if value and (_SECRET_ARGUMENT.search(name) or _holds_token(value)):
            return _plain(path, _FOR_THE_AGENT)
    server = job.spec.agent_server
    overrides = {
        "trainer": job.spec.trainer.pod_overrides,
        "agentServer": server.pod_overrides,
        "agentServer.sandbox": server.sandbox.pod_overrides,
    }
    for part, pod in overrides.items():
        for path, _name, value in _written(pod, f"{part}.podOverrides"):
            if _holds_token(value):
                return _plain(path, _BY_REFERENCE)
    return None


_BY_REFERENCE = "Put it into a Secret and use valueFrom.secretKeyRef."
_FOR_THE_TRAINER = "Put it into a Secret and give it to the trainer by trainer.env with valueFrom.secretKeyRef."
_FOR_THE_AGENT = (
    "Remove it: agents here speak to the model that is trained, which asks for no key, and a server of your own"
    " (agentServer.url) has its keys itself."
)


def _plain(where: str, advice: str) -> Verdict:
    said = f"{where} looks like a secret and would be readable in ConfigMaps and process lists. {advice}"
    return Verdict(Reason.PLAIN_SECRET, said)


def _written(value: Any, path: str) -> Iterator[tuple[str, str, Any]]:
    """Path, last name and value of each leaf of a free-form object, however deep it is."""
    left: list[tuple[str, str, Any]] = [(path, "", value)]
    while left:
        where, name, part = left.pop()
        if isinstance(part, Mapping):
            sign = "." if name else ": "
            left += [(f"{where}{sign}{key}", str(key), inner) for key, inner in reversed(list(part.items()))]
        elif isinstance(part, list):
            left += [(where, name, inner) for inner in reversed(part)]
        else:
            yield where, name, part


def _holds_token(value: Any) -> bool:
    return isinstance(value, str) and _TOKEN.search(value) is not None


_SECRET_NAME = re.compile(SECRET_NAME)


_SECRET_ARGUMENT = re.compile(
    r"(api[_-]?key|access_key|private_key|wandb_key|(hf|auth|access|api|bearer)_token|secret|password|passwd)$",
    re.IGNORECASE,
)
"""Narrower: engines have flags such as `--input-key` and `--pad-token`."""

_TOKEN = re.compile(
    r"\b(sk-ant-[\w-]{20,}|sk-(proj-)?\w{32,}|hf_[A-Za-z0-9]{30,}|gh[oprsu]_\w{36,}|github_pat_\w{20,}|glpat-[\w-]{20,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{35}|xox[abprs]-[\w-]{10,})|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
"""Tokens that their issuers mark, for who writes one under a name that says nothing."""
