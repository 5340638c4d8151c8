"""For everybody: contrast, focus, names and roles, narrow windows, large text, either theme."""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from harborrl_agent_server.phases import Phase
from support.browser import Browser, Page
from support.dashboard import Board, bash_trial, dashboard, ended, record, running, write_trial

pytestmark = pytest.mark.asyncio(loop_scope="session")

TRIAL = "task-done-0123456789ab"
OUTCOMES = ("Submitted", "TimeLimitExceeded", "VerifierError", "Aborted", "SandboxUnavailable")
PAGES = {"/": ".ended tbody tr", f"/trials/{TRIAL}": ".turn", "/login": "#secret"}

CONTRAST = """(() => {
  // A canvas turns any CSS colour into numbers.
  const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (css) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = css;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data].map((part) => part / 255);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0.99) return colour;
    }
    return rgba('white');
  };
  const found = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest('.visually-hidden, script, title')) continue;
    const style = getComputedStyle(element);
    const ink = element.namespaceURI.endsWith('svg') ? style.fill : style.color;
    const [a, b] = [light(rgba(ink)), light(ground(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push([element.textContent.slice(0, 40), element.className, ratio.toFixed(2)]);
  }
  return found;
})()"""


OUTLINED = """(() => {
  const at = document.activeElement;
  if (at === document.body) return true;
  reached.add(at);
  // A radio button is invisible above its label, which is outlined in its place.
  return [at, at.nextElementSibling].filter(Boolean).map((one) => getComputedStyle(one))
    .some((style) => style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2);
})()"""


@pytest_asyncio.fixture(loop_scope="session")
async def url(tmp_path: Path) -> AsyncIterator[str]:
    spoken = bash_trial(("Look.\n```sh\nls\n```", "exit code 1\nnothing"), ("TASK_DONE", ""))
    files = {"run.json": record("task-done"), "agent/trajectory.json": spoken, "verifier/test-stdout.txt": "1 passed"}
    write_trial(tmp_path, TRIAL, files)
    steps = tmp_path / "a1" / "i1" / "trials" / "x.jsonl"
    steps.parent.mkdir(parents=True)
    steps.write_text("".join(json.dumps({"rollout_id": n, "reward": n / 9, "kept": True}) + "\n" for n in range(9)))
    board = Board(
        live=[running("a", agent_age_s=5000.0, worker=11), running("b", Phase.CANCELLING), running("q", Phase.QUEUED)],
        finished=[ended("done"), *(ended(name, name, reward=None) for name in OUTCOMES)],
        outcomes=dict.fromkeys(OUTCOMES, 1),
    )
    async with dashboard(tmp_path, board, admin_secret="correct-horse") as (url, _):
        yield url


async def opened(browser: Browser, url: str, path: str, *, width: int = 1280, dark: bool = False) -> Page:
    page = await browser.page(width=width, dark=dark)
    if path != "/login":
        await page.call("Network.setExtraHTTPHeaders", headers={"Authorization": "Bearer correct-horse"})
    await page.goto(url + path)
    await page.until(f"document.querySelector({PAGES[path]!r})")
    return page


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_every_text_stands_out_from_what_is_behind_it(browser: Browser, url: str, path: str, dark: bool) -> None:
    """WCAG 2.2 AA for small text: 4.5 to 1."""
    page = await opened(browser, url, path, dark=dark)
    assert await page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("width", [1280, 640, 400, 320])
async def test_no_window_is_scrolled_sideways(browser: Browser, url: str, path: str, width: int) -> None:
    page = await opened(browser, url, path, width=width)
    assert await page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("path", PAGES)
async def test_the_tab_key_reaches_everything_and_shows_where_it_is(browser: Browser, url: str, path: str) -> None:
    page = await opened(browser, url, path)
    await page.evaluate("document.activeElement.blur()")
    wanted = await page.evaluate(
        "[...document.querySelectorAll('a, button, input, select, summary, [tabindex=\"0\"]')]"
        ".filter(e => e.checkVisibility() && !(e.type === 'radio' && !e.checked)).length"
    )
    await page.evaluate("window.reached = new Set()")
    unseen = []
    for _ in range(wanted + 2):  # past the last one the browser starts again
        await page.press("Tab")
        if not await page.evaluate(OUTLINED):
            unseen.append(await page.evaluate("document.activeElement.outerHTML"))
    assert unseen == []
    assert await page.evaluate("reached.size") == wanted


@pytest.mark.parametrize("path", PAGES)
async def test_assistive_technology_is_told_the_name_of_every_control(browser: Browser, url: str, path: str) -> None:
    page = await opened(browser, url, path)
    controls = {"button", "link", "textbox", "searchbox", "combobox", "slider", "meter", "radio", "table", "checkbox"}
    found = [node for node in await page.tree() if node.get("role") in controls]
    assert found
    assert [node for node in found if not node.get("name")] == []


async def test_meters_say_time_and_ceiling_in_words(browser: Browser, url: str) -> None:
    page = await opened(browser, url, "/")
    said = await page.evaluate("[...document.querySelectorAll('[role=meter]')].map(m => m.ariaValueText)")
    assert any(text.startswith("1 hour 23 minutes of 1 hour 30 minutes, near its limit") for text in said), said


async def test_tables_stay_tables_when_they_become_cards(browser: Browser, url: str) -> None:
    page = await opened(browser, url, "/", width=400)
    roles = [node.get("role") for node in await page.tree()]
    assert roles.count("table") == 3
    assert roles.count("row") >= 9
    assert roles.count("columnheader") == 14


async def test_each_kind_of_outcome_has_a_shape_and_a_pattern_of_its_own(browser: Browser, url: str) -> None:
    page = await opened(browser, url, "/")
    shapes = await page.evaluate("[...document.querySelectorAll('.ended .icon')].map(i => i.innerHTML)")
    patterns = await page.evaluate("[...document.querySelectorAll('.patterns pattern')].map(p => p.innerHTML)")
    assert (len(set(shapes)), len(set(patterns))) == (5, 5)


async def test_headings_lead_from_level_to_level(browser: Browser, url: str) -> None:
    for path in PAGES:
        page = await opened(browser, url, path)
        levels = await page.evaluate("[...document.querySelectorAll('main :is(h1,h2,h3)')].map(h => +h.tagName[1])")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))


async def test_nothing_moves_for_those_who_asked_for_it(browser: Browser, url: str) -> None:
    page = await opened(browser, url, "/")
    moving = "[...document.querySelectorAll('*')].filter(e => getComputedStyle(e).animationName !== 'none')"
    assert await page.evaluate(f"{moving}.length + document.getAnimations().length") == 0
