"""What a preflight check found, in short."""

from harborrl_trainer.preflight.findings import Outcome
from support import reached


def told(outcome: Outcome) -> list[tuple[str, str]]:
    reached.note_outcome(outcome)
    return [(finding.severity, finding.reason) for finding in outcome.findings]


def only_message(outcome: Outcome) -> str:
    (finding,) = outcome.findings
    return finding.message
