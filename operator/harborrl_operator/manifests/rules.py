"""The CRD's rules in CEL, judged in Python. A message is the CRD's own; a test holds the two lists together."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harborrl_operator.manifests.fault import Fault
from harborrl_operator.models.trainer import SECRET_NAME
from harborrl_operator.names import MAX_JOB_NAME

type Spec = Mapping[str, Any]


def _part(spec: Spec, *names: str) -> Mapping[str, Any]:
    found: Any = spec
    for name in names:
        found = found.get(name) or {}
    return found if isinstance(found, Mapping) else {}


_HOST = re.compile(r"^https?://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]+)?(/.*)?$")
_ADDRESSES = (
    re.compile(r"^https?://([^/:]*\.)?([0-9]+|0[xX][0-9a-fA-F]*)(:|/|$)"),
    re.compile(r"^https?://([0-9]+-){3}[0-9]+(\.|:|/|$)"),
    re.compile(r"(?i)^https?://[^/:]+\.[^/:.]+\.pod(\.|:|/|$)"),
)


def _unstable_url(spec: Spec) -> bool:
    url = _part(spec, "agentServer").get("url")
    if url is None:
        return False
    return not _HOST.search(url) or any(address.search(url) for address in _ADDRESSES)


def _both_or_neither(part: Mapping[str, Any], one: str, other: str) -> bool:
    return (part.get(one) is None) == (part.get(other) is None)


SPEC_RULES: Mapping[str, tuple[str, Callable[[Spec], bool]]] = {
    "spec.agentServer.url must be": ("spec.agentServer.url", _unstable_url),
    "spec.data needs exactly one": ("spec.data", lambda spec: _both_or_neither(_part(spec, "data"), "jsonl", "tasks")),
    "spec.workloadPriorityClass is": (
        "spec.workloadPriorityClass",
        lambda spec: spec.get("workloadPriorityClass") is not None and spec.get("queueName") is None,
    ),
    "spec.trainer.topology takes": (
        "spec.trainer.topology",
        lambda spec: {"required", "preferred"} <= _part(spec, "trainer", "topology").keys(),
    ),
    "spec.resumeFrom needs exactly": (
        "spec.resumeFrom",
        lambda spec: spec.get("resumeFrom") is not None and _both_or_neither(spec["resumeFrom"], "job", "path"),
    ),
}
"""How a message of the CRD begins -> its field, and whether a spec breaks the rule."""

CHECKED_BY_THE_OPERATOR = (
    "spec.agentServer.environmentStartSeconds",
    "spec.agentServer.maxConcurrent must be",
    "spec.agentServer.sandbox.timeoutSeconds must",
    "spec.agentServer.sandbox.idleTimeoutSeconds",
)
"""Rules that the operator's own checks repeat with the job's numbers."""


def broken(spec: Spec, messages: Mapping[str, str]) -> Iterator[Fault]:
    """`messages`: how a message begins -> the whole of it."""
    for begins, (path, is_broken) in SPEC_RULES.items():
        if is_broken(spec):
            yield Fault(path, messages[begins])
    yield from _environment(spec)
    yield from _tolerations(spec)


def _environment(spec: Spec) -> Iterator[Fault]:
    for at, variable in enumerate(_part(spec, "trainer").get("env") or ()):
        name, path = str(variable.get("name", "")), f"spec.trainer.env[{at}]"
        if variable.get("value") and re.search(SECRET_NAME, name):
            yield Fault(path, f"{name} looks like a secret: put it into a Secret and use valueFrom.secretKeyRef")
        if name.startswith("HARBORRL_") or name in ("POD_NAME", "POD_NAMESPACE"):
            yield Fault(path, f"{name} is set by the operator: remove the variable")


def _tolerations(spec: Spec) -> Iterator[Fault]:
    for at, toleration in enumerate(_part(spec, "trainer").get("tolerations") or ()):
        path, exists = f"spec.trainer.tolerations[{at}]", toleration.get("operator") == "Exists"
        if not exists and not toleration.get("key"):
            yield Fault(path, "without a key it bears any taint and needs operator Exists: set it, or name the key")
        if exists and toleration.get("value"):
            yield Fault(path, "operator Exists takes no value: remove it, or use Equal")
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            yield Fault(path, "tolerationSeconds is for effect NoExecute alone: set that effect, or remove the seconds")


def name_fault(name: Any) -> Iterator[Fault]:
    if name is None:
        yield Fault("metadata.name", "is required; add it")
    elif not isinstance(name, str) or len(name) > MAX_JOB_NAME or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        yield Fault(
            "metadata.name",
            f"is {str(name)[:80]!r}, must be at most {MAX_JOB_NAME} characters of a-z, 0-9 and '-', begin with a letter"
            " and end with a letter or digit",
        )
