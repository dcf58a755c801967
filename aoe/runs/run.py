"""`aoe.tune`: a whole run, one mode after the other."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from aoe.device.registry import device_of
from aoe.errors import OptionError, TurnTimeoutError, called
from aoe.folders.scratch import ScratchFolder
from aoe.gradients import compression
from aoe.runs.configuration.options import (
    DEVICE_VARIABLE,
    SETTINGS,
    TUNE_OPTIONS,
    TuneOptions,
    document_options,
    with_former_names,
)
from aoe.runs.configuration.resolving import configure, settings_of
from aoe.settings import environment, with_bank
from aoe.tuner.mode import (
    JobType,
    Mode,
    ModeContext,
    ModeResult,
    OneOfMany,
    TrialCount,
    TuneSettings,
    limits_of_part,
)
from aoe.tuner.operator_choice import OPTION
from aoe.tuner.parts import REAL_ENGINE, EngineParts
from aoe.tuner.progress import Progress, TellProgress, continued, progress_of
from aoe.tuner.registry import KINDS, get_mode
from aoe.workload import shapes_text
from aoebank import AoebankError, RichDisplay, SpareBank, plural

if TYPE_CHECKING:
    import onnx

    from aoe.execute.workers.pool_on_demand import PoolOnDemand
    from aoe.gradients.training import TrainingProgram
    from aoe.ort.inputs import InputSet
    from aoe.runs.cases import SplitRun
    from aoe.runs.configuration.options import GivenInputs, GivenShapes

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedCase:
    """Result of a run for one of several shapes."""

    shapes: str  # As `--input_shape` says them
    report: str  # Key in the result file, `report_<timestamp>_<number>`
    modes: tuple[ModeResult, ...]  # What each mode gave
    # Calls with these shapes by `--shapes_from`, None where nothing says so.
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TuneResult(RichDisplay):
    """Result of a run, and its files."""

    shown_by = "aoe.report.tuning:tune_report"

    # What each mode gave, in the order they ran; see `OpatResult`, `TunedGradients`. Of several
    # shapes, those of the last.
    modes: tuple[ModeResult, ...]
    cases: tuple[TunedCase, ...] = ()  # What became of each of several shapes; empty for one

    @property
    def om_file(self) -> Path | None:
        """The tuned model, of several shapes the one with all; None if no mode makes one."""
        return next((mode.om_file for mode in reversed(self.modes) if mode.om_file), None)

    @property
    def speedup(self) -> float:
        """Of the last mode, over the default; 1 if that stays. The mean of several shapes."""
        if self.cases:
            return statistics.geometric_mean(case.modes[-1].speedup for case in self.cases)
        return self.modes[-1].speedup

    @property
    def weighted_speedup(self) -> float | None:
        """Time of all calls of `--shapes_from` untuned over tuned; None without such counts."""
        from aoe.runs.model_mode import ModelTuning

        times = [
            (case.count * mode.baseline_ms, case.count * mode.tuned_ms)
            for case in self.cases
            for mode in case.modes[-1:]
            if case.count is not None and isinstance(mode, ModelTuning)
        ]
        if not times or len(times) < len(self.cases):
            return None
        return sum(before for before, _ in times) / sum(after for _, after in times)

    @property
    def bank(self) -> Path:
        """Root or file of the bank of the last mode."""
        return self.modes[-1].bank

    @property
    def bank_failure(self) -> AoebankError | None:
        """Why the bank took no more, and where the records are; None if all went into it."""
        modes = (*self.modes, *(mode for case in self.cases for mode in case.modes))
        return next(filter(None, (mode.bank_failure for mode in modes)), None)

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each task: operators and subgraphs as `summary.json` has them.

        Of a training, for each grouping that was measured. `job_type` names the mode, `input_shape`
        the shape where there are several.
        """
        from aoe.runs.gradients.result import TunedGradients
        from aoe.runs.model_mode import ModelTuning

        runs = [({"input_shape": case.shapes}, case.modes) for case in self.cases]
        return [
            {**shape, "job_type": str(mode.job), **row}
            for shape, modes in runs or [({}, self.modes)]
            for mode in modes
            if isinstance(mode, ModelTuning | TunedGradients)
            for row in mode.rows()
        ]

    def get(self, kind: type[R]) -> R:
        """Return the result of the mode with this kind of result.

        Raises:
            LookupError: that mode was not asked for.
        """
        for mode in self.modes:
            if isinstance(mode, kind):
                return mode
        raise LookupError(f"no mode of this run gives {kind.__name__}")


