"""A new kind of device is one class and one line of the registry."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from support.engine.cpu import CPU
from support.engine.fakes import RecordingProgress, ScriptedRunner, make_target
from support.engine.models import chain_model, save_model

from aoe import load
from aoe.device import registry
from aoe.device.compiler import KernelSource
from aoe.device.protocol import CheckUp, CoreSplit, Device
from aoe.device.toolchain import Toolchain
from aoe.errors import TargetError
from aoe.folders.turns import Turns
from aoe.measurement import CpuUse
from aoe.measurement.memory import MemoryUse
from aoe.om.file import read_manifest
from aoe.runs.operators.result import OpatResult
from aoe.runs.run import tune_with
from aoe.target import Target
from aoe.tuner.mode import TuneSettings
from aoe.tuner.parts import EngineParts
from aoebank import Bank


@dataclass(frozen=True, slots=True)
class Abacus:
    """A device of its own that borrows the CPU's runtime and notes what it is asked for."""

    asked: list[str] = field(default_factory=list)

    def describe(self, core_num: int | None = None) -> Target:
        return make_target(soc_version="abacus-1", core_num=core_num or 3, vector_lanes=4)

    def serves(self, soc_version: str) -> bool:
        return soc_version.startswith("abacus-")

    def cores(self, *, all_of_them: bool = False) -> tuple[str, ...]:
        return ("wire0",)

    def check_up(self) -> tuple[CheckUp, ...]:
        return ()

    def numbers(self) -> tuple[int, ...]:
        return (0,)

    def pinned(self, number: int, where: str) -> AbstractContextManager[None]:
        raise AssertionError("nobody asked for one")

    def apart(self, threads: int) -> CoreSplit:
        return CPU.apart(threads)

    def keep_to(self, cores: frozenset[int]) -> None:
        CPU.keep_to(cores)

    def missing_features(self, needed: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    def channel_block(self) -> int:
        self.asked.append("channel_block")
        return 0

    def optimize(
        self, proto: onnx.ModelProto, file: Path, *, threads: int, tokens_as_images: bool = True
    ) -> onnx.ModelProto:
        self.asked.append("optimize")
        return CPU.optimize(proto, file, threads=threads)

    def open_session(
        self, model: bytes | Path, options: ort.SessionOptions
    ) -> ort.InferenceSession:
        self.asked.append("open_session")
        return CPU.open_session(model, options)

    def with_operators(self, libraries: Sequence[Path]) -> Abacus:
        assert not libraries
        return self

    def check_kernel(self, source: KernelSource) -> None:
        raise AssertionError("the scripted worker looks at no schedule")

    def compile_kernel(self, source: KernelSource, target: Target, directory: Path) -> Path:
        raise AssertionError("the scripted worker compiles nothing")

    def build_library(
        self,
        sources: Sequence[KernelSource],
        objects: Sequence[Path],
        *,
        target: Target,
        toolchain: Toolchain,
        file: Path,
    ) -> Path:
        self.asked.append("build_library")
        assert target.soc_version == "abacus-1" and len(sources) == len(objects)
        file.write_bytes(b"beads")
        return file

    def timer(
        self,
        run: Callable[[], object],
        *,
        repeats: int,
        before: Callable[[], object] | None = None,
    ) -> Callable[[], float]:
        raise AssertionError("the scripted worker times nothing")

    def usage(self) -> CpuUse:
        return CpuUse(wall_s=1.0, cpu_s=1.0)

    def watch_memory(self, files: Path) -> Callable[[], MemoryUse | None]:
        raise AssertionError("the scripted worker opens no session")

    def is_hoarding(self, process: int) -> bool:
        raise AssertionError("the scripted worker is no process")

    def offer_this_process(self) -> None:
        raise AssertionError("the scripted worker is no process")


@pytest.fixture
def abacus(monkeypatch: pytest.MonkeyPatch) -> Abacus:
    """Register the device."""
    device = Abacus()
    monkeypatch.setitem(registry.DEVICES, "abacus", device)
    return device


def _start(device: Device, target: Target, toolchain: Toolchain, turns: Turns) -> ScriptedRunner:
    return ScriptedRunner(device=device, target=target, toolchain=toolchain, turns=turns)


def _tune(folder: Path) -> OpatResult:
    (folder / "bank").mkdir()
    settings = TuneSettings(
        model=save_model(chain_model(["Exp", "Elu"], (1, 8, 64, 64)), folder / "net.onnx"),
        soc_version="abacus-1",
        output=folder / "out",
        trials=4,
    )
    env = {"PATH": os.environ["PATH"], "TUNE_BANK_PATH": str(folder / "bank")}
    now = datetime(2026, 1, 2, tzinfo=UTC)
    tuned = tune_with(
        settings,
        env=env,
        cwd=folder,
        progress=RecordingProgress(),
        now=now,
        engine=EngineParts(open_runner=_start),
    )
    return tuned.get(OpatResult)


def test_a_tuning_runs_on_it_from_graph_to_bank(abacus: Abacus, tmp_path: Path) -> None:
    result = _tune(tmp_path)
    assert (result.target.soc_version, result.target.core_num) == ("abacus-1", 3)
    assert {"optimize", "open_session", "build_library", "channel_block"} <= set(abacus.asked)
    (file,) = Bank(tmp_path / "bank").iter_files()
    assert file.name == "abacus-1_3_AiCore_elementwise.json"
    assert read_manifest(result.om_file).soc_version == "abacus-1"


def test_its_tuned_models_are_loaded_by_it(abacus: Abacus, tmp_path: Path) -> None:
    result = _tune(tmp_path)
    abacus.asked.clear()
    assert load(result.om_file).manifest.core_num == 3
    assert abacus.asked == ["open_session"]


def test_the_default_stays_what_it_was(abacus: Abacus) -> None:
    assert registry.resolve_target(None, 1) == (CPU, CPU.describe(1))
    assert abacus.asked == []


@pytest.mark.usefixtures("abacus")
def test_it_is_among_what_can_be_tuned_for() -> None:
    with pytest.raises(TargetError, match="another target") as caught:
        registry.resolve_target("abacus-2", None)
    assert str(caught.value).endswith(f"expected {CPU.describe().soc_version} or abacus-1)")
