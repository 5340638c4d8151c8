"""Whether a trial that infrastructure failed can be run once more, as far as the spec tells."""

from harborrl_operator.models.spec import JobSpec


def no_second_try(spec: JobSpec) -> str:
    """A sentence where the trainer never has time for one; empty where it has, or where a check refuses the job.

    Nobody judges the budgets of a server of the user's own, and left out they are ours.
    """
    server, ceiling = spec.agent_server, spec.rollout.agent_trial_timeout_seconds
    needed = (
        server.environment_start_seconds
        + server.agent_setup_seconds
        + server.agent_timeout_seconds
        + server.verifier_seconds
        + server.cleanup_seconds
    )
    if not server.url or needed < ceiling:
        return ""
    return (
        f"agentServer's five budgets are {needed} s together and rollout.agentTrialTimeoutSeconds {ceiling}: a trial"
        " that infrastructure failed is never run once more, which drops its group. Write your own server's budgets"
        " there"
    )
