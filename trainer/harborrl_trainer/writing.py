"""A write into one of the run's volumes that failed: was it the volume's fault, and in which words it is told.

Libraries hide what the system said. torch's zip writer says "unexpected pos 576 vs 470" or "basic_ios::clear: iostream
error" of a full volume, safetensors gives the number as text. So at the boundary that writes the volume itself is asked
how much it has left, before anybody tidies up what was cut.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harborrl_trainer.errors import StorageError, TrainerError
from harborrl_trainer.failures import STORAGE_ERRNO, TORCH_WRITER, advice, storage_errno
from harborrl_trainer.space import MIB, FreeBytes, free_bytes

FULL_BYTES = 16 * MIB
"""A write that failed with less than this left is taken for one that found no room."""
_TORCH_WRITER = re.compile(TORCH_WRITER)


@contextmanager
def writing(place: Path, free: FreeBytes = free_bytes) -> Iterator[None]:
    """Around writes at or below `place`: a failure that is the volume's becomes a StorageError of one sentence.

    Every other error passes as it is.
    """
    try:
        yield
    except TrainerError:
        raise
    except Exception as error:
        left = _left(place, free)
        said = _what_the_volume_said(error, left)
        if said is None:
            raise
        room = "" if left is None else f" ({left // MIB} MiB are free)"
        raise StorageError(f"{place}: {said}{room}; {advice(said)}, the run goes on from its checkpoint") from error


def _what_the_volume_said(error: BaseException, left: int | None) -> str | None:
    link: BaseException | None = error
    while link is not None:
        number = link.errno if isinstance(link, OSError) else storage_errno(str(link))
        if number in STORAGE_ERRNO:
            return os.strerror(number or 0)
        link = link.__cause__ or link.__context__
    if left is not None and left < FULL_BYTES:
        return os.strerror(errno.ENOSPC)
    return "a write failed" if _TORCH_WRITER.search(str(error)) else None


def _left(place: Path, free: FreeBytes) -> int | None:
    """Free bytes of the volume; None when it does not say. What was to be written need not be there."""
    for folder in (place, *place.parents):
        try:
            return free(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None
