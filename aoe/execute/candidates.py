"""Compiles, checks and times the candidates of one workload against ONNX Runtime's own code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aoe.device.compiler import KernelSource, RowBlock, extent_kernel
from aoe.device.protocol import Device
from aoe.device.toolchain import Toolchain
from aoe.errors import AoeError, BuildError, ScheduleError
from aoe.execute.accuracy import (
    AS_BEFORE,
    STEPS_SHARE,
    Deviation,
    compare,
    different,
    kernel_tolerance,
    reached_by_nan,
    rounding_steps,
    worse_of,
)
from aoe.execute.idle_gate import QuietPairs
from aoe.execute.messages import CompiledKernels
from aoe.execute.samplers import paired_samplers
from aoe.graph.hosted import hosted_model
from aoe.graph.open_extents import named_extents
from aoe.graph.stored_layouts import whole_layout
from aoe.graph.weights import point_into
from aoe.graph.workload_model import (
    candidate_model,
    random_inputs,
    special_inputs,
    workload_model,
)
from aoe.kernels.family import Role
from aoe.kernels.formats import without_moves
from aoe.kernels.registry import OPEN_EXTENTS
from aoe.measurement import Measurement, MeasurePolicy, Outcome, measured
from aoe.operators.element_types import LEVELS
from aoe.ort.cold_cache import ColdCache
from aoe.ort.guarded import GuardedRuns
from aoe.ort.sessions import input_specs, run_session, session_options
from aoe.ort.thread_pools import ThreadPool
from aoe.schedule import Schedule
from aoe.target import Target
from aoe.workload import Workload

if TYPE_CHECKING:
    import onnxruntime as ort

Array = np.ndarray[Any, Any]

_OUTSIDE_BYTES = 16 << 20
"""Constants from this size on lie in a file: inside a model they are copied half a dozen times
until a session has them, for the default and for each candidate. 411 MB took 18 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Baseline:
    """ONNX Runtime's own execution of a workload, ready to be timed."""

    workload: Workload
    model: onnx.ModelProto
    seed: int
    session: ort.InferenceSession
    cold_cache: ColdCache
    run: Callable[[], object]
    checks: GuardedRuns
    results: tuple[Array, ...]


