"""The preflight's result fits a termination message and says the verdict whatever happens to the rest."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import get_args, override

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborrl_trainer.__main__ import main
from harborrl_trainer.preflight.findings import Finding, Outcome, Reason, accepted, refuse, render, warn
from harborrl_trainer.preflight.run import run_checks
from support import jobs, reached


class HealthHandler(BaseHTTPRequestHandler):
    """Answers every GET with the contract's health document: 8 slots, 5 of them free."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write((jobs.CONTRACTS / "health.json").read_bytes())

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def agent_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), HealthHandler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


CONTRACT = json.loads((jobs.CONTRACTS / "preflight.json").read_text())


def test_the_contracts_result_is_written_as_it_stands() -> None:
    findings = [Finding(**finding) for finding in CONTRACT["findings"]]
    assert json.loads(render(findings, CONTRACT["facts"])) == CONTRACT


def test_every_reason_is_documented_and_no_other() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "trainer.md").read_text()
    section = page.split("## Preflight")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)) == set(get_args(Reason.__value__))


any_finding = st.builds(
    Finding,
    check=st.just("I6"),
    reason=st.text(max_size=40),
    severity=st.sampled_from(["refuse", "warn"]),
    message=st.text(max_size=2000),
)


@given(findings=st.lists(any_finding, max_size=20), fact=st.text(max_size=6000))
def test_any_result_is_whole_json_of_4_kib_with_the_true_verdict(findings: list[Finding], fact: str) -> None:
    text = render(findings, {"fact": fact})
    assert len(text.encode()) <= 4096
    document = json.loads(text)
    assert document["ok"] is accepted(findings)
    assert len(document["findings"]) + document.get("cut", 0) == len(findings)


def test_refusals_come_before_warnings_so_that_cutting_never_hides_them() -> None:
    document = json.loads(
        render([*(warn("x", "LowSpace", "w" * 600) for _ in range(20)), refuse("I6", "NoTasks", "m")], {})
    )
    assert document["findings"][0]["reason"] == "NoTasks"
    assert document["cut"] > 0


def test_a_check_that_hangs_becomes_a_finding_and_holds_up_no_other() -> None:
    never = threading.Event()

    def hang() -> Outcome:
        never.wait()
        return Outcome()

    findings, facts = run_checks([("traces volume", hang), ("model", lambda: Outcome(facts={"a": 1}))], seconds=0.2)
    never.set()
    reached.note_outcome(Outcome(findings))
    assert [finding.reason for finding in findings] == ["CheckTimedOut"]
    assert "traces volume" in findings[0].message
    assert facts == {"a": 1}


def test_facts_of_the_same_name_are_merged() -> None:
    checks = [(role, lambda role=role: Outcome(facts={"freeBytes": {role: 1}})) for role in ("traces", "trials")]
    assert run_checks(checks, seconds=5)[1] == {"freeBytes": {"traces": 1, "trials": 1}}


def test_a_check_that_breaks_is_a_crash_and_no_verdict() -> None:
    def broken() -> Outcome:
        raise RuntimeError("bug")

    with pytest.raises(RuntimeError, match="bug"):
        run_checks([("x", broken)], seconds=5)


def test_the_command_leaves_the_result_and_refuses_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs.make_volumes(tmp_path)
    result = tmp_path / "result.json"
    with agent_server() as url:
        document = jobs.job(tmp_path, agentServer__url=url).model_dump_json(by_alias=True)
        (tmp_path / "job.json").write_text(document)
        code = main(["preflight", "--result", str(result)], {"HARBORRL_JOB": str(tmp_path / "job.json")})
    assert code == 1
    reasons = [finding["reason"] for finding in json.loads(result.read_text())["findings"]]
    assert reasons == ["ModelNotFound", "NoTasks", "CapacityTight"]
    assert capsys.readouterr().err.splitlines()[-1].startswith("refuse: NoTasks: ")


def test_the_command_accepts_a_job_that_can_run(tmp_path: Path) -> None:
    jobs.make_volumes(tmp_path)
    jobs.make_model(tmp_path / "models" / "tiny")
    jobs.make_task(tmp_path / "tasks", "greet")
    result = tmp_path / "result.json"
    with agent_server() as url:
        document = jobs.job(tmp_path, agentServer__url=url).model_dump_json(by_alias=True)
        (tmp_path / "job.json").write_text(document)
        code = main(["preflight", "--result", str(result)], {"HARBORRL_JOB": str(tmp_path / "job.json")})
    assert code == 0
    facts = json.loads(result.read_text())["facts"]
    assert facts["prompts"] == 1
    assert facts["agentServer"] == {"capacity": 8, "free": 5}
    assert set(facts["freeBytes"]) == {"checkpoints", "traces", "trials"}
