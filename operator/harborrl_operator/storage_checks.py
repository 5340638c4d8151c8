"""The volumes that a job names exist, and every pod of it can mount them."""

from collections.abc import Callable

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.observed import Object, Observed
from harborrl_operator.resolve import ResolvedJob

READ_ONLY_ROLES = ("models", "tasks")
"""Volume roles that no pod of the job writes to."""


def claims_exist(job: ResolvedJob, observed: Observed) -> Verdict | None:
    missing: dict[str, list[str]] = {}
    for role, volume in job.volumes.items():
        if observed.claims.get(volume.pvc) is None:
            missing.setdefault(volume.pvc, []).append(role)
    if not missing:
        return None
    what = "; ".join(f"{claim} (for {', '.join(roles)})" for claim, roles in missing.items())
    return Verdict(
        Reason.CLAIM_NOT_FOUND,
        f"No PersistentVolumeClaim in namespace {job.job.namespace}: {what}. Create it, or name another in"
        " spec.storage.",
    )


def resume_source_exists(job: ResolvedJob, _: Observed) -> Verdict | None:
    source = job.spec.resume_from
    if source is None or job.resume_path is not None:
        return None
    return Verdict(
        Reason.RESUME_SOURCE_INVALID,
        f"resumeFrom.job: no HarborRLJob {source.job} in namespace {job.job.namespace}. If it was deleted, name its run"
        " directory on the checkpoints volume in resumeFrom.path.",
    )


def claims_reach_all_pods(job: ResolvedJob, observed: Observed) -> Verdict | None:
    """I11: pods that share a node-bound claim are kept on one node, which several GPU nodes cannot be."""
    alone = _claims_with(observed, lambda modes: modes == ["ReadWriteOncePod"])
    if alone:
        return Verdict(
            Reason.CLAIM_NOT_SHARED,
            f"Claim {alone} has access mode ReadWriteOncePod, but the agent server, the preflight and the trainer mount"
            " it at once. Use a claim with ReadWriteMany, or ReadWriteOnce on one node.",
        )
    if job.spec.trainer.nodes == 1 or job.gpus_per_node == 0:
        return None
    written = {volume.pvc for role, volume in job.volumes.items() if role not in READ_ONLY_ROLES}
    bound = sorted(
        claim
        for claim, found in observed.claims.items()
        if found is not None and is_node_bound(found) and (claim in written or not _is_read_by_many(found))
    )
    if not bound:
        return None
    return Verdict(
        Reason.CLAIM_NOT_SHARED,
        f"{job.spec.trainer.nodes} trainer nodes share claim {', '.join(bound)}, which one node alone can mount."
        " Use claims with access mode ReadWriteMany (ReadOnlyMany will do for models and tasks).",
    )


def _claims_with(observed: Observed, holds: Callable[[list[str]], bool]) -> str:
    found = ((name, claim) for name, claim in observed.claims.items() if claim is not None)
    return ", ".join(sorted(name for name, claim in found if holds(claim["spec"].get("accessModes", []))))


def _is_read_by_many(claim: Object) -> bool:
    return "ReadOnlyMany" in claim["spec"].get("accessModes", [])


def is_node_bound(claim: Object) -> bool:
    return "ReadWriteMany" not in claim["spec"].get("accessModes", [])
