"""What must hold before anything is started: ordered small checks, each a verdict or nothing; the first one wins."""

from collections.abc import Callable, Sequence

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import AGENT_PORT, GATEWAY_PORT, RAY_PORTS, Reason
from harborrl_operator.data_checks import data_sets_are_jsonl
from harborrl_operator.engine_checks import (
    engine_is_available,
    evaluation_is_told_once,
    gpus_are_asked_for_in_one_place,
    native_reads_every_field,
)
from harborrl_operator.engine_rules import engine_accepts_arguments
from harborrl_operator.network_checks import egress_names_networks, private_hosts_are_networks
from harborrl_operator.observed import Observed
from harborrl_operator.preset_checks import (
    image_holds_the_commit,
    miles_version_is_known,
    mode_fits_miles,
    preset_fits_version,
)
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.sandbox_checks import (
    allocator_has_what_it_needs,
    backend_is_supported,
    sandbox_namespace_is_open,
    sandboxes_stay_isolated,
)
from harborrl_operator.secret_checks import environment_is_free, environment_leaves_ours_alone, no_secret_in_plain_text
from harborrl_operator.server_checks import (
    agent_is_allowed,
    agent_is_known,
    image_template_is_known,
    own_agents_have_names,
    own_server_heeds_every_field,
    workers_have_slots,
)
from harborrl_operator.storage_checks import claims_exist, claims_reach_all_pods, resume_source_exists
from harborrl_operator.trial_checks import budgets_fit_ceiling, concurrency_covers_in_flight, sandbox_outlives_trial

LAST_PORT = 65535

Check = Callable[[ResolvedJob, Observed], Verdict | None]


def arguments_are_free(job: ResolvedJob, _: Observed) -> Verdict | None:
    if not job.raw.reserved:
        return None
    return Verdict(
        Reason.RESERVED_ARGUMENT,
        f"{'; '.join(job.raw.reserved)}, not by a raw flag (storage, ports, hosts and shape are the operator's). Remove"
        " it.",
    )


def engine_fits_hardware(job: ResolvedJob, _: Observed) -> Verdict | None:
    trainer = job.spec.trainer
    if trainer.engine == "miles" and job.gpus_per_node == 0:
        return Verdict(
            Reason.ENGINE_MISMATCH,
            "Engine miles needs GPUs but trainer.gpusPerNode is 0. Set gpusPerNode, or engine: native for a CPU run.",
        )
    if trainer.engine == "native" and job.gpus_per_node:
        return Verdict(
            Reason.ENGINE_MISMATCH,
            f"trainer.gpusPerNode is {job.gpus_per_node} on {trainer.nodes} nodes: {job.gpus_per_node * trainer.nodes}"
            " GPUs would stand idle, since engine native trains on CPUs. Set gpusPerNode to 0, or leave it out.",
        )
    if not job.config["colocate"] and trainer.engine == "miles" and trainer.nodes < 2:
        return Verdict(
            Reason.ENGINE_MISMATCH,
            "Rollout beside training (mode async or colocate false) needs a node of its own but trainer.nodes is 1."
            " Set nodes to at least 2, or mode: sync.",
        )
    return None


def batch_divides(job: ResolvedJob, _: Observed) -> Verdict | None:
    prompts, samples = job.demand.prompts, job.demand.samples
    batch = job.raw.counts.get("global_batch_size") or job.config["globalBatchSize"]
    if prompts * samples % batch == 0:
        return None
    return Verdict(
        Reason.BATCH_MISMATCH,
        f"A rollout yields {prompts} x {samples} = {prompts * samples} samples, which is no multiple of"
        f" globalBatchSize {batch}. Set trainer.config.globalBatchSize to {prompts * samples} or a divisor of it.",
    )


def ports_are_free(job: ResolvedJob, _: Observed) -> Verdict | None:
    """Two servers on one port of a pod: the second one cannot start, and its Service is refused."""
    ports, dashboard = job.spec.trainer.ports, job.spec.agent_server.dashboard_port
    sessions = range(ports.session, ports.session + ports.session_count)
    if sessions[-1] > LAST_PORT:
        return Verdict(
            Reason.PORT_CONFLICT,
            f"{ports.session_count} session servers from trainer.ports.session {ports.session} on go beyond port"
            f" {LAST_PORT}. Begin lower.",
        )
    taken = [port for port in (*sessions, ports.router) if port in RAY_PORTS]
    if taken:
        return Verdict(
            Reason.PORT_CONFLICT, f"trainer.ports: {taken[0]} is Ray's own port in the head pod. Choose another."
        )
    if ports.router in sessions:
        return Verdict(
            Reason.PORT_CONFLICT,
            f"trainer.ports.router {ports.router} is one of the session servers' ports {sessions[0]} to"
            f" {sessions[-1]}. Choose another.",
        )
    if dashboard in (AGENT_PORT, GATEWAY_PORT) and not job.spec.agent_server.url:
        whose = "the agent server itself" if dashboard == AGENT_PORT else "its model gateway"
        return Verdict(
            Reason.PORT_CONFLICT, f"agentServer.dashboardPort {dashboard} is the port of {whose}. Choose another."
        )
    return None


def start_is_whole(job: ResolvedJob, _: Observed) -> Verdict | None:
    """I11: without gang scheduling some pods hold their GPUs while others wait."""
    spec = job.spec
    in_one_step = spec.queue_name or job.settings.gang_scheduler
    if spec.trainer.nodes == 1 or in_one_step or spec.trainer.allow_partial_start:
        return None
    return Verdict(
        Reason.PARTIAL_START_NOT_ALLOWED,
        f"trainer.nodes is {spec.trainer.nodes} and nothing makes the pods start together. Set queueName (or have the"
        " chart's defaults.gangScheduler name KubeRay's batch scheduler), or trainer.allowPartialStart: true if some"
        " may wait while others hold their resources.",
    )


def names_are_free(job: ResolvedJob, observed: Observed) -> Verdict | None:
    """A forced apply would take the object over, and the job's deletion would take it along."""
    if not observed.strangers:
        return None
    return Verdict(
        Reason.NAME_TAKEN,
        f"In namespace {job.job.namespace} there is already {', '.join(observed.strangers)}, which no HarborRLJob made."
        " Give the job another name, or remove what is in the way.",
    )


CHECKS: Sequence[Check] = (
    engine_is_available,
    arguments_are_free,
    environment_is_free,
    environment_leaves_ours_alone,
    no_secret_in_plain_text,
    budgets_fit_ceiling,
    concurrency_covers_in_flight,
    sandbox_outlives_trial,
    engine_fits_hardware,
    gpus_are_asked_for_in_one_place,
    batch_divides,
    data_sets_are_jsonl,
    miles_version_is_known,
    image_holds_the_commit,
    preset_fits_version,
    mode_fits_miles,
    evaluation_is_told_once,
    engine_accepts_arguments,
    ports_are_free,
    start_is_whole,
    backend_is_supported,
    own_agents_have_names,
    agent_is_known,
    agent_is_allowed,
    workers_have_slots,
    image_template_is_known,
    own_server_heeds_every_field,
    allocator_has_what_it_needs,
    sandboxes_stay_isolated,
    sandbox_namespace_is_open,
    egress_names_networks,
    private_hosts_are_networks,
    names_are_free,
    resume_source_exists,
    claims_exist,
    claims_reach_all_pods,
    native_reads_every_field,
)


def first_objection(job: ResolvedJob, observed: Observed) -> Verdict | None:
    return next((verdict for check in CHECKS if (verdict := check(job, observed))), None)
