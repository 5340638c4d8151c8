"""What a broken agent server makes of a trial: one table, the same for Miles' adapter and for the native one."""

import pytest

from support import native_harness
from support.fault_rows import ROWS, Row, Seen
from support.miles_double_edition import DOUBLE
from support.miles_harness import run_row


async def seen_by(engine: str, row: Row) -> Seen:
    return await (native_harness.run_row(row) if engine == "native" else run_row(DOUBLE, row))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("engine", ["native", "double"])
async def test_the_outcome_of_a_trial_is_the_tables(engine: str, row: Row) -> None:
    seen = await seen_by(engine, row)
    assert (seen.status, seen.reward, seen.outcome, seen.runs) == (row.status, row.reward, row.outcome, row.runs)
    assert row.cause in seen.cause
    assert (seen.learned > 0) is (row.status != "aborted")
