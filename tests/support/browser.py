"""A real Chromium without a window, driven over its own DevTools protocol.

https://chromedevtools.github.io/devtools-protocol/ names every method and event used here.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

LIMIT_S = 60.0
"""For anything that a page is expected to do at once; machines are busy."""

KEYS = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "ArrowLeft": ("ArrowLeft", 37, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    " ": ("Space", 32, " "),
}
"""Key -> (code, virtual key code, text)."""


def chromium() -> str | None:
    """Where it is; `HARBORRL_CHROMIUM` names another one."""
    named = os.environ.get("HARBORRL_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class PageError(AssertionError):
    """A script of the page, or of the test in it, has thrown."""


class LeftError(PageError):
    """The page went elsewhere while it was asked."""


LEFT = ("navigated", "context was destroyed", "Cannot find context")


class Browser:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.pages: dict[str, Page] = {}

    async def listen(self) -> None:
        async for text in self._socket:
            message = json.loads(text)
            if "id" in message:
                self._waiting.pop(message["id"]).set_result(message)
            elif page := self.pages.get(message.get("sessionId", "")):
                page.heard(message["method"], message["params"])

    async def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        request = {"id": number, "method": method, "params": parameters}
        await self._socket.send(json.dumps(request | ({"sessionId": session} if session else {})))
        async with asyncio.timeout(LIMIT_S):
            message = await answered
        if "error" in message:
            left = any(sign in message["error"]["message"] for sign in LEFT)
            raise (LeftError if left else PageError)(f"{method}: {message['error']}")
        result: dict[str, Any] = message["result"]
        return result

    async def page(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> "Page":
        """A new page in a profile of its own: no cookie and no stored choice of another page."""
        profile = (await self.call("Target.createBrowserContext"))["browserContextId"]
        target = (await self.call("Target.createTarget", url="about:blank", browserContextId=profile))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        page = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await page.call(f"{domain}.enable")
        await page.resize(width, height)
        await page.prefer(dark=dark)
        return page


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []
        """Uncaught errors, and what the browser itself reports: refused by policy, not found, ..."""
        self.requested: list[str] = []

    def heard(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"].get("exception", {}).get("description")))
        elif method == "Log.entryAdded":
            self.complaints.append(str(parameters["entry"]["text"]))
        elif method == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return await self._browser.call(method, self._session, **parameters)

    async def resize(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def prefer(self, *, dark: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def goto(self, url: str) -> None:
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        async with asyncio.timeout(LIMIT_S):
            await self._loaded.wait()

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        found = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise PageError(found["exceptionDetails"]["exception"].get("description", expression))
        return found["result"].get("value")

    async def until(self, condition: str) -> Any:
        """The value of `condition` once it is true, on this page or on the one it leads to."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                with contextlib.suppress(LeftError):
                    return await self.evaluate(watching(condition))

    async def press(self, *keys: str, shift: bool = False) -> None:
        for key in keys:
            code, number, text = KEYS[key] if key in KEYS else (f"Key{key.upper()}", ord(key.upper()), key)
            event: dict[str, Any] = {
                "key": key,
                "code": code,
                "windowsVirtualKeyCode": number,
                "modifiers": 8 if shift else 0,
            }
            await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
            await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def write(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def screenshot(self, path: Path) -> None:
        """Of the whole page, not only of the window."""
        shot = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))

    async def tree(self) -> list[dict[str, Any]]:
        """What assistive technology is told: nodes with role, name and value."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        return [
            {part: node[part]["value"] for part in ("role", "name", "value") if "value" in node.get(part, {})}
            for node in nodes
            if not node.get("ignored")
        ]


def watching(condition: str) -> str:
    """A promise of the condition's value that says what the page shows instead when it does not come true."""
    complaint = json.dumps(f"never true: {condition} in: ")
    return f"""new Promise((resolve, reject) => {{
        const end = performance.now() + {LIMIT_S * 900};
        const look = () => {{
            let value = null;
            try {{ value = {condition}; }} catch {{ value = null; }}
            if (value) resolve(value);
            else if (performance.now() > end) reject(new Error({complaint} + document.body.innerText.slice(0, 2000)));
            else setTimeout(look, 16);
        }};
        look();
    }})"""


@contextlib.asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """A browser that lives as long as the context. As root it runs without its own sandbox: it sees our pages only."""
    program = chromium()
    if program is None:
        raise FileNotFoundError("no Chromium on PATH")
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            program,
            "--headless=new",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--hide-scrollbars",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with connect(await address(process), max_size=None, proxy=None) as socket:
                browser = Browser(socket)
                listener = asyncio.ensure_future(browser.listen())
                try:
                    yield browser
                finally:
                    listener.cancel()
        finally:
            process.kill()
            await process.communicate()


async def address(process: asyncio.subprocess.Process) -> str:
    """The browser prints where it listens, among other things."""
    if process.stderr is None:
        raise ValueError("the browser was started without its stderr")
    said = []
    async with asyncio.timeout(LIMIT_S):
        async for line in process.stderr:
            text = line.decode(errors="replace").strip()
            said.append(text)
            if text.startswith("DevTools listening on "):
                return text.removeprefix("DevTools listening on ")
    raise AssertionError(f"the browser ended: {said}")
