"""A job as written -> the job as it will run: one JSON document for all parts, and what was adjusted and why."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harborrl_operator.arguments import RawArguments, read_raw_arguments
from harborrl_operator.constants import AGENT_PORT
from harborrl_operator.demand import Demand, demand_of
from harborrl_operator.miles_table import PRESETS, MilesPreset, MilesVersion, version_of
from harborrl_operator.models import HarborRLJob, Settings
from harborrl_operator.models.spec import ROLES, JobSpec, Volume
from harborrl_operator.models.status import Adjustment
from harborrl_operator.sandbox_defaults import IN_SANDBOXES, allowed_agents, resolved_sandbox
from harborrl_operator.second_try import no_second_try
from harborrl_operator.unreachable import unreachable

MOUNTS = {role: f"/mnt/{role}" for role in ROLES}
"""Where each role's volume is mounted in every pod."""

_CLIENT_FLAGS = frozenset({"custom_agent_function_path", "custom_generate_function_path"})

MAX_SEQ_LEN = 65536
"""Tokens of a trajectory where neither job nor preset says."""

_OURS_ALONE = {"start_deadline_seconds", "allow_partial_start"}
"""Fields of `trainer` that the operator reads in every pass and no pod knows."""


_SERVER_AS_THE_TRAINER_KNOWS_IT = ("url", "owned", "agentName")
"""It sends its trials there and names the agent in each: a running trainer would not hear of another."""


