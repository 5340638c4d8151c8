"""What an engine of this version cannot do: refused by name, since a field that nobody reads costs a whole run."""

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.observed import Observed
from harborrl_operator.resolve import ResolvedJob


def engine_is_available(job: ResolvedJob, _: Observed) -> Verdict | None:
    """Miles' stock image carries neither our supervisor nor a driver: its pods would hold their GPUs for nothing."""
    if job.spec.trainer.engine != "miles" or job.settings.miles_image:
        return None
    return Verdict(
        Reason.ENGINE_UNAVAILABLE,
        "Engine miles has no driver in this version, and the installation names no image that brings one (chart value"
        " images.miles). Set trainer.engine: native.",
    )
