"""The CPU, for tests of parts that work on any device."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from aoe.device.cpu.device import Cpu
from aoe.device.cpu.memory import is_hoarding
from aoe.device.registry import DEVICES
from aoe.measurement import CpuUse
from aoe.target import Target

CPU = DEVICES["cpu"]
open_session = CPU.open_session


@dataclass(frozen=True, slots=True)
class TwoCoreCpu(Cpu):
    """The CPU with two usable cores, whatever this process may use."""

    def describe(self, core_num: int | None = None) -> Target:
        """Describe the CPU with at most two cores."""
        known = super(TwoCoreCpu, self).describe()
        return replace(known, core_num=min(core_num or 2, 2))


@dataclass(frozen=True, slots=True)
class InterruptingCpu(Cpu):
    """The CPU beside a user who presses Ctrl-C when a worker that is busy is looked at."""

    interrupts: list[BaseException] = field(default_factory=list)  # What is still to be raised

    def is_hoarding(self, process: int) -> bool:
        """Raise the next interrupt; False where there is none left."""
        if self.interrupts:
            raise self.interrupts.pop()
        return False


@dataclass(frozen=True, slots=True)
class BusyCpu(Cpu):
    """The CPU beside neighbours that take most of its time, as its counters have it."""

    def usage(self) -> CpuUse:
        """Return the counters with four seconds of waiting for each second of computing."""
        use = super(BusyCpu, self).usage()
        return replace(use, waited_s=4 * use.cpu_s)


@dataclass(frozen=True, slots=True)
class ConfinedCpu(Cpu):
    """The CPU of a control group with little memory."""

    group: Path = Path()  # What the kernel says of the group: `memory.max` and `memory.current`

    def is_hoarding(self, process: int) -> bool:
        """Return whether a process holds most of the group's memory."""
        return is_hoarding(process, cgroup=self.group)

    def fill(self, total_bytes: int) -> None:
        """Let the group have so much memory, and nothing of it free."""
        for name in ("memory.max", "memory.current"):
            (self.group / name).write_text(str(total_bytes))
        (self.group / "memory.stat").write_text("inactive_file 0\n")
