"""Ends as Miles does when something breaks: MILES_SHAPED_FAIL='3 training cuda', with the text that Miles leaves."""

import os
import sys

TEXTS = {
    "cuda": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 139.80 GiB",
    "nccl": "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, NCCL 2.27.3",
    "actor": "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "disk": "OSError: [Errno 28] No space left on device",
    "bug": "ZeroDivisionError: division by zero",
}


def fail_if_asked(rollout: int, where: str) -> None:
    wanted = os.environ.get("MILES_SHAPED_FAIL", "").split()
    if wanted[:2] == [str(rollout), where]:
        sys.stderr.write(
            f'Traceback (most recent call last):\n  File "train.py", line 160, in <module>\n{TEXTS[wanted[2]]}\n'
        )
        raise SystemExit(1)
