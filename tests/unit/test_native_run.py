"""The whole native engine with a tiny random model on a local Ray: actors, dumps, checkpoints, stop, resume."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from harborrl_trainer.checkpoints import StartPoint, find_start
from harborrl_trainer.errors import APPLICATION, FINISHED, STOPPED
from harborrl_trainer.failures import failure_of
from harborrl_trainer.job import JobDocument, TrainingConfig, parse_job
from harborrl_trainer.layout import IncarnationLayout, RunLayout
from harborrl_trainer.native import actors
from harborrl_trainer.native.policy import Policy, TrainSample, load_policy
from harborrl_trainer.native.run import begin, main, policy_config
from harborrl_trainer.native.serving import serving
from support import tiny_model
from support.fake_agent_server import FakeAgentServer, outcome
from support.jobs import document, make_task, make_volumes
from support.local_ray import free_ports

ROOT = Path(__file__).resolve().parents[2]
TASKS = ("alpha", "beta")
SAMPLES = 3
ROLLOUTS = 3


@pytest.fixture(scope="module", autouse=True)
def ray_cluster() -> Iterator[None]:
    """One node on the loopback address, so that no firewall of the machine stands between its parts."""
    with pytest.MonkeyPatch.context() as environment:
        # Ray's token authentication would leave a token in the home directory of whoever runs the tests.
        environment.setenv("RAY_AUTH_MODE", "disabled")
        environment.setenv("PYTHONPATH", f"{ROOT / 'trainer'}:{ROOT / 'tests'}")
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=128 * 1024 * 1024,
            _node_ip_address="127.0.0.1",
        )
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.save(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, model: Path) -> tuple[JobDocument, FakeAgentServer]:
    """A run of three-turn trials from its first rollout to its last, with evaluation before and after."""
    volumes = tmp_path_factory.mktemp("volumes")
    fake = FakeAgentServer(reward=_byte_mean, observations=("ok\n", "a.txt\nb.txt\n"), capacity=4)
    with _served(fake) as url:
        job = _job(volumes, model, url)
        assert _main(job, 1) == FINISHED
    return job, fake


def test_a_model_that_cannot_be_loaded_by_its_actor_is_the_applications_failure(tmp_path: Path) -> None:
    async def build() -> None:
        policy = actors.start_policy(
            model=str(tmp_path), config=policy_config(TrainingConfig(), "float32"), reference="", optimizer=None
        )
        await policy.weights.remote()

    with pytest.raises(ray.exceptions.ActorDiedError) as died:
        asyncio.run(build())
    failure = failure_of(died.value)
    assert failure.exit_code == APPLICATION
    assert "config.json" in failure.sentence


def test_every_rollout_leaves_its_dumps(finished: tuple[JobDocument, FakeAgentServer]) -> None:
    layout = _layout(finished[0])
    for rollout in range(ROLLOUTS):
        assert layout.rollout_file(rollout).is_file()
        assert layout.train_file(rollout, 0).is_file()
        lines = layout.trajectory_file(rollout).read_text().splitlines()
        assert len(lines) == len(TASKS) * SAMPLES
        assert json.loads(lines[0])["messages"][0]["role"] == "system"
    assert layout.rollout_file(0, evaluation=True).is_file()
    assert layout.rollout_file(ROLLOUTS, evaluation=True).is_file()


def test_samples_are_dumped_under_the_keys_that_miles_uses(finished: tuple[JobDocument, FakeAgentServer]) -> None:
    dump = _load(_layout(finished[0]).rollout_file(1))
    assert dump["rollout_id"] == 1
    for sample in dump["samples"]:
        assert sample["status"] in {"completed", "truncated"}
        assert len(sample["loss_mask"]) == len(sample["rollout_log_probs"]) == sample["response_length"]
        assert set(sample["weight_versions"]) == {1}
    assert [sample["index"] for sample in dump["samples"]] == list(range(6, 12))


def test_metrics_and_trials_are_one_line_each(finished: tuple[JobDocument, FakeAgentServer]) -> None:
    layout = _layout(finished[0])
    lines = [json.loads(line) for line in layout.metrics.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["eval", "step", "step", "step", "eval"]
    assert all(line["logprob_gap_max"] < 0.001 for line in lines if line["kind"] == "step")
    trials = [json.loads(line) for line in (layout.trials / "native.jsonl").read_text().splitlines()]
    assert sum(not trial["evaluation"] for trial in trials) == ROLLOUTS * len(TASKS) * SAMPLES
    assert all(trial["kept"] for trial in trials)


def test_no_more_trials_were_in_flight_than_the_server_had_room_for(
    finished: tuple[JobDocument, FakeAgentServer],
) -> None:
    assert 1 < finished[1].widest <= finished[1].capacity


def test_requests_are_the_contracts(finished: tuple[JobDocument, FakeAgentServer]) -> None:
    expected = json.loads((ROOT / "tests" / "contract" / "run_request.json").read_text())
    assert set(finished[1].requests[0]) >= set(expected) - {"task_difficulty"}


def test_checkpoints_are_pruned_to_the_newest_and_hold_a_loadable_model(
    finished: tuple[JobDocument, FakeAgentServer],
) -> None:
    layout = _layout(finished[0])
    kept = sorted(path.name for path in layout.checkpoints.iterdir() if path.name.startswith("iter_"))
    assert kept == ["iter_0000001", "iter_0000002"]
    assert layout.latest_checkpoint.read_text() == "2\n"
    assert find_start(finished[0]).first_rollout == ROLLOUTS


def test_every_sampled_token_is_trained_once_and_nothing_else_is(
    finished: tuple[JobDocument, FakeAgentServer],
) -> None:
    """The oracle: the engine's own log of what it sampled, joined with what was trained on."""
    layout = _layout(finished[0])
    endings = set()
    for rollout in range(ROLLOUTS):
        logged: dict[str, list[dict[str, Any]]] = {}
        for line in (layout.traces / "engine_log" / f"{rollout}.jsonl").read_text().splitlines():
            entry = json.loads(line)
            logged.setdefault(entry["request_id"].rsplit("-", 1)[0], []).append(entry)
        sessions = [sample["metadata"]["session"] for sample in _load(layout.rollout_file(rollout))["samples"]]
        data = _load(layout.train_file(rollout, 0))["rollout_data"]
        assert sorted(logged) == sorted(sessions)
        for at, session in enumerate(sessions):
            turns = sorted(logged[session], key=lambda entry: int(entry["prompt_tokens"]))
            tokens, length = data["tokens"][at], data["response_lengths"][at]
            begin = len(tokens) - length
            mask, log_probs = [0] * length, [0.0] * length
            for turn in turns:
                first = turn["prompt_tokens"] - begin
                for offset, (token, log_prob) in enumerate(zip(turn["token_ids"], turn["log_probs"], strict=True)):
                    assert tokens[begin + first + offset] == token
                    mask[first + offset] += 1
                    log_probs[first + offset] = log_prob
                assert turn["weight_version"] == rollout
                endings.add((len(turns), turn["finish_reason"]))
            assert data["loss_masks"][at] == mask
            assert data["rollout_log_probs"][at] == log_probs
    assert (3, "stop") in endings  # three turns, ended by the end-of-turn token
    assert any(reason == "length" for _, reason in endings)


