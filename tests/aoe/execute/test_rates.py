"""What the machine does at its best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from aoe.device.cpu.device import Cpu
from aoe.execute.rates import measure_rates
from aoe.ort.sessions import session_options


@dataclass(frozen=True)
class _ScriptedClock(Cpu):
    """Runs for real, and takes as long as it is told; sessions are timed in their order."""

    times_us: tuple[tuple[float, ...], ...] = ()
    timers: list[Callable[[], object]] = field(default_factory=list)

    def timer(
        self,
        run: Callable[[], object],
        *,
        repeats: int,
        before: Callable[[], object] | None = None,
    ) -> Callable[[], float]:
        assert repeats == 1 and before is None
        times = iter(self.times_us[len(self.timers)] * 4)
        self.timers.append(run)
        return lambda: (run(), next(times))[1]


def test_rates_are_those_of_the_shortest_run() -> None:
    device = _ScriptedClock(times_us=((9000.0, 4000.0, 5000.0), (300.0, 100.0, 900.0)))
    rates = measure_rates(device, session_options(threads=1, optimize=True))
    assert rates.multiply_adds_per_us == 768**3 / 4000
    assert rates.bytes_per_us == 8 * (1 << 20) / 100
