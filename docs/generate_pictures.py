"""Makes docs/watch.svg and docs/page.png: a run that is watched, and the page of a sample bank.

python docs/generate_pictures.py --log OUTPUT/aoe_progress_<mode>_<...>.jsonl --at SECONDS

The log is of a run that has ended; it is drawn as it was at that time. The page needs Chromium.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from rich.console import Console, RenderableType

from aoe.report.watched import WatchReport
from aoe.runs.watching import RunWatch

FOLDER = Path(__file__).resolve().parent
WATCH, PAGE = FOLDER / "watch.svg", FOLDER / "page.png"
_WIDTH, _HEIGHT = 110, 20
_FONT_FACE = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # they are loaded from another host
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def screen_at(log: Path, at_s: float) -> RenderableType:
    """Return what `aoe watch` showed of a run at a time of it."""
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    known = [line for line in lines if json.loads(line).get("at_s", 0.0) <= at_s]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / log.name
        copy.write_text("".join(known), encoding="utf-8")
        with copy.open("a") as writer:
            fcntl.flock(writer, fcntl.LOCK_EX)  # as the writer of a run that goes on holds it
            (run,) = RunWatch(copy).runs()
    name = re.sub(r"_\d{17}$", "", run.modes[0].tuning_name)
    modes = tuple(replace(mode, tuning_name=name) for mode in run.modes)
    now = modes[0].started + timedelta(seconds=at_s)
    shown = replace(run, folder=Path("result"), modes=modes)
    return WatchReport(runs=(shown,), now=now).screen(_WIDTH, _HEIGHT)


def write_svg(screen: RenderableType) -> None:
    """Draw a screen as the terminal has it."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(screen)
    text = console.export_svg(title="aoe watch result", unique_id="watch")
    WATCH.write_text(_FONT_FACE.sub("", text), encoding="utf-8")


def write_page() -> None:
    """Draw the page of a sample bank."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        sys.exit("no Chromium: docs/page.png stays as it is")
    bank = FOLDER.parent / "sample_banks" / "x86-64-icelake"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        command = [sys.executable, "-m", "aoebank", "report", bank.name, "--html", str(page)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=bank.parent)
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
        target = (f"--screenshot={PAGE}", "--window-size=1000,440", page.as_uri())
        subprocess.run([browser, *options, *target], check=True, stderr=subprocess.DEVNULL)


def main() -> None:
    """Make both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="Of a run that has ended.")
    parser.add_argument("--at", type=float, required=True, help="Seconds after its start.")
    given = parser.parse_args()
    write_svg(screen_at(given.log, given.at))
    write_page()


if __name__ == "__main__":
    main()
