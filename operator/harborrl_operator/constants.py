"""Names that users and other parts rely on: group, labels, phases, condition types and the closed list of reasons."""

from enum import StrEnum

GROUP = "harborrl.dev"
VERSION = "v1alpha1"
KIND = "HarborRLJob"
PLURAL = "harborrljobs"
API_VERSION = f"{GROUP}/{VERSION}"

FIELD_MANAGER = "harborrl-operator"
"""One manager for every server-side apply, so that a field that we stop sending goes away."""

LABEL_JOB = f"{GROUP}/job"
LABEL_JOB_NAMESPACE = f"{GROUP}/job-namespace"
LABEL_JOB_UID = f"{GROUP}/job-uid"
LABEL_ROLE = f"{GROUP}/role"
LABEL_ATTEMPT = f"{GROUP}/attempt"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_SANDBOXES = f"{GROUP}/sandboxes"
"""A namespace labelled `true` may be named in `agentServer.sandbox.namespace`; without it any user could
have the operator bind exec rights in kube-system."""
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
LABEL_WORKLOAD_PRIORITY = "kueue.x-k8s.io/priority-class"
LABEL_WORKLOAD_OWNER = "kueue.x-k8s.io/job-uid"
"""On Kueue's Workloads: uid of the RayCluster or pod that it decides about."""
ADMISSION_GATE = "kueue.x-k8s.io/admission"
"""Scheduling gate of a pod that Kueue holds back."""
GPU_RESOURCE = "nvidia.com/gpu"
MANAGED_BY = "harborrl"

ANNOTATION_CONFIG = f"{GROUP}/config-hash"
"""Hash of the job document that a preflight pod or RayCluster was made from."""

ANNOTATION_NO_HEAD_RESTART = "ray.io/disable-provisioned-head-restart"
"""Heeded by KubeRay 1.6 and newer: `true` leaves a RayCluster without a head once its head is lost."""

UID = 10001
"""User and group of our images; volumes are mounted with it as fsGroup."""
JOB_FILE = "/etc/harborrl/job.json"
RUN_DIR = "/run/harborrl"
"""emptyDir shared by the head's Ray container and its supervisor: `terminating` and `released` (docs/contracts.md)."""
AGENT_PORT = 30000
GCS_PORT, DASHBOARD_PORT, DASHBOARD_AGENT_PORT = 6379, 8265, 52365
RAY_PORTS = frozenset({GCS_PORT, DASHBOARD_PORT, DASHBOARD_AGENT_PORT})
"""Ports of Ray in every head pod."""


class Role(StrEnum):
    """Value of the role label."""

    AGENT_SERVER = "agent-server"
    PREFLIGHT = "preflight"
    TRAINER = "trainer"
    SANDBOX = "sandbox"
    ANCHOR = "anchor"


class Phase(StrEnum):
    """One word for `kubectl get`; conditions carry the truth."""

    PENDING = "Pending"
    REFUSED = "Refused"
    STARTING_AGENT_SERVER = "StartingAgentServer"
    PREFLIGHT = "Preflight"
    QUEUED = "Queued"
    STARTING_TRAINER = "StartingTrainer"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"


class ConditionType(StrEnum):
    """In the order in which `kubectl describe` shows them."""

    ADMITTED = "Admitted"
    AGENT_SERVER_READY = "AgentServerReady"
    TRAINER_READY = "TrainerReady"
    PROGRESSING = "Progressing"
    CAPACITY_TIGHT = "CapacityTight"
    STALLED = "Stalled"
    RESUMED = "Resumed"
    LOW_SPACE = "LowSpace"
    SUSPENDED = "Suspended"
    FINISHED = "Finished"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Cause(StrEnum):
    """What ended an attempt, beside its failure class; docs/conditions.md explains each."""

    CLUSTER_DELETED = "ClusterDeleted"
    CONTAINER_FAILED = "ContainerFailed"
    DRIVER_FAILED = "DriverFailed"
    DRIVER_STOPPED = "DriverStopped"
    EVICTED = "Evicted"
    NODE_LOST = "NodeLost"
    NODE_SHUTDOWN = "NodeShutdown"
    OOM_KILLED = "OOMKilled"
    OUT_OF_MEMORY = "OutOfMemory"
    POD_DELETED = "PodDeleted"
    PREEMPTED = "Preempted"
    RESTART_AT_ZERO = "RestartAtZero"
    STALLED = "Stalled"


