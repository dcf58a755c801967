"""The command `aoe` with real kernels in real models, and scripted times.

    python -m support.engine.proven_tuning WORDS...

What is compiled, run and compared is real; every kernel is twice as fast as the default, and every
tuned model half as fast again as the untuned one, however busy the machine is. WORDS are those of
the command line.
"""

from __future__ import annotations

import sys
from typing import Any

from aoe.cli.app import main as aoe_main
from aoe.execute.runner import Runner
from aoe.measurement import Measurement
from aoe.tuner.parts import EngineParts

_PAIRS = 12


class TimedRunner(Runner):
    """A runner whose results are those of its worker, but for the times."""

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        """Run one task in the worker and return its result, with times of its own."""
        found = Runner.call(self, task, timeout_s=timeout_s, **arguments)
        if task == "measure_candidates":
            return [_timed(one, 2.0) for one in found]
        if task == "compare_models":
            return found.with_points([_timed(one, 1.5) for one in found.points])
        return found


def _timed(found: Measurement, speedup: float) -> Measurement:
    """Return a measurement with pairs of a quiet machine; one that failed stays as it is."""
    if not found.is_correct:
        return found
    return Measurement(
        outcome=found.outcome,
        baseline_us=tuple(100 * speedup + 0.1 * (pair % 3) for pair in range(_PAIRS)),
        tuned_us=(100.0,) * _PAIRS,
    )


if __name__ == "__main__":
    aoe_main(sys.argv[1:], engine=EngineParts(open_runner=TimedRunner))
