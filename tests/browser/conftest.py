"""One browser for all tests of this folder; each test has a page, and a profile, of its own."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.browser import Browser, browsing, chromium


def pytest_runtest_setup() -> None:
    if chromium() is None:
        pytest.skip("no Chromium on PATH: `apt-get install chromium`, or name one with HARBORRL_CHROMIUM")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as browser:
        yield browser
