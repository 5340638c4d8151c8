"""I10: every selected task's sandbox can be made: its image has a name, it asks for nothing that we do not offer.

Mirrors what the agent server makes of a task (a contract test compares the two): the task's own image, through the
map; else the map's, the template's, the operator's default. Memory and storage are limits too, cpu is a request.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from harborrl_trainer import prompts
from harborrl_trainer.job import JobDocument, Sandbox
from harborrl_trainer.preflight.findings import Finding, Outcome, refuse, some
from harborrl_trainer.preflight.task_fields import section, unsupported_fields

_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?"
)
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:e([0-9]+)|E([0-9]+)|([numkMGTPE]|[KMGTPE]i)?)")
_SUFFIXES = {
    **{
        letter: Decimal(1000) ** power
        for power, letter in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)
    },
    **{f"{letter}i": Decimal(1024) ** (power + 1) for power, letter in enumerate("KMGTPE")},
}

type Amounts = Mapping[str, Decimal]


@dataclass(frozen=True)
class Wanted:
    """What one sandbox asks for, by Kubernetes resource name, in its base unit."""

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)


def check_sandboxes(job: JobDocument, tasks: Iterable[Path]) -> Outcome:
    """`tasks` are whole task directories. Facts: `sandboxes`, the largest amount of each resource among them."""
    sandbox = job.agent_server.sandbox
    if not job.agent_server.owned or sandbox.backend != "kubernetes":
        return Outcome()
    unresolved, unsupported, large, wanted = [], [], [], []
    for directory in tasks:
        task = _read(directory)
        if problem := image_problem(directory, task, sandbox, job.agent_server.sandbox_image):
            unresolved.append(f"{directory.name} ({problem})")
        if names := unsupported_fields(directory, task, sandbox):
            unsupported.append(f"{directory.name} ({', '.join(names)})")
        asked = wanted_by(task, sandbox)
        wanted.append(asked)
        large += [f"{directory.name} ({one})" for one in _above(asked, sandbox)]
    return Outcome(_findings(unresolved, unsupported, large), {"sandboxes": _largest(wanted)} if wanted else {})


def _findings(unresolved: Sequence[str], unsupported: Sequence[str], large: Sequence[str]) -> list[Finding]:
    findings = []
    if unresolved:
        message = (
            f"{len(unresolved)} tasks have no image that can run: {some(unresolved, 3)}. Set environment.docker_image"
            " in task.toml, or agentServer.sandbox.images.map or template."
        )
        findings.append(refuse("I10", "ImageUnresolved", message))
    if unsupported:
        message = (
            f"{len(unsupported)} tasks use what the sandboxes do not offer: {some(unsupported, 3)}. Leave these tasks"
            " out, change them, or bring an agent server that offers it (agentServer.url)."
        )
        findings.append(refuse("I10", "TaskUnsupported", message))
    if large:
        message = (
            f"{len(large)} tasks ask for more than agentServer.sandbox.limits allows: {some(large, 3)}. Raise the limit"
            " or lower the task's resources."
        )
        findings.append(refuse("I10", "TaskTooLarge", message))
    return findings


def _read(directory: Path) -> dict[str, Any]:
    """A file that cannot be read is I6's to say."""
    try:
        return tomllib.loads((directory / prompts.TASK_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def image_problem(directory: Path, task: Mapping[str, Any], sandbox: Sandbox, fallback: str | None) -> str:
    """Empty when the task's image has a name that a kubelet can pull."""
    own, images = section(task, "environment").get("docker_image"), sandbox.images
    name = str(section(task, "task").get("name") or directory.name)
    if own:
        image = images.map.get(str(own), str(own))
    else:
        mapped = next((images.map[key] for key in (directory.name, name) if key in images.map), None)
        if mapped is None and images.template is None and (directory / "environment" / "Dockerfile").is_file():
            return "environment/Dockerfile is not built here"
        try:
            image = mapped or (images.template or "").format(task=directory.name, hash="0") or fallback or ""
        except (KeyError, IndexError, ValueError, AttributeError):
            return f"images.template {images.template!r} knows only {{task}} and {{hash}}"
    if not image:
        return "names none"
    return "" if _IMAGE.fullmatch(image) else f"{image[:80]!r} is no image name"


def wanted_by(task: Mapping[str, Any], sandbox: Sandbox) -> Wanted:
    """Requests and limits of the task's container. A limit without a request is a request, as for the API server."""
    environment = section(task, "environment")
    own = {
        "cpu": _amount(environment.get("cpus")),
        "memory": _mebibytes(environment.get("memory_mb"), environment.get("memory")),
        "ephemeral-storage": _mebibytes(environment.get("storage_mb"), environment.get("storage")),
    }
    asked = {name: amount for name, amount in own.items() if amount is not None}
    limits = {name: quantity(str(text)) for name, text in (sandbox.limits.limits | sandbox.defaults.limits).items()}
    limits |= {name: amount for name, amount in asked.items() if name != "cpu"}
    if "cpu" in limits and asked.get("cpu", 0) > limits["cpu"]:
        limits["cpu"] = asked["cpu"]  # what the task states ranks above a default
    if gpus := _amount(environment.get("gpus")):
        limits["nvidia.com/gpu"] = gpus
    requests = {name: quantity(str(text)) for name, text in sandbox.defaults.requests.items()} | asked
    return Wanted({**limits, **requests}, limits)


def _above(asked: Wanted, sandbox: Sandbox) -> list[str]:
    return [
        f"{name} {_text(asked.requests[name])} > {most}"
        for name, most in sandbox.limits.limits.items()
        if name in asked.requests and asked.requests[name] > quantity(str(most))
    ]


def _largest(wanted: Sequence[Wanted]) -> dict[str, Any]:
    requests, limits = [one.requests for one in wanted], [one.limits for one in wanted]
    return {
        "requests": _maxima(requests),
        "limits": _maxima(limits),
        "unset": _missing_somewhere(requests),
        "unlimited": _missing_somewhere(limits),
    }


def _missing_somewhere(all_amounts: Sequence[Amounts]) -> list[str]:
    """A quota that counts them refuses the pods that leave them out."""
    return [name for name in ("cpu", "memory") if any(name not in amounts for amounts in all_amounts)]


def _maxima(all_amounts: Sequence[Amounts]) -> dict[str, str]:
    names = sorted({name for amounts in all_amounts for name in amounts})
    return {name: _text(max(amounts[name] for amounts in all_amounts if name in amounts)) for name in names}


def _text(amount: Decimal) -> str:
    """A Kubernetes quantity: whole numbers as they are, others in thousandths."""
    return str(int(amount)) if amount == amount.to_integral_value() else f"{int((amount * 1000).to_integral_value())}m"


def quantity(text: str) -> Decimal:
    """A Kubernetes quantity as a number; raises ValueError for anything else. The CRD lets nothing else in."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no Kubernetes quantity")
    exponent = match[2] or match[3]
    return Decimal(match[1]) * (Decimal(10) ** int(exponent) if exponent else _SUFFIXES[match[4] or ""])


def _amount(value: Any) -> Decimal | None:
    """As the agent server passes it on: whole thousandths."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Decimal(int(value * 1000)) / 1000


def _mebibytes(number: Any, old: Any) -> Decimal | None:
    """`memory_mb = 2048`, or the older `memory = "2G"`."""
    if isinstance(number, int) and not isinstance(number, bool):
        return Decimal(number) * 1024**2
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMG])\s*", str(old or "").upper())
    if match is None:
        return None
    mebibytes = float(match[1]) * {"K": 1 / 1024, "M": 1, "G": 1024}[match[2]]
    return Decimal(int(mebibytes)) * 1024**2