@with_former_names
def tune(
    model: str | os.PathLike[str] | onnx.ModelProto | TrainingProgram,
    *,
    progress: Progress | TellProgress | None = None,
    engine: EngineParts = REAL_ENGINE,
    **options: Unpack[TuneOptions],
) -> TuneResult:
    """Tune a model for the machine it runs on, as the command `aoe` does.

    Parameters have the names of its options and settings. Their names of 0.2, such as
    `tuning_time_limit_s` and `core_num`, are deprecated and still taken.

    Args:
        model: Model file, an ONNX model in memory, or, for gradient tuning, the program that
            trains it (`aoe.torch.TrainingScript`).
        progress: Function that is called with a `ProgressEvent` at each step, or an object with
            the methods of `aoe.tuner.progress.Progress`; None for silence. What it raises ends
            the run.
        engine: Runner, device and clock of the run; tests give fakes.
        options: See below; None stands for what `config`, a variable or the default says.

    Returns:
        The result of every mode; all files are written when this returns.

    Raises:
        OptionError: an option that cannot be meant.
        TypeError: an option that does not exist.
        AoeError: bad input, no compiler, no place to write; see the subclasses.
        AoebankError: the bank cannot be used.

    Options:
    """
    for name in options.keys() - TUNE_OPTIONS.keys():
        raise TypeError(f"tune() got an unexpected keyword argument {name!r}")
    given: dict[str, Any] = {**options, "input_shape": _shape_texts(options.get("input_shape"))}
    config, bank, stage = (given.pop(name, None) for name in ("config", "bank", "stage"))
    given["stage"] = [stage] if isinstance(stage, str) else stage
    env, cwd = environment(), Path.cwd()
    resolved = {name: given[name] for name in given.keys() & SETTINGS.keys()}
    found = configure(resolved, env=env, cwd=cwd, config=None if config is None else Path(config))
    with ExitStack() as scratch:
        settings = settings_of(
            _subject(model, scratch),
            given,
            found,
            inputs=_input_sets(options.get("inputs"), scratch),
            calibration=_input_sets(options.get("calibration"), scratch, "calibration"),
        )
        return tune_with(
            settings,
            env=env
            if bank is None
            else with_bank(env, Path(bank), writes=not settings.lookup_only),
            cwd=cwd,
            progress=progress_of(progress),
            now=datetime.now(UTC),
            engine=engine,
        )


document_options(tune)


def tune_with(
    settings: TuneSettings,
    *,
    env: Mapping[str, str],
    cwd: Path,
    progress: Progress,
    now: datetime,
    one_of_many: OneOfMany | None = None,
    remote_pools: PoolOnDemand | None = None,
    spare: SpareBank | None = None,
    trials: TrialCount | None = None,
    engine: EngineParts = REAL_ENGINE,
) -> TuneResult:
    """Run the modes of `settings`; each one refuses what it cannot tune before the first begins.

    Args:
        settings: Options of the run.
        env: Environment variables.
        cwd: Directory relative paths are taken from.
        progress: Is told what happens.
        now: Time the run is named after.
        one_of_many: Where the model stands among those of the run; None if it is the only one.
        remote_pools: Keeps the workers for all models of the run; None for this one.
        spare: Takes what the bank cannot, for all models of the run; None for this one.
        trials: Candidates of all models of the run; None for those of this one.
        engine: Runner, device, clock and what else of the engine may be replaced.

    Raises:
        AoeError: bad input, no compiler, no place to write; see the subclasses.
        AoebankError: the bank cannot be used.
    """
    from aoe.execute.workers.pool_on_demand import PoolOnDemand
    from aoe.runs.given_cases import with_stored_cases

    settings = _on_a_known_device(with_stored_cases(settings), progress)
    context = ModeContext(
        settings=settings,
        env=env,
        cwd=cwd,
        progress=continued(progress),
        now=now,
        engine=engine,
        one_of_many=one_of_many,
        spare=spare or SpareBank(),
        trials=trials or TrialCount(),
    )
    log = settings.shape_log if settings.shape_range is None else None
    for caveat in log.caveats() if log is not None else ():
        progress.warn(caveat)
    with (
        nullcontext(remote_pools)
        if remote_pools is not None
        else PoolOnDemand(engine.open_remote_pool) as kept
    ):
        context = replace(context, remote_pools=kept)
        return _tune_cases(context) if settings.shape_cases else _tune_shape(context)


