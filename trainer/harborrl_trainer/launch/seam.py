"""What a launch is made from, beside the job, and what it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Start:
    """One incarnation's places, and where it begins; the caller has looked at the disk already."""

    attempt: int
    incarnation: int
    traces: Path
    """Directory for dumps (`--dump-details`)."""
    checkpoints: Path
    """Directory for this incarnation's checkpoints (`--save`)."""
    files: Path
    """Directory for the files of `Launch.files`, and for `prompts.jsonl` when the job names task directories instead of
    a data set; on a volume that every node mounts, since engines on other nodes read it too."""
    load: Path | None = None
    """What is continued, a directory with Miles' tracker file; None: the model."""
    adapter: Path | None = None
    """LoRA adapter's directory that is continued, upon the model that the first incarnation began with."""
    start_rollout: int = 0
    """Id of the first rollout. Without `load` the arguments begin at 0 all the same."""
    code: Path = Path("/opt/harborrl/light")
    """Directory with our packages for Miles' processes, first on PYTHONPATH."""
    optimizer: bool = True
    """Whether `load` holds optimizer state; False adds `--no-load-optim`."""


@dataclass(frozen=True)
class Adjustment:
    """A value that is not what was written, and why; printed for people."""

    what: str
    """Flag or field."""
    value: str
    reason: str


@dataclass(frozen=True)
class Launch:
    """All that a driver process needs; whoever executes it decides nothing."""

    argv: tuple[str, ...]
    """`argv[0]` is the script, relative to Miles' checkout: train.py or train_async.py."""
    env: Mapping[str, str]
    """Added to the pod's own environment; no secrets."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Absolute path -> text, to be written before the start."""
    adjustments: tuple[Adjustment, ...] = ()
    """All that is not as it was written, or is as it was written and hardly meant."""
    remarks: tuple[Adjustment, ...] = ()
    """Those of `adjustments` that are the user's to look at: raw arguments that are kept, and what that costs."""
    models: tuple[Path, ...] = ()
    """Directories of models that the engines load beside the job's own."""
