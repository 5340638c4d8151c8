"""Rows of Parquet, a batch at a time. pyarrow is optional: 166 MB for those alone who have such files."""

from collections.abc import Iterator
from pathlib import Path

from harborrl_trainer.data.json_input import Numbered
from harborrl_trainer.errors import ConfigurationError

_BATCH = 64
"""Rows in memory at once, beside one row group's compressed columns."""


def read_parquet(path: Path) -> Iterator[Numbered]:
    """ConfigurationError when pyarrow is absent or the file is none of Parquet's."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - optional
        from pyarrow import parquet  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{path.name}: reading Parquet needs pyarrow; pip install 'harborrl[data]', or convert the file to .jsonl"
        ) from error
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_BATCH, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0][:200]
        raise ConfigurationError(f"{path.name}: row {number + 1}: not readable as Parquet ({reason})") from error
