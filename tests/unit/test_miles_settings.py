"""The environment of Miles' rollout process: what is read, and what is refused before anything runs."""

from pathlib import Path

import pytest

from harborrl_trainer.miles.settings import Settings, SettingsError
from harborrl_trainer.miles.wrapper import Generate


def test_an_empty_environment_gives_the_documented_defaults() -> None:
    settings = Settings.from_environment({"HARBOR_ADMIN_SECRET": " ", "AGENT_TRIAL_TIMEOUT": ""})
    assert settings == Settings()
    assert (settings.agent_server_url, settings.model_name, settings.ceiling_s) == (
        "http://localhost:11000",
        "model",
        7200,
    )


def test_every_variable_is_read() -> None:
    given = {
        "AGENT_SERVER_URL": "http://x-agent.ns.svc:30000/",
        "AGENT_MODEL_NAME": "glm",
        "MILES_ROUTER_EXTERNAL_HOST": "x-trainer.ns.svc",
        "HARBOR_ADMIN_SECRET": "s3",
        "AGENT_TRIAL_TIMEOUT": "10800",
        "HARBORRL_ON_AGENT_TIMEOUT": "abort",
        "HARBORRL_TRIAL_BUDGET_SECONDS": "7020",
        "HARBORRL_TRIALS_DIR": "/mnt/trials/a1/i1",
        "HARBORRL_MAX_IN_FLIGHT": "32",
        "HARBORRL_GIVE_UP_GROUPS": "0",
        "HARBORRL_VERDICT_FILE": "/run/verdict.json",
        "HARBORRL_AGENT_NAME": "bash",
        "HARBORRL_START_ROLLOUT": "20",
        "HARBORRL_SESSION_TIMEOUT": "60",
    }
    assert Settings.from_environment(given) == Settings(
        agent_server_url="http://x-agent.ns.svc:30000",
        model_name="glm",
        external_host="x-trainer.ns.svc",
        admin_secret="s3",
        ceiling_s=10800,
        on_agent_timeout="abort",
        budget_s=7020,
        trials_dir=Path("/mnt/trials/a1/i1"),
        max_in_flight=32,
        give_up_groups=0,
        verdict_file=Path("/run/verdict.json"),
        agent_name="bash",
        start_rollout=20,
        session_s=60,
    )


def test_the_older_names_count_where_the_newer_are_unset() -> None:
    old = {"SWE_AGENT_URL": "http://old:1", "SWE_AGENT_MODEL_NAME": "old"}
    assert Settings.from_environment(old).agent_server_url == "http://old:1"
    both = Settings.from_environment({**old, "AGENT_SERVER_URL": "http://new:1", "AGENT_MODEL_NAME": "new"})
    assert (both.agent_server_url, both.model_name) == ("http://new:1", "new")


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("AGENT_TRIAL_TIMEOUT", "two hours", "whole number of seconds, 1 at least"),
        ("AGENT_TRIAL_TIMEOUT", "7200.5", "whole number of seconds, 1 at least"),
        ("AGENT_TRIAL_TIMEOUT", "0", "whole number of seconds, 1 at least"),
        ("AGENT_TRIAL_TIMEOUT", "-5", "whole number of seconds, 1 at least"),
        ("AGENT_TRIAL_TIMEOUT", "٣٠", "whole number of seconds, 1 at least"),
        ("AGENT_TRIAL_TIMEOUT", "1e4", "whole number of seconds, 1 at least"),
        ("HARBORRL_MAX_IN_FLIGHT", "0", "whole number of trials, 1 at least"),
        ("HARBORRL_GIVE_UP_GROUPS", "-1", "whole number of groups, 0 at least"),
        ("HARBORRL_ON_AGENT_TIMEOUT", "ignore", "grade, zero, abort"),
        ("AGENT_SERVER_URL", "agents:30000", "http or https URL with a host"),
        ("SWE_AGENT_URL", "http://", "http or https URL with a host"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_with_its_name_and_what_is_allowed(
    name: str, text: str, allowed: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        Settings.from_environment({name: text})
    assert str(raised.value).startswith(f"{name} is {text!r}; it must be ")
    assert str(raised.value).endswith(allowed)


def test_a_wrong_setting_ends_the_run_when_miles_makes_the_generate_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TRIAL_TIMEOUT", "7200s")
    with pytest.raises(SettingsError, match="AGENT_TRIAL_TIMEOUT is '7200s'"):
        Generate()


def test_a_trial_log_that_cannot_be_written_ends_the_run_before_a_trial(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARBORRL_TRIALS_DIR", str(tmp_path / "file" / "trials"))
    with pytest.raises(OSError, match="file"):
        Generate()
