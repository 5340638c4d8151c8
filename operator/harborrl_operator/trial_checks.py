"""The times of a trial fit into each other, and the agent server takes as many trials as the trainer sends."""

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.observed import Observed
from harborrl_operator.resolve import ResolvedJob


def budgets_fit_ceiling(job: ResolvedJob, _: Observed) -> Verdict | None:
    """I1: the client must not give up on a trial that the server still runs."""
    server, ceiling = job.spec.agent_server, job.spec.rollout.agent_trial_timeout_seconds
    if server.url:
        return None
    parts = (
        server.environment_start_seconds,
        server.agent_setup_seconds,
        server.agent_timeout_seconds,
        server.verifier_seconds,
        server.cleanup_seconds,
    )
    if sum(parts) <= ceiling:
        return None
    return Verdict(
        Reason.BUDGET_EXCEEDS_CEILING,
        f"A trial may take {' + '.join(map(str, parts))} = {sum(parts)} s"
        " (environmentStart + agentSetup + agentTimeout + verifier + cleanup)"
        f" but the trainer gives up after {ceiling} s."
        f" Set rollout.agentTrialTimeoutSeconds to at least {sum(parts)}.",
    )


def concurrency_covers_in_flight(job: ResolvedJob, _: Observed) -> Verdict | None:
    """I2, with raw flags and YAML taken into account."""
    needed, slots = job.demand.in_flight, job.max_concurrent
    if job.spec.agent_server.url or slots >= needed:
        return None
    fewer = f" --async-max-concurrent-samples {slots} in trainer.extraArgs" if job.spec.trainer.mode == "async" else ""
    return Verdict(
        Reason.CONCURRENCY_BELOW_IN_FLIGHT,
        f"The trainer keeps {needed} trials in flight ({job.demand.formula}) but agentServer.maxConcurrent is {slots}."
        f" Set it to at least {needed}, or leave it out{', or set' + fewer if fewer else ''}.",
    )


def sandbox_outlives_trial(job: ResolvedJob, _: Observed) -> Verdict | None:
    """I3: only explicit values can break it."""
    server = job.spec.agent_server
    if server.url:
        return None
    life, idle = job.sandbox["timeoutSeconds"], job.sandbox.get("idleTimeoutSeconds")
    needed = server.agent_timeout_seconds + server.verifier_seconds
    if life <= needed:
        return Verdict(
            Reason.SANDBOX_LIFE_TOO_SHORT,
            f"agentServer.sandbox.timeoutSeconds is {life} but agent and verifier may take {needed} s."
            f" Set it to at least {needed + 1}, or leave it out.",
        )
    if idle is not None and idle >= life:
        return Verdict(
            Reason.SANDBOX_LIFE_TOO_SHORT,
            f"agentServer.sandbox.idleTimeoutSeconds is {idle} and never acts within a life of {life} s."
            f" Set it to at most {life - 1}, or leave it out.",
        )
    return None
