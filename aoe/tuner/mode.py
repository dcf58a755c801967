"""Modes of tuning: settings and surroundings of a run, protocols of modes and their results."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from aoe.errors import OptionError
from aoe.tuner.parts import REAL_ENGINE, EngineParts
from aoe.tuner.precision.settings import KEEP_FLOAT32, PrecisionSettings
from aoebank import AoebankError

if TYPE_CHECKING:
    from aoe.entry.shape_log import ShapeLog
    from aoe.execute.workers.pool_on_demand import PoolOnDemand
    from aoe.gradients.compression import Compression
    from aoe.gradients.training import TrainingProgram
    from aoe.ort.inputs import InputSet
    from aoe.tuner.operator_choice import OperatorChoice
    from aoe.tuner.progress import Progress
    from aoebank import SpareBank


class CacheMode(StrEnum):
    """Use of the cache of compiled kernels. Source: CANN's `ACL_OP_COMPILER_CACHE_MODE`."""

    ENABLE = "enable"
    """Taken from earlier runs and kept for later ones."""
    DISABLE = "disable"
    """Neither."""
    FORCE = "force"
    """Compiled anew and kept."""


def parse_cache_mode(text: str, where: str = "cache_mode") -> CacheMode:
    """Return the mode a text names.

    Raises:
        OptionError: it names none.
    """
    try:
        return CacheMode(text)
    except ValueError as error:
        raise OptionError(
            where, "no mode of the cache", got=repr(text), expected=" or ".join(CacheMode)
        ) from error


class OptimizationLevel(StrEnum):
    """Reach of subgraph tuning. Source: AOE's `--tune_optimization_level`."""

    O1 = "O1"
    """Without the limits of AOE's classes of fusions, and with every rewrite rule."""
    O2 = "O2"
    """Within them, and with the rewrite rules that have won."""


def parse_optimization_level(
    text: str, where: str = "tune_optimization_level"
) -> OptimizationLevel:
    """Return the level a text names.

    Raises:
        OptionError: it names none.
    """
    try:
        return OptimizationLevel(text)
    except ValueError as error:
        raise OptionError(
            where,
            "no level",
            got=repr(text),
            expected=" or ".join(OptimizationLevel),
        ) from error


class JobType(str):
    """Kind of tuning, by its name; `aoe.tuner.registry` has a row for each.

    Source: AOE's `--job_type`.
    """

    number: int  # AOE's number for it
    subject: str  # What it tunes, in a word
    SGAT: ClassVar[JobType]
    OPAT: ClassVar[JobType]
    GDAT: ClassVar[JobType]

    def __new__(cls, name: str, number: int = 0, subject: str = "") -> Self:
        job = super().__new__(cls, name)
        job.number, job.subject = number, subject
        return job

    @property
    def words(self) -> str:
        """The mode in words: some published examples swap the numbers."""
        return f"{self.subject} tuning ({self.upper()})"

    @property
    def look_up_words(self) -> str:
        """Words for a run that looks up and tunes nothing."""
        return f"looking up {self.subject}s ({self.upper()})"


JobType.SGAT = JobType("sgat", 1, "subgraph")
JobType.OPAT = JobType("opat", 2, "operator")
JobType.GDAT = JobType("gdat", 4, "gradient")


def training_command(program: Path | TrainingProgram, jobs: Sequence[JobType]) -> str:
    """Return the command for what a mode has refused; from Python only gradients are trained.

    Args:
        program: A script, a model file that has no gradients, or a program of `aoe.tune`.
        jobs: Modes that are asked for.
    """
    asked = [job for job in (JobType.OPAT, JobType.GDAT) if job in jobs] or [JobType.OPAT]
    if isinstance(program, Path) and program.suffix != ".py":
        return f"aoe --job_type={JobType.GDAT.number} --script TRAIN.py"
    path = str(program if isinstance(program, Path) else getattr(program, "path", program.name))
    if not isinstance(program, Path) and not hasattr(program, "arguments"):  # of a model file
        return f"aoe --job_type={JobType.OPAT.number} --model={shlex.quote(path)}"
    group = "torchrun --nproc-per-node=2 -m " if JobType.GDAT in asked else ""
    script = shlex.join([path, *getattr(program, "arguments", ())])
    return f"{group}aoe --job_type={','.join(str(job.number) for job in asked)} --script {script}"


