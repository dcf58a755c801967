"""The context of a run on a model file: everything is checked before it is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

import onnx

from aoe.bank.built_in import built_in_bank
from aoe.bank.choices import Choice, ChoiceBank, ChoiceKind, SaveChoice, StoredChoice
from aoe.bank.damage import DamagedFile, without_damaged
from aoe.bank.journal import BankJournal, fingerprint
from aoe.bank.operators import custom_banks
from aoe.device.object_cache import ObjectCache
from aoe.device.protocol import Device
from aoe.device.toolchain import find_toolchain, for_compiler
from aoe.entry.input_shapes import parse_input_shape
from aoe.entry.protocol import ImportedModel, ModelSource
from aoe.entry.registry import find_entry
from aoe.errors import OptionError, OutputError
from aoe.execute.runner import Runner
from aoe.execute.workers.pool_on_demand import PoolOnDemand
from aoe.execute.workers.remote_pool import RemotePool
from aoe.folders.scratch import ScratchFolder, sweep_scratch
from aoe.om.file import OperatorLibrary, digest_of
from aoe.ort.custom_operators import try_operators
from aoe.ort.inputs import ModelInputs
from aoe.results.files import BANK_FOLDER, result_name, timestamp_of
from aoe.results.progress_log import ProgressLog
from aoe.settings import cache_limit, lock_path, work_path
from aoe.target import Target, unmet_cores
from aoe.tuner.chosen_graph import ChosenGraph, WrittenForm, chosen_before
from aoe.tuner.float32_form import as_host_computes_it, find_float32_form
from aoe.tuner.kernel_cache import kept_objects
from aoe.tuner.live_report import PhaseTimes, Stopwatch, start_stopwatch
from aoe.tuner.mode import (
    JobType,
    ModeContext,
    TargetMetric,
    TrialCount,
    TuneSettings,
    training_command,
)
from aoe.tuner.parts import REAL_ENGINE, EngineParts
from aoe.tuner.policies import final_policy
from aoe.tuner.precision.constraint import DEFAULT
from aoe.tuner.progress import Progress
from aoe.tuner.reuse.earlier import EarlierResult, open_earlier
from aoe.tuner.study import StudyWriter
from aoe.workload import Precision
from aoebank import Bank, BankWithSpare, SpareBank, plural

C = TypeVar("C")
"""A choice between forms of the whole model, as those who make it have it."""
_OTHER_FILES = (
    *(".bin", ".csv", ".gz", ".html", ".json", ".log", ".md", ".npy", ".npz", ".onnx", ".pb"),
    *(".pt", ".py", ".so", ".tar", ".txt", ".yaml", ".yml", ".zip"),
)
"""What nobody calls a directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPlaces:
    """Files of a run on a model file."""

    tuning_name: str  # Name of the run, `<model>_<timestamp>`
    om_file: Path  # The tuned model to write
    results: Path  # Directory of the reports
    result_file: Path  # AOE's result file of the mode
    bank: Path | None = None  # Root of the bank that goes with the results; None without `--output`
    report: str = ""  # Key of the model in the result file, empty if the whole file is its own
    reports_stay: bool = True  # False if the directory of the reports goes with the run
    # Results whose reports the bank was made of, for the run alone; else None.
    bank_made_of: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelToTune:
    """The model of a run, and the graph a mode begins with."""

    model: ImportedModel  # The imported model
    inputs: ModelInputs  # Arrays it is run on
    calibration: ModelInputs  # Arrays its accuracy is checked on
    operators: tuple[OperatorLibrary, ...] = ()  # Libraries of operators it needs
    # Callers the whole model is validated with at the same time, each with the threads of the
    # target; 1 where its latency is tuned.
    streams: int = 1
    # The model in float32, None where it is or its tensors keep their types.
    float32_form: onnx.ModelProto | None = None
    # The graph an earlier mode of the run has chosen, None if none did.
    chosen: ChosenGraph | None = None
    # How it is written, None if there is no other form of it.
    written_as: WrittenForm | None = None

    @property
    def written(self) -> onnx.ModelProto:
        """The graph the first mode begins with: the imported one, or another form of it."""
        forms = (self.written_as.proto if self.written_as is not None else None, self.float32_form)
        return next((form for form in forms if form is not None), self.model.proto)

    @property
    def start(self) -> onnx.ModelProto:
        """The graph this mode begins with: the written one, if no earlier mode chose another."""
        return self.written if self.chosen is None else self.chosen.proto

    @property
    def form_words(self) -> str:
        """What distinguishes the written graph from the imported one; empty if nothing does."""
        form = self.written_as
        return form.what if form is not None and form.proto is not None else ""

    @property
    def is_rewritten(self) -> bool:
        """True if that is not the imported graph."""
        return self.start is not self.model.proto

    @property
    def precision(self) -> Precision:
        """The lowest that graph computes in, without kernels."""
        return Precision.FLOAT32 if self.chosen is None else self.chosen.precision


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringMachine:
    """Machine and workers that compile and measure candidates."""

    runner: Runner  # The measuring process of this machine; its target is tuned for
    # Workers operators are tuned on, None for this machine alone.
    remote_pool: RemotePool | None = None
    objects: ObjectCache | None = None  # Compiled kernels of earlier runs, None where none are kept
    versions: Mapping[str, str]  # Of aoe, halide, onnxruntime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBanks:
    """Banks in which answers are looked up and stored."""

    journal: BankJournal  # Of the custom bank
    built_in: Bank | None = None  # Bank looked up after the custom one, None if there is to be none
    # Earlier result, of which only what has changed is tuned; None without one.
    base: EarlierResult | None = None
    damaged: tuple[DamagedFile, ...] = ()  # Bank files the run does without
    spare: SpareBank = field(default_factory=SpareBank)  # Takes what the custom bank cannot


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTime:
    """The time of a run: `stopwatch` has its limit, `phases` what it was spent on."""

    stopwatch: Stopwatch
    phases: PhaseTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneContext:
    """Context of one mode that tunes a model."""

    settings: TuneSettings  # Options of the run
    subject: ModelToTune  # The model
    machine: MeasuringMachine  # Where it is measured
    banks: RunBanks  # Where answers are looked up and stored
    time: RunTime  # How long it may take
    places: ResultPlaces  # Where results go
    scratch: Path  # Empty directory that goes with the run
    progress: Progress  # Is told what happens
    engine: EngineParts = REAL_ENGINE  # What of the engine the run may replace
    trials: TrialCount = field(default_factory=TrialCount)  # Candidates of the whole run
    study: StudyWriter | None = None  # Takes its searches for Optuna, None where none are wanted
    log: ProgressLog = field(default_factory=ProgressLog)  # Follows its tasks, for `aoe watch`

    @property
    def threads_validated(self) -> int:
        """Threads of all streams together, with which the whole model is validated."""
        return self.subject.streams * self.machine.runner.target.core_num

    def with_chosen(self, chosen: ChosenGraph | None, scratch: Path | None = None) -> Self:
        """Return the same run with another graph to begin with.

        Args:
            chosen: The graph, None for the one the first mode begins with.
            scratch: Its own directory, None for that of the run.
        """
        subject = replace(self.subject, chosen=chosen)
        return replace(self, subject=subject, scratch=scratch or self.scratch)

    def as_imported(self) -> Self:
        """Return the same run with the imported model, where no form of it has held up."""
        form = self.subject.written_as
        subject = replace(
            self.subject,
            chosen=None,
            float32_form=None,
            written_as=replace(form, proto=None) if form is not None else None,
        )
        return replace(self, subject=subject)

    def choice(
        self,
        kind: ChoiceKind,
        key: Choice,
        *,
        recalled: Callable[[StoredChoice], C | None],
        made: Callable[[SaveChoice], C | None],
    ) -> C | None:
        """Return a choice between forms of the whole model, of an earlier run or made now.

        Args:
            kind: What is chosen.
            key: All that it depends on, but for the machine.
            recalled: Makes a stored choice again; None where it does not hold any more.
            made: Chooses; is given what saves the choice for later runs, which a look-up does not.
        """
        base, core_num = self.banks.base, self.machine.runner.target.core_num
        bank = ChoiceBank(
            kind,
            self.banks.journal,
            core_num=core_num,
            base=base.bank if base is not None else None,
        )
        stored = None if self.settings.repeat_tune else bank.find(key)
        found, may_write = None, not self.settings.lookup_only
        if stored is not None:
            found = recalled(stored)
        if found is None:
            found = made(partial(bank.save, key) if may_write else lambda forms, chosen: None)
        elif may_write:
            bank.adopt(key)
        if self.places.bank is not None:
            bank.copy_to(self.places.bank, [key])
        return found


