"""The plan of an incarnation: what it is made of, that it is made once, and how the supervisor submits it."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.seam import Launch, Start
from harborrl_trainer.layout import IncarnationId
from harborrl_trainer.miles_engine import plan as plans
from harborrl_trainer.miles_engine import sealing
from harborrl_trainer.miles_plan import arguments
from harborrl_trainer.miles_plan.planning import Planner
from harborrl_trainer.preflight import miles as preflight
from harborrl_trainer.supervisor.entry import Entering, by_plan
from harborrl_trainer.supervisor.ray_api import RayApi
from harborrl_trainer.supervisor.sidecar import Supervisor, World
from support import reached
from support.miles_files import lora_checkpoint, megatron_checkpoint
from support.miles_run import NO_TRIGGER, Run, launch, product_launch
from support.supervision import Pod

MINE = IncarnationId(2, 1)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.of(tmp_path)


def planned(run: Run, make: Callable[..., Launch] = launch, **environment: str) -> plans.Plan:
    return plans.load(Planner(run.job, make, environment).plan(*MINE))


def test_a_first_plan_begins_at_0_from_the_model_and_claims_the_run(run: Run) -> None:
    plan = planned(run, HARBORRL_CODE="/opt/code")
    assert (plan.first_rollout, plan.ending, plan.retention.older) == (0, None, ())
    assert "--load" not in plan.argv
    assert plan.trigger == str(run.mine(1, 2).checkpoints / "save-trigger")
    assert plan.env["PYTHONPATH"] == "/opt/code:/opt/code/harborrl_trainer/miles/pythonpath"
    assert plan.env["HARBORRL_TRIALS_DIR"] == str(run.mine(1, 2).trials)
    assert plan.env["MILES_ROUTER_EXTERNAL_HOST"] == run.job.trainer_host
    assert plan.checks.server == plans.Server(run.job.agent_server.url, owned=True, slots=8)
    assert plan.checks.ports == (30000, 31000)
    (claim,) = run.claims()
    assert (claim.attempt, claim.first_rollout, claim.resumed_from) == (2, 0, None)


@pytest.mark.parametrize(
    ("words", "names", "ports"),
    [
        (("--use-prometheus", "--prometheus-port", "9091"), [], (9091,)),
        (("--use-prometheus",), [], (9090,)),
        (("--use-prometheus",), ["PROMETHEUS_PORT"], ()),
        (("--prometheus-port", "9091"), [], ()),
    ],
)
def test_the_port_of_miles_metrics_is_looked_at_like_the_others(
    tmp_path: Path, words: tuple[str, ...], names: list[str], ports: tuple[int, ...]
) -> None:
    run = Run.of(tmp_path, envNames=names)

    def measured(job: JobDocument, start: Start) -> Launch:
        made = launch(job, start)
        return replace(made, argv=(*made.argv, *words))

    assert planned(run, measured).checks.ports == (30000, 31000, *ports)


def test_a_plan_is_made_once_although_the_volume_has_moved_on(run: Run) -> None:
    first = planned(run)
    megatron_checkpoint(run.mine(1, 2).checkpoints, 1)
    assert planned(run) == first


def test_miles_loads_from_links_and_a_tracker_of_our_own(run: Run) -> None:
    before = run.mine(1, 1).checkpoints
    place = megatron_checkpoint(before, 1)
    megatron_checkpoint(before, 3)
    (before / "iter_0000003" / ".metadata").unlink()  # torn: the tracker there says 3 all the same
    plan = planned(run)
    view = run.mine(1, 2).checkpoints.parent / "load"
    assert plan.argv[plan.argv.index("--load") + 1] == str(view)
    assert (view / sealing.TRACKER).read_text().strip() == "1"
    assert (view / "iter_0000001").resolve() == place
    assert sealing.problem(view, 1) == ""
    config = yaml.safe_load(Path(plan.argv[plan.argv.index("--custom-config-path") + 1]).read_text())
    assert config == {"start_rollout_id": 2}
    assert plan.seals == (plans.Seal(str(before), 1, data_state=True),)
    assert plan.retention.leftovers == (str(before / "iter_0000003"),)
    assert "iter_0000003 of a1/i1 is not whole: .metadata is missing" in plan.notices


def test_under_lora_the_base_model_and_the_place_in_the_data_are_seen_in_one_directory(tmp_path: Path) -> None:
    run = Run.of(tmp_path, lora={"rank": 16, "alpha": 32, "targetModules": ["q_proj"]})
    lora_checkpoint(run.mine(1, 1).checkpoints, 1)
    plan = planned(run)
    view = run.mine(1, 2).checkpoints.parent / "load"
    assert (view / "model.safetensors").resolve() == run.job.model.path / "model.safetensors"
    assert sealing.data_problem(view, 1) == ""
    assert sealing.tracker(view) is None
    config = yaml.safe_load(Path(plan.argv[plan.argv.index("--custom-config-path") + 1]).read_text())
    assert config == {"start_rollout_id": 2, "load": str(view)}


def test_an_adapter_goes_on_upon_the_weights_that_its_launch_names_not_upon_model_ref_load(tmp_path: Path) -> None:
    converted = tmp_path / "models" / "tiny_torch_dist"
    lora = {"rank": 16, "alpha": 32, "targetModules": ["q_proj"]}
    run = Run.of(tmp_path, lora=lora, model__refLoad=str(converted), preset="glm47-flash-sync", nodes=1, gpusPerNode=8)
    converted.mkdir()
    (converted / sealing.TRACKER).write_text("release")
    lora_checkpoint(run.mine(1, 1).checkpoints, 1, ranks=8)
    plan = planned(run, product_launch())
    assert (plan.ending, plan.first_rollout) == (None, 2)
    view = run.mine(1, 2).checkpoints.parent / "load"
    assert arguments.value_of(plan.argv, "--ref-load") == str(run.job.model.path)
    assert (view / "model.safetensors").resolve() == run.job.model.path / "model.safetensors"
    assert sealing.tracker(view) is None


@pytest.mark.parametrize("gpus", [1, 8])
def test_a_sealed_adapter_of_another_number_of_gpus_is_refused_with_both(tmp_path: Path, gpus: int) -> None:
    lora = {"rank": 16, "alpha": 32, "targetModules": ["q_proj"]}
    run = Run.of(tmp_path, lora=lora, gpusPerNode=gpus)
    lora_checkpoint(run.mine(1, 1).checkpoints, 1)
    sealing.seal(run.mine(1, 1).checkpoints, 1)
    ending = planned(run).ending
    assert ending is not None
    assert ending.exit_code == 64
    assert f"was saved by 2 training GPUs and the job trains on {gpus}" in ending.sentence
    assert run.claims() == ()


def test_a_torn_first_adapter_is_neither_sealed_nor_gone_on_from(tmp_path: Path) -> None:
    lora = {"rank": 16, "alpha": 32, "targetModules": ["q_proj"]}
    run = Run.of(tmp_path, lora=lora, gpusPerNode=8)
    lora_checkpoint(run.mine(1, 1).checkpoints, 1)
    plan = planned(run)
    assert (plan.ending, plan.first_rollout, plan.seals, plan.ranks) == (None, 0, (), 8)
    assert "iter_0000001 of a1/i1 is not whole: adapter/ holds 2 ranks, and 8 GPUs train" in plan.notices


def test_full_weights_do_not_become_an_adapter_nor_the_other_way_round(tmp_path: Path) -> None:
    run = Run.of(tmp_path, lora={"rank": 16, "alpha": 32, "targetModules": ["q_proj"]})
    megatron_checkpoint(run.mine(1, 1).checkpoints, 1)
    ending = planned(run).ending
    assert ending is not None
    assert (ending.exit_code, ending.sentence.startswith("trainer.lora: ")) == (64, True)
    assert run.claims() == ()


@pytest.mark.parametrize(
    ("harm", "code", "says"),
    [
        (lambda run: (run.volumes / "tasks" / "train.jsonl").write_text(""), 64, "has no row"),
        (lambda run: (run.volumes / "models" / "tiny" / "model.safetensors").unlink(), 64, "there are no weights"),
    ],
)
def test_what_speaks_against_a_start_is_a_plan_too(
    run: Run, harm: Callable[[Run], object], code: int, says: str
) -> None:
    harm(run)
    ending = planned(run).ending
    assert ending is not None
    assert ending.exit_code == code
    assert says in ending.sentence
    assert run.claims() == ()


def test_a_launch_that_is_refused_claims_nothing(run: Run) -> None:
    def refuse(_job: object, _start: Start) -> Launch:
        raise ConfigurationError("trainer.recipeArgs: --save is the operator's; remove it")

    ending = planned(run, refuse).ending
    assert ending == plans.Ending(64, "trainer.recipeArgs: --save is the operator's; remove it")
    assert run.claims() == ()


def test_adjustments_are_noted_after_what_the_volume_lacks(run: Run) -> None:
    megatron_checkpoint(run.mine(1, 1).checkpoints, 1, optimizer=False)
    assert planned(run, adjusted).notices == (
        "iter_0000001 holds no optimizer state: the optimizer starts cold (config.noSaveOptim)",
        "checkpoint on request is none: a stop waits for the next periodic checkpoint",
    )


def adjusted(job: JobDocument, start: Start) -> Launch:
    return replace(launch(job, start), adjustments=(NO_TRIGGER,))


def test_settings_go_into_the_users_configuration_file_and_win(tmp_path: Path) -> None:
    path = str(tmp_path / "overrides.yaml")
    given = Launch(
        argv=("train.py", "--custom-config-path", path, "--num-rollout", "9"),
        env={},
        files={path: "# mine\nlr: 2.0e-6\nstart_rollout_id: 7\nnum_rollout: 5\n"},
    )
    made = arguments.with_settings(given, {"start_rollout_id": 3}, tmp_path)
    assert made.argv == given.argv
    assert yaml.safe_load(made.files[path]) == {"lr": 2e-6, "start_rollout_id": 3, "num_rollout": 5}
    assert arguments.setting(made, "num_rollout") == 5
    broken = replace(given, files={path: "[1]"})
    with pytest.raises(ConfigurationError, match=r"customConfigYaml: is no mapping"):
        arguments.with_settings(broken, {"x": 1}, tmp_path)


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["--a", "1"], "1"),
        (["--a=1"], "1"),
        (["--a", "1", "--a", "2"], "2"),
        (["--a", "--b"], None),
        (["--ab", "1"], None),
        (["--a"], None),
    ],
)
def test_the_value_of_a_flag_is_its_last(argv: list[str], value: str | None) -> None:
    assert arguments.value_of(argv, "--a") == value


def test_the_preflight_finds_a_checkpoint_that_is_whole_without_our_mark(run: Run) -> None:
    assert preflight.check_resume(run.job).facts == {"resume": None}
    megatron_checkpoint(run.mine().checkpoints, 3)
    found = preflight.check_resume(run.job)
    assert (found.findings, found.facts["resume"]["rolloutId"]) == ([], 3)
    (run.mine().checkpoints / "iter_0000005").mkdir()
    (torn,) = preflight.check_resume(run.job).findings
    assert (torn.severity, torn.reason) == ("warn", "CheckpointIncomplete")
    assert torn.message.endswith("The run goes on at rollout 4.")


def test_arguments_that_cannot_be_made_are_refused_before_anything_is_held(run: Run) -> None:
    def refuse(_job: object, _start: Start) -> Launch:
        raise ConfigurationError("trainer.preset: x is not for Miles 9a00364")

    assert preflight.check_arguments(run.job, launch).findings == ()
    refused = preflight.check_arguments(run.job, refuse)
    reached.note_outcome(refused)
    (finding,) = refused.findings
    assert (finding.check, finding.reason, finding.severity) == ("I7", "ArgumentConflict", "refuse")


# The supervisor.


async def test_the_supervisor_submits_the_plans_driver_with_its_environment_and_reports_its_notices(
    tmp_path: Path,
) -> None:
    run = Run.of(tmp_path)
    pod = Pod(tmp_path)
    planner = Planner(run.job, adjusted, {"HARBORRL_CODE": "/opt/code"})
    async with pod.ray.client() as client:
        world = World(RayApi(client), pod.cluster, pod.marks, pod.agents, pod.clock.now, pod.clock.sleep, print)
        supervisor = Supervisor(run.job, 1, world, by_plan(planner.plan))
        pod.clock.at(5, pod.run_driver)
        pod.clock.at(40, supervisor.leave)
        await supervisor.live()
    (submitted,) = pod.ray.jobs.values()
    plan = run.mine().checkpoints.parent / "launch" / "plan.json"
    assert submitted.entrypoint == f"python3 -m harborrl_trainer.miles_engine {plan}"
    env = submitted.body["runtime_env"]["env_vars"]
    assert env["PYTHONPATH"].startswith("/opt/code:")
    assert env == json.loads(plan.read_text())["env"]
    assert pod.cluster.last["notices"] == list(plans.load(plan).notices) != []
    assert pod.cluster.last["resume"]["firstRollout"] == 0


async def test_planning_that_takes_long_keeps_the_supervisor_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harborrl_trainer.supervisor.entry.PATIENCE_SECONDS", 0.01)
    may_end = asyncio.Event()
    loop = asyncio.get_running_loop()

    def make(_id: IncarnationId) -> object:
        asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result()
        raise OSError(5, "the volume is gone")

    entering = Entering(make)  # type: ignore[arg-type]  # it never returns
    with pytest.raises(TimeoutError):
        await entering.entry(MINE)
    may_end.set()
    monkeypatch.setattr("harborrl_trainer.supervisor.entry.PATIENCE_SECONDS", 10)
    with pytest.raises(OSError, match="the volume is gone"):
        await entering.entry(MINE)


def test_without_a_data_set_of_its_own_miles_keeps_no_place_in_one(tmp_path: Path) -> None:
    run = Run.of(tmp_path, recipeArgs="--disable-rollout-global-dataset --rollout-function-path own.rollout")
    place = megatron_checkpoint(run.mine(1, 1).checkpoints, 1)
    sealing.data_state(place.parent, 1).unlink()
    plan = planned(run)
    assert (plan.first_rollout, plan.data_state) == (2, False)
    assert not any("data set" in notice for notice in plan.notices)


def test_task_directories_become_rows_that_miles_can_read(tmp_path: Path) -> None:
    run = Run.of(tmp_path, data={"tasks": {"root": str(tmp_path / "tasks")}})
    assert planned(run).ending is None
    rows = (run.mine(1, 2).checkpoints.parent / "launch" / "prompts.jsonl").read_text().splitlines()
    assert [json.loads(row)["metadata"]["instance_id"] for row in rows] == ["one", "three", "two"]
    assert json.loads(rows[0])["prompt"] == "Write hello into greeting.txt."


@pytest.mark.parametrize("left", [None, 1])
def test_a_run_that_is_known_to_have_saved_is_refused_on_an_emptied_and_on_an_older_volume(
    tmp_path: Path, left: int | None
) -> None:
    run = Run.of(tmp_path, knownCheckpoint={"rolloutId": 3}, resumeFrom={"path": "gone"})
    if left is not None:
        megatron_checkpoint(run.mine(1, 1).checkpoints, left)
    ending = planned(run).ending
    assert ending is not None
    assert (ending.exit_code, "known to have saved a checkpoint of rollout 3" in ending.sentence) == (65, True)
    assert run.claims() == ()
    assert [one.reason for one in preflight.check_resume(run.job).findings] == ["RestartAtZero"]


def test_a_known_checkpoint_that_is_there_is_gone_on_from(tmp_path: Path) -> None:
    run = Run.of(tmp_path, knownCheckpoint={"rolloutId": 3})
    megatron_checkpoint(run.mine(1, 1).checkpoints, 3)
    assert planned(run).first_rollout == 4
