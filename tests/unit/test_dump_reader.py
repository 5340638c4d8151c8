"""Pickles are opened apart, build plain values alone, and a hostile one costs a line."""

import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harborrl_trainer.dump_reading import opener
from harborrl_trainer.dump_reading.reader import OPENER, Reader, RefusedDumpError, TornDumpError
from harborrl_trainer.native import records, samples
from harborrl_trainer.native.policy import StepReport, TrainSample
from harborrl_trainer.native.session import Trajectory
from harborrl_trainer.prompt_rows import Prompt
from support.descriptors import open_here, room_for
from support.dump_files import sample, write_claiming, write_hostile, write_rollout, write_train
from support.miles_upstream import miles_file


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with Reader(memory_gib=1.0, seconds=60) as reader:
        yield reader


@pytest.fixture
def miles_types(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """An empty module of that name, under which pickle finds classes while they are dumped here."""
    for name in ("miles", "miles.utils"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    module = types.ModuleType("miles.utils.types")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_a_rollout_is_read_sample_by_sample(reader: Reader, tmp_path: Path) -> None:
    digest = reader.rollout(write_rollout(tmp_path / "7.pt", [sample(0), sample(1, status="truncated")], 7))
    first, second = digest.samples
    assert (digest.rollout, first.instance, first.status, first.reward) == (7, "task-0", "completed", 0.0)
    assert (first.response, first.tokens, first.trained, first.turns) == (3, 4, 2, 2)
    assert (first.oldest_version, first.newest_version) == (3, 4)
    assert (second.status, second.reward) == ("truncated", 1.0)


def test_rewards_that_are_no_number_are_told(reader: Reader, tmp_path: Path) -> None:
    rewards = [None, float("nan"), {"tests": 1.0}, np.float64(0.25), np.float32(0.5), True]
    digest = reader.rollout(write_rollout(tmp_path / "0.pt", [sample(0, reward=reward) for reward in rewards]))
    assert [one.reward for one in digest.samples] == [None, "not finite", None, 0.25, 0.5, None]


def test_log_probabilities_are_compared_over_trained_tokens(reader: Reader, tmp_path: Path) -> None:
    digest = reader.train(write_train(tmp_path / "0_3.pt", {4: (0.125, 9.0, -0.25)}, rank=3))
    (row,) = digest.rows
    assert (digest.rank, row.index, row.compared) == (3, 4, 2)
    assert (row.absolute_sum, row.absolute_max, row.signed_sum) == pytest.approx((0.375, 0.25, -0.125))


def test_a_part_of_a_sequence_tells_observations_by_their_zero(reader: Reader, tmp_path: Path) -> None:
    columns = {"log_probs": [torch.tensor([-1.0, -2.0])], "rollout_log_probs": [torch.tensor([-1.5, 0.0])]}
    path = write_train(tmp_path / "0_0.pt", {0: (0.0, 0.0, 0.0)}, columns=columns, cp_rank=1, cp_size=2)
    (row,) = reader.train(path).rows
    assert (row.compared, row.absolute_sum) == (1, 0.5)


def test_a_stage_without_log_probabilities_compares_nothing(reader: Reader, tmp_path: Path) -> None:
    (row,) = reader.train(write_train(tmp_path / "0_0.pt", {0: (0.0, 0.0, 0.0)}, columns={"log_probs": None})).rows
    assert row.compared is None


def test_infinities_are_counted_and_in_no_sum(reader: Reader, tmp_path: Path) -> None:
    (row,) = reader.train(write_train(tmp_path / "0_0.pt", {0: (float("inf"), 0.0, 0.5)})).rows
    assert (row.compared, row.not_finite, row.absolute_sum) == (1, 1, 0.5)


def test_what_the_native_engine_dumps_is_read(reader: Reader, tmp_path: Path) -> None:
    prompt = Prompt(0, "go", "task-a", {"instance_id": "task-a"}, "train.jsonl:1")
    done = Trajectory((1, 2), (3, 4, 5), (1, 0, 1), (-0.5, 0.0, -0.25), (3, 4), cut_by_length=False)
    one = samples.Sample(7, 2, prompt, done, [{"role": "user", "content": "go"}], "x")
    row = samples.document(one, rollout=5, reward=0.5, status="completed", metadata=prompt.metadata)
    records.dump(tmp_path / "5.pt", {"rollout_id": 5, "metadata": {}, "samples": [row]})
    (read,) = reader.rollout(tmp_path / "5.pt").samples
    assert (read.index, read.instance, read.reward, read.trained, read.oldest_version) == (7, "task-a", 0.5, 2, 3)

    trained = TrainSample(2, done.prompt_ids, done.response_ids, done.loss_mask, done.log_probs, 0.0)
    report = StepReport(log_probs=[[-0.75, -9.0, -0.25]])
    records.dump(tmp_path / "5_0.pt", samples.train_data([trained], report, rollout=5, indices=[7], rewards=[0.5]))
    (gap,) = reader.train(tmp_path / "5_0.pt").rows
    assert (gap.index, gap.compared, gap.absolute_sum) == (7, 2, 0.25)


def test_adapters_of_a_sample_become_placeholders(reader: Reader, tmp_path: Path, miles_types: Any) -> None:
    class AdapterRef:
        def __init__(self) -> None:
            self.name, self.slot = "a", 1

    AdapterRef.__module__, AdapterRef.__qualname__ = "miles.utils.types", "AdapterRef"
    miles_types.AdapterRef = AdapterRef
    path = write_rollout(tmp_path / "0.pt", [sample(0, adapter=AdapterRef())])
    assert len(reader.rollout(path).samples) == 1


def test_what_miles_own_sample_class_dumps_is_read(reader: Reader, tmp_path: Path, miles_types: Any) -> None:
    made = miles_types
    exec(compile(miles_file("miles/utils/types.py"), "miles", "exec"), vars(made))  # noqa: S102 - it is about this source
    one = made.Sample(group_index=1, index=2, tokens=[1, 2], response_length=1, reward=0.5, loss_mask=[1])
    one.weight_versions, one.status = ["1"], made.Sample.Status.TRUNCATED
    one.adapter, one.reward_spec = made.AdapterRef("a", 0), made.RewardSpec("math")
    one.rollout_routed_experts = np.zeros((1, 2, 2), dtype=np.int32)
    one.multimodal_train_inputs = {"pixel_values": torch.ones(2)}
    (read,) = reader.rollout(write_rollout(tmp_path / "0.pt", [one.to_dict()])).samples
    assert (read.group, read.index, read.status, read.reward, read.trained) == (1, 2, "truncated", 0.5, 1)


@pytest.mark.parametrize("archive", [True, False])
def test_a_pickle_that_would_run_a_command_is_refused_and_runs_none(
    reader: Reader, tmp_path: Path, archive: bool
) -> None:
    mark = tmp_path / "ran"
    path = write_hostile(tmp_path / "0.pt", f"touch {mark}", archive=archive)
    with pytest.raises(RefusedDumpError, match=re.escape(f"{path}: ")) as said:
        reader.rollout(path)
    assert "\n" not in str(said.value)
    assert not archive or "names posix.system, which is in no dump" in str(said.value)
    assert not mark.exists()


def test_a_pickle_that_claims_10_gb_is_refused(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(RefusedDumpError) as said:
        reader.rollout(write_claiming(tmp_path / "0.pt", 10 * 1024**3 // 4))
    assert "\n" not in str(said.value)


def test_a_tensor_that_unfolds_to_80_gb_is_refused_by_the_bound_on_memory(reader: Reader, tmp_path: Path) -> None:
    huge = [torch.zeros(1).expand(10**10)]
    columns = {"log_probs": huge, "rollout_log_probs": huge}
    with pytest.raises(RefusedDumpError, match=r"needs more than 1 GiB of memory; raise --memory$"):
        reader.train(write_train(tmp_path / "0_0.pt", {0: (0.0, 0.0, 0.0)}, columns=columns))


@pytest.mark.parametrize("kept", [0, 1, 0.5, 0.99])
def test_a_torn_dump_is_refused(reader: Reader, tmp_path: Path, kept: float) -> None:
    path = write_rollout(tmp_path / "0.pt", [sample(0)])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept) or int(len(whole) * kept)])
    with pytest.raises(RefusedDumpError) as said:
        reader.rollout(path)
    assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "it ends too early"),
        (b"PK\x03\x04 cut", "its archive is cut or damaged"),
        (b"\x80\x02}q\x00(X\x01\x00", "it is cut, or no pickle"),
    ],
)
def test_why_a_file_is_no_dump_is_said_in_words(
    reader: Reader, tmp_path: Path, content: bytes, cause: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "0.pt"
    path.write_bytes(content)
    with pytest.raises(TornDumpError) as said:
        reader.rollout(path)
    assert str(said.value) == f"{path}: is torn, still being written, or no dump ({cause})"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], "holds no dictionary"),
        ({"samples": 1}, "has no list of samples"),
        ({"samples": [1]}, "has a sample that is no dictionary"),
        ({"rollout_data": {}}, "has no list of response_lengths"),
        ({"weights": {}}, "has no rollout_data"),
    ],
)
def test_a_pickle_of_something_else_is_refused(reader: Reader, tmp_path: Path, value: Any, message: str) -> None:
    torch.save(value, tmp_path / "0.pt")
    with pytest.raises(RefusedDumpError, match=message):
        reader.rollout(tmp_path / "0.pt")