def model_path(context: ModeContext, job: JobType) -> Path:
    """Return the model file of a run.

    Raises:
        OptionError: a training program is to be tuned.
    """
    model = context.settings.model
    if not isinstance(model, Path):
        raise OptionError(
            "--job_type",
            f"{job.words} needs a model file",
            got=model.name,
            hint=training_command(model, context.settings.job_types),
        )
    return model


@contextmanager
def open_tune_context(context: ModeContext, job: JobType) -> Iterator[TuneContext]:
    """Check what needs no measuring, then give the context of a mode.

    Raises:
        AoeError: bad input, no compiler, no place to write; see the subclasses.
        AoebankError: the bank cannot be used.
    """
    settings, env, cwd, engine = context.settings, context.env, context.cwd, context.engine
    stopwatch = start_stopwatch(context.clock, settings.tuning_time_limit_s)
    source, progress = _source(context, job), context.progress
    entry = find_entry(settings.framework, source)
    device, whole = engine.resolve_target(settings.soc_version, settings.core_num)
    target, streams = _of_a_stream(whole, settings.target_metric)
    device = device.with_operators([cwd / library for library in settings.operators])
    operators = _operators(settings, cwd)
    settings.precision.check(target)
    banks = custom_banks(env, cwd, writes=not settings.lookup_only)
    built_in = built_in_bank(env, cwd)
    objects = object_cache(settings, env, cwd, target, progress.warn)
    toolchain = replace(find_toolchain(env), kept=objects.kept if objects is not None else None)
    # a compiler is run, which takes as long as loading
    with ThreadPoolExecutor(1) as beside, toolchain.ended_by_interrupt():
        checked = beside.submit(engine.check_toolchain, toolchain, target)
        shape_range = settings.shape_range
        model = (
            entry.load_with_open_extents(source, shape_range) if shape_range else entry.load(source)
        )
        checked.result()
    target = for_compiler(target, toolchain, progress.warn)
    if settings.precision.mode.widens:
        model = as_host_computes_it(model, device.open_session)
    _inputs(settings, model)  # what is wrong with them is told before anything is opened
    places = result_places(context, model.name, job)
    words = job.look_up_words if settings.lookup_only else job.words
    progress.step(f"{words} of {source.path.name}{settings.job_note}")
    _report_caveats(context, whole, model)
    turns = engine.open_turns(lock_path(env), device.cores(), progress.warn, stopwatch.left_s)
    versions = engine.versions()
    _sweep(progress)
    with (
        ScratchFolder("base") as earlier,
        ScratchFolder("run") as scratch,
        engine.open_runner(device, target, toolchain, turns) as runner,
        _remote_pool(context, job, device, target, versions) as remote_pool,
    ):
        spare = (context.spare, _spare_place(places), progress.warn)
        bank = BankWithSpare(banks.root, *spare, banks.roots, banks.union)
        journal = _journal(bank, target, model, versions, _manner(settings, streams))
        tuning = TuneContext(
            settings=settings,
            subject=_subject(context, model, operators, streams),
            machine=MeasuringMachine(
                runner=runner,
                remote_pool=remote_pool,
                objects=objects,
                versions=versions,
            ),
            banks=_banks(context, journal, built_in, _earlier(settings, cwd, earlier)),
            time=RunTime(stopwatch=stopwatch, phases=PhaseTimes(stopwatch)),
            places=places,
            scratch=scratch,
            progress=progress,
            engine=engine,
            trials=context.trials,
        )
        # of a range the form is held against the model at its points
        yield tuning if shape_range else with_float32_form(tuning, [tuning.subject.calibration])


