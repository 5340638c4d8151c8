"""The job document: what the operator resolved from a HarborRLJob, as typed, frozen values (docs/contracts.md).

Field names are the snake_case of the document's camelCase. Unknown fields are ignored: a newer operator may add some.
"""

from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from harborrl_trainer.errors import ConfigurationError

DEFAULT_PATH = Path("/etc/harborrl/job.json")
SCHEMA_VERSION = 1


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError(f"'{path}' is not an absolute path")
    return path


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise ValueError(f"'{path}' is not a relative path below the volume")
    return path


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
RelativePath = Annotated[str, AfterValidator(_inside)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Port = Annotated[int, Field(ge=1, le=65535)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, allow_inf_nan=False)


class JobIdentity(_Part):
    namespace: str
    name: str
    uid: str
    generation: int = 0


class Model(_Part):
    path: AbsolutePath
    """Directory with config.json, tokenizer and weights in Hugging Face form."""
    ref_load: AbsolutePath | None = None
    """Reference and first weights in the engine's own format (Miles: a `torch_dist` checkpoint); unset: `path`."""
    type: str | None = None
    """Model type of the engine's scripts, for example `glm4.7-flash`; unset: the preset's."""


class TaskSource(_Part):
    root: AbsolutePath
    """Directory whose children are Harbor task directories."""
    glob: str = "*"
    """Which children are trained on, relative to `root`."""
    instruction_path: RelativePath = "instruction.md"
    """File inside a task directory that becomes the prompt."""


class Data(_Part):
    jsonl: AbsolutePath | None = None
    """Rows `{prompt, metadata: {instance_id, ...}}`."""
    tasks: TaskSource | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> "Data":
        if (self.jsonl is None) == (self.tasks is None):
            raise ValueError("exactly one of jsonl and tasks must be set")
        return self


class Evaluation(_Part):
    jsonl: AbsolutePath
    """Held-out rows, never trained on."""
    interval: Count = 20
    """Rollouts between two evaluations."""
    samples_per_prompt: Count = 1


class TrainingConfig(_Part):
    """The HarborFrameworkConfig fields that the native engine reads; defaults are the documented literal ones."""

    num_rollout: Count = 200
    """Rollouts (steps) of the whole run, counted from 0 over all attempts; absolute, so a resume does not change it."""
    rollout_batch_size: Count = 64
    """Groups a rollout; one group is one prompt."""
    n_samples_per_prompt: Count = 8
    """Trajectories a group. With 1 every advantage is zero."""
    global_batch_size: Count = 512
    """Trajectories an optimizer step."""
    micro_batch_size: Count = 1
    """Trajectories a forward and backward pass; bounds memory only."""
    save_interval: Count = 10
    """Rollouts between two checkpoints; the last rollout is always saved."""
    lr: Annotated[float, Field(gt=0)] = 1e-6
    adam_beta1: Share = 0.9
    adam_beta2: Share = 0.95
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    clip_grad: Annotated[float, Field(ge=0)] = 1.0
    """Largest global gradient norm; 0 means unclipped."""
    eps_clip: Annotated[float, Field(ge=0)] = 0.2
    """Half width of the interval that the probability ratio is clipped to."""
    kl_coef: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the KL penalty against the reference model; 0 loads no reference model."""
    normalize_advantages: bool = False
    no_save_optim: bool = True
    """True leaves Adam's moments out of checkpoints: smaller, but a resume starts with cold moments."""
    seed: int = 1234
    rollout_temperature: Annotated[float, Field(gt=0)] = 1.0
    rollout_max_response_len: Count = 1024
    """Tokens a single turn may generate; `maxSeqLen` bounds the trajectory."""
    rollout_shuffle: bool = True
    enable_thinking: bool = True


class ResolvedConfig(TrainingConfig):
    """All that `trainer.config` holds: what Miles reads beyond what both engines read."""

    colocate: bool = True
    actor_nodes: Annotated[int, Field(ge=0)] | None = None
    rollout_num_gpus: int | None = None
    app_tags: dict[str, Any] = {}
    advantage_estimator: str = "grpo"
    lr_decay_style: str = "constant"
    bf16: bool = True
    attention_softmax_in_fp32: bool = True
    attention_dropout: Annotated[float, Field(ge=0, le=1)] = 0.0
    hidden_dropout: Annotated[float, Field(ge=0, le=1)] = 0.0
    megatron_to_hf_mode: str = "bridge"
    agent_model_name: str = "model"
    input_key: str = "prompt"
    label_key: str = "metadata"
    apply_chat_template: bool = True
    recompute_granularity: str = "selective"
    max_position_embeddings: Count = 32768
    untie_embeddings_and_output_weights: bool | None = None
    """Unset: follows the model's own configuration."""
    no_masked_softmax_fusion: bool = True
    sglang_mem_fraction_static: Annotated[float, Field(ge=0, le=1)] = 0.7
    train_iters: Count = 50
    eval_interval: Annotated[int, Field(ge=0)] | None = None
    """Unset: nothing is evaluated."""
    miles_src_commit: str = "9a003644739f4e6dd509e2e8337e8ae7e571941c"
    """Commit of Miles in the image."""


class Lora(_Part):
    """Adapters instead of full fine-tuning; a checkpoint then holds the adapter alone."""

    rank: Count
    alpha: Annotated[float, Field(ge=0)]
    target_modules: Annotated[tuple[str, ...], Field(min_length=1)]


class Parallelism(_Part):
    """Ways to split the model; unset ones are the preset's, else 1."""

    tp: Count | None = None
    pp: Count | None = None
    cp: Count | None = None
    ep: Count | None = None
    etp: Count | None = None


class Ports(_Part):
    session: Port = 30000
    session_count: Count = 1
    router: Port = 31000


class Rollout(_Part):
    agent_trial_timeout_seconds: Seconds = 7200
    """The client's ceiling for one `/run`, queueing included. It must clear the sum of `agentServer.budgets` (I1)."""
    on_agent_timeout: Literal["grade", "zero", "abort"] = "grade"


class Budgets(_Part):
    """Hard caps of a trial's five phases in the agent server, seconds."""

    environment_start_seconds: Seconds = 600
    agent_setup_seconds: Seconds = 360
    agent_timeout_seconds: Seconds = 5400
    verifier_seconds: Seconds = 600
    cleanup_seconds: Seconds = 60

    @property
    def total_seconds(self) -> float:
        return (
            self.environment_start_seconds
            + self.agent_setup_seconds
            + self.agent_timeout_seconds
            + self.verifier_seconds
            + self.cleanup_seconds
        )


class Amounts(_Part):
    """Requests and limits by Kubernetes resource name, as quantities."""

    requests: dict[str, int | str] = {}
    limits: dict[str, int | str] = {}


class Images(_Part):
    map: dict[str, str] = {}
    template: str | None = None


class Sandbox(_Part):
    """What preflight needs of the resolved `agentServer.sandbox`."""

    backend: str = "kubernetes"
    images: Images = Images()
    limits: Amounts = Amounts()
    """`limits` of it: most that a task may ask for."""
    defaults: Amounts = Amounts()
    """What a task gets that asks for nothing."""
    node_selector_for_gpu: dict[str, dict[str, str]] = {}
    """By the name of a GPU that tasks use (`gpu_types`)."""
    private_hosts: list[str] = []
    """Private networks that a task's `allowed_hosts` may name, as CIDRs."""


class AgentServer(_Part):
    url: Annotated[str, Field(pattern=r"^https?://")]
    owned: bool = True
    """False: the user's own server (`agentServer.url` of the spec); its live values count, not this document's."""
    max_concurrent: Count = 32
    agent_name: str = "bash"
    agent_kwargs: dict[str, Any] = {}
    budgets: Budgets = Budgets()
    promised: Annotated[int, Field(ge=0)] = 0
    """Slots of a shared server that other jobs were promised."""
    sandbox: Sandbox = Sandbox()
    sandbox_image: str | None = None
    """Image of tasks for which nothing else gives one."""
    reward_key: str | None = None
    """Which key of a verifier's several rewards is trained on; null where the verifier gives one."""


class Storage(_Part):
    """Where each volume is mounted. Models and tasks are read-only."""

    models: AbsolutePath
    tasks: AbsolutePath
    checkpoints: AbsolutePath
    traces: AbsolutePath
    trials: AbsolutePath


class Checkpoint(_Part):
    keep: Count = 3
    """Complete checkpoints kept; an older one goes only after a newer one is whole."""
    grace_seconds: Annotated[float, Field(ge=0)] = 120
    """Time for a last checkpoint when the pod is told to end."""
    suspend_wait_seconds: Seconds = 3600
    """Longest wait for the checkpoint that a suspend asks for."""


class ResumeFrom(_Part):
    """The only way to continue another run; the operator turns a job's name into its run's path."""

    path: str
    """Run or checkpoint directory: absolute, or relative to the checkpoints volume."""


class KnownCheckpoint(_Part):
    """The newest checkpoint that anybody saw of this run: what its volume must still hold."""

    rollout_id: Annotated[int, Field(ge=0)]
    path: str | None = None
    """Relative to the checkpoints volume."""


class JobDocument(_Part):
    schema_version: Literal[1]
    job: JobIdentity
    attempt: Count = 1
    engine: Literal["native", "miles"]
    mode: Literal["sync", "async"] = "sync"
    preset: str | None = None
    """Named set of engine arguments; ranks below what is set explicitly."""
    image: str = ""
    """Trainer image: for Miles it decides which flags are known."""
    model: Model
    data: Data
    eval: Evaluation | None = None
    config: ResolvedConfig = ResolvedConfig()
    explicit_config: tuple[str, ...] = ()
    """Names (camelCase) of the fields of `config` that the user wrote: those alone rank above a preset."""
    recipe_args: str = ""
    """Raw engine flags; rank above `config`."""
    extra_args: str = ""
    """More of them; rank above `recipe_args`."""
    custom_config_yaml: str = ""
    """A mapping of engine arguments; ranks highest."""
    env_names: tuple[str, ...] = ()
    """Names of `trainer.env`; the values reach the pods alone."""
    lora: Lora | None = None
    parallelism: Parallelism | None = None
    max_seq_len: Annotated[int, Field(ge=2)]
    """Tokens a trajectory, prompt included."""
    nodes: Count = 1
    gpus_per_node: Annotated[int, Field(ge=0)] = 0
    ports: Ports = Ports()
    trainer_host: str
    """Stable name under which sandboxes and the agent server reach the session server."""
    rollout: Rollout = Rollout()
    in_flight: Count | None = None
    """Trials that all layers of the arguments keep in flight; unset: `rolloutBatchSize x nSamplesPerPrompt`."""
    agent_server: AgentServer
    storage: Storage
    run_path: RelativePath
    """`<namespace>/<name>-<first 8 of uid>`, the run's folder on each writable volume."""
    checkpoint: Checkpoint = Checkpoint()
    resume_from: ResumeFrom | None = None
    known_checkpoint: KnownCheckpoint | None = None
    """Null before the first one of this run."""
    progress_config_map: str | None = None


def parse_job(text: str | bytes, source: str = "job.json") -> JobDocument:
    """The document in `text`; a ConfigurationError is one line that names the first wrong field by its path."""
    try:
        return JobDocument.model_validate_json(text)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        path = ".".join(str(part) for part in problems[0]["loc"]) or "the document"
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ConfigurationError(
            f"{source}: {path}: {_sentence(problems[0]['msg'])}{more}; correct the HarborRLJob's spec, "
            "or if it is right bring the operator and the trainer image to the same version"
        ) from error


def read_job(path: Path = DEFAULT_PATH) -> JobDocument:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot read the job document ({error.strerror}); "
            "mount ConfigMap <job>-config there or set HARBORRL_JOB"
        ) from error
    return parse_job(text, str(path))


def _sentence(message: str) -> str:
    return " ".join(message.removeprefix("Value error, ").split())
