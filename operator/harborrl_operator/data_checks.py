"""What can be said of a job's data sets by their names alone."""

from pathlib import PurePosixPath

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.observed import Observed
from harborrl_operator.resolve import ResolvedJob


def data_sets_are_jsonl(job: ResolvedJob, _: Observed) -> Verdict | None:
    """Miles chooses its reader by the suffix; the preflight and the native engine read JSONL and nothing else."""
    spec = job.spec
    named = {"data.jsonl": spec.data.jsonl, "eval.jsonl": spec.eval.jsonl if spec.eval else None}
    for field, path in named.items():
        if path is not None and PurePosixPath(path).suffix != ".jsonl":
            return Verdict(
                Reason.DATA_INVALID,
                f"{field} is {path}, which does not end in .jsonl. Make one with `harborrl data prepare`, which reads"
                " Parquet, JSON, gzip and data sets of a hub, and name that.",
            )
    return None