def _on_a_known_device(settings: TuneSettings, progress: Progress) -> TuneSettings:
    """Return the settings without a device that a variable names and a machine of one node lacks.

    AOE's documents set `ASCEND_DEVICE_ID` to the number of an NPU; here is only one to choose.
    """
    number, known = settings.device_id, device_of(settings.soc_version or "").numbers()
    if number is None or settings.device_place != DEVICE_VARIABLE or number in known:
        return settings
    if len(known) > 1:
        return settings  # refused where the run is pinned, with the numbers there are
    progress.warn(
        f"{DEVICE_VARIABLE}={number} changes nothing: this machine has one NUMA node, {known[0]}, "
        "and the run may use all of its cores"
    )
    return replace(settings, device_id=None)


def _tune_cases(context: ModeContext) -> TuneResult:
    """Tune a model for several shapes, one after another, and put them into one tuned model."""
    from aoe.runs.cases import join_results, split_cases

    begun = context.clock()
    split = split_cases(context)
    tuned = _tuned_cases(context, split, begun)
    settings = context.settings
    apart = settings.output if settings.reports is not None else None
    file = None if apart is None else context.cwd / apart
    joined = join_results([case.modes for case in tuned], split.model, file)
    cases = [replace(case, modes=modes) for case, modes in zip(tuned, joined, strict=True)]
    return TuneResult(modes=cases[-1].modes, cases=tuple(cases))


def _tuned_cases(context: ModeContext, split: SplitRun, begun: float) -> list[TunedCase]:
    """Return the result of each shape; shapes that the time limit left out are told.

    Raises:
        TurnTimeoutError: the time limit was over before the first shape was done.
    """
    tuned = list[TunedCase]()
    shape_cases, limit_s = context.settings.shape_cases, context.settings.tuning_time_limit_s
    log = context.settings.shape_log
    for number, shapes in enumerate(shape_cases):
        spent_s = context.clock() - begun
        if tuned and limit_s is not None and spent_s >= limit_s:
            break
        case = split.context(number, spent_s=spent_s)
        context.progress.step(f"shape {number + 1} of {len(split.inputs)}: {shapes}")
        try:
            modes = _tune_shape(case).modes
        except TurnTimeoutError:
            if not tuned:
                raise
            break
        assert case.one_of_many is not None
        count = log.count_of(shapes) if log is not None else None
        report = case.one_of_many.report
        tuned.append(TunedCase(shapes=shapes, report=report, modes=modes, count=count))
    if left := shape_cases[len(tuned) :]:
        context.progress.warn(
            f"the time limit left no time for {plural(len(left), 'shape')}, which the tuned model "
            f"computes as the untuned one: {'; '.join(left)}"
        )
    return tuned


def _tune_shape(context: ModeContext) -> TuneResult:
    """Run the modes on a model for one shape."""
    settings = context.settings
    looked_up = [job for job, kind in KINDS.items() if kind.earlier]
    if settings.lookup_only and not set(settings.job_types).issubset(looked_up):
        raise OptionError(
            "--lookup_only",
            f"only {' and '.join(f'{job.subject}s' for job in looked_up)} are looked up",
            got=",".join(settings.job_types),
            expected=" or ".join(looked_up),
        )
    if settings.tune_ops is not None and JobType.OPAT not in settings.job_types:
        raise OptionError(
            OPTION,
            "operators are chosen for operator tuning only",
            got=",".join(settings.job_types),
            hint="--job_type=2, or --job_type=1,2",
        )
    if settings.allow_compression is not None and JobType.GDAT not in settings.job_types:
        raise OptionError(
            compression.OPTION,
            "it is for gradient tuning",
            got=settings.allow_compression,
            hint="aoe --job_type=4",
        )
    known = context.engine.modes
    modes: list[Mode] = [
        get_mode(job, is_range=settings.shape_range is not None) if known is None else known[job]
        for job in settings.job_types
    ]
    device, number = device_of(settings.soc_version or ""), settings.device_id
    with nullcontext() if number is None else device.pinned(number, settings.device_place):
        for mode in modes:
            mode.check(context)
        return TuneResult(modes=_run_modes(context, modes))


