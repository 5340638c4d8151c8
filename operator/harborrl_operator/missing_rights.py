"""Rights that somebody deleted: the pass that finds them missing makes them again, and says so."""

from collections.abc import Mapping
from typing import Any

from harborrl_operator.draft import Draft
from harborrl_operator.observed import Object, Observed
from harborrl_operator.resources import rbac

_SAYS = ("rules", "roleRef", "subjects")
"""Fields of a Role or RoleBinding that say who may do what."""


def missing_rights(draft: Draft) -> str:
    """A sentence; empty when none is missing, and while nobody looked."""
    names = [f"{kind} {name}" for (kind, name), thing in draft.observed.rights.items() if thing is None]
    if not names:
        return ""
    return (
        f"Missing and made again: {', '.join(names)}. Without them the API server refuses (403) what the supervisor"
        " reports and asks, and what a pod's ServiceAccount needs."
    )


def is_broken(thing: Mapping[str, Any], observed: Observed) -> bool:
    """Whether what is to be applied was looked at and is not there as it should be."""
    right = (thing["kind"], thing["metadata"]["name"])
    if right not in observed.rights:
        return False
    found: Object | None = observed.rights[right]
    return found is None or any(found.get(field) != thing[field] for field in _SAYS if field in thing)


def mend_rights(draft: Draft) -> None:
    """The supervisor's own, in a pass that makes nothing else of what the spec says now."""
    draft.apply(*(thing for thing in rbac.supervisor(draft.job) if is_broken(thing, draft.observed)))