class TargetMetric(StrEnum):
    """Figure that tuning improves. Source: AOE, `target_metric` of `sgat_config.json`."""

    LATENCY = "latency"
    """Time of one run that has every core."""
    THROUGHPUT = "throughput"
    """Runs of the whole machine in a second, with one stream of one thread on each core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """One tuning run.

    A member has what the option of its name says, or that whose `alias` it is, read and checked:
    `TuneOptions` in `aoe/runs/configuration/options.py` has the meaning. Others have it here.
    """

    model: Path | TrainingProgram
    """Model file or a directory of several graphs, or the program whose gradients are tuned."""
    framework: int | None = 5
    weight: Path | None = None
    job_types: tuple[JobType, ...] = (JobType.OPAT,)
    """Modes, in order."""
    job_note: str = ""
    """Said where tuning begins: which other mode a lone number may have meant."""
    stage_limits_s: tuple[float | None, ...] = ()
    """Seconds for each mode, None for no limit; empty where they share `tuning_time_limit_s`."""
    input_shape: str | None = None
    """Text of one shape, or None."""
    shape_cases: tuple[str, ...] = ()
    """Several such texts, for a model that is tuned for each of them; else none."""
    shape_log: ShapeLog | None = None
    """How often the model was asked for which shapes, None where nothing says so."""
    shape_range: str | None = None
    """Text of `--input_shape` where it names a range the model is tuned for."""
    out_nodes: tuple[str, ...] = ()
    operators: tuple[Path, ...] = ()
    """Libraries of operators ONNX Runtime does not have."""
    inputs: tuple[InputSet, ...] = ()
    output: Path | None = None
    reports: Path | None = None
    """Directory of the reports and of AOE's result file; None for that of `output`."""
    reports_stay: bool = True
    """False if their directory goes with the run."""
    bank_made_of: Path | None = None
    """Results whose reports the bank was made of, for the run alone; else None."""
    soc_version: str | None = None
    core_num: int | None = None
    repeat_tune: bool = False
    accept_busy: bool = False
    trials: int = 24
    max_tuning_count: int | None = None
    kernel_memory_mib: int | None = None
    """None for what keeps a session within `PEAK_RATIO` of the untuned model's peak, or
    `FREE_BYTES` above."""
    search: str = "bayesian"
    seed: int = 0
    tuning_time_limit_s: float | None = None
    precision: PrecisionSettings = KEEP_FLOAT32
    """What the model may be computed in, and how accurate it has to stay."""
    nonhomo_split: bool = False
    tune_optimization_level: OptimizationLevel = OptimizationLevel.O2
    anonymous: bool = False
    device_id: int | None = None
    device_place: str = "--device"
    """Option or variable that names the node."""
    compile_processes: int | None = None
    batch: int = 4
    run_loop: int | None = None
    work_path: Path | None = None
    """Where results go that have no other place; None for the working directory."""
    study: str | None = None
    lookup_only: bool = False
    cache_mode: CacheMode = CacheMode.ENABLE
    cache_dir: Path | None = None
    workers: str | None = None
    base_result: Path | None = None
    tune_ops: OperatorChoice | None = None
    """The operators that are tuned, the others are looked up; None for all."""
    target_metric: TargetMetric = TargetMetric.LATENCY
    allow_compression: Compression | None = None
    proves_settled: bool = False
    """True to prove the gain of a settled model again, in several processes."""


