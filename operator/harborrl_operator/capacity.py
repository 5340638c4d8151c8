"""Slots, quota and nodes against what the job will send and its tasks will ask for, with the preflight's numbers.

What can never fit refuses (I10); what fits only one after the other is said in `CapacityTight` (I2) and waits.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.observed import Object, Surroundings, name_of
from harborrl_operator.preflight_verdict import Facts, SandboxFacts
from harborrl_operator.quantities import amount
from harborrl_operator.resolve import ResolvedJob

CLIENT_CONNECTIONS = 100
"""Of Miles' own agent client a process: it asks for 64, but httpx ignores limits beside a transport (0.28: 100)."""


def quota_refusal(job: ResolvedJob, facts: Facts, around: Surroundings) -> Verdict | None:
    """I10: all slots taken by the largest task must fit the sandbox namespace's quota, or trials fail at random."""
    wanted = facts.sandboxes
    if job.spec.agent_server.url is not None or wanted is None:
        return None
    for quota in around.quotas:
        hard = quota.get("spec", {}).get("hard") or {}
        for entry, limit in hard.items():
            verdict = _exceeded(job, wanted, around, quota=f"ResourceQuota {_where(quota)}", entry=entry, limit=limit)
            if verdict is not None:
                return verdict
    return None


def _exceeded(
    job: ResolvedJob, wanted: SandboxFacts, around: Surroundings, *, quota: str, entry: str, limit: str
) -> Verdict | None:
    kind, resource = _tracked(entry)
    if kind == "pods":
        each = Decimal(1)
    else:
        asked, lacking = (wanted.limits, wanted.unlimited) if kind == "limits" else (wanted.requests, wanted.unset)
        if resource in lacking and not around.has_limit_range:
            return Verdict(
                Reason.SANDBOX_QUOTA_TOO_SMALL,
                f"{quota} counts {entry}, so it refuses every sandbox that sets none, and a task does not. Set"
                f" agentServer.sandbox.defaults.{kind}.{resource}, or the resource in each task.toml.",
            )
        if resource not in asked:
            return None
        each = amount(asked[resource])
    slots, warm = job.max_concurrent, warm_pods(job)
    needed = each * (slots + warm)
    if needed <= amount(limit):
        return None
    fits = int(amount(limit) // each)
    what = "pods" if kind == "pods" else f"{entry} {slots + warm} x {_plain(each)} = {_plain(needed)}"
    return Verdict(
        Reason.SANDBOX_QUOTA_TOO_SMALL,
        f"agentServer.maxConcurrent {slots}{_beside(warm)} may ask for {what} but {quota} allows {limit}, which is"
        f" {fits} sandboxes of the largest task. {_remedy(slots, warm, fits)}, lower what the task asks for, or have"
        f" {entry} raised to {_plain(needed)}.",
    )


def warm_pods(job: ResolvedJob) -> int:
    """Idle beside all slots: the agent server's pool never holds more than its free slots and one image's size."""
    return job.spec.agent_server.sandbox.warm_pool.size


def _beside(warm: int) -> str:
    return f" with {warm} warm pods beside it (agentServer.sandbox.warmPool)" if warm else ""


def _remedy(slots: int, warm: int, fits: int) -> str:
    if not warm:
        return f"Set maxConcurrent to at most {fits} (and the trials in flight with it)"
    return "Make warmPool smaller" if fits >= slots else f"Leave warmPool out and set maxConcurrent to at most {fits}"


def _tracked(entry: str) -> tuple[str, str]:
    """What an entry of a quota counts: pods, or requests or limits of a resource."""
    if entry in ("pods", "count/pods"):
        return "pods", ""
    kind, dot, resource = entry.partition(".")
    return (kind, resource) if dot and kind in ("requests", "limits") else ("requests", entry)


def tightness(job: ResolvedJob, facts: Facts, said: str, around: Surroundings) -> Verdict | None:
    """I2's second half: everything that will have to wait, under the first one's reason. `said` is the preflight's."""
    capacity = facts.capacity if job.spec.agent_server.url else job.max_concurrent
    notices = [
        *_bursts(job, facts, capacity),
        *_connections(job),
        *_nodes(job, facts.sandboxes, around.nodes),
        *([Verdict(Reason.CAPACITY_TIGHT, said)] if said else []),
    ]
    return Verdict(notices[0].reason, " ".join(notice.message for notice in notices)) if notices else None


def _bursts(job: ResolvedJob, facts: Facts, capacity: float | None) -> Iterable[Verdict]:
    """They wait with no clock running, since our client sends no more than the free slots."""
    if capacity is None:
        return
    demand, slots = job.demand, f"{capacity:g}"
    remedy = "give the server" if job.spec.agent_server.url else "set agentServer.maxConcurrent to"
    if demand.refill > max(capacity, demand.in_flight):
        yield Verdict(
            Reason.BURST_EXCEEDS_CAPACITY,
            f"A refill with over-sampling sends up to {demand.refill} trials at once and {slots} run; the rest waits."
            f" To avoid the wait {remedy} {demand.refill}.",
        )
    if job.spec.eval is not None and facts.eval_prompts is not None:
        each = job.spec.eval.samples_per_prompt
        trials = facts.eval_prompts * each
        if trials > capacity:
            yield Verdict(
                Reason.EVALUATION_EXCEEDS_CAPACITY,
                f"An evaluation sends {facts.eval_prompts} prompts x {each} = {trials} trials at once and {slots} run;"
                f" it takes {-(-trials // int(capacity)) if capacity >= 1 else 'many'} rounds. To avoid the wait"
                f" {remedy} {trials}.",
            )


def _connections(job: ResolvedJob) -> Iterable[Verdict]:
    """HarborRL's client has no such bound; a job that names another function may have one that does."""
    own = job.own_client
    if own and job.demand.in_flight > CLIENT_CONNECTIONS:
        yield Verdict(
            Reason.CLIENT_CONNECTION_CAP,
            f"{job.demand.in_flight} trials in flight ({job.demand.formula}) and {own[0]} replaces HarborRL's agent"
            f" client: Miles' own opens at most {CLIENT_CONNECTIONS} connections, and what exceeds them waits with its"
            f" clock running. Remove {own[0]}, or keep at most {CLIENT_CONNECTIONS} in flight.",
        )


def _nodes(job: ResolvedJob, wanted: SandboxFacts | None, nodes: Iterable[Object]) -> Iterable[Verdict]:
    """Warned, not refused: nodes come and go, and an autoscaler may add some."""
    usable = [node for node in nodes if _takes_sandboxes(job, node)]
    if wanted is None or not nodes:
        return
    room, warm = sum(_room(node, wanted.requests) for node in usable), warm_pods(job)
    if room < job.max_concurrent + warm:
        asked = ", ".join(f"{name} {value}" for name, value in sorted(wanted.requests.items())) or "one pod"
        smaller = "make warmPool smaller" if warm else f"set maxConcurrent to at most {room}"
        yield Verdict(
            Reason.SANDBOXES_EXCEED_NODES,
            f"The {len(usable)} nodes that take sandboxes have room for {room} of the largest task ({asked}) even when"
            f" empty, and agentServer.maxConcurrent is {job.max_concurrent}{_beside(warm)}: the rest waits for a node"
            " within environmentStartSeconds and is lost beyond. Add nodes, lower what the task asks for, or"
            f" {smaller}.",
        )


def _room(node: Object, requests: Mapping[str, str]) -> int:
    allocatable = node.get("status", {}).get("allocatable") or {}
    rooms = [amount(allocatable.get(name, "0")) // each for name, text in requests.items() if (each := amount(text))]
    return int(min([*rooms, amount(allocatable.get("pods", "110"))]))


def _takes_sandboxes(job: ResolvedJob, node: Object) -> bool:
    spec, labels = node.get("spec", {}), node["metadata"].get("labels") or {}
    selected = all(labels.get(key) == value for key, value in (job.sandbox.get("nodeSelector") or {}).items())
    taints = [taint for taint in spec.get("taints") or [] if taint.get("effect") in ("NoSchedule", "NoExecute")]
    tolerations = job.sandbox.get("tolerations") or []
    tolerated = all(any(_tolerates(one, taint) for one in tolerations) for taint in taints)
    return selected and tolerated and not spec.get("unschedulable")


def _tolerates(toleration: Mapping[str, object], taint: Mapping[str, object]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")


def _where(quota: Object) -> str:
    return f"{quota['metadata'].get('namespace', '')}/{name_of(quota)}"


def _plain(value: Decimal) -> str:
    """As a person reads it: binary units for bytes, else a plain number."""
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi")):
        if value >= 1024**power and value % 1024 ** (power - 1) == 0:
            scaled = (value / 1024**power).quantize(Decimal("0.1"))
            return f"{scaled.normalize():f}{unit}"
    return f"{value.normalize():f}"
