"""Load of a machine: CPU time a measurement got, as a share of what it asked for."""

from __future__ import annotations

from dataclasses import dataclass

QUIET_SHARE = 0.9
"""Share of the CPU time a measurement asked for that it has to get, to be believed."""
_STEAL_ROUNDING_S = 0.02
"""Stolen time is counted in ticks of 10 ms on each core: so much of it proves nothing."""
_ENDED_ROUNDING_S = 0.02
"""The CPU time of a thread that runs is a tick old: so much less of it is no thread that has ended.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """CPU counters of the threads of a process, or the difference of two readings."""

    wall_s: float = 0.0  # Time on the clock
    cpu_s: float = 0.0  # CPU time of all threads
    waited_s: float = 0.0  # Time threads could have run and were not let, all together
    stolen_s: float = 0.0  # Time the hypervisor gave the usable cores to others, all together
    switches: int = 0  # Involuntary context switches: how often a thread lost its core
    # CPU time of threads that have ended: nobody knows how long they have waited.
    ended_cpu_s: float = 0.0

    def __add__(self, other: CpuUse) -> CpuUse:
        return CpuUse(
            wall_s=self.wall_s + other.wall_s,
            cpu_s=self.cpu_s + other.cpu_s,
            waited_s=self.waited_s + other.waited_s,
            stolen_s=self.stolen_s + other.stolen_s,
            switches=self.switches + other.switches,
            ended_cpu_s=self.ended_cpu_s + other.ended_cpu_s,
        )

    def since(self, earlier: CpuUse) -> CpuUse:
        """Return the counters added since an earlier reading, never below zero."""
        return CpuUse(
            wall_s=max(0.0, self.wall_s - earlier.wall_s),
            cpu_s=max(0.0, self.cpu_s - earlier.cpu_s),
            waited_s=max(0.0, self.waited_s - earlier.waited_s),
            stolen_s=max(0.0, self.stolen_s - earlier.stolen_s),
            switches=max(0, self.switches - earlier.switches),
            ended_cpu_s=max(0.0, self.ended_cpu_s - earlier.ended_cpu_s),
        )

    @property
    def given_share(self) -> float:
        """CPU time the threads got, as a share of what they asked for; 1 on a quiet machine.

        It does not matter for it whether idle threads spin or sleep, as it would for CPU time
        over wall time and threads: what spins asks for CPU time and gets it, what sleeps does
        not ask. Threads that live stand for threads that have ended: a session that is closed takes
        what its threads have waited with it, and their CPU time would stand alone.
        """
        lost_s = self.waited_s + max(0.0, self.stolen_s - _STEAL_ROUNDING_S)
        living_s = self.cpu_s - max(0.0, self.ended_cpu_s - _ENDED_ROUNDING_S)
        given_s = living_s if living_s > 0 else self.cpu_s
        return given_s / (given_s + lost_s) if given_s > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLoad:
    """Load of the machine during a measurement."""

    use: CpuUse  # While the samples were taken
    threads: int = 1  # Threads each side may use
    tries: int = 1  # Measurements taken until this one
    paused_s: float = 0.0  # Time spent waiting for a quiet machine between the tries
    least_quiet: float = QUIET_SHARE  # Share of the CPU time asked for that had to be given

    @property
    def is_quiet(self) -> bool:
        """True if the figures may be believed."""
        return self.use.given_share >= self.least_quiet

    @property
    def cpu_share(self) -> float:
        """CPU time over wall time and threads; below 1 on a quiet machine too, if threads sleep."""
        return self.use.cpu_s / (self.use.wall_s * self.threads) if self.use.wall_s else 1.0

    def __str__(self) -> str:
        paused = f", {self.paused_s:.0f} s of pauses between them" if self.paused_s else ""
        tries = f", {self.tries} tries{paused}" if self.tries > 1 else ""
        return (
            f"{self.use.given_share:.0%} of the CPU time it asked for, "
            f"{self.use.switches} involuntary switches, {self.use.stolen_s:.2f} s stolen{tries}"
        )
