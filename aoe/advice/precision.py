"""Lower precision where the user allows it: operator tuning in a scratch folder, judged as ever."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from aoe.advice.trying import TrialVerdict, TriedAction, verdict_of
from aoe.errors import ERRORS_OF_A_MODEL, first_line
from aoe.profiling.run import ProfileSettings
from aoe.profiling.subject import OM_SUFFIX
from aoe.runs.operators.result import OpatResult
from aoe.runs.run import TuneResult, tune_with
from aoe.settings import accept_busy, with_bank
from aoe.tuner.mode import TuneSettings
from aoe.tuner.precision.settings import PrecisionSettings
from aoe.tuner.progress import Progress, SilentProgress
from aoebank import plural

PRECISION_ACTION = "lower-precision"
PRECISION_LIMIT_S = 120.0
"""For tuning; a whole run of `aoe` may find more."""


class Tune(Protocol):
    """Tunes a model; see `tune_with`."""

    def __call__(
        self,
        settings: TuneSettings,
        *,
        env: Mapping[str, str],
        cwd: Path,
        progress: Progress,
        now: datetime,
    ) -> TuneResult:
        """Tune a model in lower precision."""
        ...


def try_precision(
    settings: ProfileSettings,
    precision: PrecisionSettings,
    scratch: Path,
    *,
    room_us: float,
    tune: Tune = tune_with,
) -> TriedAction:
    """Return the gain of operator tuning in a lower precision, tried for a short time.

    The model that is compared has kernels in float32 as well, and keeps its accuracy as a tuned one
    does. The bank and the cache of the user are neither read nor written.

    Args:
        settings: Of the profile.
        precision: What the user allows.
        scratch: Existing folder.
        room_us: What the model loses.
        tune: Does it.
    """
    env = {name: value for name, value in settings.env.items() if name != "ASCEND_WORK_PATH"}
    is_tuned = settings.model.suffix == OM_SUFFIX
    asked = TuneSettings(
        model=settings.model,
        framework=None if is_tuned else settings.framework,
        weight=settings.weight,
        input_shape=settings.input_shape,
        operators=settings.operators,
        inputs=settings.inputs,
        output=scratch,
        core_num=settings.threads,
        accept_busy=accept_busy(settings.env),
        seed=settings.seed,
        tuning_time_limit_s=PRECISION_LIMIT_S,
        precision=precision,
    )
    try:
        done = tune(
            asked,
            env=with_bank(env, scratch / "bank"),
            cwd=scratch,
            progress=SilentProgress(),
            now=datetime.now(UTC),
        )
    except ERRORS_OF_A_MODEL as error:
        return _tried(precision, room_us, None, first_line(error))
    return _tried(precision, room_us, done.get(OpatResult), "")


def _tried(
    precision: PrecisionSettings, room_us: float, result: OpatResult | None, reason: str
) -> TriedAction:
    what = f"operator tuning with --precision_mode={precision.mode.value}"
    names: tuple[str, ...] = ()
    verdict, estimate = TrialVerdict.FAILED, None
    if result is not None:
        kept = result.validation.kept
        lowered = [kernel for kernel in kept if kernel.source.workload.precision.is_lower]
        names = tuple(name for kernel in lowered for name in kernel.op_names)
        what += f": {plural(len(names), 'operator')} in {result.precision.value}"
        if lowered:
            estimate = result.validation.estimate
            measurement = result.validation.comparison.measurement
            verdict = verdict_of(estimate, is_quiet=measurement.counts)
        else:
            reason = "no kernel of lower precision was kept"
            verdict = TrialVerdict.NO_GAIN
    return TriedAction(
        action=PRECISION_ACTION,
        what=what,
        op_names=names,
        room_us=room_us,
        estimate=estimate,
        reason=reason,
        verdict=verdict,
    )
