"""The driver's environment: what the launchers set, with the job's own names, and no secrets."""

from collections.abc import Mapping

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.presets import Preset
from harborrl_trainer.launch.rules.variables import variable_fault
from harborrl_trainer.launch.seam import Adjustment, Start
from harborrl_trainer.launch.versions import MilesVersion
from harborrl_trainer.layout import RunLayout

CHECKOUTS = ("/root/miles", "/root/miles-src", "/sgl-workspace/miles")
"""Where images of Miles have its checkout, first choice first: of the script that is run, and of what is imported."""
MEGATRON = "/root/Megatron-LM"

FUNCTIONS = "harborrl_trainer/miles/pythonpath"
"""Where `swe_agent_function` and `generate` are modules of their own, as Miles' launchers name them."""

VERDICT_FILE = "verdict.json"
"""File of `Start.files` in which our rollout layer says why it gave the run up."""

UNPROXIED = "127.0.0.1,localhost,.svc,.cluster.local"
"""Names in the cluster, which no proxy leads to."""

PLAIN_PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
"""Emptied. Miles calls its router, session server and engines over HTTP by the addresses of their pods, which no list
of names excepts, and every node gets the same environment. W&B and hubs speak HTTPS: HTTPS_PROXY stays."""


def environment(job: JobDocument, start: Start, version: MilesVersion, preset: Preset | None) -> dict[str, str]:
    """What `trainer.env` names keeps its value there; ConfigurationError where the parts depend on ours."""
    fault = variable_fault(job.env_names, dict.fromkeys(version.environment, f"Miles {version.short}"))
    if fault is not None:
        raise ConfigurationError(fault)
    tuned = {
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "no_proxy": UNPROXIED,
        "NO_PROXY": UNPROXIED,
        **(preset.environment if preset else {}),
        **_curve(job),
    }
    tasks = job.data.tasks.root if job.data.tasks else job.storage.tasks
    ours = {
        **version.environment,
        **dict.fromkeys(PLAIN_PROXIES, ""),
        "PYTHONPATH": ":".join((str(start.code), f"{start.code}/{FUNCTIONS}", *CHECKOUTS, MEGATRON)),
        "HARBOR_TASKS_DIR": str(tasks),
        **for_rollouts(job, start),
    }
    return {**{name: value for name, value in tuned.items() if name not in job.env_names}, **ours}


def proxies_taken_away(job: JobDocument) -> list[Adjustment]:
    reason = "Miles calls its own parts over HTTP by pod address; W&B and hubs go through HTTPS_PROXY of trainer.env"
    return [Adjustment(f"trainer.env {name}", "empty", reason) for name in PLAIN_PROXIES if name in job.env_names]


def for_rollouts(job: JobDocument, start: Start) -> dict[str, str]:
    """What Miles' rollout process is told (docs/contracts.md, "Miles' rollout process").

    The admin secret comes from the pod alone. HARBORRL_GIVE_UP_GROUPS and HARBORRL_SESSION_TIMEOUT stay as the wrapper
    has them, or as `trainer.env` says.
    """
    batch = job.config.rollout_batch_size * job.config.n_samples_per_prompt
    trials = RunLayout.of(job).incarnation(start.attempt, start.incarnation).trials
    return {
        "AGENT_SERVER_URL": job.agent_server.url,
        "AGENT_MODEL_NAME": job.config.agent_model_name,
        "AGENT_TRIAL_TIMEOUT": str(int(job.rollout.agent_trial_timeout_seconds)),
        "MILES_ROUTER_EXTERNAL_HOST": job.trainer_host,
        "HARBORRL_ON_AGENT_TIMEOUT": job.rollout.on_agent_timeout,
        "HARBORRL_TRIAL_BUDGET_SECONDS": str(int(job.agent_server.budgets.total_seconds)),
        "HARBORRL_TRIALS_DIR": str(trials),
        "HARBORRL_MAX_IN_FLIGHT": str(job.in_flight or batch),
        "HARBORRL_AGENT_NAME": job.agent_server.agent_name,
        "HARBORRL_START_ROLLOUT": str(start.start_rollout),
        "HARBORRL_VERDICT_FILE": str(start.files / VERDICT_FILE),
    }


def logs_to_wandb(job: JobDocument) -> bool:
    return "WANDB_API_KEY" in job.env_names


def _curve(job: JobDocument) -> Mapping[str, str]:
    """One curve over all attempts: Miles gives its `--wandb-run-id` to secondary processes alone."""
    if not logs_to_wandb(job):
        return {}
    return {"WANDB_RUN_ID": f"{job.job.name}-{job.job.uid[:8]}", "WANDB_RESUME": "allow"}
