"""The job's NetworkPolicies: applied before the pods that they protect, and removed when the platform wants none."""

from harborrl_operator.draft import Draft
from harborrl_operator.observed import name_of
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources.network import policies


def isolate(draft: Draft, job: ResolvedJob) -> None:
    """Policies that are not wanted any more go, also those that a switched-off chart value left behind."""
    wanted = policies(job, draft.observed.api_server) if job.is_isolated else []
    names = {policy["metadata"]["name"] for policy in wanted}
    draft.apply(*wanted)
    draft.delete("NetworkPolicy", (old for old in draft.observed.network_policies if name_of(old) not in names))
