"""Variables of Miles' processes that a job's other fields decide: ours would win, and nobody would say so."""

from collections.abc import Iterable, Mapping

VARIABLES: Mapping[str, str] = {
    "AGENT_SERVER_URL": "agentServer.url",
    "AGENT_MODEL_NAME": "trainer.config.agentModelName",
    "AGENT_TRIAL_TIMEOUT": "rollout.agentTrialTimeoutSeconds",
    "HARBOR_TASKS_DIR": "data.tasks.root and storage.tasks",
    "MILES_ROUTER_EXTERNAL_HOST": "the job's trainer Service",
    "PYTHONPATH": "the job, for Miles, Megatron and HarborRL's half",
}
"""Name -> what decides it."""


def variable_fault(names: Iterable[str], others: Mapping[str, str] | None = None) -> str | None:
    """What is wrong first with the names of `trainer.env`; `others` are decided in this launch alone."""
    homes, seen = {**VARIABLES, **(others or {})}, set[str]()
    for name in names:
        if name in homes:
            return f"trainer.env: {name} is decided by {homes[name]}; remove it"
        if name in seen:
            return f"trainer.env: {name} stands there twice, and the last one would win; remove one"
        seen.add(name)
    return None
