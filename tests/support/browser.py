"""A page in headless Chromium, asked and clicked through its DevTools protocol."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, websocket_connect

_PROGRAMS = "chromium", "chromium-browser", "google-chrome", "chrome"
PROGRAM = next(filter(None, map(shutil.which, _PROGRAMS)), None)
_START_S, _CALL_S = 60, 60
_MEASURE = """(() => {
const visible = (node) => node.getClientRects().length > 0;
const box = (node) => {
  const {left, right, top, bottom} = node.getBoundingClientRect();
  return {left, right, top, bottom, text: node.textContent.trim().slice(0, 40)};
};
const all = (name) => [...document.querySelectorAll(name)].filter(visible).map(box);
return {
  width: document.documentElement.clientWidth,
  wanted: document.documentElement.scrollWidth,
  rows: all("tbody tr").map((row) => row.bottom - row.top),
  labels: [...document.querySelectorAll("svg.roofline")].map(
    (plot) => [...plot.querySelectorAll("text")].map(box)),
  points: [...document.querySelectorAll("svg.roofline")].map((plot) => ({
    frame: box(plot), points: [...plot.querySelectorAll("circle")].map(box)})),
};
})()"""


class Browser:
    """One tab."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: WebSocketClientConnection) -> None:
        self._loop = loop
        self._socket = socket
        self._numbers = count(1)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a DevTools command."""
        return self._loop.run_until_complete(
            asyncio.wait_for(self._call(next(self._numbers), method, parameters), _CALL_S)
        )

    async def _call(self, number: int, method: str, parameters: Any) -> dict[str, Any]:
        message = {"id": number, "method": method, "params": parameters}
        await self._socket.write_message(json.dumps(message))
        while True:
            text = await self._socket.read_message()
            assert text is not None, "the browser is gone"
            answer = json.loads(text)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def run(self, script: str) -> Any:
        """Return the value of a script in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, page: Path, *, width: int = 1280, is_dark: bool = False) -> None:
        """Open a file, at a width and in a colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page.as_uri())
        ready = f"document.readyState === 'complete' && location.href === {page.as_uri()!r}"
        while not self.run(ready):
            self._loop.run_until_complete(asyncio.sleep(0.05))


@contextmanager
def open_browser(downloads: Path) -> Iterator[Browser]:
    """Yield a tab whose downloads go into a folder."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                *(
                    PROGRAM,
                    "--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--no-first-run",
                    "--hide-scrollbars",
                ),
                *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            socket = loop.run_until_complete(asyncio.wait_for(_connect(Path(profile)), _START_S))
            browser = Browser(loop, socket)
            where = {"behavior": "allow", "downloadPath": str(downloads)}
            browser.call("Browser.setDownloadBehavior", **where)
            yield browser
            socket.close()
        finally:
            process.kill()
            process.wait()
            loop.close()
            asyncio.set_event_loop(None)


async def _connect(profile: Path) -> WebSocketClientConnection:
    port = profile / "DevToolsActivePort"
    while True:
        with suppress(OSError):
            if found := re.match(r"\d+", port.read_text()):
                break
        await asyncio.sleep(0.05)
    answer = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{found[0]}/json")
    tabs = [one for one in json.loads(answer.body) if one["type"] == "page"]
    return await websocket_connect(tabs[0]["webSocketDebuggerUrl"], max_message_size=1 << 26)


def measured(page: str, folder: Path, *, width: int) -> dict[str, Any]:
    """Return the places of what a page shows; the test is skipped without Chromium.

    Args:
        page: The page.
        folder: Takes it.
        width: Of the window.
    """
    if PROGRAM is None:
        pytest.skip("needs Chromium")
    file = folder / "measured.html"
    file.write_text(page, encoding="utf-8")
    with open_browser(folder) as browser:
        browser.open(file, width=width)
        return dict(browser.run(_MEASURE))
