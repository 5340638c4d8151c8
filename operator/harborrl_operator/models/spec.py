"""`spec` of a HarborRLJob."""

from typing import Annotated, Literal

from pydantic import Field

from harborrl_operator.models.agent_server import AgentServerSpec, RolloutSpec
from harborrl_operator.models.base import PLACE, TEXT, WITHIN, Model, Path, Seconds, nested
from harborrl_operator.models.network import NetworkSpec
from harborrl_operator.models.sandbox import DnsLabel
from harborrl_operator.models.trainer import TrainerSpec

ROLES = ("models", "tasks", "checkpoints", "traces", "trials")
"""Volume roles; models and tasks are mounted read-only."""


class ModelSpec(Model):
    """The model that is trained."""

    path: Path
    """Directory of the Hugging Face model: absolute, or relative to the models volume."""
    ref_load: Path | None = None
    """Reference or initial weights in the engine's own format. Unset: converted from `path`."""
    type: Annotated[str, Field(min_length=1, max_length=128, json_schema_extra=TEXT)] | None = None
    """Model type of the engine's scripts, for example `glm4.7-flash`."""


class TaskSource(Model):
    """Harbor task directories from which the prompts are built."""

    root: Annotated[str, Field(max_length=1024, json_schema_extra=PLACE)] = ""
    """Directory of the task directories: absolute, or relative to the tasks volume. Default: the volume itself."""
    glob: Annotated[str, Field(min_length=1, max_length=256, json_schema_extra=WITHIN)] = "*"
    """Which directories below `root` are tasks: a pattern without `..`."""
    instruction_path: Annotated[str, Field(min_length=1, max_length=256, json_schema_extra=WITHIN)] = "instruction.md"
    """The prompt's file, relative to a task directory."""


class DataSpec(Model):
    """Prompts: exactly one of `jsonl` and `tasks`."""

    jsonl: Path | None = None
    """JSONL file: absolute, or relative to the tasks volume."""
    tasks: TaskSource | None = None
    """Build the prompts from Harbor task directories."""


class EvalSpec(Model):
    """Held-out evaluation; never trained on."""

    jsonl: Path
    """JSONL file: absolute, or relative to the tasks volume."""
    interval: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    """Rollouts between evaluations. Default 20: each costs a pass over the whole set."""
    samples_per_prompt: Annotated[int, Field(ge=1, le=1024)] = 1
    """Trials of each prompt. Default 1; an evaluation sends prompts x this at once, and what exceeds the slots
    waits.
    """


class Volume(Model):
    """A PersistentVolumeClaim in the job's namespace, never owned by the job."""

    pvc: DnsLabel
    """Claim name."""
    sub_path: Annotated[str, Field(pattern=r"^([^/].*)?$", max_length=1024, json_schema_extra=WITHIN)] = ""
    """Directory inside the claim, relative. Default: its root."""


class StorageSpec(Model):
    """Claims by role. A role that names none uses the operator's default claim, in a directory named after the role."""

    models: Volume | None = None
    """Models, read-only."""
    tasks: Volume | None = None
    """Task directories and JSONL files, read-only."""
    checkpoints: Volume | None = None
    """Checkpoints: what a resume needs."""
    traces: Volume | None = None
    """Rollout and train dumps, driver log, metrics."""
    trials: Volume | None = None
    """Trial records and Harbor's own trial directories."""


class CheckpointSpec(Model):
    """When checkpoints are pruned and awaited."""

    keep: Annotated[int, Field(ge=1, le=1000)] = 3
    """Complete checkpoints to keep. Default 3: a torn newest one still leaves two. An older one goes only after a
    newer one is verified.
    """
    grace_seconds: Seconds = 120
    """Time that a stopping trainer gets to save, s; what is not saved by then is collected again. Default 120."""
    suspend_wait_seconds: Seconds = 3600
    """Longest wait for a checkpoint before a suspend releases the GPUs: Miles saves at the end of a step, the native
    engine at once. What is not saved by then is lost, and said."""


