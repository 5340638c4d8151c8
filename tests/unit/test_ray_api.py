"""Ray's answers become values or one of two errors, and a log of any size costs a bounded one."""

import json
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.supervisor.ray_api import RayApi, RayUnavailableError, SubmissionRefusedError
from harborrl_trainer.supervisor.run import ray_headers
from support.fake_ray import FakeRay


def api(*, status: int = 200, text: str = "") -> RayApi:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, text=text))
    return RayApi(httpx.AsyncClient(transport=transport, base_url="http://ray"))


async def test_submitting_twice_is_submitting_once() -> None:
    ray = FakeRay()
    async with ray.client() as client:
        await RayApi(client).submit("a", "true")
        await RayApi(client).submit("a", "true")
    assert ray.submissions == ["a"]


async def test_an_unknown_job_is_none_and_stopping_it_is_nothing() -> None:
    async with FakeRay().client() as client:
        assert await RayApi(client).job("none") is None
        await RayApi(client).stop("none")


async def test_a_refusal_carries_rays_last_words() -> None:
    ray = FakeRay(refuse="Traceback\nTypeError: no\n.")
    async with ray.client() as client:
        with pytest.raises(SubmissionRefusedError, match=r"^TypeError: no$"):
            await RayApi(client).submit("a", "true")


@pytest.mark.parametrize(
    ("status", "text"), [(500, "Traceback"), (200, "<html>"), (200, '{"status": "MAYBE"}'), (200, "3")]
)
async def test_nonsense_concludes_nothing(status: int, text: str) -> None:
    with pytest.raises(RayUnavailableError):
        await api(status=status, text=text).job("a")


@pytest.mark.parametrize("status", [401, 403])
async def test_a_missing_token_is_named_and_is_no_refusal_of_the_driver(status: int) -> None:
    with pytest.raises(RayUnavailableError, match="RAY_AUTH_TOKEN"):
        await api(status=status).submit("a", "true")


def test_rays_token_comes_from_the_variables_that_ray_reads(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    from_file = {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
    assert ray_headers({}) == {}
    assert ray_headers(from_file) == {"Authorization": "Bearer from-file"}
    assert ray_headers({**from_file, "RAY_AUTH_TOKEN": "given"}) == {"Authorization": "Bearer given"}
    with pytest.raises(ConfigurationError, match="RAY_AUTH_TOKEN_PATH"):
        ray_headers({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")})


async def test_jobs_that_were_not_submitted_are_left_out() -> None:
    listing = [{"submission_id": "a"}, {"submission_id": None, "type": "DRIVER"}]
    assert await api(text=json.dumps(listing)).submissions() == ["a"]


@given(log=st.text(max_size=300), limit=st.integers(20, 200))
async def test_a_tail_is_the_logs_end_from_a_whole_line_on(log: str, limit: int) -> None:
    whole = f"first\n{log}\nlast"
    try:
        tail = await api(text=json.dumps({"logs": whole})).log_tail("a", limit)
    except RayUnavailableError:
        # One line longer than the limit has no whole line in it.
        assert b"\\n" not in json.dumps({"logs": whole}).encode()[-limit:]
        return
    assert whole.endswith(tail)
    assert tail == whole or whole[: -len(tail) or None].endswith("\n")


async def test_a_log_without_a_job_is_unavailable() -> None:
    with pytest.raises(RayUnavailableError):
        await api(status=404).log_tail("a")