def _subject(
    context: ModeContext,
    model: ImportedModel,
    operators: tuple[OperatorLibrary, ...],
    streams: int,
) -> ModelToTune:
    """Return the model with its inputs."""
    inputs, calibration = _inputs(context.settings, model)
    return ModelToTune(
        model=model,
        inputs=inputs,
        calibration=calibration,
        operators=operators,
        streams=streams,
        chosen=chosen_before(context.earlier),
    )


def with_float32_form(tuning: TuneContext, inputs: Sequence[ModelInputs]) -> TuneContext:
    """Return the run with its model in float32, where the precision allows that.

    Args:
        tuning: The run.
        inputs: What the form is held against the model on.
    """
    settings = tuning.settings
    if not settings.precision.mode.widens:
        return tuning
    form = find_float32_form(
        tuning.subject.model,
        runner=tuning.machine.runner,
        inputs=inputs,
        constraint=settings.precision.accuracy or DEFAULT,
        folder=tuning.scratch / "float32",
        progress=tuning.progress,
        is_checked=not settings.lookup_only,
    )
    return replace(tuning, subject=replace(tuning.subject, float32_form=form))


def _banks(
    context: ModeContext, own: BankJournal, built_in: Bank | None, base: EarlierResult | None
) -> RunBanks:
    """Return the banks of a run and the files it does without, which are told.

    Damaged files of its own bank are set aside, those of others passed over.
    """
    may_write = not context.settings.lookup_only
    damaged = without_damaged(own.bank, own.soc_version, may_write=may_write)
    damaged += base.damaged if base is not None else ()
    for bank in (built_in, base.bank if base is not None else None):
        if bank is not None:
            damaged += without_damaged(bank, own.soc_version, may_write=False)
    for one in damaged:
        context.progress.warn(str(one))
    return RunBanks(journal=own, built_in=built_in, base=base, damaged=damaged, spare=context.spare)