def test_what_was_sampled_is_re_scored_under_the_recorded_weights(
    finished: tuple[JobDocument, FakeAgentServer], model: Path
) -> None:
    job, layout = finished[0], _layout(finished[0])
    for rollout, weights in ((0, model), (2, layout.checkpoint(1))):
        policy: Policy = load_policy(str(weights), policy_config(job.config, "float32"))
        data = _load(layout.train_file(rollout, 0))["rollout_data"]
        samples = [
            TrainSample(0, tuple(tokens[:-length]), tuple(tokens[-length:]), tuple(mask), tuple(rolled), 0.0)
            for tokens, length, mask, rolled in zip(
                data["tokens"], data["response_lengths"], data["loss_masks"], data["rollout_log_probs"], strict=True
            )
        ]
        for scored, trained, rolled in zip(
            policy.score(samples), data["log_probs"], data["rollout_log_probs"], strict=True
        ):
            assert scored == pytest.approx(trained, abs=0.001)
            assert scored == pytest.approx(rolled, abs=0.001)


def test_a_stop_request_saves_what_was_trained_and_the_next_incarnation_goes_on_from_it(
    tmp_path: Path, model: Path
) -> None:
    """In the first rollout one task's sandboxes are lost: its group is dropped and the other one is trained."""
    first_rollout = 2 * SAMPLES + SAMPLES  # each lost trial is run once more

    async def before(body: dict[str, Any]) -> dict[str, Any] | None:
        if len(fake.requests) > first_rollout:
            if len(stopped) == 0:
                stopped.append(_layout(job).stop_request)
                stopped[0].touch()
            if len(fake.requests) <= first_rollout + len(TASKS) * SAMPLES:
                await asyncio.Event().wait()
        elif body["instance_id"] == "alpha":
            return outcome("SandboxLost", infra_failure=True)
        return None

    stopped: list[Path] = []
    fake = FakeAgentServer(reward=_byte_mean, before_trial=before, capacity=8)
    with _served(fake) as url:
        job = _job(tmp_path, model, url, eval=None, config__saveInterval=100)
        assert _main(job, 1) == STOPPED
        assert _layout(job).checkpoint(0).is_dir()
        assert fake.flushed
        assert _main(job, 2) == FINISHED
    _check_dropped_group(_layout(job))
    second = RunLayout.of(job).incarnation(1, 2)
    assert sorted(path.name for path in second.rollout_data.iterdir()) == ["1.pt", "2.pt"]
    state = json.loads((second.checkpoint(2) / "data_state.json").read_text())
    assert state["trained"] == ROLLOUTS


