"""The program that opens pickles, run by its path with `-I`; nothing imports it (docs/decisions/0092).

It imports torch once and then forks a process for each file that it is handed, which gives up everything it does not
need before the first byte is read: its user, new files and processes, more memory and time. The file is then loaded
with `weights_only`, which builds plain values and tensors and calls nothing that a pickle names; what else Miles dumps
(numpy arrays, adapter references) becomes an inert placeholder. The answer is JSON; whoever reads it checks it.
"""

import contextlib
import ctypes
import json
import os
import re
import resource
import select
import signal
import socket
import struct
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pickle import UnpicklingError
from typing import Any, BinaryIO, NoReturn

FIRST_UID = 61184
"""Of the range that systemd gives to users that live as long as a process; each file has one of its own there."""
UIDS = 4000
_NO_NEW_PRIVILEGES = 38
_SCALARS = {"f8": "<d", "f4": "<f", "i8": "<q", "i4": "<i", "u1": "<B", "b1": "<?"}
INERT = (
    "miles.utils.types.AdapterRef",
    "miles.utils.types.RewardSpec",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "numpy.ndarray",
    "numpy.dtype",
)
"""Names in Miles' dumps that `weights_only` does not know: routed experts, adapters and reward specs of samples."""


class Inert:
    """Stands for an object that we do not need: keeps its arguments, and does nothing with its state."""

    def __new__(cls, *args: Any) -> "Inert":  # noqa: PYI034 - pickles call it as they call numpy's functions
        made = super().__new__(cls)
        made.args = args
        return made

    args: tuple[Any, ...]

    def __setstate__(self, state: Any) -> None:
        """Array data, which nobody asks for."""


def scalar(kind: Any, data: Any = b"") -> float | None:
    """A numpy number as Python's; None for a kind that no reward has."""
    form = _SCALARS.get(str(kind.args[0])) if isinstance(kind, Inert) and kind.args else None
    if form is None or not isinstance(data, bytes) or len(data) != struct.calcsize(form):
        return None
    return float(struct.unpack(form, data)[0])


class NotADumpError(Exception):
    """It opens, and is not what Miles or the native engine dump."""


def rollout_digest(dump: Mapping[str, Any]) -> dict[str, Any]:
    """One short row a sample."""
    samples = dump.get("samples")
    if not isinstance(samples, list):
        raise NotADumpError("has no list of samples")
    return {"kind": "rollout", "rollout": dump.get("rollout_id"), "samples": [_sample(one) for one in samples]}


def _sample(one: Any) -> dict[str, Any]:
    if not isinstance(one, dict):
        raise NotADumpError("has a sample that is no dictionary")
    metadata = one.get("metadata")
    versions = [int(version) for version in one.get("weight_versions") or () if str(version).isdigit()]
    return {
        "index": _whole(one.get("index")),
        "group": _whole(one.get("group_index")),
        "instance": str(metadata.get("instance_id", ""))[:255] if isinstance(metadata, dict) else "",
        "status": str(one.get("status"))[:40],
        "reward": _number(one.get("reward")),
        "response": _whole(one.get("response_length")),
        "tokens": _length(one.get("tokens")),
        "trained": _mask_sum(one.get("loss_mask"), one.get("response_length")),
        "oldestVersion": min(versions, default=None),
        "newestVersion": max(versions, default=None),
        "turns": len(one.get("weight_versions") or ()),
    }


def train_digest(dump: Mapping[str, Any]) -> dict[str, Any]:
    """One row a sample of this rank: how far the trainer's log-probabilities lie from the rollout engine's."""
    columns = dump.get("rollout_data")
    if not isinstance(columns, dict):
        raise NotADumpError("has no rollout_data")
    lengths = columns.get("response_lengths")
    if not isinstance(lengths, list):
        raise NotADumpError("has no list of response_lengths")
    indices = columns.get("sample_indices") or list(range(len(lengths)))
    trained, rolled = columns.get("log_probs"), columns.get("rollout_log_probs")
    rows = []
    for at, (index, length) in enumerate(zip(indices, lengths, strict=True)):
        row: dict[str, Any] = {"index": _whole(index), "response": _whole(length)}
        if isinstance(trained, list) and isinstance(rolled, list):
            mask = (columns.get("loss_masks") or [None] * len(lengths))[at]
            row |= _difference(trained[at], rolled[at], mask)
        rows.append(row)
    return {
        "kind": "train",
        "rollout": dump.get("rollout_id"),
        "rank": _whole(dump.get("rank")),
        "cpRank": _whole(dump.get("cp_rank")) or 0,
        "cpSize": _whole(dump.get("cp_size")) or 1,
        "rows": rows,
    }


