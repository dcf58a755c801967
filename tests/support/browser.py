"""Pages as headless Chromium lays them out: places of elements, at a width, light or dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_FOUND = re.compile(r'<output id="measured">(.*?)</output>', re.DOTALL)
_MEASURE = """<script>
const visible = (node) => node.getClientRects().length > 0;
const box = (node) => {
  const {left, right, top, bottom} = node.getBoundingClientRect();
  return {left, right, top, bottom, text: node.textContent.trim().slice(0, 40)};
};
const all = (name) => [...document.querySelectorAll(name)].filter(visible).map(box);
const found = {
  width: document.documentElement.clientWidth,
  wanted: document.documentElement.scrollWidth,
  rows: all("tbody tr").map((row) => row.bottom - row.top),
  labels: [...document.querySelectorAll("svg.roofline")].map(
    (plot) => [...plot.querySelectorAll("text")].map(box)),
  points: [...document.querySelectorAll("svg.roofline")].map((plot) => ({
    frame: box(plot), points: [...plot.querySelectorAll("circle")].map(box)})),
};
const output = document.createElement("output");
output.id = "measured";
output.textContent = JSON.stringify(found);
parent.document.body.append(output);
</script>"""


@cache
def chromium() -> str:
    """Return the program; a test that asks for it is skipped where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("needs Chromium")
    return found


def measured(page: str, folder: Path, *, width: int) -> dict[str, Any]:
    """Return the places of what a page shows.

    Args:
        page: The page; its own policy, under which nothing could be measured, is taken out.
        folder: Takes the page and the profile of the browser.
        width: Of the window.
    """
    file = folder / "measured.html"
    text = _POLICY.sub("", page).replace("</body>", f"{_MEASURE}</body>")
    # a window is never narrower than 500 pixels, a frame is
    frame = f'<iframe width="{width}" height="1200" srcdoc="{html.escape(text)}"></iframe>'
    file.write_text(f"<!doctype html><body>{frame}</body>", encoding="utf-8")
    done = _run(folder, "--dump-dom", file.as_uri())
    found = _FOUND.search(done)
    assert found, done[:400]
    values: dict[str, Any] = json.loads(html.unescape(found[1]))
    return values


def _run(folder: Path, *arguments: str) -> str:
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    command = [chromium(), *options, f"--user-data-dir={folder / 'browser'}", *arguments]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120
    ).stdout