def limits_of_part(
    settings: TuneSettings, *, spent_s: float, number: int, parts: int
) -> TuneSettings:
    """Return settings with the time of one part of a run: of what is left, or of each stage.

    Args:
        settings: Of the run.
        spent_s: Seconds the parts before took.
        number: Of the part, from 0.
        parts: How many there are.
    """
    limit_s = settings.tuning_time_limit_s
    left_s = None if limit_s is None else max(0.0, limit_s - spent_s) / (parts - number)
    stages = (None if one is None else one / parts for one in settings.stage_limits_s)
    return replace(settings, tuning_time_limit_s=left_s, stage_limits_s=tuple(stages))


@dataclass(slots=True)
class TrialCount:
    """Number of candidates a run has measured, in all of its modes, shapes and models."""

    spent: int = 0  # So far

    def left(self, most: int | None) -> float:
        """Return the number that may still be measured of so many; None for any number."""
        return math.inf if most is None else max(0, most - self.spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOfMany:
    """A model's place in a run that tunes several."""

    report: str  # Its key in the result file of the run, `report_<timestamp>_<tid>`
    folder: str = ""  # Its own folder in the directory of the results
    # Folder of one of several shapes in the directory of the model's results; empty for a model
    # that is tuned for one.
    case: str = ""
    is_last: bool = True  # False if other models or shapes follow


def _no_spare() -> SpareBank:
    from aoebank import SpareBank  # which loads all formats

    return SpareBank()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeContext:
    """Settings and surroundings of a run, given to every mode."""

    settings: TuneSettings  # Options of the run
    env: Mapping[str, str]  # Environment variables
    cwd: Path  # Directory relative paths are taken from
    progress: Progress  # Is told what happens
    now: datetime  # Time the run is named after
    # Runner, device, clock and what else of the engine may be replaced.
    engine: EngineParts = REAL_ENGINE
    # Where the model stands among those of the run; None if it is the only one.
    one_of_many: OneOfMany | None = None
    earlier: tuple[ModeResult, ...] = ()  # What the modes before this one gave
    # Keeps the workers of the run; None opens them for one mode.
    remote_pools: PoolOnDemand | None = None
    # Takes what the bank of the run cannot, for all of its modes.
    spare: SpareBank = field(default_factory=_no_spare)
    # Candidates of the whole run, which `max_tuning_count` bounds.
    trials: TrialCount = field(default_factory=TrialCount)

    @property
    def clock(self) -> Callable[[], float]:
        """Monotonic seconds."""
        return self.engine.clock


class ModeResult(Protocol):
    """Result of a mode; each mode has more of its own."""

    @property
    def job(self) -> JobType:
        """The mode."""
        ...

    @property
    def tuning_name(self) -> str:
        """Name of the tuning task."""
        ...

    @property
    def result_file(self) -> Path:
        """AOE's result file of the mode, `aoe_result_<mode>_<timestamp>_pid<N>.json`."""
        ...

    @property
    def bank(self) -> Path:
        """Root or file of the bank that was used."""
        ...

    @property
    def speedup(self) -> float:
        """Of what the mode tunes as a whole, over its default; 1 if that stays."""
        ...

    @property
    def metric(self) -> TargetMetric:
        """Figure of which `speedup` is the gain."""
        ...

    @property
    def om_file(self) -> Path | None:
        """Tuned model, None if the mode makes none."""
        ...

    @property
    def bank_failure(self) -> AoebankError | None:
        """Why the bank took no more, and where the records are; None if all went into it."""
        ...


class Mode(Protocol):
    """A way of tuning: the module `run.py` of a folder here, see `KINDS`."""

    def check(self, context: ModeContext) -> None:
        """Refuse what cannot be tuned in this mode, before any mode of the run begins.

        Raises:
            OptionError: the mode needs something else to work on, or an option is wrong.
        """
        ...

    def run(self, context: ModeContext) -> ModeResult:
        """Tune, write the bank, the results and the mode's result file.

        Raises:
            AoeError: bad input, no compiler, no place to write; see the subclasses.
            AoebankError: the bank cannot be used.
        """
        ...
