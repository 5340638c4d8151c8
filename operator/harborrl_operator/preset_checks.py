"""Whether the Miles in the image can run what the job asks for: its preset, its mode, its session servers."""

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.miles_table import PRESETS, VERSIONS, version_in
from harborrl_operator.observed import Observed
from harborrl_operator.resolve import ResolvedJob


def miles_version_is_known(job: ResolvedJob, _: Observed) -> Verdict | None:
    if job.spec.trainer.engine != "miles" or job.miles_version is not None:
        return None
    return Verdict(
        Reason.ENGINE_UNAVAILABLE,
        f"trainer.config.milesSrcCommit: Miles {job.config['milesSrcCommit']} is not among the versions that this"
        f" operator knows ({', '.join(version.short for version in VERSIONS.values())}). Name one of them, or leave it"
        " out.",
    )


def image_holds_the_commit(job: ResolvedJob, _: Observed) -> Verdict | None:
    """Judged by the commit a job would be admitted, and its driver would end with the GPUs held."""
    named, held = job.miles_version, version_in(job.trainer_image)
    if job.spec.trainer.engine != "miles" or named is None or held is None or named == held:
        return None
    return Verdict(
        Reason.ENGINE_MISMATCH,
        f"trainer.config.milesSrcCommit names Miles {named.short}, and image {job.trainer_image} holds {held.short}."
        f" Set trainer.image to an image with Miles {named.short}, or leave milesSrcCommit out.",
    )


def preset_fits_version(job: ResolvedJob, _: Observed) -> Verdict | None:
    """A launcher's flags that the image's Miles does not know would end the run at its first line."""
    name, version = job.spec.trainer.preset, job.miles_version
    if job.spec.trainer.engine != "miles" or name is None or version is None:
        return None
    preset = PRESETS.get(name)
    if preset is None:
        return Verdict(
            Reason.PRESET_UNSUPPORTED,
            f"trainer.preset: there is no {name}. Choose one of {', '.join(PRESETS)}, or leave it out.",
        )
    missing = preset.missing[version.commit]
    if not missing:
        return None
    fitting = [VERSIONS[commit].short for commit, flags in preset.missing.items() if not flags]
    return Verdict(
        Reason.PRESET_UNSUPPORTED,
        f"trainer.preset {name} needs {len(missing)} flags that Miles {version.short} in image {job.trainer_image} does"
        f" not know ({', '.join(missing)}). Set trainer.image to an image with Miles {', '.join(fitting)} and"
        " trainer.config.milesSrcCommit to its commit, or choose another preset.",
    )


def mode_fits_miles(job: ResolvedJob, _: Observed) -> Verdict | None:
    trainer, version = job.spec.trainer, job.miles_version
    preset = PRESETS.get(trainer.preset or "")
    if trainer.engine != "miles" or version is None:
        return None
    if preset is not None and preset.mode != trainer.mode:
        return Verdict(
            Reason.ENGINE_MISMATCH,
            f"trainer.preset {preset.name} runs in mode {preset.mode}, and trainer.mode is {trainer.mode}. Set"
            f" trainer.mode: {preset.mode}.",
        )
    if trainer.mode == "async" and not version.fully_async:
        return Verdict(
            Reason.ENGINE_MISMATCH,
            f"trainer.mode async needs --fully-async, which Miles {version.short} in image {job.trainer_image} does not"
            " know. Set trainer.mode: sync, or an image with a newer Miles and milesSrcCommit to its commit.",
        )
    if trainer.ports.session_count > 1 and not version.session_port_range:
        return Verdict(
            Reason.ENGINE_MISMATCH,
            f"trainer.ports.sessionCount is {trainer.ports.session_count} and Miles {version.short} runs one session"
            " server. Set it to 1, or an image with a newer Miles and milesSrcCommit to its commit.",
        )
    return None
