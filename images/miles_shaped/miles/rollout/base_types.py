"""What Miles hands to a generate function, and takes back."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Any

from miles.utils.types import Sample


@dataclass(frozen=True)
class GenerateFnInput:
    state: Any
    sample: Sample
    sampling_params: dict[str, Any]
    evaluation: bool

    @property
    def args(self) -> Namespace:
        arguments: Namespace = self.state.args
        return arguments


@dataclass(frozen=True)
class GenerateFnOutput:
    samples: Sample | list[Sample]
