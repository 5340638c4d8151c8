"""Work as a user whom permissions hold, also where the tests run as root."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unprivileged_folder() -> Iterator[Path]:
    """A directory of one's own; root gives its rights up until the block ends."""
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, whose parents only its owner may enter
        me = os.geteuid()
        Path(folder).chmod(0o777)
        if me == 0:
            os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            os.seteuid(me)