def _run_modes(context: ModeContext, modes: Sequence[Mode]) -> tuple[ModeResult, ...]:
    """Return the results of the modes; a mode whose time was over before it began is told.

    Raises:
        TurnTimeoutError: that became of every mode.
    """
    from aoe.runs.model_mode import write_run_summary

    begun, late = context.clock(), list[TurnTimeoutError]()
    for number, mode in enumerate(modes):
        own = _stage(context, number, spent_s=context.clock() - begun)
        try:
            context = replace(context, earlier=(*context.earlier, mode.run(own)))
        except TurnTimeoutError as error:
            late.append(error)
            if len(modes) > 1:
                job = context.settings.job_types[number]
                context.progress.warn(f"{job.words} is left out: {error.headline}")
            continue
        write_run_summary(context.earlier)
    if late and not context.earlier:
        raise late[-1]
    return context.earlier


def _stage(context: ModeContext, number: int, *, spent_s: float) -> ModeContext:
    """Return the run of one mode, with its own time, or its part of what is left."""
    settings, parts = context.settings, len(context.settings.job_types)
    if settings.stage_limits_s:
        limit_s = settings.stage_limits_s[number]
        words = "no time limit" if limit_s is None else f"{limit_s:g} s"
        job = settings.job_types[number]
        context.progress.step(f"stage {number + 1} of {parts}: {job.words}, {words}")
        own = replace(settings, tuning_time_limit_s=limit_s)
    elif parts > 1:
        own = limits_of_part(settings, spent_s=spent_s, number=number, parts=parts)
    else:
        own = settings
    return replace(context, settings=own, progress=continued(context.progress))


def _subject(
    model: str | os.PathLike[str] | onnx.ModelProto | TrainingProgram, scratch: ExitStack
) -> Path | TrainingProgram:
    """Return a path, or the program; a model in memory becomes a file named after its graph."""
    if isinstance(model, str | os.PathLike):
        return Path(model)
    import onnx

    from aoe.entry.protocol import written_model
    from aoe.gradients.training import TrainingProgram

    if isinstance(model, TrainingProgram):
        return model
    if not isinstance(model, onnx.ModelProto):
        raise OptionError(
            "model",
            "neither a path nor a model",
            got=f"{model!r}, {type(model).__name__}",
            expected="a path, an onnx.ModelProto, or an aoe.torch.TrainingScript",
        )
    folder = scratch.enter_context(ScratchFolder("model"))
    name = "".join(char if char.isalnum() else "_" for char in model.graph.name) or "model"
    file = folder / f"{name}.onnx"
    file.write_bytes(written_model(model, "model"))
    scratch.enter_context(called("model", f"--model={file}"))
    return file


def _input_sets(
    given: GivenInputs | None, scratch: ExitStack, what: str = "inputs"
) -> tuple[InputSet, ...]:
    """Return the sets of input arrays; arrays in memory become files."""
    if given is None:
        return ()
    from aoe.ort.inputs import read_input_sets, save_input_sets

    if isinstance(given, str | os.PathLike):
        return read_input_sets(Path(given), what)
    return save_input_sets(given, scratch.enter_context(ScratchFolder("inputs")))


def _shape_texts(given: GivenShapes | None) -> list[str]:
    """Return shapes as `--input_shape` takes them, one text for each shape."""
    if given is None:
        return []
    several = [given] if isinstance(given, str | Mapping) else given
    return [one if isinstance(one, str) else shapes_text(one) for one in several]