@dataclass(frozen=True)
class ResolvedJob:
    """Literal values after defaults and adjustments."""

    job: HarborRLJob
    settings: Settings
    raw: RawArguments
    config: Mapping[str, Any]
    """HarborFrameworkConfig fields in camelCase."""
    demand: Demand
    max_concurrent: int
    gpus_per_node: int
    trainer_image: str
    agent_server_image: str
    sandbox: Mapping[str, Any]
    """`agentServer.sandbox` with namespace, image and life filled in."""
    volumes: Mapping[str, Volume]
    adjustments: tuple[Adjustment, ...]
    miles_version: MilesVersion | None = None
    """Of the image, with engine miles; None also where nobody knows the commit that the job names."""
    resume_path: str | None = None
    """Checkpoint or run to continue, absolute or relative to the checkpoints volume."""
    promised: int = 0
    """Slots of a shared agent server that other jobs were promised."""

    @property
    def spec(self) -> JobSpec:
        return self.job.spec

    @property
    def is_isolated(self) -> bool:
        """Whether NetworkPolicies guard the job; those cannot name pods that use their node's network."""
        return self.settings.network.policies and not uses_host_network(self.spec)

    @property
    def trainer_host(self) -> str:
        return f"{self.job.names.trainer}.{self.job.namespace}.svc"

    @property
    def allowed_agents(self) -> tuple[str, ...]:
        """What a request may name: what the trainer names, unless the job says more."""
        return allowed_agents(self.spec)

    @property
    def own_client(self) -> tuple[str, ...]:
        """Flags by which the job replaces our agent client: nobody knows what another one sends."""
        return tuple(sorted(_CLIENT_FLAGS & self.raw.values.keys()))

    @property
    def needs_gateway(self) -> bool:
        """Whether an agent of the job asks its model from inside a sandbox of ours; one of the user's own may."""
        server = self.spec.agent_server
        return server.url is None and not (IN_SANDBOXES | server.agents.keys()).isdisjoint(self.allowed_agents)

    @property
    def agent_url(self) -> str:
        owned = f"http://{self.job.names.agent}.{self.job.namespace}.svc:{AGENT_PORT}"
        return (self.spec.agent_server.url or owned).rstrip("/")

    def document(self, attempt: int) -> dict[str, Any]:
        """The job document of docs/contracts.md."""
        spec = self.spec
        return {
            "schemaVersion": 1,
            "job": self._identity(),
            "attempt": attempt,
            "engine": spec.trainer.engine,
            "mode": spec.trainer.mode,
            "preset": spec.trainer.preset,
            "image": self.trainer_image,
            "model": _model(spec),
            "data": _data(spec),
            "eval": _evaluation(spec),
            "config": dict(self.config),
            "explicitConfig": sorted(_explicit(spec)),
            "recipeArgs": spec.trainer.recipe_args,
            "extraArgs": spec.trainer.extra_args,
            "customConfigYaml": spec.trainer.custom_config_yaml,
            "envNames": sorted(variable.name for variable in spec.trainer.env),
            "lora": self._lora(),
            "parallelism": _dump(spec.trainer.parallelism),
            "maxSeqLen": self.max_seq_len,
            "nodes": spec.trainer.nodes,
            "gpusPerNode": self.gpus_per_node,
            "ports": _dump(spec.trainer.ports),
            "trainerHost": self.trainer_host,
            "rollout": _dump(spec.rollout),
            "inFlight": self.demand.in_flight,
            "agentServer": self._agent_server(),
            "storage": dict(MOUNTS),
            "runPath": self.job.names.run_path,
            "checkpoint": _dump(spec.checkpoint),
            "resumeFrom": {"path": self.resume_path} if self.resume_path else None,
            "knownCheckpoint": self._known_checkpoint(),
            "progressConfigMap": self.job.names.progress,
        }

    def _known_checkpoint(self) -> dict[str, Any] | None:
        """What the next incarnation must find: a start behind it is refused, and nobody but the status remembers it."""
        known = self.job.status.checkpoint
        if known is None or known.rollout_id is None:
            return None
        return {"rolloutId": known.rollout_id, "path": known.path}

    @property
    def max_seq_len(self) -> int:
        """What the job says, else its preset, else 65536 tokens."""
        preset = preset_of(self.spec)
        return self.spec.trainer.max_seq_len or (preset.max_seq_len if preset else MAX_SEQ_LEN)

    def _lora(self) -> Any:
        """A preset that trains an adapter says which; the trainer goes on from adapters otherwise than from models."""
        preset = preset_of(self.spec)
        return _dump(self.spec.trainer.lora) or (preset.lora if preset else None)

    def _identity(self) -> dict[str, Any]:
        return {
            "namespace": self.job.namespace,
            "name": self.job.name,
            "uid": self.job.uid,
            "generation": self.job.generation,
        }

    def _agent_server(self) -> dict[str, Any]:
        server = self.spec.agent_server
        return {
            "url": self.agent_url,
            "owned": server.url is None,
            "maxConcurrent": self.max_concurrent,
            "promised": self.promised,
            "agentName": server.agent_name,
            "agentKwargs": server.agent_kwargs,
            "budgets": {
                "environmentStartSeconds": server.environment_start_seconds,
                "agentSetupSeconds": server.agent_setup_seconds,
                "agentTimeoutSeconds": server.agent_timeout_seconds,
                "verifierSeconds": server.verifier_seconds,
                "cleanupSeconds": server.cleanup_seconds,
            },
            "rewardKey": server.reward_key,
            "sandbox": dict(self.sandbox),
            "sandboxImage": self.settings.sandbox_image or None,
        }

    @cached_property
    def config_hash(self) -> str:
        """Changes when what runs changes: not with the generation, which counts a suspend too, nor with the attempt."""
        server = {**_dump(self.spec.agent_server), "image": self.agent_server_image}
        return _hash({**self._shape(), "agentServer": server})

    @cached_property
    def attempt_hash(self) -> str:
        """Changes when what an attempt keeps to its end changes: all but the agent server, which can be replaced."""
        shape = self._shape()
        server = shape["document"]["agentServer"]
        shape["document"]["agentServer"] = {name: server[name] for name in _SERVER_AS_THE_TRAINER_KNOWS_IT}
        return _hash(shape)

    @cached_property
    def shared_hash(self) -> str:
        """Changes when what trainer and agent server must hold alike changes: only then one waits for the other."""
        document = self._shape()["document"]
        return _hash(
            {
                "server": {name: document["agentServer"][name] for name in _SERVER_AS_THE_TRAINER_KNOWS_IT},
                "adminSecretRef": _dump(self.spec.agent_server.admin_secret_ref),
                "tasks": document["data"]["tasks"],
                "rollout": document["rollout"],
                "volumes": {role: _dump(self.volumes[role]) for role in ("tasks", "trials")},
            }
        )

    def _shape(self) -> dict[str, Any]:
        document = self.document(attempt=0)
        document["job"] = {**document["job"], "generation": 0}
        document["agentServer"] = {**document["agentServer"], "promised": 0}
        del document["knownCheckpoint"]  # it grows while the attempt runs
        document["checkpoint"] = {**document["checkpoint"], "suspendWaitSeconds": 0}  # ours alone
        return {
            "document": document,
            "adminSecretRef": _dump(self.spec.agent_server.admin_secret_ref),
            "trainer": self.spec.trainer.model_dump(by_alias=True, exclude=_OURS_ALONE),
            "volumes": {role: _dump(volume) for role, volume in self.volumes.items()},
        }


def resolve(job: HarborRLJob, settings: Settings, other_run: str | None = None) -> ResolvedJob:
    """`other_run` is the run directory of the job that `resumeFrom.job` names.

    Raises InvalidArgumentsError when raw flags or YAML cannot be read.
    """
    spec = job.spec
    adjustments: list[Adjustment] = []
    raw = read_raw_arguments(spec.trainer, evaluates=spec.eval is not None)
    image = spec.trainer.image or (settings.miles_image if spec.trainer.engine == "miles" else settings.trainer_image)
    config = _config(spec, adjustments)
    demand = demand_of(spec, config, raw)
    if settings.network.policies and uses_host_network(spec):
        adjustments.append(_adjust("network", "no policies", "they cannot name pods with podOverrides.hostNetwork"))
    max_concurrent = spec.agent_server.max_concurrent
    if max_concurrent is None:
        max_concurrent = demand.in_flight
        adjustments.append(
            _adjust("agentServer.maxConcurrent", max_concurrent, f"unset: what is in flight, {demand.formula}")
        )
    lacking = {"network.egress": unreachable(spec, settings), "second try of a trial": no_second_try(spec)}
    adjustments += [_adjust(what, "none", said) for what, said in lacking.items() if said]
    return ResolvedJob(
        job=job,
        settings=settings,
        raw=raw,
        config=config,
        demand=demand,
        max_concurrent=max_concurrent,
        gpus_per_node=gpus_per_node(spec),
        trainer_image=image,
        miles_version=_miles_version(spec, config, image, adjustments),
        agent_server_image=spec.agent_server.image or settings.agent_server_image,
        sandbox=resolved_sandbox(spec, settings, adjustments),
        volumes=_volumes(spec, settings, adjustments),
        adjustments=tuple(adjustments),
        resume_path=(spec.resume_from.path or other_run) if spec.resume_from else None,
    )


