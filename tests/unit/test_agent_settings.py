"""A server that cannot work says so in one line before it listens."""

from pathlib import Path

import pytest

from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.serve import ladder, too_short
from harborrl_agent_server.settings import Budgets, settings_from
from support.small_volume import fill, small_volume


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    return ["--trials-dir", str(tmp_path / "trials"), "--sandbox", "local"]


def test_every_flag_of_docs_contracts_is_understood(tmp_path: Path) -> None:
    line = (
        "--host 0.0.0.0 --port 30000 --dashboard-port 0 --max-concurrent 3 --agent-timeout 300 "
        "--environment-start-timeout 120 --agent-setup-timeout 60 --verifier-timeout 120 --cleanup-timeout 60 "
        '--agent-name bash --agent-kwargs {"maxTurns":3} --sandbox kubernetes --sandbox-namespace ns '
        '--sandbox-image i:1 --sandbox-config {"namespace":"ns"} --reward-key score '
        "--drain-period 7200 --grace-period 20 --allow-oracle "
        "--start-concurrency 4 --workers 2 --heartbeat 0 --guard-run --keep-trials 7 --keep-trials-days 2.5 "
        "--unsafe-ignore-network-policy"
    )
    environment = {
        "HARBOR_TASKS_DIR": str(tmp_path),
        "HARBOR_ADMIN_SECRET": "s",
        "HARBORRL_JOB_NAMESPACE": "research",
        "HARBORRL_JOB_NAME": "quickstart",
        "HARBORRL_JOB_UID": "u",
        "POD_NAME": "quickstart-agent-1",
    }
    settings = settings_from([*line.split(), "--trials-dir", str(tmp_path / "t")], environment)
    assert settings.budgets == Budgets(120, 60, 300, 120, 60)
    assert (settings.max_concurrent, settings.agent_kwargs, settings.sandbox_config) == (
        3,
        {"maxTurns": 3},
        {"namespace": "ns"},
    )
    assert (settings.reward_key, settings.drain_s, settings.grace_s, settings.allow_oracle) == ("score", 7200, 20, True)
    assert (settings.heartbeat_s, settings.guard_run, settings.unsafe_ignore_network_policy) == (0, True, True)
    assert (settings.keep_trials, settings.keep_trials_days) == (7, 2.5)
    assert (settings.start_concurrency, settings.workers, settings.worker) == (4, 2, None)
    assert (settings.job.name, settings.pod_name, settings.admin_secret) == ("quickstart", "quickstart-agent-1", "s")


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--sandbox", "dokcer"], "--sandbox dokcer: unknown kind; one of kubernetes, docker, local, or pkg.mod:Class"),
        (["--max-concurrent", "0"], "--max-concurrent 0: at least 1"),
        (["--start-concurrency", "-1"], "--start-concurrency -1: 1 or more, or 0 for no limit"),
        (["--workers", "0"], "--workers 0: 1 to 64"),
        (["--workers", "65"], "--workers 65: 1 to 64"),
        (["--agent-name", "nop", "--allowed-agents", "bash"], "--agent-name nop: --allowed-agents leaves it out"),
        (["--agent-kwargs", "{"], "--agent-kwargs is not JSON"),
        (["--sandbox-config", "[]"], "--sandbox-config must be a JSON object"),
        (["--verifier-timeout", "0"], "time-outs must be positive seconds: verifier_s"),
        (["--heartbeat", "-1"], "--heartbeat -1: seconds, or 0 for none"),
        (["--guard-run"], "--guard-run: there is no secret to demand; set HARBOR_ADMIN_SECRET"),
        (["--keep-trials", "-1"], r"--keep-trials and --keep-trials-days: 0 \(no limit\) or more"),
        (["--dashboard-port", "30000"], "--port and --dashboard-port are the same port, 30000"),
        (["--gateway-port", "30000"], "--port and --gateway-port are the same port"),
        (["--gateway-port", "70000"], "--gateway-port 70000: a port is 0 to 65535"),
        (["--port", "abc"], "argument --port: 'abc' is no whole number; --help lists the flags"),
        (["--port", "1.5"], "argument --port: '1.5' is no whole number"),
        (["--port"], "argument --port: expected one argument"),
        (["--no-such"], "unrecognized arguments: --no-such; --help lists the flags"),
        (["stray"], "unrecognized arguments: stray"),
        (["--agent-timeout", "nan"], "argument --agent-timeout: nan is no length of time"),
        (["--agent-timeout", "inf"], "argument --agent-timeout: inf is no length of time"),
        (["--verifier-timeout", "1e308"], "argument --verifier-timeout: 1e308 is no length of time"),
        (["--heartbeat", "soon"], "argument --heartbeat: 'soon' is no number"),
        (["--keep-trials-days", "nan"], "argument --keep-trials-days: nan is no length of time"),
        (["--grace-period", "-1"], "--grace-period and --drain-period: 0 or more seconds"),
        (["--drain-period", "-1"], "--grace-period and --drain-period: 0 or more seconds"),
        (["--host", ""], "argument --host: is empty"),
        (["--reward-key", " "], "argument --reward-key: is empty"),
        (["--trials-dir", ""], "argument --trials-dir: is empty"),
        (["--trials-dir", "/proc/trials"], "--trials-dir /proc/trials cannot be written: .*mount a volume"),
        (["--trials-dir", "/proc"], "--trials-dir /proc cannot be written: .*mount a volume"),
        (["--agent-name", "os:system"], "--agent-name 'os:system': one of bash, terminus-2, mini-swe-agent, nop"),
        (["--agent-name", "oracle"], "--agent-name 'oracle': one of bash"),
        (["--agent-kwargs", "[" * 100_000], "--agent-kwargs is not JSON"),
        (["--agent-kwargs", '{"a": NaN}'], "--agent-kwargs is not JSON"),
        (["--sandbox", "local", "--sandbox-config", '{"a": 1}'], "--sandbox-config: --sandbox local has nothing to"),
        (["--allowed-model-hosts", "http://x"], "--allowed-model-hosts 'http://x': a host name"),
        (["--allowed-model-hosts", "a..b"], "--allowed-model-hosts 'a..b': a host name"),
    ],
)
def test_a_wrong_flag_is_named(flags: list[str], tmp_path: Path, extra: list[str], said: str) -> None:
    with pytest.raises(StartupError, match=said):
        settings_from([*flags, *extra], {"HARBOR_TASKS_DIR": str(tmp_path)})


