"""`profile_file`: a model in, where its time goes out; `compare_tuned`: an `.om`, before and now.

open the model -> probe the machine -> run it under ONNX Runtime's profiler, once for each number of
threads -> what each node computes, and how long the machine would need for that at its best
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from aoe.device.protocol import Device
from aoe.entry.input_shapes import parse_input_shape
from aoe.entry.protocol import ModelSource
from aoe.folders.scratch import ScratchFolder
from aoe.folders.turns import Turns
from aoe.measurement import QUIET_SHARE
from aoe.om.file import FALLBACK, unpack
from aoe.ort.inputs import InputSet, ModelInputs
from aoe.ort.optimizers import marked
from aoe.ort.profile import RUNS, ModelProfile, profile_model
from aoe.profiling.comparing import ComparedProfiles, compare_profiles
from aoe.profiling.counters import HardwareCounters, count_runs
from aoe.profiling.figures import ProfiledModel
from aoe.profiling.operators import fusion_limits, profile_operators, with_warm_times
from aoe.profiling.probe import ProbedPeak, machine_peak
from aoe.profiling.subject import ProfileSubject, open_subject
from aoe.settings import cache_path, lock_path
from aoe.target import Target, unmet_cores
from aoe.workload import shapes_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """Settings of a profile."""

    model: Path  # A model file of any framework, or an `.om`
    framework: int | None = 5  # AOE's number
    weight: Path | None = None  # Second file of a Caffe model
    input_shape: str | None = None  # Shapes of inputs that leave them open, as AOE writes them
    operators: tuple[Path, ...] = ()  # Libraries of operators ONNX Runtime does not have
    trusted: Path | None = None  # File of allowed signers, one of whom has to have signed an `.om`
    inputs: tuple[InputSet, ...] = ()  # What it is run on; made-up inputs if there are none
    seed: int = 0  # Of made-up inputs
    # Of the figures; None stands for what an `.om` was tuned for, or all usable cores.
    threads: int | None = None
    runs: int = RUNS  # Runs that count, for each number of threads
    sweeps: bool = True  # True to try fewer threads, too
    warm: bool = False  # True to time the operators that take longest alone, operands in the caches
    counts: bool = True  # True to read hardware counters
    fusion: bool = False  # True to say what AOE's classes of fusions make of the model
    env: Mapping[str, str] = field(default_factory=dict)  # The process's environment


FindPeak = Callable[[Device, Target, Path | None], ProbedPeak]


def profile_file(
    settings: ProfileSettings,
    on_event: Callable[[str], None] = lambda text: None,
    *,
    find_peak: FindPeak = machine_peak,
) -> ProfiledModel:
    """Return a profile of a model: where its time goes on this machine.

    Args:
        settings: What is asked for.
        on_event: Is told what makes the figures doubtful.
        find_peak: Returns what the machine does at its best, see `machine_peak`.

    Raises:
        AoeError: the model cannot be read, or not be run.
    """
    with ScratchFolder("profile") as scratch:
        subject = open_model(settings, scratch, on_event)
        return profile_subject(subject, settings, scratch, on_event, find_peak)


def open_model(
    settings: ProfileSettings, scratch: Path, on_event: Callable[[str], None] = lambda text: None
) -> ProfileSubject:
    """Return the model of a profile, ready to run.

    Args:
        settings: What is asked for.
        scratch: Folder for its files.
        on_event: Is told what is odd about libraries of operators, before they are run.

    Raises:
        AoeError: the model cannot be read, or not be run.
    """
    source = ModelSource(
        path=settings.model,
        shapes=parse_input_shape(settings.input_shape),
        given=next(iter(settings.inputs), None),
        weight=settings.weight,
        env=settings.env,
    )
    return open_subject(
        source,
        settings.framework,
        scratch,
        threads=settings.threads,
        operators=settings.operators,
        trusted=settings.trusted,
        on_event=on_event,
    )


def profile_subject(
    subject: ProfileSubject,
    settings: ProfileSettings,
    scratch: Path,
    on_event: Callable[[str], None] = lambda text: None,
    find_peak: FindPeak = machine_peak,
) -> ProfiledModel:
    """Return the profile of a model that is ready to run; see `profile_file`."""
    device = subject.device
    asked = settings.threads or subject.core_num
    target = device.describe(asked)
    if unmet := unmet_cores(asked, target.core_num):
        on_event(unmet)
    if not (found := marked(subject.running)).are_all:
        on_event(found.warning())
    shapes = parse_input_shape(settings.input_shape)
    inputs = ModelInputs(sets=settings.inputs, seed=settings.seed, shapes=shapes)
    with Turns(lock_path(settings.env), device.cores(), on_event).measuring():
        probed = find_peak(device, target, _peaks(settings.env))
        before = device.usage()
        counts = thread_counts(target.core_num) if settings.sweeps else (target.core_num,)
        by_threads = {
            threads: _times(subject, settings, scratch, inputs, threads) for threads in counts
        }
        times = by_threads[target.core_num]
        operators = profile_operators(
            subject.running,
            subject.graph,
            subject.inlined,
            times,
            origins=subject.origins,
            peak=probed.peak,
            by_threads=by_threads if len(by_threads) > 1 else {},
        )
        if settings.warm:  # which measures, too
            operators = with_warm_times(operators, subject, target.core_num)
        given_share = device.usage().since(before).given_share
        counters = _count(subject, settings, inputs, target)
    caveats = tuple(_caveats(is_peak_quiet=probed.quiet, given_share=given_share))
    for caveat in caveats:
        on_event(caveat)
    return ProfiledModel(
        model=str(settings.model),
        soc_version=target.soc_version,
        cpu_model=target.cpu_model,
        threads=target.core_num,
        runs=times.runs,
        model_us=times.model_us,
        model_min_us=times.model_min_us,
        model_us_by_threads={n: found.model_us for n, found in by_threads.items()},
        peak=probed.peak,
        operators=operators,
        timeline=times.timeline,
        counters=counters,
        versions={name: version(name) for name in ("aoebank", "onnxruntime")},
        fusion=fusion_limits(subject.imported, operators) if settings.fusion else None,
        caveats=caveats,
    )


def _caveats(*, is_peak_quiet: bool, given_share: float) -> Iterator[str]:
    """Yield why figures are not to be believed: the machine was busy meanwhile."""
    if not is_peak_quiet:
        yield "the machine was busy while its best was measured: it does more on a quiet one"
    if given_share < QUIET_SHARE:
        yield (
            f"the machine was busy: operators got {given_share:.0%} of the CPU time they asked for"
        )


def compare_tuned(
    file: Path,
    env: Mapping[str, str],
    *,
    inputs: tuple[InputSet, ...] = (),
    operators: tuple[Path, ...] = (),
    trusted: Path | None = None,
    on_event: Callable[[str], None] = lambda text: None,
) -> ComparedProfiles:
    """Run the untuned and the tuned model of an `.om` here, with the threads it was tuned for.

    Of a file of several shapes the first is run.

    Args:
        file: The tuned model.
        env: The process's environment.
        inputs: What both are run on; made-up inputs if there are none.
        operators: Libraries of operators ONNX Runtime does not have.
        trusted: File of allowed signers, one of whom has to have signed the file.
        on_event: Is told what makes the figures doubtful.

    Raises:
        AoeError: a part is damaged, its kernels do not fit this machine, or it cannot be run.
    """
    with ScratchFolder("untuned") as folder:
        manifest = unpack(file, folder, trusted)
        settings = ProfileSettings(
            model=file,
            inputs=inputs,
            input_shape=shapes_text(manifest.cases[0].shapes) if manifest.cases else None,
            operators=operators,
            trusted=trusted,
            threads=manifest.core_num,
            sweeps=False,
            counts=False,
            env=env,
        )
        before = profile_file(replace(settings, model=folder / FALLBACK), on_event)
    return compare_profiles(
        replace(before, model=f"{file}, untuned"), profile_file(settings, on_event)
    )


def thread_counts(most: int) -> tuple[int, ...]:
    """Return the numbers of threads that are tried: all up to four, then powers of two.

    >>> thread_counts(12)
    (1, 2, 3, 4, 8, 12)
    """
    few = set(range(1, min(most, 4) + 1))
    powers = {1 << bit for bit in range(most.bit_length())}
    return tuple(sorted(few | powers | {most}))


def _times(
    subject: ProfileSubject,
    settings: ProfileSettings,
    scratch: Path,
    inputs: ModelInputs,
    threads: int,
) -> ModelProfile:
    return profile_model(
        subject.model,
        scratch,
        subject.device.open_session,
        threads=threads,
        runs=settings.runs,
        inputs=inputs,
        library=subject.library,
    )


def _count(
    subject: ProfileSubject, settings: ProfileSettings, inputs: ModelInputs, target: Target
) -> HardwareCounters:
    if not settings.counts:
        return HardwareCounters()
    run = subject.bound_run(inputs, threads=target.core_num)
    return count_runs(run, runs=settings.runs)


def _peaks(env: Mapping[str, str]) -> Path | None:
    """Return the path of measured peaks."""
    root = cache_path(env)
    return root / "peaks" if root is not None else None