class CandidateMeasurer:
    """Measures candidates; lives in the worker and keeps the last workload's baseline.

    Args:
        device: What to measure on.
        target: Threads and CPU features.
        toolchain: Links the kernels.
        directory: Scratch files.
        pairs: Takes the samples.
        pool: Threads that sessions compute with.
        outside_bytes: Size from which on constants lie in a file.
    """

    def __init__(
        self,
        *,
        device: Device,
        target: Target,
        toolchain: Toolchain,
        directory: Path,
        pairs: QuietPairs,
        pool: ThreadPool = ThreadPool.SHARED,
        outside_bytes: int = _OUTSIDE_BYTES,
    ) -> None:
        self._device = device
        self._target = target
        self._toolchain = toolchain
        self._directory = directory
        self._pairs = pairs
        self._pool = pool
        self._spins = pool.spins(target.core_num)
        self._outside_bytes = outside_bytes
        self._baseline: tuple[tuple[Workload, int, int], _Baseline] | None = None
        self._libraries = 0
        self._files = 0
        self._outside: list[Path] = []

    def measure(
        self,
        workload: Workload,
        schedules: Sequence[Schedule],
        *,
        policy: MeasurePolicy,
        seed: int,
        best_ratio: float | None,
        bytes_around: int = 0,
        compiled: CompiledKernels | None = None,
        at: Workload | None = None,
    ) -> list[Measurement]:
        """Return one measurement for each schedule, in order.

        Candidates of one call share a library, which is linked once.

        Args:
            workload: What they compute.
            schedules: The candidates.
            policy: How often they run.
            seed: Of inputs and constants.
            best_ratio: Speed-up of the best candidate so far, None before there is one.
            bytes_around: What one inference of the model reads and writes besides.
            compiled: Their object files, where they have been compiled before.
            at: The workload in the shapes to measure kernels of open extents in, None for its own.
        """
        baseline = self._baseline_of(at or workload, seed, bytes_around)
        sources = [KernelSource.of(workload, schedule) for schedule in schedules]
        distinct = {source.name: source for source in sources}  # configurations may coincide
        placed = {name: _placed(source, at) for name, source in distinct.items()}
        objects: dict[str, Path] = {}
        found: dict[str, Measurement] = {}
        directory = self._directory if compiled is None else compiled.directory
        for name, source in distinct.items():
            if source.is_hosted:
                continue
            error = self._compile(source) if compiled is None else compiled.errors[name]
            is_late = compiled is not None and name in compiled.late
            if error:
                outcome = Outcome.TIMEOUT if is_late else Outcome.COMPILE
                found[name] = Measurement.failure(outcome, error)
            else:
                objects[name] = directory / f"{name}.o"
        library = self._link([placed[name] for name in objects], objects) if objects else None
        if compiled is None:
            for path in objects.values():
                path.unlink(missing_ok=True)
        for name, source in placed.items():
            if name not in found:
                found[name] = self._measure_one(baseline, source, library, policy, best_ratio)
                if found[name].is_correct and found[name].counts:
                    # the next candidates of this call race against it
                    best_ratio = max(best_ratio or 0.0, found[name].speedup)
        return [found[source.name] for source in sources]

    def measure_format(
        self, workload: Workload, *, policy: MeasurePolicy, seed: int, bytes_around: int = 0
    ) -> Measurement:
        """Return ONNX Runtime's own code against the same without its changes of layout.

        Args:
            workload: One with `layout_moves`.
            policy: How often both run.
            seed: Of inputs and constants.
            bytes_around: What one inference of the model reads and writes besides.
        """
        baseline = self._baseline_of(workload, seed, bytes_around)
        model = without_moves(baseline.model, workload)
        feed = random_inputs(workload, seed)
        session, cold_cache = self._surrounded(model, workload, feed, bytes_around)
        samplers = paired_samplers(
            self._device.timer,
            baseline.run,
            cold_cache.bind(session),
            policy.sample_min_us,
            before=baseline.cold_cache.restore,
            calls_max=baseline.cold_cache.calls_max,
            tuned_before=cold_cache.restore,
        )
        return measured(*self._pairs.take(*samplers, policy, spins=self._spins))

    def _surrounded(
        self,
        model: onnx.ModelProto,
        workload: Workload,
        feed: Mapping[str, Array],
        bytes_around: int,
    ) -> tuple[ort.InferenceSession, ColdCache]:
        """Return a session, and its inputs as in the middle of a model, in the shapes it takes."""
        options = self._options()
        session = self._device.open_session(model.SerializeToString(), options)
        shaped = {
            spec.name: feed[spec.name].reshape([extent or 0 for extent in spec.shape])
            for spec in input_specs(session)
        }
        cold_cache = ColdCache(
            open_session=lambda proto: self._device.open_session(proto, options),
            workload=workload,
            feed=shaped,
            result=run_session(session, shaped)[0],
            bytes_around=bytes_around,
        )
        return session, cold_cache

    def _compile(self, source: KernelSource) -> str:
        """Return the compile error of a kernel, empty if there is none."""
        try:
            self._device.compile_kernel(source, self._target, self._directory)
        except (ScheduleError, BuildError) as error:
            return str(error)
        return ""

    def _link(self, sources: Sequence[KernelSource], objects: Mapping[str, Path]) -> Path:
        self._libraries += 1
        return self._device.build_library(
            sources,
            [*objects.values()],
            target=self._target,
            toolchain=self._toolchain,
            file=self._directory / f"candidates_{self._libraries}.so",
        )

    def _measure_one(
        self,
        baseline: _Baseline,
        source: KernelSource,
        library: Path | None,
        policy: MeasurePolicy,
        best_ratio: float | None,
    ) -> Measurement:
        try:
            if source.is_hosted:
                model = hosted_model(
                    baseline.model,
                    source.workload,
                    source.schedule.algorithm,
                    baseline.seed,
                    store=self._stored,
                )
            else:
                model = candidate_model(baseline.model, source.name, baseline.workload)
            session = self._open(model, self._options(None if source.is_hosted else library))
            deviation = self._worst(source, baseline, session)
        except AoeError as error:
            return Measurement.failure(Outcome.RUNTIME, str(error))
        if not deviation.acceptable:
            return Measurement.failure(Outcome.CORRECTNESS, deviation.detail)
        samplers = paired_samplers(
            self._device.timer,
            baseline.run,
            baseline.cold_cache.bind(session),
            policy.sample_min_us,
            before=baseline.cold_cache.restore,
            calls_max=baseline.cold_cache.calls_max,
        )
        found = measured(*self._pairs.take(*samplers, policy, best_ratio, spins=self._spins))
        return replace(found, rounding=deviation.rounding)

    def _worst(
        self, source: KernelSource, baseline: _Baseline, session: ort.InferenceSession
    ) -> Deviation:
        """Return the worse deviation of random and special inputs.

        Operators of ONNX Runtime are compared on the random ones only: one range of levels for all
        rows is part of what they are, and a large value in one row is felt in all of them.

        Raises:
            RunError: the kernel refuses, or wrote in front of its result.
        """
        worst, checks = AS_BEFORE, baseline.checks
        workload = baseline.workload
        for number, reference in enumerate(baseline.results[: 1 if source.is_hosted else None]):
            actual = checks.run(session, number)
            tolerance = kernel_tolerance(workload, reference)
            undefined = reached_by_nan(workload, checks.feeds[number])
            found = compare(reference, actual, tolerance, undefined=undefined)
            if found.acceptable and reference.dtype.name in LEVELS:
                found = self._counted(found, baseline, number, actual, undefined)
            worst = worse_of(worst, found)
        return worst

    def _counted(
        self,
        found: Deviation,
        baseline: _Baseline,
        number: int,
        actual: Array,
        undefined: Array,
    ) -> Deviation:
        """Return the deviation of integers with their count of steps, which is bounded.

        A kernel may round otherwise in a few places: half of a step is decided by the last bit of
        what is rounded. More places are allowed where ONNX Runtime itself differs in as many from
        what it makes of the same operators once it has fused them.
        """
        reference = baseline.results[number]
        steps = rounding_steps(reference, actual, undefined=undefined)
        if steps.off > max(1, STEPS_SHARE * steps.of):
            own = rounding_steps(reference, self._fused(baseline, number), undefined=undefined)
            if steps.off > own.off:
                return different(f"{steps}; of ONNX Runtime's own forms {own.off:,}")
        return replace(found, rounding=steps)

    def _fused(self, baseline: _Baseline, number: int) -> Array:
        """Return the results of ONNX Runtime with its graph optimisations."""
        session = self._open(baseline.model, self._options(optimize=True))
        fused: Array = run_session(session, baseline.checks.feeds[number])[0]
        return fused

    def _baseline_of(self, workload: Workload, seed: int, bytes_around: int) -> _Baseline:
        key = (workload, seed, bytes_around)
        if self._baseline is not None and self._baseline[0] == key:
            return self._baseline[1]
        self._forget_baseline()  # before the next one takes memory
        model = workload_model(workload, seed=seed, store=self._stored)
        options = self._options()
        session = self._open(model, options)
        feeds = (random_inputs(workload, seed), special_inputs(workload, seed))
        results = tuple(run_session(session, feed)[0] for feed in feeds)
        cold_cache = ColdCache(
            open_session=lambda proto: self._device.open_session(proto, options),
            workload=workload,
            feed=feeds[0],
            result=results[0],
            bytes_around=bytes_around,
        )
        found = _Baseline(
            workload=workload,
            model=model,
            seed=seed,
            session=session,
            cold_cache=cold_cache,
            run=cold_cache.bind(session),
            checks=GuardedRuns(feeds, results[0]),
            results=results,
        )
        self._baseline = (key, found)
        return found

    def _forget_baseline(self) -> None:
        self._baseline = None
        for file in self._outside:  # sessions that are still open have it mapped
            file.unlink(missing_ok=True)
        self._outside.clear()

    def _stored(self, array: Array, name: str) -> TensorProto:
        """Return an initializer; the data of a large one goes into a file all sessions read."""
        if array.nbytes < self._outside_bytes:
            return numpy_helper.from_array(array, name)
        self._files += 1
        file = self._directory / f"constant_{self._files}.bin"
        self._outside.append(file)
        array.tofile(file)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, data_type=kind, dims=array.shape)
        return point_into(file.name, tensor, 0, array.nbytes)

    def _options(
        self, library: Path | None = None, *, optimize: bool = False
    ) -> ort.SessionOptions:
        return session_options(
            threads=self._target.core_num,
            optimize=optimize,
            pool=self._pool,
            library=library,
        )

    def _open(self, model: onnx.ModelProto, options: ort.SessionOptions) -> ort.InferenceSession:
        """Load a model; one that reads files has to be one, beside them."""
        if not self._outside:
            return self._device.open_session(model.SerializeToString(), options)
        file = self._directory / "workload.onnx"
        file.write_bytes(model.SerializeToString())
        return self._device.open_session(file, options)


def _placed(source: KernelSource, at: Workload | None) -> KernelSource:
    """Return a kernel as it takes inputs of other extents: one that reads them is named to ONNX
    Runtime as a kernel for open extents, others as they are.
    """
    family = OPEN_EXTENTS.get(source.workload.op_type)
    roles = family.roles(at) if family is not None and at is not None else None
    if at is None or roles is None:
        return source
    specs = (*at.inputs, at.output)
    shapes = [named_extents(spec.shape, own) for spec, own in zip(specs, roles, strict=True)]
    return extent_kernel(
        [RowBlock(rows=1, source=source, us=0.0)],
        shapes=shapes,
        layouts=[whole_layout(len(shape)) for shape in shapes],
        rows_dimension=roles[-1].index(Role.ROWS),
    )
