"""The end of a driver becomes a state, a failure class and one sentence."""

import pytest

from harborrl_trainer.failures import MEMORY_ADVICE
from harborrl_trainer.supervisor.ray_api import RayJob
from harborrl_trainer.supervisor.verdict import driver_of, last_line

SENTENCE = "model.path: /mnt/models/x is gone; put it back"
LOG = f"step 1\n{SENTENCE}\n\n"


def failed(code: int | None, message: str = "") -> RayJob:
    return RayJob("job-a1-i1", "FAILED", message, code)


@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "SUCCEEDED"])
def test_rays_own_states_pass_through(status: str) -> None:
    driver = driver_of(RayJob("job-a1-i1", status))  # type: ignore[arg-type]  # each of the three is one
    assert (driver.state, driver.message, driver.failure_class) == (status, "", None)


@pytest.mark.parametrize(
    ("code", "failure_class"),
    [(64, "configuration"), (69, "infrastructure"), (74, "storage"), (1, "application"), (3, "application")],
)
def test_the_exit_code_is_the_class_and_the_last_line_the_message(code: int, failure_class: str) -> None:
    driver = driver_of(failed(code), LOG)
    assert (driver.state, driver.failure_class, driver.message) == ("FAILED", failure_class, SENTENCE)


def test_a_driver_that_saved_and_stopped_has_not_failed() -> None:
    driver = driver_of(failed(75), "saved iter_0000004\n")
    assert (driver.state, driver.message, driver.failure_class) == ("STOPPED", "saved iter_0000004", None)


@pytest.mark.parametrize("code", [-9, 137])
def test_a_killed_driver_is_infrastructure_and_memory_is_no_more_than_a_hint(code: int) -> None:
    driver = driver_of(failed(code), LOG)
    assert (driver.failure_class, driver.cause) == ("infrastructure", "DriverKilled")
    assert "If the head pod was near its memory limit" in driver.message


def test_a_killed_driver_is_out_of_memory_when_something_says_so() -> None:
    words = ("(raylet) 1 workers killed due to the node running low on memory", "worker was OOM-killed", "oom_kill 1")
    drivers = [driver_of(failed(137), f"{LOG}{word}\n") for word in words]
    assert {(one.failure_class, one.cause) for one in drivers} == {("infrastructure", "OutOfMemory")}


def test_a_start_at_0_that_was_refused_is_storage_with_a_cause_of_its_own() -> None:
    driver = driver_of(failed(65), LOG)
    assert (driver.failure_class, driver.cause) == ("storage", "RestartAtZero")


def test_memory_is_a_cause_whichever_way_it_ran_out() -> None:
    ends = [
        (137, "ray.exceptions.OutOfMemoryError: the node was running low on memory\n"),
        (1, "torch.OutOfMemoryError: CUDA out of memory\n"),
        (69, f"Ray: ActorDiedError: {MEMORY_ADVICE}; Ray said: OOM\n"),
    ]
    assert {driver_of(failed(code), log).cause for code, log in ends} == {"OutOfMemory"}
    assert driver_of(failed(69), LOG).cause is None


def test_a_full_volume_is_storage_whatever_the_exit_code() -> None:
    driver = driver_of(failed(1), "x\nOSError: [Errno 28] No space left on device\n")
    assert driver.failure_class == "storage"
    assert driver.message.startswith("A volume is full")


def test_running_out_of_memory_is_the_applications_and_says_what_to_lower() -> None:
    driver = driver_of(failed(1), "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")
    assert driver.failure_class == "application"
    assert "microBatchSize" in driver.message


def test_an_old_trouble_far_above_the_end_is_not_the_cause() -> None:
    log = "No space left on device\n" + "fine\n" * 100 + "ValueError: bad\n"
    assert driver_of(failed(1), log).failure_class == "application"


def test_a_driver_that_ray_lost_is_infrastructure() -> None:
    driver = driver_of(failed(None, "Job supervisor actor died"))
    assert driver.failure_class == "infrastructure"
    assert "Job supervisor actor died" in driver.message


def test_without_a_log_rays_message_is_used() -> None:
    assert driver_of(failed(64, f"failed with exit code 64:\n{SENTENCE}\n")).message == SENTENCE


def test_silence_is_said() -> None:
    assert "exit code 1 and wrote nothing" in driver_of(failed(1)).message


def test_a_message_is_one_bounded_line() -> None:
    driver = driver_of(failed(1), "x" * 100_000)
    assert len(driver.message) <= 600


def test_what_ray_copies_from_an_actor_is_not_the_drivers_last_word() -> None:
    log = (
        "Ray: ActorDiedError: raise trainer.resources.limits.memory\n"
        "\x1b[36m(EngineActor pid=563)\x1b[0m Loading weights: 21%\n"
        "\x1b[33m(raylet)\x1b[0m a worker died\n"
    )
    assert last_line(log) == "Ray: ActorDiedError: raise trainer.resources.limits.memory"


def test_advice_on_memory_comes_before_rays_long_account_of_it() -> None:
    miles = driver_of(failed(1), "Miles: CUDA out of memory: lower max-tokens-per-gpu; it said: x\n")
    assert (miles.message[:23], miles.cause) == ("Miles: CUDA out of memo", "OutOfMemory")
    driver = driver_of(failed(1), "OutOfMemoryError: " + "Memory on the node was used up. " * 60)
    assert driver.message.startswith("Out of memory: raise trainer.resources.limits.memory")
    assert driver.failure_class == "application"
