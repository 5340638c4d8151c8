"""The double as an Edition of the harness."""

from miles.rollout.base_types import GenerateFnInput, GenerateFnOutput
from miles.utils.types import Sample

from harborrl_trainer.miles.wrapper import Miles
from support.miles_double import generate
from support.miles_harness import Edition
from support.miles_sessions import recording_sessions

DOUBLE = Edition(
    parts=Miles(generate, GenerateFnOutput),
    sample=Sample,
    given=GenerateFnInput,
    sessions=recording_sessions,
)
