"""Nothing of a stranger's is taken over: a forced apply makes it the job's, and the job's end would take it along."""

from collections.abc import Mapping
from typing import Any

from harborrl_operator.allowed import if_allowed
from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import LABEL_JOB_UID
from harborrl_operator.errors import NameTakenError
from harborrl_operator.observed import controller_of, labels


async def refuse_strangers(cluster: Cluster, thing: Mapping[str, Any]) -> None:
    """Raises NameTakenError when what bears this name was made by no HarborRLJob.

    What a job has not for itself alone (accounts, and the bindings of a namespace) may well be somebody's, on purpose.
    """
    meta = thing["metadata"]
    if not meta.get("ownerReferences"):
        return
    found = await if_allowed(cluster.get(thing["kind"], meta["namespace"], meta["name"]), None)
    if found is not None and LABEL_JOB_UID not in labels(found) and not _has_owner_of(found, thing):
        raise NameTakenError(thing["kind"], meta["namespace"], meta["name"])


def _has_owner_of(found: Mapping[str, Any], thing: Mapping[str, Any]) -> bool:
    """Made by the same job: somebody took its labels off, and the apply puts them back."""
    owner, ours = controller_of(found), controller_of(thing)
    return owner is not None and ours is not None and owner["uid"] == ours["uid"]
