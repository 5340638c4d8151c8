"""`harborrl data prepare` holds ids and no rows, whatever it reads, and loads no library that nothing asks for."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.data_prepare import write_rows

from support.data_command import command_line
from support.memory import peak_megabytes

ROOT = Path(__file__).resolve().parents[2]
FEW, MANY = 500, 50_000
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("cli", "trainer"))}


def as_it_is(rows: Path) -> Path:
    return rows


def packed(rows: Path) -> Path:
    path = rows.with_suffix(".jsonl.gz")
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(rows.read_bytes())
    return path


def as_array(rows: Path) -> Path:
    path = rows.with_suffix(".json")
    path.write_text(f"[{','.join(rows.read_text().splitlines())}]")
    return path


def as_parquet(rows: Path) -> Path:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an optional dependency")
    from pyarrow import parquet  # noqa: PLC0415 - optional

    path = rows.with_suffix(".parquet")
    parsed = [json.loads(line) for line in rows.read_text().splitlines()]
    parquet.write_table(arrow.Table.from_pylist(parsed), path, row_group_size=5000)
    return path


@pytest.mark.parametrize("form", [as_it_is, packed, as_array, as_parquet])
def test_memory_grows_by_the_ids_alone(tmp_path: Path, form: Callable[[Path], Path]) -> None:
    """Held, 50,000 rows would take 60 MB as objects and 25 MB as text; their ids take 5."""
    peaks = []
    for count in (FEW, MANY):
        write_rows(tmp_path / "rows.jsonl", count)
        command = command_line(form(tmp_path / "rows.jsonl"), tmp_path / "out.jsonl")
        peaks.append(peak_megabytes(command, ENVIRONMENT))
    assert peaks[1] - peaks[0] < 20


LOADED = """
import sys
from harborrl_cli.__main__ import main
try:
    main()
finally:
    print(*{name.split(".")[0] for name in sys.modules}, file=sys.stderr)
"""


def test_jsonl_needs_neither_arrow_nor_a_hub(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", 1)
    words = command_line(tmp_path / "rows.jsonl", tmp_path / "out.jsonl")[3:]
    done = subprocess.run(  # noqa: S603 - ours
        [sys.executable, "-c", LOADED, *words], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert "orjson" in loaded
    assert loaded.isdisjoint({"pyarrow", "pandas", "numpy", "huggingface_hub", "httpx", "kubernetes", "torch"})