def test_one_kind_of_dump_is_not_taken_for_the_other(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(RefusedDumpError, match="is no training dump"):
        reader.train(write_rollout(tmp_path / "0_0.pt", [sample(0)]))


def test_what_is_no_file_is_not_followed_and_not_waited_for(reader: Reader, tmp_path: Path) -> None:
    write_rollout(tmp_path / "real.pt", [sample(0)])
    (tmp_path / "link.pt").symlink_to("real.pt")
    os.mkfifo(tmp_path / "pipe.pt")
    for name in ("link.pt", "pipe.pt", "missing.pt", "."):
        with pytest.raises(RefusedDumpError):
            reader.rollout(tmp_path / name)


ATTEMPTS = """
import json, os, runpy, socket, sys
names = runpy.run_path(sys.argv[1])
isolated = names["leave_network"]()
interfaces = [name for _, name in socket.if_nameindex()]
was_root = os.geteuid() == 0
names["give_up_everything"](512 * 1024**2, 10)
def tried(act):
    try:
        return repr(act())
    except BaseException as error:
        return type(error).__name__
print(json.dumps({
    "open": tried(lambda: open("/etc/hostname")),
    "write": tried(lambda: os.open("/tmp/x", os.O_CREAT | os.O_WRONLY)),
    "fork": tried(os.fork),
    "socket": tried(socket.socket),
    "memory": tried(lambda: len(bytearray(1024**3))),
    "root": tried(lambda: os.setuid(0)) if was_root else "PermissionError",
    "own user": os.getuid() >= names["FIRST_UID"] or not was_root,
    "interfaces": interfaces if isolated else ["lo"],
}))
"""


def test_before_a_file_is_read_its_process_gives_up_files_processes_network_memory_and_its_user() -> None:
    done = subprocess.run(  # noqa: S603 - our own interpreter with our own text
        [sys.executable, "-c", ATTEMPTS, str(OPENER)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        "open": "OSError",
        "write": "OSError",
        "fork": "BlockingIOError",
        "socket": "OSError",
        "memory": "MemoryError",
        "root": "PermissionError",
        "own user": True,
        "interfaces": ["lo"],
    }


def test_a_process_that_takes_too_long_is_ended() -> None:
    process = subprocess.Popen(["sleep", "600"])  # noqa: S607 - found on PATH
    assert opener.watched(process.pid, 0) == "takes more than 0 s"
    process.returncode = -9


def test_an_opener_that_cannot_be_started_leaves_no_descriptor(tmp_path: Path) -> None:
    path = write_rollout(tmp_path / "1.pt", [sample(0)])
    with Reader(memory_gib=1.0, seconds=60) as reader:
        before = open_here()
        for more in range(1, 5):  # one is the dump's own
            with room_for(more), pytest.raises(OSError, match="Too many open files"):
                reader.rollout(path)
        assert open_here() == before