def preset_of(spec: JobSpec) -> MilesPreset | None:
    return PRESETS.get(spec.trainer.preset or "") if spec.trainer.engine == "miles" else None


def _miles_version(
    spec: JobSpec, config: Mapping[str, Any], image: str, adjustments: list[Adjustment]
) -> MilesVersion | None:
    """What the version cannot do is said, not refused: the run only recovers less well, or shows less."""
    if spec.trainer.engine != "miles":
        return None
    version = version_of(config["milesSrcCommit"], image, explicit="milesSrcCommit" in _explicit(spec))
    if version is None:
        return None
    if not version.saves_on_request:
        reason = f"Miles {version.short} saves on saveInterval alone: a suspend or preemption loses what came after"
        adjustments.append(_adjust("checkpoint on request", "none", reason))
    if "trajectory" not in version.dumps:
        adjustments.append(_adjust("traces/trajectory", "none", f"Miles {version.short} writes no trajectories"))
    return version


def uses_host_network(spec: JobSpec) -> bool:
    return any(pod.get("hostNetwork") is True for pod in (spec.trainer.pod_overrides, spec.agent_server.pod_overrides))


def _adjust(field: str, value: object, reason: str) -> Adjustment:
    return Adjustment(field=field, value=str(value), reason=reason)


def _explicit(spec: JobSpec) -> dict[str, Any]:
    return spec.trainer.config.model_dump(by_alias=True, exclude_unset=True)


def _config(spec: JobSpec, adjustments: list[Adjustment]) -> dict[str, Any]:
    explicit = _explicit(spec)
    config = _present(spec.trainer.config.model_dump(by_alias=True))
    preset = preset_of(spec)
    if preset is not None:
        config |= {**preset.config, **explicit}
    if spec.trainer.mode == "async" and "colocate" not in explicit:
        config["colocate"] = False
        adjustments.append(_adjust("trainer.config.colocate", "false", "mode async runs rollout beside training"))
    if spec.eval is None:
        config.pop("evalInterval")
        adjustments.append(_adjust("trainer.config.evalInterval", "omitted", "no eval data is set"))
    else:
        config["evalInterval"] = spec.eval.interval
    if "untieEmbeddingsAndOutputWeights" not in explicit:
        config.pop("untieEmbeddingsAndOutputWeights")
        adjustments.append(
            _adjust(
                "trainer.config.untieEmbeddingsAndOutputWeights", "omitted", "follows the model's own configuration"
            )
        )
    return config


def gpus_per_node(spec: JobSpec) -> int:
    if spec.trainer.gpus_per_node is not None:
        return spec.trainer.gpus_per_node
    return 8 if spec.trainer.engine == "miles" else 0


def _volumes(spec: JobSpec, settings: Settings, adjustments: list[Adjustment]) -> dict[str, Volume]:
    volumes: dict[str, Volume] = {}
    for role in ROLES:
        named = getattr(spec.storage, role)
        volumes[role] = named or Volume(pvc=settings.default_claim, sub_path=role)
        if named is None:
            adjustments.append(
                _adjust(f"storage.{role}", f"{settings.default_claim}/{role}", "no claim named: the default claim")
            )
    return volumes


def _below(role: str, path: str) -> str:
    return path if path.startswith("/") else f"{MOUNTS[role]}/{path}".rstrip("/")


def _model(spec: JobSpec) -> dict[str, Any]:
    return _present(
        {
            "path": _below("models", spec.model.path),
            "refLoad": spec.model.ref_load and _below("models", spec.model.ref_load),
            "type": spec.model.type,
        }
    )


def _data(spec: JobSpec) -> dict[str, Any]:
    tasks = spec.data.tasks
    return {
        "jsonl": _below("tasks", spec.data.jsonl) if spec.data.jsonl else None,
        "tasks": tasks and {**tasks.model_dump(by_alias=True), "root": _below("tasks", tasks.root)},
    }


def _evaluation(spec: JobSpec) -> dict[str, Any] | None:
    if spec.eval is None:
        return None
    return {**spec.eval.model_dump(by_alias=True), "jsonl": _below("tasks", spec.eval.jsonl)}


def _hash(shape: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:12]


def _dump(model: Any) -> Any:
    return None if model is None else model.model_dump(by_alias=True)


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
