"""`harborrl validate` says before anything is applied what the API server, the operator and the preflight would say."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from harborrl_cli.__main__ import app
from harborrl_cli.validation.jobs import Assumed, judge
from harborrl_operator.crd import custom_resource_definition
from harborrl_operator.manifests import rules, structure
from harborrl_operator.manifests.reading import LARGEST, MOST_NODES, documents

ROOT = Path(__file__).resolve().parents[2]
BAD = ROOT / "examples" / "quickstart" / "bad"
CONFIG = {"rolloutBatchSize": 2, "nSamplesPerPrompt": 4, "globalBatchSize": 8}
SPEC: dict[str, Any] = {
    "model": {"path": "m"},
    "data": {"jsonl": "train.jsonl"},
    "trainer": {"engine": "native", "config": CONFIG},
}


def job(spec: dict[str, Any] | None = None, name: Any = "x", **changes: Any) -> dict[str, Any]:
    made = {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "metadata": {"name": name}}
    return made | {"spec": SPEC if spec is None else spec} | changes


def merged(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other
    return {**one, **{key: merged(one.get(key), value) for key, value in other.items()}}


def said(document: Any, **assumed: Any) -> list[str]:
    return [f"{one.path}: {one.message}" for one in judge(document, Assumed(**assumed)).findings]


def harborrl(*words: object, stdin: str = "") -> Result:
    return CliRunner().invoke(app, ["validate", *(str(word) for word in words)], input=stdin)


def write(path: Path, *values: Any) -> Path:
    path.write_text(yaml.safe_dump_all(values))
    return path


def test_a_job_with_its_required_fields_is_admitted() -> None:
    assert said(job()) == []


def test_fields_that_are_null_count_as_left_out() -> None:
    nothing = {"eval": None, "suspend": None, "trainer": {"config": {"rolloutShuffle": None}}}
    assert said(job(merged(SPEC, nothing))) == []


@pytest.mark.parametrize("name", ["job.yaml", "learn.yaml"])
def test_the_examples_are_admitted(name: str) -> None:
    done = harborrl(ROOT / "examples" / "quickstart" / name)
    assert (done.exit_code, done.stdout.count("can be admitted")) == (0, 1)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model": {"tipe": "x"}}, "spec.model.tipe: is no field of a HarborRLJob; did you mean type?"),
        ({"zzz": 1}, "spec.zzz: is no field of a HarborRLJob; remove it"),
        ({"model": {"path": None}}, "spec.model.path: is required; add it"),
        ({"trainer": {"nodes": "2"}}, "spec.trainer.nodes: is the text '2', must be a whole number; remove the quotes"),
        ({"trainer": {"nodes": 1.5}}, "spec.trainer.nodes: is 1.5, must be a whole number"),
        ({"trainer": {"nodes": True}}, "spec.trainer.nodes: is true, must be a whole number"),
        ({"trainer": {"nodes": 0}}, "spec.trainer.nodes: is 0, must be at least 1"),
        ({"trainer": {"config": {"lr": 0}}}, "spec.trainer.config.lr: is 0, must be above 0"),
        ({"trainer": {"engine": "other"}}, "spec.trainer.engine: is 'other', must be one of miles, native"),
        ({"trainer": {"recipeArgs": 1}}, "spec.trainer.recipeArgs: is 1, must be a text; put it in quotes"),
        ({"trainer": []}, "spec.trainer: is a list, must be an object"),
        ({"queueName": "Not A Name"}, "spec.queueName: is 'Not A Name', must match"),
        (
            {"trainer": {"tolerations": [{"key": "a"}, {"effect": "NoSchedule"}]}},
            "spec.trainer.tolerations[1]: without a key it bears any taint and needs operator Exists",
        ),
        (
            {"trainer": {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}},
            "spec.trainer.tolerations[0]: operator Exists takes no value",
        ),
        (
            {"trainer": {"tolerations": [{"key": "a", "tolerationSeconds": 0}]}},
            "spec.trainer.tolerations[0]: tolerationSeconds is for effect NoExecute alone",
        ),
        ({"trainer": {"sharedMemory": 1.5}}, "spec.trainer.sharedMemory: is 1.5, must be a whole number or a text"),
        ({"trainer": {"sharedMemory": -1}}, "spec.trainer.sharedMemory: is -1, must be at least 0"),
        ({"trainer": {"env": [{"value": "x"}]}}, "spec.trainer.env[0].name: is required; add it"),
        ({"trainer": {"tolerations": [None]}}, "spec.trainer.tolerations[0]: is null"),
        ({"data": {"tasks": {}}}, "spec.data: spec.data needs exactly one of jsonl and tasks"),
        ({"workloadPriorityClass": "high"}, "spec.workloadPriorityClass: spec.workloadPriorityClass is an order"),
        ({"resumeFrom": {}}, "spec.resumeFrom: spec.resumeFrom needs exactly one"),
        ({"trainer": {"topology": {"required": "a", "preferred": "b"}}}, "spec.trainer.topology: spec.trainer"),
        ({"agentServer": {"url": "http://10.0.0.1:30000"}}, "spec.agentServer.url: spec.agentServer.url must be"),
        ({"agentServer": {"url": "http://2130706433"}}, "spec.agentServer.url: spec.agentServer.url must be"),
        ({"agentServer": {"url": "http://10-0-0-1.x.pod"}}, "spec.agentServer.url: spec.agentServer.url must be"),
        ({"trainer": {"env": [{"name": "A_TOKEN", "value": "s"}]}}, "spec.trainer.env[0]: A_TOKEN looks like a secret"),
        ({"trainer": {"env": [{"name": "HARBORRL_JOB", "value": "s"}]}}, "spec.trainer.env[0]: HARBORRL_JOB is set by"),
    ],
)  # fmt: skip
def test_what_the_api_server_would_refuse_is_refused_by_its_field(change: dict[str, Any], expected: str) -> None:
    found = said(job(merged(SPEC, change)))
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_what_kubernetes_calls_a_field_of_ours_is_told_by_our_name() -> None:
    (found,) = said(job(merged(SPEC, {"storage": {"checkpoints": {"pvc": "x", "claim": "x"}}})))
    assert found.endswith("is no field of a HarborRLJob; did you mean pvc?")


@pytest.mark.parametrize("url", ["http://agents.team.svc:30000", "https://agents.example.com/x"])
def test_a_stable_url_is_taken(url: str) -> None:
    assert said(job(merged(SPEC, {"agentServer": {"url": url}}))) == []


@pytest.mark.parametrize(
    ("change", "path", "numbers"),
    [
        ({"agentServer": {"agentTimeoutSeconds": 7000}}, "spec.rollout.agentTrialTimeoutSeconds", "to at least 8620"),
        ({"agentServer": {"maxConcurrent": 7}}, "spec.agentServer.maxConcurrent", "Set it to at least 8"),
        ({"agentServer": {"sandbox": {"timeoutSeconds": 6}}}, "spec.agentServer.sandbox.timeoutSeconds", "6001"),
        ({"trainer": {"config": {"globalBatchSize": 7}}}, "spec.trainer.config.globalBatchSize", "to 8 or a divisor"),
        ({"trainer": {"nodes": 2}}, "spec.trainer.nodes", "Set queueName"),
        ({"trainer": {"recipeArgs": "--save /x"}}, "spec.trainer.recipeArgs", "Remove it"),
        ({"trainer": {"recipeArgs": "'"}}, "spec.trainer.recipeArgs", "line 1: a quote is never closed"),
        ({"agentServer": {"agentName": "nobody"}}, "spec.agentServer.agentName", "is not among the agents"),
    ],
)  # fmt: skip
def test_what_the_operator_would_refuse_names_the_smallest_change_that_passes(
    change: dict[str, Any], path: str, numbers: str
) -> None:
    found = [one for one in judge(job(merged(SPEC, change)), Assumed()).findings if one.severity == "refused"]
    assert path in {one.path for one in found}
    assert any(numbers in one.message for one in found)


def test_every_fault_is_named_and_not_the_first_alone() -> None:
    broken = job(
        merged(SPEC, {"agentServer": {"maxConcurrent": 1, "agentTimeoutSeconds": 9000}, "trainer": {"nodes": 3}})
    )
    reasons = {one.reason for one in judge(broken, Assumed()).findings}
    assert {"BudgetExceedsCeiling", "ConcurrencyBelowInFlight", "PartialStartNotAllowed"} <= reasons


def test_what_only_a_cluster_knows_is_taken_as_it_should_be() -> None:
    assert said(job(merged(SPEC, {"trainer": {"nodes": 2}})), gang_scheduler="volcano") == []
    assert said(job(merged(SPEC, {"resumeFrom": {"job": "other"}, "storage": {"models": {"pvc": "some"}}}))) == []


def test_a_burst_that_waits_is_a_warning_and_no_refusal(tmp_path: Path) -> None:
    trainer = {"engine": "miles", "extraArgs": "--over-sampling-batch-size 4"}
    change = {"model": {"path": "Qwen3-4B", "type": "qwen3-4B"}, "trainer": trainer}
    path = write(tmp_path / "job.yaml", job(merged(SPEC, change)))
    done = harborrl(path)
    assert done.exit_code == 0
    assert f"{path}:5: spec.agentServer.maxConcurrent: warning: A refill with over-sampling" in done.stdout


def test_each_line_says_file_line_path_what_and_what_to_do(tmp_path: Path) -> None:
    values = {"kind": "ConfigMap"}, None, job(merged(SPEC, {"trainer": {"nodes": 0}})), job()
    path = write(tmp_path / "jobs.yaml", *values)
    lines = path.read_text().splitlines()
    jobs = [at for at, line in enumerate(lines, 1) if line.startswith("apiVersion")]
    done = harborrl(path)
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        f"{path}:1: note: ConfigMap is not judged here",
        f"{path}:{lines.index('    nodes: 0') + 1}: spec.trainer.nodes: is 0, must be at least 1",
        f"{path}:{jobs[1]}: default/x can be admitted, as far as can be known without a cluster",
    ]


def test_a_line_is_that_of_the_field_or_of_what_is_nearest_around_it() -> None:
    _, found = documents("a: 1\n---\n# remark\nspec:\n  list:\n  - name: x\n  - {name: y}\n  other: 1\n")
    paths = {"": 4, "metadata.name": 4, "spec.list[1].name": 7, "spec.list[5]": 5, "spec.other.deeper": 8, "spec.no": 4}
    assert {path: found.line_of(path) for path in paths} == paths


def test_what_is_wrong_with_the_text_has_its_line_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("kind: Pod\n---\na: 1\na: 2\n---\nb: [\n")
    assert [line.split(": ")[0] for line in harborrl(path).stdout.splitlines()] == [
        f"{path}:{line}" for line in (1, 4, 7)
    ]


def test_for_programs_each_document_has_its_verdict_and_adjustments(tmp_path: Path) -> None:
    done = harborrl(write(tmp_path / "a.yaml", job()), "--json", "--namespace", "research")
    (found,) = json.loads(done.stdout)["documents"]
    assert (found["job"], found["admitted"], found["findings"]) == ("research/x", True, [])
    assert {one["field"]: one["value"] for one in found["adjustments"]}["agentServer.maxConcurrent"] == "8"


def test_exit_codes_tell_refused_from_unreadable(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good.yaml", job()), write(tmp_path / "bad.yaml", job(name="No"))
    assert harborrl(good).exit_code == 0
    assert harborrl(good, bad).exit_code == 1
    missing = harborrl(tmp_path / "missing.yaml", good)
    assert (missing.exit_code, "can be admitted" in missing.stdout) == (2, True)
    assert harborrl().exit_code == 2
    nothing = harborrl("-", stdin="kind: Pod\n")
    assert (nothing.exit_code, nothing.stderr) == (1, "no HarborRLJob in -\n")


def test_why_a_file_cannot_be_read_is_said_also_to_programs(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("# é".encode("latin-1"))
    for name, said in (
        ("missing.yaml", "cannot be read (No such file or directory); correct its name"),
        ("latin.yaml", "is not UTF-8 (byte 2); save it as UTF-8"),
        ("", "cannot be read (Is a directory); name the files in it"),
    ):
        path = tmp_path / name
        done = harborrl(path, "--json")
        assert (done.exit_code, done.stderr) == (2, f"{path}: {said}\n")
        assert json.loads(done.stdout)["unreadable"] == [{"file": str(path), "message": said}]


DOUBLING = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise(ascii_lowercase))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "expected the node content, but found '<stream end>'; correct the YAML"),
        ("a: 1\na: 2\n", "key 'a' stands there twice; remove one"),
        ("a: *x\n", "found undefined alias"),
        ("a: !!python/object:os.system x\n", "could not determine a constructor"),
        ("[" * 3000, "is nested too deeply"),
        ("a: &a [*a]", "its aliases unfold without end"),
        (
            "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise(ascii_lowercase)),
            "unfold without end",
        ),
    ],
)
def test_yaml_that_cannot_be_read_is_a_finding(text: str, message: str) -> None:
    *_, last = documents(text)
    assert message in last.faults[0].message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("".join(f"k{at}: 1\n" for at in range(MOST_NODES)), "has more than 100000 values, and the API server takes"),
        (f"a: {'x' * LARGEST}", f"is an object of {LARGEST + 9} bytes, and the API server takes {LARGEST}; make it"),
    ],
    ids=["many", "long"],
)
def test_what_no_api_server_stores_is_too_large_and_not_full_of_aliases(text: str, message: str) -> None:
    (found,) = documents(f"{text}\n")
    assert found.faults[0].message.startswith(message)


def test_a_long_comment_is_no_part_of_the_object() -> None:
    (found,) = documents(f"# {'x' * LARGEST}\na: 1\n")
    assert (found.value, found.faults) == ({"a": 1}, ())


def test_of_very_many_unknown_fields_some_are_named() -> None:
    found = said(job(merged(SPEC, {f"unknown{at}": 1 for at in range(50)})))
    assert len(found) == 21
    assert found[-1] == "spec: has 30 more that are no field of a HarborRLJob; remove them"


def test_yaml_is_read_as_kubectl_reads_it() -> None:
    (found,) = documents("lr: 1e-6\nsmall: 3.0e-5\nday: 2026-01-02\nport: 8080\nname: 1e\n")
    assert found.value == {"lr": 1e-6, "small": 3e-5, "day": "2026-01-02", "port": 8080, "name": "1e"}


def test_a_secret_in_broken_yaml_is_not_repeated() -> None:
    *_, last = documents("key: 'hf_secret\nother: [")
    assert "hf_secret" not in last.faults[0].message


def task(root: Path, name: str) -> None:
    (root / name / "tests").mkdir(parents=True)
    (root / name / "task.toml").write_text('[environment]\ndocker_image = "busybox"\n')
    (root / name / "instruction.md").write_text("go")
    (root / name / "tests" / "test.sh").touch()


def test_with_a_task_root_rows_and_tasks_are_judged_as_the_preflight_does(tmp_path: Path) -> None:
    task(tmp_path, "a")
    rows: list[dict[str, Any]] = [{"prompt": "go", "metadata": {"instance_id": name}} for name in ("a", "gone")]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = judge(job(), Assumed(task_root=tmp_path)).findings
    assert [(one.path, one.reason) for one in found] == [("spec.data", "TaskNotFound")]
    assert "1 of 2 prompts name no task directory" in found[0].message
    (tmp_path / "other.jsonl").write_text(json.dumps(rows[0]))
    assert said(job(), task_root=tmp_path, data=tmp_path / "other.jsonl") == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty-tasks", "NoTasks"),
        ("prompt-without-task", "TaskNotFound"),
        ("task-without-verifier", "TaskWithoutVerifier"),
    ],
)
def test_the_bad_examples_data_is_refused_for_its_reason(name: str, reason: str) -> None:
    manifest = yaml.safe_load((BAD / f"{name}.yaml").read_text())
    data: dict[str, Any] = {"jsonl": "train.jsonl"} if name == "prompt-without-task" else {"tasks": {}}
    manifest["spec"]["data"] = data
    found = judge(manifest, Assumed(task_root=BAD / "data" / name)).findings
    assert reason in {one.reason for one in found}


def test_with_data_alone_the_rows_are_judged(tmp_path: Path) -> None:
    data = tmp_path / "train.jsonl"
    data.write_text('{"prompt": "", "metadata": {"instance_id": "a", "reward": 1}}\nnope\n')
    found = said(job(), data=data)
    assert found[0] == "spec.data: train.jsonl:1 has an empty prompt (instance a); correct or remove it"
    assert found[1].startswith("spec.data: train.jsonl:2 is not JSON")
    assert "has no row that can be used" in found[2]
    data.write_text('{"prompt": "x", "metadata": {"instance_id": "a", "reward": 1}}\n')
    assert "metadata key reward of 1 rows of train.jsonl is ignored" in said(job(), data=data)[0]


def messages() -> Iterator[str]:
    (version,) = custom_resource_definition()["spec"]["versions"]
    for rule in version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"]:
        yield rule["message"]


def test_each_of_the_crds_rules_is_judged_here_or_by_the_operators_checks() -> None:
    judged = (*rules.SPEC_RULES, *rules.CHECKED_BY_THE_OPERATOR)
    assert [one for one in messages() if sum(one.startswith(begin) for begin in judged) != 1] == []
    assert len(judged) == len(list(messages()))


def keywords(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            yield key
            if key == "properties":
                for one in value.values():
                    yield from keywords(one)
            elif key in ("items", "additionalProperties"):
                yield from keywords(value)


def test_each_keyword_of_the_crds_schema_is_judged() -> None:
    source = Path(structure.__file__).read_text()
    (version,) = custom_resource_definition()["spec"]["versions"]
    used = set(keywords(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))
    told = {"default", "description", "x-kubernetes-validations", "minLength", "maxLength", "minItems", "maxItems"}
    assert [word for word in used - told if f'"{word}"' not in source] == []


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**10) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    ["model", "data", "trainer", "agentServer", "rollout", "storage", "eval", "resumeFrom", "network"]
)


@given(part=FIELDS, value=ANY, metadata=ANY)
def test_no_document_breaks_it(part: str, value: Any, metadata: Any) -> None:
    judge(job(merged(SPEC, {part: value})), Assumed())
    judge(
        {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "metadata": metadata, "spec": value}, Assumed()
    )
    judge(value, Assumed())


def test_values_that_are_hardly_meant_are_warnings() -> None:
    pytest.importorskip("harborrl_trainer.config", reason="this tree has no HarborFrameworkConfig")
    raw = {"trainer": {"engine": "miles", "recipeArgs": "--wandb-group run#1"}}
    found = judge(job(merged(SPEC, raw)), Assumed()).findings
    assert ("spec.trainer.recipeArgs", "warning") in {(one.path, one.severity) for one in found}
