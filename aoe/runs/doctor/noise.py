"""A model against itself, shortly: what the machine makes of two equal things."""

from __future__ import annotations

from contextlib import ExitStack

from aoe.device.protocol import CheckUp, Device, Soundness
from aoe.execute.idle_gate import QuietPairs
from aoe.execute.rates import compare_itself
from aoe.folders.turns import Turns
from aoe.measurement import Measurement, MeasurePolicy, SpeedupEstimate, estimate_speedup
from aoe.ort.sessions import session_options

_WAIT_S = 10.0
_WIDE = 0.02
"""Half-width of an interval in which the gains of single kernels are lost."""


def check_noise(device: Device, turns: Turns, *, wait_s: float = _WAIT_S) -> CheckUp:
    """Return the check of noise: an A/A comparison of a matrix product.

    Args:
        device: Measures.
        turns: One is taken for it, if whoever has one ends it in time.
        wait_s: Seconds for that.
    """
    with ExitStack() as held:
        if not turns.take(held, wait_s=wait_s):
            return CheckUp(
                name="noise",
                found=f"not measured: another run measures ({turns.owner()})",
                verdict=Soundness.DOUBTFUL,
                advice="ask again once it is done; a run would wait for it",
            )
        measurement = _measured_twice(device)
    return noise_of(measurement, estimate_speedup(measurement))


def noise_of(measurement: Measurement, estimate: SpeedupEstimate) -> CheckUp:
    """Return the check of noise from pairs of one model against itself."""
    width = (estimate.high - estimate.low) / 2
    found = (
        f"a model against itself: {estimate.median:.3f}x ({estimate.low:.3f} to "
        f"{estimate.high:.3f}), it got {measurement.load}"
    )
    if not measurement.counts:
        return CheckUp(
            name="noise",
            found=found,
            verdict=Soundness.DOUBTFUL,
            advice="the machine is busy: end what else runs; AOE_ACCEPT_BUSY=True believes figures "
            "all the same",
        )
    if width > _WIDE:
        return CheckUp(
            name="noise",
            found=found,
            verdict=Soundness.DOUBTFUL,
            advice="small gains will not be told from noise: fix the clock, or pin the run",
        )
    return CheckUp(name="noise", found=found)


def _measured_twice(device: Device) -> Measurement:
    threads = device.describe().core_num
    options = session_options(threads=threads, optimize=False)
    policy = MeasurePolicy(pairs_min=20, pairs_max=40, warmup=3, threads=threads)
    return compare_itself(device, options, QuietPairs(usage=device.usage), policy)