class ResumeFrom(Model):
    """Continue another run: exactly one of `job` and `path`."""

    job: DnsLabel | None = None
    """Name of the other HarborRLJob in this namespace."""
    path: Path | None = None
    """Checkpoint directory: absolute, or relative to the checkpoints volume."""


class ProgressSpec(Model):
    """When a run counts as stalled."""

    stall_factor: Annotated[int, Field(ge=2, le=100)] = 3
    """Stalled after this many medians of the run's own rollout time, and never before the trial ceiling."""
    on_stall: Literal["Report", "Restart"] = "Report"
    """`Report` sets the condition and leaves the run alone, hence the default; `Restart` ends the attempt as an
    infrastructure failure, once no trial moves either: none ended, and the oldest that runs is past its ceiling.
    """


class RetrySpec(Model):
    """How often a failed attempt is followed by another; each class of failure has a budget of its own."""

    max_attempts: Annotated[int, Field(ge=1, le=99)] = 3
    """Attempts that infrastructure may cost (nodes, pods, the agent server); the last one of them fails the job.
    Counted from 1 again when the run has trained on for a day and saved a newer checkpoint since the one before."""
    max_application_failures: Annotated[int, Field(ge=1, le=99)] = 2
    """The same for failures of the driver itself: one retry, since most of them are met again. One that is met again at
    the same rollout with the same message is not tried a third time whatever this says."""
    max_storage_failures: Annotated[int, Field(ge=1, le=99)] = 1
    """The same for full and broken volumes: none by default, since a person has to make room first."""
    keep_cluster_seconds: Annotated[int, Field(ge=0, le=604_800)] = 0
    """Keep the RayCluster of the last attempt this long after the job has failed for good, to look into its pods. Its
    GPUs stay held meanwhile. 0 releases at once; a success and a deadline always do."""


class JobSpec(Model):
    """What a researcher asks for."""

    suspend: bool = False
    """Release everything and keep the state; set back to false to go on from the newest checkpoint."""
    queue_name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)] | None = None
    """Kueue LocalQueue of this namespace. Unset: no queueing, unless the namespace has a LocalQueue called `default`;
    `nodes > 1` then needs the chart's `defaults.gangScheduler` or `trainer.allowPartialStart`."""
    workload_priority_class: (
        Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)] | None
    ) = None
    """Kueue WorkloadPriorityClass: the order in the queue and who may take whose quota. Needs `queueName`. Can
    change while the job waits, not while it runs. Unset: the priority of the pods, 0 without one."""
    model: ModelSpec
    """The model that is trained."""
    data: DataSpec
    """Where prompts come from."""
    eval: EvalSpec | None = None
    """Held-out evaluation. Unset: none."""
    trainer: TrainerSpec = nested(TrainerSpec)
    """The training cluster."""
    rollout: RolloutSpec = nested(RolloutSpec)
    """The trainer's side of a trial."""
    agent_server: AgentServerSpec = nested(AgentServerSpec)
    """The server that runs trials."""
    storage: StorageSpec = nested(StorageSpec)
    """Claims by role."""
    network: NetworkSpec = nested(NetworkSpec)
    """Traffic beyond what HarborRL itself needs; all else is denied (docs/network.md)."""
    checkpoint: CheckpointSpec = nested(CheckpointSpec)
    """When checkpoints are pruned and awaited."""
    resume_from: ResumeFrom | None = None
    """Continue another run; the only way to do so."""
    progress: ProgressSpec = nested(ProgressSpec)
    """When a run counts as stalled, and what follows."""
    retries: RetrySpec = nested(RetrySpec)
    """How often a failed attempt is followed by another."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=31_536_000)] | None = None
    """Longest time from the first attempt to the end, suspended, queued and refused time excluded; then the job
    fails. Unset: none."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31_536_000)] | None = None
    """Delete the finished job after this time, and with it whatever `retries.keepClusterSeconds` still keeps; volumes
    stay. Unset: keep the job."""
