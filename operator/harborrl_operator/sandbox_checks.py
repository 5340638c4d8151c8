"""Sandboxes can be made where the job wants them."""

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import LABEL_SANDBOXES, Reason
from harborrl_operator.observed import Observed, labels
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.sandbox_overrides import override_fault


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


def allocator_has_what_it_needs(job: ResolvedJob, _: Observed) -> Verdict | None:
    """What the chosen allocator does not read is refused by name, as what it lacks is."""
    if job.spec.agent_server.url:
        return None
    claims = job.spec.agent_server.sandbox.allocator == "agent-sandbox"
    fault = _fault_of_claims(job) if claims else _fault_of_pods(job)
    return Verdict(Reason.ALLOCATOR_MISMATCH, fault) if fault else None


def _fault_of_pods(job: ResolvedJob) -> str:
    template = job.spec.agent_server.sandbox.claims.template
    if template is None:
        return ""
    return (
        f"agentServer.sandbox.claims.template is {template} and allocator is pods, which makes no claims. Set"
        " allocator: agent-sandbox, or leave the template out."
    )


def _fault_of_claims(job: ResolvedJob) -> str:
    sandbox = job.spec.agent_server.sandbox
    if not job.settings.agent_sandbox:
        return (
            "agentServer.sandbox.allocator is agent-sandbox, and agent servers have no right to claim sandboxes here."
            " An administrator can give it with the chart's sandboxes.agentSandbox: true; or set allocator: pods."
        )
    if not sandbox.claims.template:
        return (
            "agentServer.sandbox.allocator is agent-sandbox, which claims sandboxes of a SandboxTemplate. Name one of"
            f" namespace {job.sandbox['namespace']} in agentServer.sandbox.claims.template, or set allocator: pods."
        )
    if sandbox.pod_overrides:
        return (
            "agentServer.sandbox.podOverrides are for pods that the agent server makes, and allocator is agent-sandbox,"
            f" which makes them of SandboxTemplate {sandbox.claims.template}. Write them there, leave them out here."
        )
    return ""


def sandboxes_stay_isolated(job: ResolvedJob, _: Observed) -> Verdict | None:
    """The agent server would end at its start."""
    server = job.spec.agent_server
    fault = None if server.url else override_fault(server.sandbox.pod_overrides)
    if fault is None:
        return None
    said = (
        f"agentServer.sandbox.podOverrides: {fault}. Remove it; what agents write and run has to stay in its sandbox."
    )
    return Verdict(Reason.SANDBOX_NOT_ISOLATED, said)


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
    if observed.sandbox_namespace_is_hidden:
        return Verdict(Reason.SANDBOX_NAMESPACE_NOT_ALLOWED, _hidden(namespace, job.settings.sandbox_namespace))
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


def _hidden(namespace: str, ours: str) -> str:
    said = (
        f"The operator may not read namespace {namespace} (403), so that nobody knows whether it is open to sandboxes."
    )
    if namespace == ours:
        return f"{said} It lacks rights that the chart gives it: have an administrator apply the chart again."
    return (
        f"{said} With the chart's watchNamespaces it reads {ours} alone: leave agentServer.sandbox.namespace out to use"
        " that one."
    )
