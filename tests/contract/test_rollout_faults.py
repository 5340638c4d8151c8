"""What a broken agent server makes of a trial: one table, the same for Miles' adapter and for the native one.

`31f1ca961` and `9a00364` run with Miles' own generate in a process of their own (support/miles_real.py says what is
stubbed); `double` is what stands in where that source is not available.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import miles_source, native_harness
from support.fault_rows import CROWD, MIXTURE, ROWS, Row, Seen
from support.faulty_agents import FaultyAgents
from support.miles_double_edition import DOUBLE
from support.miles_harness import run_row, stage

Real = dict[str, miles_source.Run]
ENGINES = ("native", "double", *miles_source.COMMITS)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """Both commits side by side, from the first test on."""
    repository = miles_source.source()
    folder = tmp_path_factory.mktemp("miles")
    runs = {commit: miles_source.Run(repository, commit, folder) for commit in miles_source.COMMITS if repository}
    yield runs
    for run in runs.values():
        run.close()


def result_of(real: Real, commit: str) -> dict[str, Any]:
    if commit not in real:
        pytest.skip(f"{miles_source.VARIABLE} is not set: Miles' own generate was not tried, its double was")
    return real[commit].result()


async def seen_by(engine: str, row: Row, real: Real) -> Seen:
    if engine == "native":
        return await native_harness.run_row(row)
    if engine == "double":
        return await run_row(DOUBLE, row)
    return Seen(**result_of(real, engine)["rows"][row.name])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("engine", ENGINES)
async def test_the_outcome_of_a_trial_is_the_tables(engine: str, row: Row, real: Real) -> None:
    seen = await seen_by(engine, row, real)
    assert (seen.status, seen.reward, seen.runs) == (row.status, row.reward, row.runs)
    assert seen.outcome in {row.outcome, row.or_else}
    assert row.cause in seen.cause
    assert (seen.learned > 0) is (row.status != "aborted")
    assert seen.counts["trials_started"] == seen.counts[f"trials_{row.status}"] == 1
    [record] = seen.records
    assert (record["status"], record["reward"], record["outcome"]) == (row.status, row.reward, seen.outcome)
    assert record["kept"] is (row.status != "aborted")
    assert bool(record["replaced"]) is (row.runs == 2 and row.fault != "leaving-once")
    if row.status == "aborted":
        assert seen.outcome in {key.partition("/")[2] for key in seen.counts if key.startswith("aborted/")}
        assert seen.counts[f"dropped/{seen.outcome}"] == 1


def test_each_row_of_the_agent_servers_contract_has_one_here() -> None:
    """The outcomes of docs/contracts.md that the table does not name differ from a named one by their word alone."""
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {"completed", "truncated", "aborted"} == {row.status for row in ROWS}


@pytest.mark.parametrize("engine", ENGINES)
async def test_three_hundred_trials_at_once_are_all_sent_and_all_accounted_for(engine: str, real: Real) -> None:
    """A pool of 100 (what httpx gives beside a transport) would keep most of them waiting with their clock running."""
    if engine in miles_source.COMMITS:
        found = result_of(real, engine)["crowd"]
        statuses, counts, records = found["statuses"], found["counts"], found["records"]
    else:
        statuses, counts, records = await (native_crowd() if engine == "native" else double_crowd())
    assert Counter(statuses) == {"completed": 60, "truncated": 60, "aborted": 180}
    assert counts["trials_started"] == CROWD == records
    assert counts["trials_completed"] + counts["trials_truncated"] + counts["trials_aborted"] == CROWD
    assert (counts["aborted/SandboxLost"], counts["aborted/VerifierError"], counts["trials_rerun"]) == (60, 60, 120)


async def double_crowd() -> tuple[list[str], dict[str, int], int]:
    agents = FaultyAgents(together=CROWD)
    async with asyncio.timeout(300), stage(DOUBLE, agents) as on:
        done = await on.crowd([MIXTURE[at % len(MIXTURE)] for at in range(CROWD)])
        return done, dict(on.process.ledger.counts()), len(on.records())


async def native_crowd() -> tuple[list[str], dict[str, int], int]:
    agents = FaultyAgents(together=CROWD)
    async with asyncio.timeout(300), native_harness.stage(Row("good", "completed", ceiling_s=7200), agents) as on:
        groups = await on.collector.collect(native_harness.plans([MIXTURE[at % len(MIXTURE)] for at in range(CROWD)]))
        statuses = [group.trials[0].final.verdict.status for group in groups]
        return [str(status) for status in statuses], dict(on.collector.ledger.counts()), len(on.records())


@pytest.mark.parametrize("commit", miles_source.COMMITS)
def test_miles_synchronous_loop_trains_on_whole_groups_and_ends_what_it_does_not_want(real: Real, commit: str) -> None:
    """miles#2748: the flush reaches the session servers by their plural names, or the one of old versions."""
    found = result_of(real, commit)["sync_rollout"]
    assert (found["rewards"], found["statuses"]) == ([[0.5, 0.5]] * 2, [["completed"] * 2] * 2)
    assert found["flushed"]
    assert all(body == {"session_server_instance_ids": ["sessions-a"]} for body in found["flushed"])
    assert found["in_flight"] == 0
    metrics = found["metrics"]
    assert (metrics["agent/turns_mean"], metrics["harborrl/trials_started"]) == (2.0, 6)
    assert (metrics["harborrl/groups_kept"], metrics["harborrl/dropped/NotWanted"]) == (2, 1)
    kept = {record["group_id"]: record["kept"] for record in found["records"]}
    assert (kept, len(found["records"])) == ({0: True, 1: True, 2: False}, 6)
    assert {record["rollout_id"] for record in found["records"]} == {4}


@pytest.mark.parametrize("commit", miles_source.COMMITS)
def test_miles_synchronous_loop_ends_when_every_group_aborts(real: Real, commit: str) -> None:
    found = result_of(real, commit)["sync_gives_up"]
    name, text = found["raised"]
    assert name == "EveryGroupAborted"
    assert text.startswith("all 4 groups had an aborted trial")
    assert "SandboxLost: node gone" in text
    assert found["verdict"] == {"schemaVersion": 1, "exitCode": 69, "message": text}


def test_miles_fully_asynchronous_loop_keeps_whole_groups_and_knows_their_rollout(real: Real) -> None:
    found = result_of(real, "31f1ca961")["async_rollout"]
    assert found["rewards"] == [[0.5] * 4] * 2
    kept = [record["rollout_id"] for record in found["records"] if record["kept"]]
    assert kept[:8] == [7] * 4 + [8] * 4
    assert all(record["cause"] for record in found["records"] if not record["kept"])


def test_miles_fully_asynchronous_loop_ends_when_every_group_aborts(real: Real) -> None:
    name, text = result_of(real, "31f1ca961")["async_gives_up"]["raised"]
    assert (name, text.startswith("all 4 groups had a trial that cannot be run")) == ("GaveUp", True)


@pytest.mark.parametrize("commit", miles_source.COMMITS)
def test_miles_generate_without_our_wrapper_aborts_through_the_reward(real: Real, commit: str) -> None:
    found = result_of(real, commit)["without_wrapper"]
    assert found == {"good": ["completed", 0.5], "http-500": ["aborted", 0.0], "null-reward": ["aborted", 0.0]}


def test_the_double_is_stated_where_miles_source_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(miles_source.VARIABLE, raising=False)
    assert miles_source.source() is None
    monkeypatch.setenv(miles_source.VARIABLE, "somewhere")
    assert miles_source.source() == Path("somewhere")
