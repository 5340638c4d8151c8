"""What is refused before anything is held, and that the message carries the numbers and the way out."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborrl_operator.models import Settings
from harborrl_operator.plan import plan
from harborrl_operator.progress import Progress, read_progress, stall
from harborrl_operator.resolve import resolve
from harborrl_operator.resources.ray_cluster import ray_cluster
from support import hrl, reached
from support.hrl import condition, decide, deleted, message

REFUSALS: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "a data set of another format",
        {"data": {"jsonl": "train.parquet"}},
        "DataInvalid",
        "data.jsonl is train.parquet, which does not end in .jsonl. Make one with `harborrl data prepare`",
    ),
    (
        "a packed data set for evaluation",
        {"eval": {"jsonl": "held-out.jsonl.gz"}},
        "DataInvalid",
        "eval.jsonl is held-out.jsonl.gz, which does not end in .jsonl",
    ),
    (
        "a ceiling below the five budgets",
        {"rollout.agentTrialTimeoutSeconds": 659},
        "BudgetExceedsCeiling",
        (
            "120 + 60 + 300 + 120 + 60 = 660 s (environmentStart + agentSetup + agentTimeout + verifier + cleanup) but"
            " the trainer gives up after 659 s. Set rollout.agentTrialTimeoutSeconds to at least 660."
        ),
    ),
    (
        "fewer slots than trials in flight",
        {"agentServer.maxConcurrent": 7},
        "ConcurrencyBelowInFlight",
        (
            "keeps 8 trials in flight (rolloutBatchSize 2 x nSamplesPerPrompt 4) but agentServer.maxConcurrent is 7."
            " Set it to at least 8"
        ),
    ),
    (
        "fewer slots than raw flags ask for",
        {"agentServer.maxConcurrent": 8, "trainer.extraArgs": "--rollout-batch-size 4 # more"},
        "ConcurrencyBelowInFlight",
        "at least 16",
    ),
    (
        "fewer slots than the YAML asks for, which outranks the flags",
        {
            "agentServer.maxConcurrent": 16,
            "trainer.extraArgs": "--rollout-batch-size 4",
            "trainer.customConfigYaml": "rollout_batch_size: 8",
        },
        "ConcurrencyBelowInFlight",
        "at least 32",
    ),
    (
        "a sandbox that ends before its verifier",
        {"agentServer.sandbox.timeoutSeconds": 420},
        "SandboxLifeTooShort",
        "at least 421",
    ),
    (
        "an idle time-out that never acts",
        {"agentServer.sandbox.timeoutSeconds": 1000, "agentServer.sandbox.idleTimeoutSeconds": 1000},
        "SandboxLifeTooShort",
        "at most 999",
    ),
    (
        "several nodes without a gang",
        {"trainer.allowPartialStart": False},
        "PartialStartNotAllowed",
        "trainer.allowPartialStart: true",
    ),
    ("a flag of ours", {"trainer.recipeArgs": "--save /x"}, "ReservedArgument", "trainer.recipeArgs: --save"),
    (
        "a variable of ours",
        {"trainer.env": [{"name": "HARBORRL_ATTEMPT", "value": "7"}]},
        "ReservedArgument",
        "HARBORRL_ATTEMPT is set by the operator",
    ),
    (
        "a secret in plain text",
        {"trainer.env": [{"name": "WANDB_API_KEY", "value": "canary"}]},
        "PlainSecret",
        "valueFrom.secretKeyRef",
    ),
    (
        "an unfinished quote",
        {"trainer.recipeArgs": "--name 'x"},
        "InvalidArguments",
        "trainer.recipeArgs: line 1: a quote",
    ),
    ("YAML that is no mapping", {"trainer.customConfigYaml": "- a"}, "InvalidArguments", "must be a mapping"),
    ("YAML that does not parse", {"trainer.customConfigYaml": "a: ["}, "InvalidArguments", "customConfigYaml"),
    (
        "a batch size that is no number",
        {"trainer.extraArgs": "--rollout-batch-size many"},
        "InvalidArguments",
        "must be an integer",
    ),
    ("Miles without GPUs", {"trainer.engine": "miles", "trainer.gpusPerNode": 0}, "EngineMismatch", "engine: native"),
    (
        "GPUs for an engine that trains on CPUs",
        {"trainer.gpusPerNode": 8},
        "EngineMismatch",
        "trainer.gpusPerNode is 8 on 2 nodes: 16 GPUs would stand idle, since engine native trains on CPUs.",
    ),
    (
        "GPUs in two places",
        {"trainer.resources": {"limits": {"nvidia.com/gpu": 4}}},
        "FieldUnsupported",
        "trainer.resources names nvidia.com/gpu, which trainer.gpusPerNode (0) decides",
    ),
    (
        "Miles asynchronous on one node",
        {"trainer.engine": "miles", "trainer.mode": "async", "trainer.nodes": 1},
        "EngineMismatch",
        "nodes to at least 2",
    ),
    (
        "a batch that does not divide",
        {"trainer.config.globalBatchSize": 3},
        "BatchMismatch",
        "2 x 4 = 8 samples, which is no multiple of globalBatchSize 3",
    ),
    (
        "a resume from a job that is not there",
        {"resumeFrom": {"job": "gone"}},
        "ResumeSourceInvalid",
        "resumeFrom.path",
    ),
    ("Docker sandboxes", {"agentServer.sandbox.backend": "docker"}, "SandboxBackendUnsupported", "agentServer.url"),
    ("local sandboxes", {"agentServer.sandbox.backend": "local"}, "SandboxBackendUnsupported", "needs root"),
    ("an agent of others", {"agentServer.agentName": "claude-code"}, "FieldUnsupported", "claude-code' is not among"),
    (
        "the solutions themselves",
        {"agentServer.agentName": "oracle"},
        "FieldUnsupported",
        "bash, terminus-2, mini-swe-agent",
    ),
    (
        "sandboxes beside the job",
        {"agentServer.sandbox.namespace": "research"},
        "SandboxNamespaceNotAllowed",
        "allowSameNamespace: true",
    ),
    (
        "a claim that is not there",
        {"storage": {"models": {"pvc": "nowhere"}}},
        "ClaimNotFound",
        "nowhere (for models)",
    ),
]


REFUSALS += [
    ("a secret in a flag", {"trainer.extraArgs": "--wandb-key abc123"}, "PlainSecret", "wandb_key looks like a secret"),
    ("a secret in YAML", {"trainer.customConfigYaml": "hf_token: abc123"}, "PlainSecret", "hf_token looks like"),
    ("a secret for the agent", {"agentServer.agentKwargs": {"apiKey": "abc123"}}, "PlainSecret", "agentKwargs: apiKey"),
    (
        "a secret in a lower-case variable",
        {"trainer.env": [{"name": "wandb_api_key", "value": "abc123"}]},
        "PlainSecret",
        "wandb_api_key looks like a secret",
    ),
    (
        "a router on a session server's port",
        {"trainer.ports": {"session": 30998, "sessionCount": 4}},
        "PortConflict",
        "router 31000 is one of the session servers' ports 30998 to 31001",
    ),
    (
        "a session server beyond the last port",
        {"trainer.ports": {"session": 65535, "sessionCount": 2}},
        "PortConflict",
        "beyond port 65535",
    ),
    ("a router on Ray's dashboard", {"trainer.ports": {"router": 8265}}, "PortConflict", "8265 is Ray's own"),
    (
        "a dashboard on the agent server's port",
        {"agentServer.dashboardPort": 30000},
        "PortConflict",
        "the port of the agent server itself",
    ),
    (
        "egress to what is no network",
        {"network.egress": [{"cidr": "10.0.0.0/40"}]},
        "InvalidEgress",
        "10.0.0.0/40 is no network",
    ),
    (
        "egress to a network that is written with an address in it",
        {"network.egress": [{"cidr": "10.1.2.3/8"}]},
        "InvalidEgress",
        "Write 10.0.0.0/8",
    ),
    (
        "an exception from egress that is not part of it",
        {"network.egress": [{"cidr": "10.0.0.0/8", "except": ["192.168.0.0/16"]}]},
        "InvalidEgress",
        "except 192.168.0.0/16 is not a part of 10.0.0.0/8",
    ),
]


@pytest.mark.parametrize(("changes", "reason", "says"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_is_refused(changes: dict[str, Any], reason: str, says: str) -> None:
    server = hrl.deployment()
    decided = decide(hrl.job(changes), hrl.world(deployment=server))
    assert condition(decided, "Admitted") == ("False", reason)
    assert says in message(decided, "Admitted")
    assert decided.status.phase == "Refused"
    assert decided.apply == ()
    assert deleted(decided) == [f"Deployment/{server['metadata']['name']}"]


@pytest.mark.parametrize(
    "changes",
    [
        {"rollout.agentTrialTimeoutSeconds": 660},
        {"agentServer.maxConcurrent": 8},
        {"agentServer.sandbox.timeoutSeconds": 421},
        {
            "trainer.mode": "async",
            "trainer.extraArgs": "--async-max-concurrent-samples 6",
            "trainer.image": "registry.example/miles:august",
            "trainer.config.milesSrcCommit": "31f1ca9",
            "agentServer.maxConcurrent": 6,
        },
        {"rollout.agentTrialTimeoutSeconds": 10, **hrl.BROUGHT},
        {"trainer.recipeArgs": "# --save nothing\n--swiglu"},
        {"trainer.extraArgs": "--input-key prompt --label-key metadata --pad-token x --use-token-output"},
        {
            "trainer.preset": "glm47-flash-sync",
            "trainer.config": {},
            "trainer.maxSeqLen": 65536,
            "agentServer.maxConcurrent": 32,
        },
    ],
    ids=str,
)
def test_the_smallest_value_that_passes_passes(changes: dict[str, Any]) -> None:
    """Of an engine that reads raw arguments and presets."""
    assert decide(hrl.job({"trainer.engine": "miles", **changes}), hrl.world()).status.phase != "Refused"


@pytest.mark.parametrize(
    ("field", "text", "says"),
    [
        ("extraArgs", "--over-sampling-batch-size many", "over_sampling_batch_size must be an integer"),
        ("extraArgs", "--rollout-batch-size -8", "it is '-8'"),
        ("extraArgs", "--n-samples-per-prompt 0", "it is '0'"),
        ("extraArgs", "--lr 'open", "trainer.extraArgs"),
        ("customConfigYaml", "rollout_batch_size: .inf", "it is inf"),
        ("customConfigYaml", "rollout_batch_size: 0x" + "f" * 9000, "it is a int"),
        ("customConfigYaml", "rollout_batch_size: &a [*a]", "it is a list"),
        ("customConfigYaml", "rollout_batch_size: 8.5", "it is 8.5"),
        ("customConfigYaml", "when: 2001-99-99", "trainer.customConfigYaml: month must be in 1..12"),
        ("customConfigYaml", "a: !!timestamp x", "trainer.customConfigYaml"),
        ("customConfigYaml", "a: !!bool x", "trainer.customConfigYaml"),
        ("customConfigYaml", "a: !!int ''", "trainer.customConfigYaml"),
        ("customConfigYaml", "[" * 5000, "nested too deeply"),
        ("customConfigYaml", "- a", "must be a mapping"),
        ("customConfigYaml", "seed: 1\nlr: 2\nseed: 2", "line 3: key 'seed' stands there twice; remove one"),
    ],
    ids=lambda value: value[:40],
)
def test_raw_text_that_cannot_be_read_is_refused_by_name(field: str, text: str, says: str) -> None:
    decided = decide(hrl.job({f"trainer.{field}": text}), hrl.world())
    assert condition(decided, "Admitted") == ("False", "InvalidArguments")
    assert says in message(decided, "Admitted")


@pytest.mark.parametrize("flag", ["--save", "--dump-det=/x", "--loa", "--actor_num_nodes", "--router-external-hos h"])
def test_a_reserved_flag_is_refused_however_it_is_spelt(flag: str) -> None:
    decided = decide(hrl.job({"trainer.recipeArgs": flag}), hrl.world())
    assert condition(decided, "Admitted") == ("False", "ReservedArgument")


def test_a_missing_or_unlabelled_sandbox_namespace_is_refused() -> None:
    for namespace in (None, {"metadata": {"name": "kube-system", "labels": {}}}):
        decided = decide(hrl.job(), hrl.world(sandbox_namespace=namespace))
        assert condition(decided, "Admitted") == ("False", "SandboxNamespaceNotAllowed")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"agentServer.sandbox.namespace": "boxes"}, "it reads harborrl-sandboxes alone: leave agentServer.sandbox"),
        ({}, "have an administrator apply the chart again"),
    ],
)
def test_a_sandbox_namespace_that_may_not_be_read_is_not_told_to_be_absent(changes: dict[str, Any], says: str) -> None:
    hidden = hrl.world(sandbox_namespace=None, sandbox_namespace_is_hidden=True)
    decided = decide(hrl.job(changes), hidden)
    assert condition(decided, "Admitted") == ("False", "SandboxNamespaceNotAllowed")
    assert says in message(decided, "Admitted")
    assert "does not exist" not in message(decided, "Admitted")


def test_gpu_nodes_that_share_a_node_bound_claim_are_refused() -> None:
    bound = {"harborrl-data": hrl.claim(mode="ReadWriteOnce")}
    gpus = decide(hrl.job({"trainer.engine": "miles", "trainer.gpusPerNode": 8}), hrl.world(claims=bound))
    assert condition(gpus, "Admitted") == ("False", "ClaimNotShared")
    assert decide(hrl.job(), hrl.world(claims=bound)).status.phase != "Refused"


def test_miles_is_refused_before_anything_is_held_where_nothing_names_an_image_of_it() -> None:
    decided = plan(hrl.job(base=hrl.MINIMAL_SPEC), hrl.world(), Settings(miles_image=""), hrl.NOW)
    reached.note_status(decided.status)
    assert condition(decided, "Admitted") == ("False", "EngineUnavailable")
    assert "trainer.engine: native" in message(decided, "Admitted")
    assert decided.apply == ()


def test_a_corrected_spec_is_admitted_at_once() -> None:
    refused = decide(hrl.job({"agentServer.maxConcurrent": 7}), hrl.world())
    decided = decide(hrl.job(generation=2, status=refused.status), hrl.world())
    assert condition(decided, "Admitted") == ("Unknown", "AwaitingPreflight")
    assert decided.status.phase == "StartingAgentServer"


@pytest.mark.parametrize(
    ("base", "claims"), [(hrl.MINIMAL_SPEC, None), (hrl.DESIGN_SPEC, "all")], ids=["minimal", "design"]
)
def test_the_minimal_job_and_the_documented_example_are_admitted(base: dict[str, Any], claims: str | None) -> None:
    roles = ("models", "tasks", "checkpoints", "traces", "trials")
    found = {"harborrl-data": hrl.claim()} if claims is None else {role: hrl.claim(role) for role in roles}
    decided = decide(hrl.job(base=base), hrl.world(claims=found))
    assert decided.status.phase == "StartingAgentServer"
    assert condition(decided, "CapacityTight") == ("False", "CapacitySufficient")


def test_a_refill_above_the_slots_is_said_and_not_refused() -> None:
    refill = {"trainer.engine": "miles", "trainer.extraArgs": "--over-sampling-batch-size 3"}
    job = hrl.job(refill)
    decided = decide(job, hrl.world())
    assert condition(decided, "CapacityTight") == ("True", "BurstExceedsCapacity")
    assert "up to 16 trials" in message(decided, "CapacityTight")
    enough = hrl.job({**refill, "agentServer.maxConcurrent": 16})
    assert condition(decide(enough, hrl.world()), "CapacityTight") == ("False", "CapacitySufficient")


def test_a_source_job_that_is_deleted_after_the_first_admission_is_still_the_source() -> None:
    job = hrl.job({"resumeFrom": {"job": "old"}})
    admitted = decide(job, hrl.world(resume_path="research/old-1234"))
    later = decide(hrl.then(job, admitted), hrl.world())
    assert later.status.phase == "StartingAgentServer"
    (config,) = [thing for thing in later.apply if thing["metadata"]["name"] == "quickstart-config"]
    assert "research/old-1234" in config["data"]["job.json"]
    edited = hrl.job({"resumeFrom": {"job": "other"}}, status=later.status)
    assert condition(decide(edited, hrl.world()), "Admitted") == ("False", "ResumeSourceInvalid")


def test_a_gang_scheduler_of_the_installation_is_as_good_as_a_queue() -> None:
    job = hrl.job({"trainer.allowPartialStart": False})
    with_gang = replace(hrl.SETTINGS, gang_scheduler="volcano")
    decided = plan(job, hrl.world(), with_gang, hrl.NOW)
    assert condition(decided, "Admitted") == ("Unknown", "AwaitingPreflight")
    cluster = ray_cluster(resolve(job, with_gang), 1, {})
    assert cluster["metadata"]["labels"]["ray.io/gang-scheduling-enabled"] == "true"


@given(
    median=st.floats(0, 100_000),
    ceiling=st.integers(1, 604_800),
    factor=st.integers(2, 100),
    waited=st.floats(0, 604_800),
)
def test_a_run_never_counts_as_stalled_within_its_trial_ceiling(
    median: float, ceiling: int, factor: int, waited: float
) -> None:
    """I3: by construction, whatever the factor says."""
    spec = hrl.job({"rollout.agentTrialTimeoutSeconds": ceiling, "progress": {"stallFactor": factor}}).spec
    report = read_progress(hrl.progress(changes={"rollout.medianSeconds": median}), hrl.UID)
    assert isinstance(report, Progress)
    stalled = stall(spec, report, hrl.ago(min(waited, ceiling)), hrl.NOW)
    assert stalled is None