class Reason(StrEnum):
    """Every reason that a condition may carry; docs/conditions.md explains each (a test compares the two)."""

    # Admitted: the operator's own checks
    ADMITTED = "Admitted"
    AWAITING_PREFLIGHT = "AwaitingPreflight"
    INVALID_SPEC = "InvalidSpec"
    INVALID_ARGUMENTS = "InvalidArguments"
    RESERVED_ARGUMENT = "ReservedArgument"
    PLAIN_SECRET = "PlainSecret"  # noqa: S105 - a reason, no secret
    BUDGET_EXCEEDS_CEILING = "BudgetExceedsCeiling"
    CONCURRENCY_BELOW_IN_FLIGHT = "ConcurrencyBelowInFlight"
    SANDBOX_LIFE_TOO_SHORT = "SandboxLifeTooShort"
    SANDBOX_NAMESPACE_NOT_ALLOWED = "SandboxNamespaceNotAllowed"
    SANDBOX_BACKEND_UNSUPPORTED = "SandboxBackendUnsupported"
    PARTIAL_START_NOT_ALLOWED = "PartialStartNotAllowed"
    ENGINE_UNAVAILABLE = "EngineUnavailable"
    ENGINE_MISMATCH = "EngineMismatch"
    FIELD_UNSUPPORTED = "FieldUnsupported"
    BATCH_MISMATCH = "BatchMismatch"
    PORT_CONFLICT = "PortConflict"
    NAME_TAKEN = "NameTaken"
    CLAIM_NOT_FOUND = "ClaimNotFound"
    CLAIM_NOT_SHARED = "ClaimNotShared"
    # Admitted: preflight's findings, in the trainer's words (docs/contracts.md)
    AGENT_SERVER_UNHEALTHY = "AgentServerUnhealthy"
    CAPACITY_TOO_SMALL = "CapacityTooSmall"
    TIMEOUT_ORDER = "TimeoutOrder"
    MODEL_NOT_FOUND = "ModelNotFound"
    MODEL_NOT_READABLE = "ModelNotReadable"
    MODEL_INCOMPLETE = "ModelIncomplete"
    DATA_NOT_FOUND = "DataNotFound"
    DATA_INVALID = "DataInvalid"
    NO_TASKS = "NoTasks"
    TASK_NOT_FOUND = "TaskNotFound"
    TASK_INVALID = "TaskInvalid"
    TASK_WITHOUT_VERIFIER = "TaskWithoutVerifier"
    PROMPT_EMPTY = "PromptEmpty"
    VOLUME_NOT_READABLE = "VolumeNotReadable"
    VOLUME_NOT_WRITABLE = "VolumeNotWritable"
    LOW_SPACE = "LowSpace"
    RESUME_SOURCE_INVALID = "ResumeSourceInvalid"
    CHECK_TIMED_OUT = "CheckTimedOut"
    PREFLIGHT_REFUSED = "PreflightRefused"
    PREFLIGHT_CRASHED = "PreflightCrashed"
    # a child cannot start
    APPLY_FAILED = "ApplyFailed"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    UNSCHEDULABLE = "Unschedulable"
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    CRASH_LOOP = "CrashLoop"
    POD_FAILED = "PodFailed"
    PODS_REFUSED = "PodsRefused"
    POD_STUCK = "PodStuck"
    KUBERAY_SILENT = "KubeRaySilent"
    # AgentServerReady, TrainerReady
    STARTING = "Starting"
    READY = "Ready"
    EXTERNAL_SERVER = "ExternalServer"
    NOT_STARTED = "NotStarted"
    QUEUED = "Queued"
    EVICTED = "Evicted"
    ADMITTED_BUT_SUSPENDED = "AdmittedButSuspended"
    HELD_BY_QUEUE = "HeldByQueue"
    RESTARTING_IN_PLACE = "RestartingInPlace"
    FIELD_NOT_SUPPORTED = "FieldNotSupported"
    WAITING_FOR_OLD_PODS = "WaitingForOldPods"
    BACKING_OFF = "BackingOff"
    RELEASED = "Released"
    KEPT_FOR_DEBUGGING = "KeptForDebugging"
    # Progressing, CapacityTight, Stalled
    ROLLOUTS_ADVANCING = "RolloutsAdvancing"
    WAITING_FOR_FIRST_ROLLOUT = "WaitingForFirstRollout"
    NOT_RUNNING = "NotRunning"
    NO_PROGRESS = "NoProgress"
    PROGRESS_UNREADABLE = "ProgressUnreadable"
    AGENT_SERVER_BUSY = "AgentServerBusy"
    MOVING = "Moving"
    CAPACITY_TIGHT = "CapacityTight"
    BURST_EXCEEDS_CAPACITY = "BurstExceedsCapacity"
    CAPACITY_SUFFICIENT = "CapacitySufficient"
    # Resumed, LowSpace
    STARTED_FROM_MODEL = "StartedFromModel"
    RESUMED_FROM_CHECKPOINT = "ResumedFromCheckpoint"
    RESUMED_WITHOUT_OPTIMIZER = "ResumedWithoutOptimizer"
    RESUMED_FROM_OLDER_CHECKPOINT = "ResumedFromOlderCheckpoint"
    SPACE_SUFFICIENT = "SpaceSufficient"
    # Suspended
    SUSPENDED = "Suspended"
    SUSPENDING = "Suspending"
    CHECKPOINT_MISSED = "CheckpointMissed"
    NOT_SUSPENDED = "NotSuspended"
    # Finished, Succeeded, Failed
    NOT_FINISHED = "NotFinished"
    COMPLETED = "Completed"
    NOT_SUCCEEDED = "NotSucceeded"
    NOT_FAILED = "NotFailed"
    CONFIGURATION_FAILURE = "ConfigurationFailure"
    STORAGE_FAILURE = "StorageFailure"
    RESTART_AT_ZERO = "RestartAtZero"
    INFRASTRUCTURE_FAILURE = "InfrastructureFailure"
    APPLICATION_FAILURE = "ApplicationFailure"
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
    ACTIVE_DEADLINE_EXCEEDED = "ActiveDeadlineExceeded"