@pytest.mark.parametrize("secret", ["s\n", " s", "s\0", "sé"])
def test_a_secret_that_no_header_carries_is_refused_and_not_shown(
    flags: list[str], tmp_path: Path, secret: str
) -> None:
    with pytest.raises(StartupError, match="HARBOR_ADMIN_SECRET holds a blank") as told:
        settings_from(flags, {"HARBOR_TASKS_DIR": str(tmp_path), "HARBOR_ADMIN_SECRET": secret})
    assert secret not in str(told.value)


def test_a_full_volume_is_no_reason_not_to_start(flags: list[str], tmp_path: Path) -> None:
    """It is made room on by what an old server leaves and a new one sweeps."""
    with small_volume(tmp_path / "volume", 1) as volume:
        fill(volume)
        settings_from([*flags, "--trials-dir", str(volume)], {"HARBOR_TASKS_DIR": str(tmp_path)})


@pytest.mark.parametrize(
    ("environment", "said"),
    [({}, "HARBOR_TASKS_DIR is not set"), ({"HARBOR_TASKS_DIR": "/no/where"}, "is not a directory")],
)
def test_a_missing_tasks_folder_is_refused(flags: list[str], environment: dict[str, str], said: str) -> None:
    with pytest.raises(StartupError, match=said):
        settings_from(flags, environment)


def test_the_secret_is_not_shown(flags: list[str], tmp_path: Path) -> None:
    environment = {"HARBOR_TASKS_DIR": str(tmp_path), "HARBOR_ADMIN_SECRET": "canary"}
    assert "canary" not in repr(settings_from(flags, environment))


def test_the_ladder_of_time_outs_is_printed_with_its_sum() -> None:
    assert "7020 s" in ladder(Budgets())


@pytest.mark.parametrize(("drain_s", "warned"), [("0", False), ("7020", False), ("7019", True)])
def test_a_ceiling_below_the_sum_is_told_at_the_start(
    flags: list[str], tmp_path: Path, drain_s: str, warned: bool
) -> None:
    settings = settings_from([*flags, "--drain-period", drain_s], {"HARBOR_TASKS_DIR": str(tmp_path)})
    said = too_short(settings)
    assert (said is not None) is warned
    assert said is None or "a trial may take 7020 s" in said


@pytest.mark.parametrize("agents", ["", "oracle", "bash,os:system"])
def test_an_agent_that_this_server_does_not_have_cannot_be_allowed(tmp_path: Path, agents: str) -> None:
    with pytest.raises(StartupError, match="--allowed-agents"):
        settings_from(["--trials-dir", str(tmp_path), "--allowed-agents", agents], {"HARBOR_TASKS_DIR": str(tmp_path)})


def test_lists_are_read_by_their_commas(tmp_path: Path) -> None:
    flags = [
        "--trials-dir",
        str(tmp_path),
        "--allowed-agents",
        "bash, nop",
        "--allowed-model-hosts",
        "a.b, 10.0.0.0/8,",
    ]
    settings = settings_from(flags, {"HARBOR_TASKS_DIR": str(tmp_path), "POD_IP": "10.1.2.3"})
    assert settings.allowed_agents == ("bash", "nop")
    assert settings.allowed_model_hosts == ("a.b", "10.0.0.0/8")
    assert settings.gateway_host == "10.1.2.3"
