"""What must hold before anything is started: ordered small checks, each a verdict or nothing; the first one wins."""

import re
from collections.abc import Callable, Sequence

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import AGENT_PORT, LABEL_SANDBOXES, RAY_PORTS, Reason
from harborrl_operator.engine_checks import (
    engine_is_available,
    gpus_are_asked_for_in_one_place,
    native_reads_every_field,
)
from harborrl_operator.engine_rules import engine_accepts_arguments
from harborrl_operator.models.trainer import SECRET_NAME
from harborrl_operator.network_checks import egress_names_networks
from harborrl_operator.observed import Object, Observed, labels
from harborrl_operator.preset_checks import miles_version_is_known, mode_fits_miles, preset_fits_version
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.server_checks import agent_is_known, dashboard_is_off, image_template_is_known

LAST_PORT = 65535

READ_ONLY_ROLES = ("models", "tasks")
"""Volume roles that no pod of the job writes to."""

Check = Callable[[ResolvedJob, Observed], Verdict | None]


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


def arguments_are_free(job: ResolvedJob, _: Observed) -> Verdict | None:
    if not job.raw.reserved:
        return None
    return Verdict(
        Reason.RESERVED_ARGUMENT,
        f"{'; '.join(job.raw.reserved)}, not by a raw flag (storage, ports, hosts and shape are the operator's). Remove"
        " it.",
    )


def environment_is_free(job: ResolvedJob, _: Observed) -> Verdict | None:
    """I8, and variables that the contract between the parts needs."""
    for variable in job.spec.trainer.env:
        if variable.name.startswith("HARBORRL_") or variable.name in ("POD_NAME", "POD_NAMESPACE"):
            return Verdict(
                Reason.RESERVED_ARGUMENT,
                f"trainer.env: {variable.name} is set by the operator. Remove it.",
            )
        if variable.value and _SECRET_NAME.search(variable.name):
            return Verdict(
                Reason.PLAIN_SECRET,
                f"trainer.env: {variable.name} looks like a secret and is readable by anyone who can read pods."
                " Put it into a Secret and use valueFrom.secretKeyRef.",
            )
    return None


def no_secret_in_plain_text(job: ResolvedJob, _: Observed) -> Verdict | None:
    """I8: flags and agent arguments end in ConfigMaps and on command lines."""
    flags = [f"trainer's flag or YAML key {name}" for name, value in job.raw.values.items() if value]
    kwargs = [f"agentServer.agentKwargs: {name}" for name, value in job.spec.agent_server.agent_kwargs.items() if value]
    for where in (*flags, *kwargs):
        if _SECRET_ARGUMENT.search(where):
            return Verdict(
                Reason.PLAIN_SECRET,
                f"{where} looks like a secret and would be readable in ConfigMaps and process lists. Put it into a"
                " Secret and give it to the trainer by trainer.env with valueFrom.secretKeyRef.",
            )
    return None


