"""The resource as typed models: parse at the door, and generate CRD and reference from the same source."""

from harborrl_operator.models.job import HarborRLJob, InvalidJobError, parse_job
from harborrl_operator.models.settings import Settings
from harborrl_operator.models.spec import JobSpec
from harborrl_operator.models.status import Condition, JobStatus

__all__ = ["Condition", "HarborRLJob", "InvalidJobError", "JobSpec", "JobStatus", "Settings", "parse_job"]
