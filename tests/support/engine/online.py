"""Conversions that are scripted: no process, no tuning, only what a session does about them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from aoe import InferenceSession
from aoe.device.registry import default_device
from aoe.graph.weights import WeightStore
from aoe.om.file import FALLBACK, MODEL, WEIGHTS, write_offline_model
from aoe.online.conversions import RESULT, Conversion, Converted
from aoe.online.worker import convert
from support.engine.cpu import CPU
from support.engine.models import make_model
from support.engine.offline import make_manifest, make_use

EXTENT = 4
_PATIENCE_S = 60.0


def adding(number: float, batch: int | str = 1) -> onnx.ModelProto:
    """Return a model that adds a number to `x`, so that results tell who computed them."""
    nodes = [helper.make_node("Add", ["x", "c"], ["y"], name="add")]
    weights = {"c": np.full(EXTENT, number, np.float32)}
    return make_model(nodes, {"x": [batch, EXTENT]}, {"y": [batch, EXTENT]}, weights=weights)


def rows(count: int = 1) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Return zeros for such a model."""
    return {"x": np.zeros((count, EXTENT), np.float32)}


def sum_of_two(number: float) -> onnx.ModelProto:
    """Return a model that adds a number and `m` to `x`, whose batches have one name."""
    nodes = [
        helper.make_node("Add", ["x", "m"], ["t"], name="sum"),
        helper.make_node("Add", ["t", "c"], ["y"], name="add"),
    ]
    open_shape = ["batch", EXTENT]
    weights = {"c": np.full(EXTENT, number, np.float32)}
    return make_model(nodes, {"x": open_shape, "m": open_shape}, {"y": open_shape}, weights=weights)


def tuned_file(folder: Path, number: float, batch: int | str = 1) -> Path:
    """Return a "tuned" model that adds a number; it says that it has a kernel."""
    model = adding(number, batch)
    return write_tuned(folder / f"{number}_{batch}.om", tuned=model, untuned=model)


def write_tuned(
    file: Path,
    *,
    tuned: onnx.ModelProto,
    untuned: onnx.ModelProto,
    shape_range: str = "",
    written_as: str = "",
) -> Path:
    """Write a file that says that it has a kernel, or a form of its own, and return it."""
    parts = file.with_name(f"parts_{file.stem}")
    parts.mkdir(parents=True)
    with WeightStore(parts / WEIGHTS) as store:
        for name, model in ((FALLBACK, untuned), (MODEL, tuned)):
            (parts / name).write_bytes(store.externalize(model).SerializeToString())
    target = default_device().describe()
    manifest = make_manifest(
        soc_version=target.soc_version,
        core_num=1,
        nchwc_block=CPU.channel_block(),
        kernels=() if written_as else (make_use(),),
        shape_range=shape_range,
        written_as=written_as,
    )
    write_offline_model(file, parts, manifest)
    return file


Answer = Path | str | None
"""The tuned model, a problem, or that there is nothing better."""


@dataclass
class Script:
    """Answers conversions as a test says, and remembers what was asked."""

    answer: Callable[[Conversion], Answer]  # Gives the answer to a request
    held: bool = False  # Whether conversions wait for `go` before they end
    asked: list[Conversion] = field(default_factory=list)
    stopped: int = 0
    go: threading.Event = field(default_factory=threading.Event)

    def start(self, asked: Conversion, folder: Path, env: Mapping[str, str]) -> ScriptedRun:
        """Start a conversion."""
        assert Path(asked.model).is_file() and env["TUNE_BANK_PATH"]
        self.asked.append(asked)
        return ScriptedRun(self, asked, folder)

    def wait_for(self, count: int) -> None:
        """Wait until so many conversions were asked for."""
        deadline = time.monotonic() + _PATIENCE_S
        while len(self.asked) < count:
            assert time.monotonic() < deadline, self.asked
            time.sleep(0.001)

    def session_class(self) -> type[InferenceSession]:
        """Return a class of sessions that convert by this script."""

        class Scripted(InferenceSession):
            start_conversion = staticmethod(self.start)  # type: ignore[assignment]

        return Scripted


def converted_here(asked: Conversion, folder: Path) -> Answer:
    """Answer a conversion as its process does, but in this one, however busy the machine is."""
    folder.mkdir()
    found = convert(replace(asked, accept_busy=True), folder)
    return found.problem or (folder / RESULT if found.kernels else None)


class ScriptedRun:
    """A conversion without a process."""

    def __init__(self, script: Script, asked: Conversion, folder: Path) -> None:
        self._script = script
        self._asked = asked
        self._folder = folder
        self._over = threading.Event()

    def wait(self) -> Converted:
        """Answer, when that is allowed."""
        if self._script.held and not self._asked.lookup_only:
            while not (self._script.go.wait(0.005) or self._over.is_set()):
                pass
        if self._over.is_set():
            return Converted(problem="stopped")
        answer = self._script.answer(self._asked)
        if isinstance(answer, str):
            return Converted(problem=answer)
        if answer is None:
            return Converted()
        shutil.copy(answer, self._folder / RESULT)
        return Converted(om_file=self._folder / RESULT, kernels=1, speedup=1.5)

    def stop(self) -> None:
        """End it."""
        self._script.stopped += 1
        self._over.set()
