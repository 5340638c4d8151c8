"""Nothing of a stranger's is taken over: a forced apply makes it the job's, and the job's end would take it along."""

from collections.abc import Mapping
from typing import Any

from harborrl_operator.allowed import if_allowed
from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import LABEL_JOB_UID
from harborrl_operator.errors import NameTakenError
from harborrl_operator.observed import labels


async def refuse_strangers(cluster: Cluster, thing: Mapping[str, Any]) -> None:
    """Raises NameTakenError when what bears this name was made by no HarborRLJob.

    What a job has not for itself alone (accounts, and the bindings of a namespace) may well be somebody's, on purpose.
    """
    meta = thing["metadata"]
    if not meta.get("ownerReferences"):
        return
    found = await if_allowed(cluster.get(thing["kind"], meta["namespace"], meta["name"]), None)
    if found is not None and LABEL_JOB_UID not in labels(found):
        raise NameTakenError(thing["kind"], meta["namespace"], meta["name"])
