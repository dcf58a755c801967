"""The peak of a machine: measured once, kept for this CPU and these threads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.engine.cpu import CPU
from support.engine.fakes import RATES

from aoe.device.cpu.device import Cpu
from aoe.device.protocol import Device
from aoe.execute.rates import STREAM_BYTES
from aoe.measurement import CpuUse
from aoe.profiling.peak import MachinePeak
from aoe.profiling.probe import ProbedPeak, machine_peak, measure_peak, peak_of_rates
from aoe.target import Target

_QUIET = CpuUse(cpu_s=1.0)
_BUSY = CpuUse(cpu_s=1.0, waited_s=1.0)


@dataclass(frozen=True)
class _ScriptedMachine(Cpu):
    """Runs nothing; its counters are those of a busy or of a quiet machine."""

    uses: Iterator[CpuUse] = field(default_factory=lambda: iter(()))

    def usage(self) -> CpuUse:
        return next(self.uses)


def _machine(*loads: CpuUse) -> _ScriptedMachine:
    return _ScriptedMachine(uses=iter([use for load in loads for use in (CpuUse(), load)]))


def _target(threads: int = 2) -> Target:
    return replace(CPU.describe(1), core_num=threads)


class _Measured(list[int]):
    """The threads peaks were measured with; each time the machine is faster."""

    def measure(self, device: object, target: Target) -> MachinePeak:
        self.append(target.core_num)
        rates = replace(RATES, multiply_adds_per_us=1000.0 * len(self))
        return peak_of_rates(rates, target.core_num)

    def peak(self, device: Device, target: Target, cache: Path) -> ProbedPeak:
        return machine_peak(device, target, cache, self.measure)


@pytest.fixture
def measured() -> _Measured:
    """Return what notes and makes up the peaks of a test."""
    return _Measured()


def test_peak_is_measured_once_per_number_of_threads(tmp_path: Path, measured: _Measured) -> None:
    first = measured.peak(_machine(_QUIET), _target(), tmp_path)
    again = measured.peak(_machine(), _target(), tmp_path)
    measured.peak(_machine(_QUIET), _target(1), tmp_path)
    assert measured == [2, 1]
    assert again.peak == first.peak
    assert (first.was_kept, again.was_kept) == (False, True)


@pytest.mark.parametrize("change", [{"cpu_model": "another"}, {"features": ("avx2",)}])
def test_peak_of_another_machine_is_not_taken(
    tmp_path: Path, measured: _Measured, change: dict[str, object]
) -> None:
    measured.peak(_machine(_QUIET), _target(), tmp_path)
    measured.peak(_machine(_QUIET), replace(_target(), **change), tmp_path)
    assert len(measured) == 2


def test_busy_machine_is_tried_again_and_its_peak_not_kept(
    tmp_path: Path, measured: _Measured
) -> None:
    found = measured.peak(_machine(_BUSY, _BUSY, _BUSY), _target(), tmp_path)
    assert not found.quiet
    assert found.peak.flops_per_us == 2 * 3000.0  # the best of three
    assert list(tmp_path.iterdir()) == []


def test_second_try_may_be_quiet(tmp_path: Path, measured: _Measured) -> None:
    assert measured.peak(_machine(_BUSY, _QUIET), _target(), tmp_path).quiet
    assert len(measured) == 2
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", '{"schema": "aoe.machine_peak/1"}', "[1]"),
        '{"schema": "aoe.machine_peak/1", "threads": 1e999}',
    ],
)
def test_damaged_file_is_measured_anew(tmp_path: Path, measured: _Measured, text: str) -> None:
    measured.peak(_machine(_QUIET), _target(), tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    assert not measured.peak(_machine(_QUIET), _target(), tmp_path).was_kept
    assert measured.peak(_machine(), _target(), tmp_path).was_kept


def test_folder_that_cannot_be_written_does_not_matter(tmp_path: Path, measured: _Measured) -> None:
    place = tmp_path / "file"
    place.write_text("")
    assert measured.peak(_machine(_QUIET), _target(), place / "peaks").quiet


@dataclass(frozen=True)
class _ScriptedClock(Cpu):
    """Runs for real, and takes as long as it is told; sessions are timed in their order."""

    times_us: tuple[float, ...] = ()
    timers: list[Callable[[], object]] = field(default_factory=list)

    def timer(
        self,
        run: Callable[[], object],
        *,
        repeats: int,
        before: Callable[[], object] | None = None,
    ) -> Callable[[], float]:
        time_us = self.times_us[len(self.timers)]
        self.timers.append(run)
        return lambda: time_us


def test_levels_are_the_caches_and_the_memory() -> None:
    device = _ScriptedClock(times_us=(4000.0, 100.0, 64.0, 10_000.0))
    peak = measure_peak(device, replace(_target(), l2_bytes=1 << 20))
    assert peak.flops_per_us == 2 * 768**3 / 4000
    assert [level.name for level in peak.levels] == ["l2", "l3", "memory"]
    near, middle, far = peak.levels
    assert near.working_bytes == 1 << 20
    assert near.bytes_per_us == 2 * (1 << 20) * 32 / 64
    assert middle.bytes_per_us == STREAM_BYTES / 100
    assert far.bytes_per_us == (256 << 20) / 10_000


def test_large_second_level_caches_have_no_level_of_their_own() -> None:
    device = _ScriptedClock(times_us=(4000.0, 100.0, 10_000.0))
    peak = measure_peak(device, replace(_target(), l2_bytes=16 << 20))
    assert [level.name for level in peak.levels] == ["l3", "memory"]
