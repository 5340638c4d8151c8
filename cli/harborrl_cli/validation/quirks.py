"""Values of `trainer.config` and the raw arguments that are read as documented and yet are hardly meant."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pydantic.alias_generators import to_camel

from harborrl_cli.validation.findings import Finding
from harborrl_operator.models import JobSpec

_RAW = ("recipe_args", "extra_args", "custom_config_yaml")
_REFUSED_ELSEWHERE = ("global_batch_size",)
"""What an operator's check refuses with its numbers needs no warning beside it."""


def config_warnings(spec: JobSpec) -> Iterator[Finding]:
    """One for each value that the job itself sets; what a preset decides is not the job's to mend."""
    if find_spec("harborrl_trainer.config") is None:
        return
    config: Any = import_module("harborrl_trainer.config")
    explicit = spec.trainer.config.model_dump(exclude_unset=True)
    known = {field.name for field in fields(config.HarborFrameworkConfig)}
    given: Mapping[str, Any] = {
        **{name: value for name, value in explicit.items() if name in known and value is not None},
        **{name: getattr(spec.trainer, name) for name in _RAW},
        "n_nodes": spec.trainer.nodes,
    }
    said = {*explicit, *_RAW} - {*_REFUSED_ELSEWHERE}
    for quirk in config.warnings_of(config.HarborFrameworkConfig(**given)):
        if quirk.field in said:
            where = "spec.trainer" if quirk.field in _RAW else "spec.trainer.config"
            yield Finding(f"{where}.{to_camel(quirk.field)}", quirk.message, "warning")
