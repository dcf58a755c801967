"""Hardware counters of a run, where the machine lets a process count."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

EVENTS = ("instructions", "cycles", "cache-references", "cache-misses", "branch-misses")
"""Events that are counted. Source: `perf list`, generic hardware events."""
_NOT_COUNTED = ("<not supported>", "<not counted>")
_START_S, _STOP_S = 0.2, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareCounters:
    """Hardware events the CPU counted."""

    # Counts of one run of the model, by name of the event.
    per_run: Mapping[str, float] = field(default_factory=dict)
    reason: str = "not asked for"  # Why there are none; empty if there are

    @property
    def instructions_per_cycle(self) -> float | None:
        """Instructions over cycles, None if either was not counted."""
        cycles, instructions = self.per_run.get("cycles"), self.per_run.get("instructions")
        return instructions / cycles if cycles and instructions else None


def count_runs(
    run: Callable[[], object], *, runs: int, program: str | None = None
) -> HardwareCounters:
    """Run a model while `perf stat` counts what all threads of this process do.

    Args:
        run: Computes the model once; its threads are there already.
        runs: How often.
        program: The program `perf`; None looks for it.
    """
    found = program or shutil.which("perf")
    if found is None:
        return HardwareCounters(reason="there is no program perf")
    run()  # warm, and all threads are there
    command = [found, "stat", "-x", ";", "-e", ",".join(EVENTS), "-p", str(os.getpid())]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    try:
        return parse_counts(_told(process, run, runs), runs)
    except subprocess.TimeoutExpired:
        return HardwareCounters(reason="perf does not end")
    finally:  # a run that fails, too, leaves nobody who counts
        if process.poll() is None:
            process.kill()
            process.communicate()


def _told(process: subprocess.Popen[str], run: Callable[[], object], runs: int) -> str:
    """Return the output of a counting process, which ends with the last run.

    Raises:
        subprocess.TimeoutExpired: it does not end.
    """
    try:
        process.wait(timeout=_START_S)  # what may not count ends at once
    except subprocess.TimeoutExpired:
        for _ in range(runs):
            run()
        process.send_signal(signal.SIGINT)
    return process.communicate(timeout=_STOP_S)[1]


def parse_counts(told: str, runs: int) -> HardwareCounters:
    """Return the counters in the output of `perf stat -x ;`, per run."""
    per_run: dict[str, float] = {}
    for line in told.splitlines():
        fields = line.split(";")
        if len(fields) > 2 and fields[0] not in _NOT_COUNTED:
            name = fields[2].split(":")[0]  # cycles:u where the kernel may not be counted
            if name in EVENTS and fields[0].isdigit():
                per_run[name] = int(fields[0]) / runs
    if per_run:
        return HardwareCounters(per_run=per_run, reason="")
    if any(word in told for word in _NOT_COUNTED):
        return HardwareCounters(reason="this machine has no counters, or hides them")
    said = next((line.strip() for line in told.splitlines() if line.strip()), "nothing")
    return HardwareCounters(reason=f"perf may not count: {said}")