def _sweep(progress: Progress) -> None:
    """Remove what killed runs have left, and tell."""
    for folder in sweep_scratch():
        progress.step(f"removed {folder}, left by a run that was killed")


def _inputs(settings: TuneSettings, model: ImportedModel) -> tuple[ModelInputs, ModelInputs]:
    """Return the inputs a model is run on, and those its accuracy is checked on."""
    inputs = ModelInputs(sets=settings.inputs, seed=settings.seed)
    calibration = replace(inputs, sets=settings.precision.calibration or inputs.sets)
    inputs.check(model.proto)
    calibration.check(model.proto, without_nan=bool(settings.precision.calibration))
    return inputs, calibration


def _of_a_stream(whole: Target, metric: TargetMetric) -> tuple[Target, int]:
    """Return the target of one stream, and the number of streams at the same time.

    For throughput each core has a stream of its own, of one thread.
    """
    if metric is TargetMetric.LATENCY:  # of one core, both are the same
        return whole, 1
    return replace(whole, core_num=1), whole.core_num


def _report_caveats(context: ModeContext, target: Target, model: ImportedModel) -> None:
    if context.settings.target_metric is TargetMetric.THROUGHPUT:
        context.progress.step(f"for throughput: {plural(target.core_num, 'stream')} of one thread")
    if unmet := unmet_cores(context.settings.core_num, target.core_num):
        context.progress.warn(unmet)
    if target.caveat:
        context.progress.step(f"named {target.soc_version} after its features: {target.caveat}")
    if model.caveat:
        context.progress.warn(model.caveat)


def _operators(settings: TuneSettings, cwd: Path) -> tuple[OperatorLibrary, ...]:
    """Return the libraries of operators of a run, which can be loaded.

    Raises:
        OptionError: one cannot.
    """
    try_operators([cwd / library for library in settings.operators])
    return tuple(
        OperatorLibrary(path=str(library), sha256=digest_of(cwd / library))
        for library in settings.operators
    )


@contextmanager
def _remote_pool(
    context: ModeContext,
    job: JobType,
    device: Device,
    target: Target,
    versions: Mapping[str, str],
) -> Iterator[RemotePool | None]:
    """Give the workers of `--workers`, None where there are to be none."""
    settings, progress = context.settings, context.progress
    if settings.workers is None or settings.lookup_only:
        yield None
        return
    if job is JobType.SGAT and settings.operators:
        progress.step(f"{job.words} is on this machine alone: the operators' libraries are here")
        yield None
        return
    with PoolOnDemand(context.engine.open_remote_pool) as own:
        yield (context.remote_pools or own).remote_pool(
            settings.workers,
            device.with_operators(()),  # no kernel needs them, and their files are here
            target,
            versions=versions,
            policy=final_policy(target.core_num, accept_busy=settings.accept_busy),
            on_event=lambda text, is_warning: (progress.warn if is_warning else progress.step)(
                text
            ),
        )


def _earlier(settings: TuneSettings, cwd: Path, scratch: Path) -> EarlierResult | None:
    if settings.base_result is None:
        return None
    return open_earlier(cwd / settings.base_result, scratch)


