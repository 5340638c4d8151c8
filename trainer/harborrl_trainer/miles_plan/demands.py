"""What a start demands: what is looked at where it is planned, and what its driver looks at in Miles' container."""

from collections.abc import Mapping
from pathlib import Path

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.seam import Launch
from harborrl_trainer.miles_engine import sealing
from harborrl_trainer.miles_engine.plan import Checks, Server
from harborrl_trainer.miles_plan import arguments, found
from harborrl_trainer.preflight import data, model
from harborrl_trainer.preflight.findings import Finding

SERVED_REMEDY = "The preset's engines serve this quantised copy: put it on the models volume, beside model.path."
"""Where it is not there."""
PROMETHEUS_PORT = 9090
"""Miles' own choice."""


def check_inputs(job: JobDocument) -> None:
    """What the preflight pod looked at, hours ago when the job had to queue."""
    findings: list[Finding] = [*model.check_model(job.model.path).findings, *data.check_data(job).findings]
    refused = [finding for finding in findings if finding.severity == "refuse"]
    if refused:
        raise ConfigurationError(refused[0].message)


def check_served(launch: Launch) -> None:
    findings = [finding for path in launch.models for finding in model.check_model(path, SERVED_REMEDY).findings]
    if findings:
        raise ConfigurationError(findings[0].message)


def check_ranks(adapter: Path, gpus: int) -> None:
    """Each rank loads the file of its own number, and one that finds none begins at 0 while the others go on."""
    saved = sealing.adapter_ranks(adapter)
    if gpus not in {0, saved}:
        raise ConfigurationError(
            f"trainer.nodes: {adapter} was saved by {saved} training GPUs and the job trains on {gpus}; give it {saved}"
            " again, or begin a new job"
        )


def check_ways(checkpoint: Path, ways: Mapping[str, int]) -> None:
    """An adapter's file holds the shard of its rank: under another split Miles would load it as another one."""
    saved = found.ways_of(checkpoint)
    other = [name for name, size in ways.items() if saved.get(name, size) != size]
    if other:
        was = " and ".join(f"{name.replace('_', ' ')} {saved[name]}" for name in other)
        now = " and ".join(str(ways[name]) for name in other)
        raise ConfigurationError(
            f"trainer.parallelism: {checkpoint} was saved with {was} and the job trains with {now}; go back to the"
            " former, or begin a new job"
        )


def of_container(job: JobDocument, launch: Launch) -> Checks:
    batch = job.config.rollout_batch_size * job.config.n_samples_per_prompt
    sessions = range(job.ports.session, job.ports.session + job.ports.session_count)
    data_sets = (job.data.jsonl, job.eval.jsonl if job.eval else None)
    named = (job.model.path, job.model.ref_load, *launch.models, *data_sets)
    return Checks(
        server=Server(job.agent_server.url, job.agent_server.owned, job.in_flight or batch),
        ports=(*sessions, job.ports.router, *_metrics_port(job, launch)),
        readable=tuple(str(path) for path in named if path is not None),
        nodes=job.nodes,
        gpus_per_node=job.gpus_per_node,
        commit=job.config.miles_src_commit,
    )


def _metrics_port(job: JobDocument, launch: Launch) -> tuple[int, ...]:
    """Where Miles' metrics are read, fixed and on the head. None where a variable of the job's says, unknown here."""
    if not arguments.has_flag(launch.argv, "--use-prometheus") and not arguments.setting(launch, "use_prometheus"):
        return ()
    named = arguments.setting(launch, "prometheus_port")
    if named is None:
        return () if "PROMETHEUS_PORT" in job.env_names else (PROMETHEUS_PORT,)
    return (int(named),) if str(named).isdecimal() else ()
