"""Makes docs/watch.svg, docs/study.png and docs/page.png: a run that is watched, a search of it in
optuna-dashboard, and the page of a sample bank.

python docs/generate_pictures.py --log OUTPUT/aoe_progress_<mode>_<...>.jsonl --at SECONDS
    --study FILE.log

The log is of a run that has ended; it is drawn as it was at that time. The study is that of the
search with the most trials. Pages need Chromium, the study `pip install optuna-dashboard`.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.request import urlopen

from rich.console import Console, RenderableType

from aoe.report.watched import WatchReport
from aoe.runs.watching import RunWatch

FOLDER = Path(__file__).resolve().parent
WATCH, STUDY, PAGE = (FOLDER / name for name in ("watch.svg", "study.png", "page.png"))
_WIDTH, _HEIGHT = 110, 20
_FONT_FACE = re.compile(r"@font-face \{.*?\}", re.DOTALL)  # they are loaded from another host
_START_S = 30
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


def write_study(study: Path) -> None:
    """Draw the history of the search with the most trials, as optuna-dashboard has it."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(study)))
    numbers = [one._study_id for one in storage.get_all_studies()]
    longest = max(numbers, key=storage.get_n_trials)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        ["optuna-dashboard", str(study), "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as dashboard:
        try:
            for _ in range(_START_S):
                with suppress(OSError), urlopen(f"{place}/api/studies"):
                    break
                time.sleep(1)
            wait = "--virtual-time-budget=15000"  # its charts are drawn by scripts
            _photograph(STUDY, f"{place}/dashboard/studies/{longest}", "1280,650", wait)
        finally:
            dashboard.terminate()


def write_page() -> None:
    """Draw the page of a sample bank."""
    bank = FOLDER.parent / "sample_banks" / "x86-64-icelake"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        command = [sys.executable, "-m", "aoebank", "report", bank.name, "--html", str(page)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=bank.parent)
        _photograph(PAGE, page.as_uri(), "1000,440")


def _photograph(picture: Path, address: str, size: str, *more: str) -> None:
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        sys.exit(f"no Chromium: {picture} stays as it is")
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *more)
    target = (f"--screenshot={picture}", f"--window-size={size}", address)
    subprocess.run([browser, *options, *target], check=True, stderr=subprocess.DEVNULL)


def main() -> None:
    """Make all that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, help="Of a run that has ended.")
    parser.add_argument("--at", type=float, help="Seconds after its start.")
    parser.add_argument("--study", type=Path, help="Of such a run, a journal.")
    given = parser.parse_args()
    if given.log is not None and given.at is not None:
        write_svg(screen_at(given.log, given.at))
    if given.study is not None:
        write_study(given.study)
    write_page()


if __name__ == "__main__":
    main()