def _difference(trained: Any, rolled: Any, mask: Any) -> dict[str, Any]:
    """Count, sum and maximum of |trainer - rollout| over the tokens that are trained on.

    A rank of several that share a sequence has a part of it, which its mask does not say; there observations are told
    by their log-probability of exactly 0.
    """
    import torch  # noqa: PLC0415 - loaded by then

    ours, theirs = (torch.as_tensor(values, dtype=torch.float64) for values in (trained, rolled))
    if ours.shape != theirs.shape or ours.dim() != 1:
        raise NotADumpError("has log_probs and rollout_log_probs of different lengths")
    kept = None if mask is None else torch.as_tensor(mask)
    chosen = theirs != 0 if kept is None or kept.shape != ours.shape else kept != 0
    apart = (ours - theirs)[chosen]
    finite = apart[torch.isfinite(apart)]
    return {
        "compared": int(finite.numel()),
        "notFinite": int(apart.numel() - finite.numel()),
        "absoluteSum": float(finite.abs().sum()),
        "absoluteMax": float(finite.abs().max()) if finite.numel() else 0.0,
        "signedSum": float(finite.sum()),
    }


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | str | None:
    """JSON has no NaN; it is told by name."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < float("inf") else "not finite"


def _length(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else 0


def _mask_sum(mask: Any, length: Any) -> int | None:
    return int(sum(mask)) if isinstance(mask, list) else _whole(length)


def load(file: BinaryIO) -> dict[str, Any]:
    """The digest of one dump."""
    import torch  # noqa: PLC0415 - loaded by then

    dump = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(dump, dict):
        raise NotADumpError("holds no dictionary")
    return rollout_digest(dump) if "samples" in dump else train_digest(dump)


def refusal(error: BaseException, memory: int) -> str:
    """One line; torch's own is a page."""
    text = str(error)
    if "WeightsUnpickler error" in text or "Weights only load failed" in text:
        named = re.search(r"unsupported global:? (?:global )?(\S+)", text, flags=re.IGNORECASE)
        if named:
            return f"names {named[1][:120]}, which is in no dump: opening it elsewhere may run its code"
        return "is no pickle of plain values and tensors"
    if isinstance(error, MemoryError) or re.search("not enough memory|allocate memory|bad_alloc", text):
        return f"needs more than {memory / 1024**3:g} GiB of memory"
    if isinstance(error, NotADumpError):
        return text
    return f"{TORN} ({_cause(error)})"


TORN = "is torn, still being written, or no dump"


def _cause(error: BaseException) -> str:
    """In words: what torch and pickle say of a broken file is a key, a number or a page about checkpoints."""
    if "PytorchStreamReader" in str(error):
        return "its archive is cut or damaged"
    if isinstance(error, EOFError):
        return "it ends too early"
    if isinstance(error, KeyError | IndexError | ValueError | UnpicklingError | struct.error):
        return "it is cut, or no pickle"
    first = (str(error).strip() or "no more is known").splitlines()[0]
    return f"{type(error).__name__}: {first[:200]}"


def give_up_everything(memory: int, seconds: int) -> None:
    """From here on: no other user's rights, no new file, process or memory beyond `memory` bytes more."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: PTH123, SIM115 - closed with the limit on files
    limits = {
        resource.RLIMIT_AS: pages * resource.getpagesize() + memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 0,
    }
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))
    if os.geteuid() == 0:
        uid = FIRST_UID + os.getpid() % UIDS
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def answer(file: int, out: int, request: Mapping[str, int]) -> NoReturn:
    """In the forked process: the digest, or why there is none."""
    code = 0
    try:
        give_up_everything(request["memory"], request["seconds"])
        with open(file, "rb") as opened:
            text = json.dumps(load(opened), allow_nan=False)
    except BaseException as error:  # noqa: BLE001 - whatever a hostile file can make happen
        code, text = 1, json.dumps({"refused": refusal(error, request["memory"])})
    with contextlib.suppress(OSError):
        data = memoryview(text.encode())
        while data:
            data = data[os.write(out, data) :]
    os._exit(code)


def watched(pid: int, seconds: int) -> str:
    """How the process ended; one that takes longer on the wall clock than its limit of CPU time is ended."""
    with contextlib.closing(_Descriptor(os.pidfd_open(pid))) as ended:
        ready, _, _ = select.select([ended.number], [], [], seconds)
    if not ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if not ready or code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"takes more than {seconds} s"
    return "" if code in (0, 1) else f"ended its reader (code {code})"


class _Descriptor:
    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        os.close(self.number)


def leave_network() -> bool:
    """Whether it worked: a namespace of our own has no interface but a loopback that is down."""
    namespaces = os.CLONE_NEWNET if os.geteuid() == 0 else os.CLONE_NEWNET | os.CLONE_NEWUSER
    try:
        os.unshare(namespaces)
    except OSError:
        return False
    return True


def warm_up(torch: Any) -> None:
    """Everything that loading imports or opens, before nothing can be opened any more."""
    values: Sequence[tuple[Callable[..., Any] | type, str]] = [
        *((Inert, name) for name in INERT),
        *((scalar, f"{module}.multiarray.scalar") for module in ("numpy.core", "numpy._core")),
    ]
    torch.serialization.add_safe_globals(list(values))
    torch.set_num_threads(1)
    for modern in (True, False):
        buffer = BytesIO()
        sample = {"samples": [{"index": 0}], "bytes": b"\xff", "tensor": torch.ones(2, dtype=torch.bfloat16)}
        torch.save(sample, buffer, _use_new_zipfile_serialization=modern)
        buffer.seek(0)
        load(buffer)
    _difference(torch.ones(2), [0.5, 0.0], None)
    with contextlib.suppress(Exception):
        load(BytesIO(b"nothing"))


def serve(channel: socket.socket) -> None:
    """A request is one message with two descriptors, the file and where to write; the reply says how it ended."""
    isolated = leave_network()
    import torch  # noqa: PLC0415 - after the namespace is left, which takes a process of one thread

    warnings.simplefilter("ignore")  # of torch about old pickles: several lines with its own path, for one file
    warm_up(torch)
    channel.send(json.dumps({"isolated": isolated}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 4096, 2)
        if not message:
            return
        file, out = descriptors
        request = json.loads(message)
        pid = os.fork()
        if pid == 0:
            channel.close()
            answer(file, out, request)
        os.close(file)
        os.close(out)
        channel.send(json.dumps({"ended": watched(pid, request["seconds"])}).encode())


if __name__ == "__main__":
    sys.path.append(sys.argv[2])
    serve(socket.socket(fileno=int(sys.argv[1])))
