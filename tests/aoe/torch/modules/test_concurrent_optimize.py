"""Threads and processes that optimize at once take turns; the time limit covers the export."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.engine.fakes import RecordingProgress  # noqa: E402
from support.engine.untuned import UntunedEngine  # noqa: E402
from support.optimized_modules import Branching, optimize  # noqa: E402# noqa: E402
from torch import nn  # noqa: E402

import aoe.torch  # noqa: E402
from aoe.errors import ModelImportError, OutputError  # noqa: E402
from aoe.torch.modules.optimization import optimize_call  # noqa: E402
from aoe.torch.options import make_options  # noqa: E402
from aoe.tuner.mode import TuneSettings  # noqa: E402
from aoe.tuner.progress import Progress, SilentProgress  # noqa: E402

_LIMIT_S = 400
_SCRIPT = """
import sys, torch, aoe.torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Mish(), torch.nn.ELU()).eval()
x = torch.randn(1, 3, 64, 64)
with torch.no_grad():
    tuned = aoe.torch.optimize(net, x, bank=sys.argv[1], trials=1, core_num=1)
    torch.testing.assert_close(tuned(x), net(x), rtol=1e-3, atol=1e-3)
"""


class Alone(UntunedEngine):
    """Fails if two tunings run at once; waits until others have come as far as they can."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = threading.Lock()

    def __call__(self, settings: TuneSettings, env: Mapping[str, str], progress: Progress) -> Path:
        assert self._turn.acquire(blocking=False), "two threads tune at once"
        try:
            return super().__call__(settings, env, progress)
        finally:
            self._turn.release()


class Net(nn.Module):
    """One of several that differ."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, width), nn.Mish(), nn.Linear(width, 4))

    def forward(self, x: Any) -> Any:
        return {"y": self.layers(x)}


@pytest.mark.slow
def test_threads_optimize_and_serve_at_once() -> None:
    engine = Alone()
    count, everybody = 3, threading.Barrier(3)
    nets, x = [Net(8 + number).eval() for number in range(count)], torch.randn(2, 8)
    progresses = [RecordingProgress() for _ in nets]
    problems: list[BaseException] = []

    def work(number: int) -> None:
        net = nets[number]
        try:
            with torch.no_grad():
                everybody.wait()
                tuned = optimize(net, x, progress=progresses[number], engine=engine)
                for _ in range(20):
                    torch.testing.assert_close(tuned(x)["y"], net(x)["y"], rtol=1e-4, atol=1e-5)
                assert not aoe.torch.fallbacks(tuned)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems
    assert len(engine.asked) == count
    waited = [p for p in progresses if any("waiting for another" in t for t in p.texts("step"))]
    assert len(waited) == count - 1


def _failing(*_: Any) -> Any:
    raise OutputError("disk", "is full")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "error"), [(nn.Mish(), OutputError), (Branching(), ModelImportError)]
)
def test_who_fails_leaves_the_turn_to_others(module: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        optimize(module.eval(), torch.randn(2, 3), engine=_failing)
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.append(optimize(nn.Mish().eval(), torch.randn(2, 3)))
    )
    thread.start()
    thread.join()
    assert found


@pytest.mark.slow
def test_two_processes_share_one_new_bank(tmp_path: Path) -> None:
    (script := tmp_path / "script.py").write_text(_SCRIPT)
    bank = tmp_path / "new" / "bank"
    env = {**os.environ, "AOE_ACCEPT_BUSY": "True"}
    both = [
        subprocess.Popen(
            [sys.executable, str(script), str(bank)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    for process in both:
        output, _ = process.communicate(timeout=_LIMIT_S)
        assert process.returncode == 0, output
    assert any(bank.rglob("*.json"))


# ---- the time limit ----


@pytest.mark.slow
def test_the_export_is_a_part_of_the_time_limit() -> None:
    engine, now_s = UntunedEngine(), 100.0

    class Slow(SilentProgress):
        """Lets 12 seconds pass while the module is exported."""

        def step(self, text: str) -> None:
            nonlocal now_s
            now_s += 12.0 if text.startswith("exporting") else 0.0

    for limit, left in ((60.0, 48.0), (5.0, 0.0), (None, None)):
        optimize_call(
            nn.Mish().eval(),
            (torch.randn(2, 3),),
            {},
            make_options({"tuning_time_limit": limit}),
            progress=Slow(),
            engine=engine,
            clock=lambda: now_s,
        )
        assert engine.asked[-1].tuning_time_limit_s == left


# ---- the bank ----


def test_a_bank_that_cannot_be_made_is_named_as_it_was_given(tmp_path: Path) -> None:
    (file := tmp_path / "file").write_text("")
    progress = RecordingProgress()
    for bank in (file, file / "bank"):
        with pytest.raises(OutputError, match=rf"bank={bank}: cannot be created") as caught:
            optimize(nn.Mish().eval(), torch.randn(2, 3), bank=bank, progress=progress)
        assert "TUNE_BANK_PATH" not in str(caught.value)
    assert not progress.events  # found before anything was exported