_SECRET_NAME = re.compile(SECRET_NAME)
_SECRET_ARGUMENT = re.compile(
    r"(api[_-]?key|access_key|private_key|wandb_key|(hf|auth|access|api|bearer)_token|secret|password|passwd)$",
    re.IGNORECASE,
)
"""Narrower: engines have flags such as `--input-key` and `--pad-token`."""


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
    if dashboard == AGENT_PORT and not job.spec.agent_server.url:
        return Verdict(
            Reason.PORT_CONFLICT,
            f"agentServer.dashboardPort {dashboard} is the port of the agent server itself. Choose another.",
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


def backend_is_supported(job: ResolvedJob, _: Observed) -> Verdict | None:
    missing = _MISSING_IN_OUR_POD.get(job.sandbox["backend"])
    if missing is None or job.spec.agent_server.url:
        return None
    return Verdict(
        Reason.SANDBOX_BACKEND_UNSUPPORTED,
        f"Sandbox backend {job.sandbox['backend']} needs {missing}, which the agent server's pod has not. Set"
        " agentServer.url to a server of your own, or backend: kubernetes.",
    )


_MISSING_IN_OUR_POD = {"docker": "a Docker engine", "local": "root and the right to make namespaces"}


def sandbox_namespace_is_open(job: ResolvedJob, observed: Observed) -> Verdict | None:
    server, namespace = job.spec.agent_server, job.sandbox["namespace"]
    if server.url or job.sandbox["backend"] != "kubernetes":
        return None
    if namespace == job.job.namespace and not server.sandbox.allow_same_namespace:
        return Verdict(
            Reason.SANDBOX_NAMESPACE_NOT_ALLOWED,
            f"Sandboxes would run beside the job in namespace {namespace}. Name another namespace in"
            " agentServer.sandbox.namespace, or set allowSameNamespace: true.",
        )
    found = observed.sandbox_namespace
    if found is None:
        return Verdict(
            Reason.SANDBOX_NAMESPACE_NOT_ALLOWED,
            f"Sandbox namespace {namespace} does not exist. Create it with the label {LABEL_SANDBOXES}=true.",
        )
    if labels(found).get(LABEL_SANDBOXES) != "true":
        return Verdict(
            Reason.SANDBOX_NAMESPACE_NOT_ALLOWED,
            f"Namespace {namespace} is not open to sandboxes. An administrator can label it {LABEL_SANDBOXES}=true.",
        )
    return None


def names_are_free(job: ResolvedJob, observed: Observed) -> Verdict | None:
    """A forced apply would take the object over, and the job's deletion would take it along."""
    if not observed.strangers:
        return None
    return Verdict(
        Reason.NAME_TAKEN,
        f"In namespace {job.job.namespace} there is already {', '.join(observed.strangers)}, which no HarborRLJob made."
        " Give the job another name, or remove what is in the way.",
    )


def claims_exist(job: ResolvedJob, observed: Observed) -> Verdict | None:
    missing: dict[str, list[str]] = {}
    for role, volume in job.volumes.items():
        if observed.claims.get(volume.pvc) is None:
            missing.setdefault(volume.pvc, []).append(role)
    if not missing:
        return None
    what = "; ".join(f"{claim} (for {', '.join(roles)})" for claim, roles in missing.items())
    return Verdict(
        Reason.CLAIM_NOT_FOUND,
        f"No PersistentVolumeClaim in namespace {job.job.namespace}: {what}. Create it, or name another in"
        " spec.storage.",
    )


def resume_source_exists(job: ResolvedJob, _: Observed) -> Verdict | None:
    source = job.spec.resume_from
    if source is None or job.resume_path is not None:
        return None
    return Verdict(
        Reason.RESUME_SOURCE_INVALID,
        f"resumeFrom.job: no HarborRLJob {source.job} in namespace {job.job.namespace}. If it was deleted, name its run"
        " directory on the checkpoints volume in resumeFrom.path.",
    )


def claims_reach_all_pods(job: ResolvedJob, observed: Observed) -> Verdict | None:
    """I11: pods that share a node-bound claim are kept on one node, which several GPU nodes cannot be."""
    alone = _claims_with(observed, lambda modes: modes == ["ReadWriteOncePod"])
    if alone:
        return Verdict(
            Reason.CLAIM_NOT_SHARED,
            f"Claim {alone} has access mode ReadWriteOncePod, but the agent server, the preflight and the trainer mount"
            " it at once. Use a claim with ReadWriteMany, or ReadWriteOnce on one node.",
        )
    if job.spec.trainer.nodes == 1 or job.gpus_per_node == 0:
        return None
    written = {volume.pvc for role, volume in job.volumes.items() if role not in READ_ONLY_ROLES}
    bound = sorted(
        claim
        for claim, found in observed.claims.items()
        if found is not None and is_node_bound(found) and (claim in written or not _is_read_by_many(found))
    )
    if not bound:
        return None
    return Verdict(
        Reason.CLAIM_NOT_SHARED,
        f"{job.spec.trainer.nodes} trainer nodes share claim {', '.join(bound)}, which one node alone can mount."
        " Use claims with access mode ReadWriteMany (ReadOnlyMany will do for models and tasks).",
    )


def _claims_with(observed: Observed, holds: Callable[[list[str]], bool]) -> str:
    found = ((name, claim) for name, claim in observed.claims.items() if claim is not None)
    return ", ".join(sorted(name for name, claim in found if holds(claim["spec"].get("accessModes", []))))


def _is_read_by_many(claim: Object) -> bool:
    return "ReadOnlyMany" in claim["spec"].get("accessModes", [])


def is_node_bound(claim: Object) -> bool:
    return "ReadWriteMany" not in claim["spec"].get("accessModes", [])


CHECKS: Sequence[Check] = (
    engine_is_available,
    arguments_are_free,
    environment_is_free,
    no_secret_in_plain_text,
    budgets_fit_ceiling,
    concurrency_covers_in_flight,
    sandbox_outlives_trial,
    engine_fits_hardware,
    gpus_are_asked_for_in_one_place,
    batch_divides,
    engine_accepts_arguments,
    miles_version_is_known,
    preset_fits_version,
    mode_fits_miles,
    ports_are_free,
    start_is_whole,
    backend_is_supported,
    agent_is_known,
    dashboard_is_off,
    image_template_is_known,
    sandbox_namespace_is_open,
    egress_names_networks,
    names_are_free,
    resume_source_exists,
    claims_exist,
    claims_reach_all_pods,
    native_reads_every_field,
)


def first_objection(job: ResolvedJob, observed: Observed) -> Verdict | None:
    return next((verdict for check in CHECKS if (verdict := check(job, observed))), None)
