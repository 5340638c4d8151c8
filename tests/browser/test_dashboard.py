"""The dashboard in a real Chromium: what is seen, by mouse, by keyboard, and by assistive technology."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harborrl_agent_server.phases import Phase
from support.browser import Browser, Page
from support.dashboard import Board, bash_trial, dashboard, ended, record, running, write_trial

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRIAL = "task-done-0123456789ab"
NONE = "\N{EN DASH}"
LOOK = "I look around.\n```sh\nls /app\n```"


@pytest.fixture
def board() -> Board:
    """Two trials run, one of them near its limit; one waits; one has ended."""
    return Board(
        live=[
            running("old", slot_age_s=5200, agent_age_s=5000),
            running("new", Phase.STARTING, slot_age_s=3, agent_age_s=None),
            running("next", Phase.QUEUED, agent_age_s=None),
        ],
        finished=[ended("done", reward=0.5), ended("lost", "SandboxLost", reward=None)],
        outcomes={"Submitted": 1, "SandboxLost": 1},
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    spoken = bash_trial((LOOK, "exit code 2\nls: no such file"), ("TASK_DONE", ""))
    output = "".join(f"test {number} passed\n" for number in range(60))
    files = {"run.json": record("task-done"), "agent/trajectory.json": spoken, "verifier/test-stdout.txt": output}
    write_trial(tmp_path, TRIAL, files)
    return tmp_path


@pytest_asyncio.fixture(loop_scope="session")
async def url(root: Path, board: Board) -> AsyncIterator[str]:
    async with dashboard(root, board) as (url, _):
        yield url


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, url: str) -> AsyncIterator[Page]:
    """The first page with its lists shown. Whatever the browser complained of fails the test."""
    page = await browser.page()
    await page.goto(url)
    await page.until("document.querySelectorAll('.live tbody tr').length === 2")
    yield page
    assert page.complaints == []


async def rows(page: Page, table: str) -> list[str]:
    found: list[str] = await page.evaluate(f"[...document.querySelectorAll('.{table} tbody tr')].map(r => r.innerText)")
    return found


async def test_trials_are_shown_with_phase_ages_and_both_ceilings(page: Page) -> None:
    first, second = await rows(page, "live")
    for part in ("task-old", "Agent acts", "1:23:2", "/ 1:30:00", "near its limit", "/ 1:57:00"):
        assert part in first
    assert all(part in second for part in ("task-new", "Sandbox starts", NONE, "/ 1:30:00"))
    assert "1." in (await rows(page, "queue"))[0]
    done, lost = await rows(page, "ended")
    assert all(part in done for part in ("Submitted", "task-done", "0.5"))
    assert all(part in lost for part in ("Sandbox lost", NONE))


async def test_what_changes_on_the_server_changes_on_the_page(page: Page, board: Board) -> None:
    board.live = [running("old", Phase.GRADING, slot_age_s=5210, agent_age_s=5005.0)]
    board.finished.insert(0, ended("new", "TimeLimitExceeded", reward=0.0))
    await page.until("document.querySelector('.live').innerText.includes('Grading')")
    await page.until("document.querySelector('.ended tbody tr').innerText.includes('Time limit exceeded')")
    assert len(await rows(page, "live")) == 1
    assert await page.evaluate("document.querySelector('.queue').closest('section').hidden")


async def test_ages_grow_between_two_messages(page: Page) -> None:
    before = await page.evaluate("document.querySelector('.c-trial .spent').textContent")
    await page.until(f"document.querySelector('.c-trial .spent').textContent !== {before!r}")


async def test_a_server_that_has_gone_is_said_to_be_lost(browser: Browser, root: Path, board: Board) -> None:
    page = await browser.page()
    async with dashboard(root, board) as (url, _):
        await page.goto(url)
        await page.until("document.getElementById('status').innerText === 'Serving'")
    await page.until("document.getElementById('status').innerText.startsWith('Connection lost')")


@pytest.mark.parametrize(("status", "said"), [("draining", "takes no new trials"), ("degraded", "something is left")])
async def test_the_servers_state_is_words_and_not_a_colour_alone(
    page: Page, board: Board, status: str, said: str
) -> None:
    board.status = status
    await page.until(f"document.getElementById('status').innerText.includes({said!r})")


async def test_of_several_workers_the_page_says_which_has_a_trial_and_which_is_silent(page: Page, board: Board) -> None:
    assert "worker" not in await page.evaluate("document.getElementById('main').innerText")
    board.workers, board.silent, board.status = 3, (0, 2), "degraded"
    board.live = [running("one", worker=0), running("two", worker=2), running("three", Phase.QUEUED, worker=1)]
    board.finished.insert(0, ended("four", "ServerError", reward=None, worker=1, cause="worker_lost"))
    await page.until("document.getElementById('status').innerText === 'Degraded: workers 0, 2 do not answer'")
    assert ["worker 0" in row for row in await rows(page, "live")] == [True, False]
    assert "worker 1" in (await rows(page, "queue"))[0]
    lost = (await rows(page, "ended"))[0]
    assert all(part in lost for part in ("Server error", "worker lost", "worker 1"))
    board.silent, board.leaked = (2,), 1
    await page.until(
        "document.getElementById('status').innerText.includes('worker 2 does not answer; something is left')"
    )
    await page.press("/")
    await page.write("worker 2")
    await page.until("document.querySelectorAll('.live tbody tr').length === 1")
    assert "task-two" in (await rows(page, "live"))[0]


async def test_a_trial_is_opened_and_left_by_keyboard(page: Page) -> None:
    await page.press("j")
    await page.press("j")
    await page.press("j")
    assert await page.evaluate("document.activeElement.innerText") == "task-done"
    await page.press("Enter")
    await page.until("document.querySelectorAll('.turn').length === 2")
    text: str = await page.evaluate("document.getElementById('main').innerText")
    for part in ("task-done", "Submitted", "I look around.", "ls /app", "exit code 2"):
        assert part in text
    await page.press("j")
    assert await page.evaluate("document.activeElement.id") == "turn-1"
    await page.press("j")
    await page.press("k")
    assert await page.evaluate("document.activeElement.id") == "turn-1"
    await page.press("u")
    await page.until("document.querySelector('.tiles')")
    assert await page.evaluate("location.pathname") == "/"


async def test_long_output_ends_with_its_last_lines_and_opens_whole(page: Page, url: str) -> None:
    await page.goto(f"{url}/trials/{TRIAL}")
    await page.until("document.querySelector('.aside pre')")
    shown = "document.querySelector('.aside pre').innerText"
    assert "test 59 passed" in await page.evaluate(shown)
    assert "test 0 passed" not in await page.evaluate(shown)
    await page.evaluate("document.querySelector('.aside .more').focus()")
    await page.press("Enter")
    assert "test 0 passed" in await page.evaluate(shown)
    assert await page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"


async def test_a_running_trials_page_becomes_its_ended_page(page: Page, url: str, root: Path, board: Board) -> None:
    name = "task-old-0123456789ab"
    write_trial(root, name, {"trial.log": "started"})
    await page.goto(f"{url}/trials/{name}")
    await page.until("document.querySelector('.verdict').innerText.includes('Agent acts')")
    write_trial(root, name, {"run.json": record("task-old", answer={"exit_status": "TurnLimitExceeded"})})
    board.live, board.finished = board.live[1:], [ended("old", "TurnLimitExceeded"), *board.finished]
    await page.until("document.querySelector('.verdict').innerText.includes('Turn limit exceeded')")


async def test_the_filter_is_reached_by_a_key_and_narrows_every_list(page: Page) -> None:
    await page.press("/")
    await page.write("lost")
    await page.until("document.querySelectorAll('.ended tbody tr').length === 1")
    assert "No running trial matches" in await page.evaluate("document.getElementById('main').innerText")
    await page.press("Escape")
    assert await page.evaluate("document.activeElement === document.body")


async def test_a_table_is_sorted_by_its_heads(page: Page) -> None:
    await page.evaluate("document.querySelector('.live th button').focus()")
    await page.press("Enter")
    assert "task-new" in (await rows(page, "live"))[0]
    assert await page.evaluate("document.querySelector('.live th').getAttribute('aria-sort')") == "ascending"


async def test_a_chart_is_read_point_by_point_with_the_arrows(page: Page) -> None:
    await page.evaluate("document.querySelector('.field').focus()")
    at = "Number(document.activeElement.getAttribute('aria-valuenow'))"
    last = await page.evaluate(at)
    seen = []
    for back in range(4):
        assert await page.evaluate(at) == last - back
        seen.append(await page.evaluate("document.activeElement.getAttribute('aria-valuetext')"))
        await page.press("ArrowLeft")
    assert any("1 graded, 1 infrastructure; mean reward 0.50" in text for text in seen), seen
    assert len(set(seen)) == 4


async def test_single_keys_can_be_turned_off(page: Page) -> None:
    await page.press("?")
    assert await page.evaluate("document.getElementById('keys').open")
    await page.evaluate("document.getElementById('single-keys').focus()")
    await page.press(" ")
    await page.press("Escape")
    await page.press("/")
    assert await page.evaluate("document.activeElement.id") != "filter"


async def test_a_theme_that_was_chosen_stays(page: Page, url: str) -> None:
    for _ in range(2):
        await page.evaluate("document.getElementById('theme').click()")
    assert await page.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
    await page.goto(url)
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"


async def test_a_browser_signs_in_with_the_secret_and_out_again(browser: Browser, root: Path, board: Board) -> None:
    page = await browser.page()
    async with dashboard(root, board, admin_secret="correct-horse") as (url, _):
        await page.goto(url)
        assert await page.evaluate("location.pathname + document.activeElement.id") == "/loginsecret"
        await page.write("wrong")
        await page.press("Enter")
        await page.until("document.querySelector('[role=alert]').innerText.includes('not the secret')")
        await page.write("correct-horse")
        await page.press("Enter")
        await page.until("document.querySelectorAll('.live tbody tr').length === 2")
        assert await page.evaluate("document.cookie") == ""
        await page.evaluate("document.querySelector('#logout button').click()")
        await page.until("location.pathname === '/login'")


async def test_nothing_comes_from_another_host(page: Page, url: str) -> None:
    await page.goto(f"{url}/trials/{TRIAL}")
    await page.until("document.querySelector('.turn')")
    assert {address for address in page.requested if not address.startswith(url)} == set()


HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


async def test_what_a_policy_writes_is_text(page: Page, url: str, root: Path) -> None:
    name = "hostile-0123456789ab"
    spoken = bash_trial((f"{HOSTILE}\n```sh\n{HOSTILE}\n```", f"exit code 0\n{HOSTILE}"), instruction=HOSTILE)
    files: dict[str, Any] = {"run.json": record(HOSTILE, answer={"message": HOSTILE}), "agent/trajectory.json": spoken}
    write_trial(root, name, {**files, "verifier/test-stdout.txt": HOSTILE})
    await page.goto(f"{url}/trials/{name}")
    await page.until("document.querySelector('.turn')")
    text = await page.evaluate("document.getElementById('main').innerText")
    assert text.count("<img src=x") >= 6
    assert await page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert "owned" not in (await page.evaluate("document.title")).split("·")[1]
