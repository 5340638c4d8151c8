"""What a supervisor's report says beside its numbers: how a start went, what room is left, what a stall looks like."""

from typing import Any, override

import pytest

from harborrl_operator.draft import Plan
from harborrl_operator.observed import Observed
from support import hrl
from support.hrl import condition, decide, message, then


def reported(changes: dict[str, Any], after: float = 0, spec: dict[str, Any] | None = None) -> Plan:
    job = hrl.job(spec)
    seen = hrl.running_world(job, progress=hrl.progress(changes=changes))
    return decide(then(job, decide(job, seen)), seen, after=after)


class CountedReads(Observed):
    """Counts how often the report is asked for."""

    def __init__(self, seen: Observed) -> None:
        vars(self).update(vars(seen), asked=[])

    @override
    def __getattribute__(self, name: str) -> Any:
        if name == "progress":
            vars(self)["asked"].append(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("report", [hrl.progress(), hrl.progress("FAILED"), hrl.progress("STOPPED"), "{torn"])
def test_a_report_is_parsed_once_in_a_pass(report: str) -> None:
    job = hrl.job()
    seen = CountedReads(hrl.running_world(job, progress=report))
    decide(job, seen)
    assert vars(seen)["asked"] == ["progress"]


class TestResumed:
    def test_is_unknown_before_the_driver_has_begun(self) -> None:
        assert condition(decide(hrl.job(), hrl.world()), "Resumed") == ("Unknown", "NotRunning")

    @pytest.mark.parametrize(
        ("start", "status", "reason", "says"),
        [
            ({"firstRollout": 0, "optimizer": None}, "False", "StartedFromModel", "rollout 0, from the model"),
            ({"firstRollout": 4, "optimizer": True}, "True", "ResumedFromCheckpoint", "goes on at rollout 4."),
            ({"firstRollout": 4, "optimizer": None}, "True", "ResumedFromCheckpoint", "goes on at rollout 4."),
            ({"firstRollout": 4, "optimizer": False}, "True", "ResumedWithoutOptimizer", "noSaveOptim to false"),
            (
                {"firstRollout": 2, "optimizer": True, "setAside": ["r/x/a1/i1/checkpoints/iter_0000003"]},
                "True",
                "ResumedFromOlderCheckpoint",
                "r/x/a1/i1/checkpoints/iter_0000003",
            ),
        ],
    )
    def test_says_where_the_incarnation_began_and_what_it_lacks(
        self, start: dict[str, Any], status: str, reason: str, says: str
    ) -> None:
        decided = reported({"resume": start})
        assert condition(decided, "Resumed") == (status, reason)
        assert says in message(decided, "Resumed")


class TestLowSpace:
    @staticmethod
    def volumes(low: bool) -> dict[str, Any]:
        room = {"freeBytes": 120 * 1024**2, "neededBytes": 2048 * 1024**2, "low": low}
        return {"volumes": {"traces": room | {"low": False}, "checkpoints": room}}

    def test_names_the_volume_with_both_numbers(self) -> None:
        decided = reported(self.volumes(low=True))
        assert condition(decided, "LowSpace") == ("True", "LowSpace")
        said = message(decided, "LowSpace")
        assert said.startswith("storage.checkpoints: 120 MiB free, about 2048 MiB will be needed.")
        assert "traces" not in said
        assert decided.status.phase == "Running"

    def test_goes_when_room_was_made(self) -> None:
        assert condition(reported(self.volumes(low=False)), "LowSpace") == ("False", "SpaceSufficient")

    def test_is_unknown_while_nobody_has_looked(self) -> None:
        assert condition(reported({}), "LowSpace") == ("Unknown", "NotRunning")


class TestAStallsMessage:
    """agentTimeoutSeconds is 300, agentTrialTimeoutSeconds 900; the stall is called after 960 s."""

    def said(self, oldest: float | None, in_flight: int = 5) -> str:
        since = None if oldest is None else hrl.ago(oldest - 1000)
        decided = reported({"agentServer": {"inFlight": in_flight, "oldestTrialSince": since}}, after=1000)
        assert condition(decided, "Stalled")[0] == "True"
        return message(decided, "Stalled")

    def test_sets_the_oldest_trial_against_both_time_outs(self) -> None:
        said = self.said(200)
        assert "5 trials run in the agent server, the oldest since 2026-01-01T12:13:20Z" in said
        assert "(agentServer.agentTimeoutSeconds 300, rollout.agentTrialTimeoutSeconds 900)" in said
        assert said.endswith("they are slow, not lost.")

    def test_knows_a_trial_whose_agent_is_over(self) -> None:
        assert self.said(600).endswith("it is being verified or cleaned up.")

    def test_blames_the_agent_server_for_a_trial_beyond_its_ceiling(self) -> None:
        assert self.said(950).endswith("so the agent server hangs. Restart its pod.")

    def test_does_without_an_age_where_the_server_tells_none(self) -> None:
        assert self.said(None).endswith("5 trials run in the agent server: they are slow, not lost.")

    def test_says_where_to_look_when_nothing_runs(self) -> None:
        log = "research/quickstart-5f0c2a9e/a1/i1/traces/driver.log on the volume of storage.traces"
        assert log in self.said(None, in_flight=0)

    def test_knows_no_time_out_of_a_server_of_the_users_own(self) -> None:
        since = hrl.ago(600 - 1000)
        report = {"agentServer": {"inFlight": 5, "oldestTrialSince": since}}
        said = message(reported(report, 1000, hrl.BROUGHT), "Stalled")
        assert f"the oldest since {since} (rollout.agentTrialTimeoutSeconds 900): they are slow, not lost." in said

    def test_does_not_count_the_time_before_this_incarnation(self) -> None:
        old_dump = {"rollout.lastDumpTime": hrl.ago(90_000), "driver.startedAt": hrl.ago(-500)}
        assert condition(reported(old_dump, after=1000), "Stalled") == ("False", "Moving")

    def test_is_the_cause_of_the_attempt_that_a_restart_ends(self) -> None:
        decided = reported({}, after=1801, spec={"progress.onStall": "Restart"})
        record = decided.status.attempts[0]
        assert (record.cause, record.failure_class, decided.status.attempt) == ("Stalled", "infrastructure", 2)