def test_a_damaged_checkpoint_is_set_aside_for_the_one_before(
    finished: tuple[JobDocument, FakeAgentServer],
) -> None:
    weights = _layout(finished[0]).checkpoint(2) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    assert begin(finished[0], 1, 2) == StartPoint(2, _layout(finished[0]).checkpoint(1))


def _check_dropped_group(layout: IncarnationLayout) -> None:
    [line] = [json.loads(text) for text in layout.metrics.read_text().splitlines()]
    assert (line["groups"], line["dropped_groups"], line["aborted"]) == (2, 1, SAMPLES)
    trials = [json.loads(text) for text in (layout.trials / "native.jsonl").read_text().splitlines()]
    assert {trial["drop_reason"] for trial in trials if not trial["kept"]} == {"group has 3 of 3 aborted: SandboxLost"}
    assert all(trial["replaced"]["cause"] == "SandboxLost" for trial in trials if trial["status"] == "aborted")


def _main(job: JobDocument, incarnation: int) -> int:
    """In float32, so that a wrong token or position cannot hide behind rounding."""
    return main(job, 1, incarnation, compute="float32")


def _byte_mean(_: str, answers: Any) -> float:
    """Any function of the text that differs between samples."""
    text = "".join(answers).encode()
    return sum(text) / max(len(text), 1) / 255


@contextmanager
def _served(fake: FakeAgentServer) -> Iterator[str]:
    """The fake on a thread with its own loop, as the engine under test owns this one."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    address: list[str] = []
    done = asyncio.Event()

    async def serve() -> None:
        async with serving(fake.app(), 0) as port:
            address.append(f"http://127.0.0.1:{port}")
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(timeout=120)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()
        loop.close()


def _job(volumes: Path, model: Path, url: str, **changes: Any) -> JobDocument:
    make_volumes(volumes)
    for name in TASKS:
        make_task(volumes / "tasks", name)
    held_out = volumes / "eval.jsonl"
    held_out.write_text('{"prompt": "x", "metadata": {"instance_id": "gamma"}}\n')
    small = {
        "config__numRollout": ROLLOUTS,
        "config__rolloutBatchSize": len(TASKS),
        "config__nSamplesPerPrompt": SAMPLES,
        "config__globalBatchSize": len(TASKS) * SAMPLES,
        "config__rolloutMaxResponseLen": 60,
        "config__lr": 1e-3,
        "checkpoint__keep": 2,
    }
    fields: dict[str, Any] = {
        "model__path": str(model),
        "data": {"tasks": {"root": str(volumes / "tasks")}},
        "eval": {"jsonl": str(held_out), "interval": 100, "samplesPerPrompt": 2},
        "storage": {role: str(volumes / role) for role in ("models", "tasks", "checkpoints", "traces", "trials")},
        "trainerHost": "127.0.0.1",
        "ports__session": free_ports(1)[0],
        "agentServer__url": url,
        "nodes": 1,
    }
    return parse_job(json.dumps(document(**(fields | small | changes))))


def _layout(job: JobDocument) -> IncarnationLayout:
    return RunLayout.of(job).incarnation(1, 1)


def _load(path: Path) -> Any:
    return torch.load(path, weights_only=True)