def _source(context: ModeContext, job: JobType) -> ModelSource:
    settings = context.settings
    return ModelSource(
        path=model_path(context, job),
        shapes=parse_input_shape(settings.input_shape),
        given=next(iter(settings.inputs), None),
        weight=settings.weight,
        output_nodes=settings.out_nodes,
        env=context.env,
    )


def object_cache(
    settings: TuneSettings,
    env: Mapping[str, str],
    cwd: Path,
    target: Target,
    warn: Callable[[str], None],
) -> ObjectCache | None:
    """Return the cache of kernels compiled for a target, None for none.

    Args and raises as `kept_objects`.
    """
    kept = kept_objects(settings, env, cwd, warn)
    if kept is None:
        return None
    root, limit_bytes = kept.files.root, cache_limit(env)
    return ObjectCache(root, target, limit_bytes=limit_bytes, renew=kept.renew)


def _manner(settings: TuneSettings, streams: int) -> Mapping[str, str]:
    """The manner a model is validated in beyond the usual, as verdicts say it; see `MANNERS`."""
    found = {"streams": str(streams) if streams > 1 else "", "shape_range": settings.shape_range}
    return {name: value for name, value in found.items() if value}


def _spare_place(places: ResultPlaces) -> Path:
    """Return the root of the bank for what the bank of the run cannot take; it stays."""
    if not places.reports_stay:
        return places.om_file.parent / BANK_FOLDER
    return places.bank or places.results / BANK_FOLDER


def _journal(
    bank: Bank,
    target: Target,
    model: ImportedModel,
    versions: Mapping[str, str],
    manner: Mapping[str, str],
) -> BankJournal:
    return BankJournal(
        bank,
        target.soc_version,
        fingerprint=fingerprint(target, versions),
        model={"name": model.name, "sha256": model.sha256, **manner},
        engine_version=versions["aoe"],
    )


def result_places(context: ModeContext, model_name: str, job: JobType) -> ResultPlaces:
    """Return AOE's workspace, or what `--output` says; it can be written afterwards.

    Raises:
        OptionError: the output is neither a directory nor an `.om` file.
        OutputError: the directory cannot be made or written to.
    """
    output, stamp = context.settings.output, timestamp_of(context.now)
    here = context.cwd / (context.settings.work_path or "")
    among = context.one_of_many
    name, bank = f"{model_name}_{stamp}", None
    if output is None:
        log = work_path(context.env, here)
        results = log / "aoe_workspace" / name / "tunespace" / "result"
        om_file = results / f"{name}_tune.om"
    else:
        output = context.cwd / output
        is_file = output.suffix == ".om"
        if not is_file and output.suffix.lower() in _OTHER_FILES and not output.is_dir():
            raise OptionError(
                "--output",
                "neither a directory nor an .om file",
                got=context.settings.output,
                expected="a directory, which is made, or the name of the tuned model",
                hint=f"--output={output.with_suffix('.om').name}",
            )
        results = output.parent if is_file else output
        if context.settings.reports is None:
            log = work_path(context.env, context.cwd, results)
        else:
            _writable(results)  # the tuned model goes there
            log = results = context.cwd / context.settings.reports
        bank = results / BANK_FOLDER
        if among is not None:
            results = results / among.folder
        om_file = output if is_file else results / f"{model_name}_tune.om"
    if among is not None and among.case:
        results = results / among.case
        om_file = results / om_file.name
    return ResultPlaces(
        tuning_name=name,
        om_file=om_file,
        results=_writable(results, make=output is not None),
        result_file=log / result_name(job, stamp, os.getpid()),
        bank=bank,
        report=among.report if among is not None else "",
        reports_stay=context.settings.reports_stay,
        bank_made_of=context.settings.bank_made_of,
    )


def _writable(directory: Path, *, make: bool = True) -> Path:
    """Return a directory that can be written to.

    Args:
        directory: Made where it is missing.
        make: False to leave that to the first file in it: a run that is killed leaves no empty
            folder in the workspace.
    """
    place = directory
    try:
        if make:
            directory.mkdir(parents=True, exist_ok=True)
        while not place.exists():
            place = place.parent
    except OSError as error:
        raise OutputError(
            str(directory),
            f"cannot be created: {error.strerror}",
            hint="give a directory you may write to with --output",
        ) from error
    if not os.access(place, os.W_OK | os.X_OK):
        raise OutputError(
            str(directory),
            "no permission to write there",
            hint="give a directory you may write to with --output",
        )
    return directory
