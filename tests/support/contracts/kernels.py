"""Runs kernels in this process and compares them; the contract of a kernel family."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, product
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest

from aoe.device.registry import default_device
from aoe.errors import ScheduleError
from aoe.execute.accuracy import Tolerance, compare, kernel_tolerance, reached_by_nan
from aoe.graph.workload_model import random_inputs, special_inputs, workload_model
from aoe.kernels.algorithms import allowed_space, precision_of
from aoe.kernels.family import KernelFamily, KernelTarget, Pipeline
from aoe.kernels.halide.apply import apply_schedule, legal_steps
from aoe.kernels.halide.shapes import shapes_of
from aoe.kernels.registry import get_family
from aoe.operators import OperatorKind, facts_of
from aoe.ort.sessions import session_options
from aoe.schedule import (
    ComputeRoot,
    Configuration,
    Parallel,
    Schedule,
    Split,
    Tail,
    Vectorize,
    schedule_from_json,
    schedule_to_json,
)
from aoe.workload import (
    NCHWC_DOMAIN,
    AttributeValue,
    Layout,
    Operation,
    TensorSpec,
    Workload,
    workload_from_json,
    workload_to_json,
)
from support.contracts.compiled_kernel import (
    THREADS,
    CompiledKernel,
    guessed_schedules,
    kernel_target,
)

__all__ = [
    "SEED",
    "STRICTNESS",
    "THREADS",
    "BaselineRun",
    "CompiledKernel",
    "KernelFamilyTests",
    "alone_in_blocks",
    "assert_close",
    "between_reorders",
    "block_size",
    "blocked",
    "guessed_schedules",
    "kernel_target",
    "operation",
    "plain",
    "run_baseline",
]

Array = np.ndarray[Any, Any]
SEED = 7
SAMPLED_SCHEDULES = 2
STRICTNESS = 1 / 4
"""Share of the product's tolerance kernels are held to here: other CPUs need the rest."""
BFLOAT16_STRICTNESS = 1 / 2
"""The same where products are of lower precision, whose rounding is the same on every CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineRun:
    """What ONNX Runtime computes for a workload."""

    model: onnx.ModelProto  # The model it ran
    inputs: Mapping[str, Array]  # Every input of the kernel, constants included
    result: Array  # Its result


def run_baseline(workload: Workload, feed: Mapping[str, Array], *, seed: int = SEED) -> BaselineRun:
    """Run `workload` in ONNX Runtime, graph optimisations off, on 2 threads."""
    model = workload_model(workload, seed=seed)
    options = session_options(threads=THREADS, optimize=False)
    session = default_device().open_session(model.SerializeToString(), options)
    constants = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer
    }
    return BaselineRun(
        model=model, inputs={**constants, **feed}, result=session.run(None, dict(feed))[0]
    )


def assert_close(
    workload: Workload,
    actual: Array,
    expected: Array,
    what: str,
    *,
    share: float = STRICTNESS,
    undefined: Array | None = None,
) -> None:
    """Fail unless equal within a share of what a tuning tolerates (`kernel_tolerance`).

    Args:
        workload: What is computed.
        actual: By the kernel.
        expected: By ONNX Runtime.
        what: Words for the message.
        share: Of the tolerance.
        undefined: Where a number of ONNX Runtime says nothing, see `reached_by_nan`.
    """
    if workload.precision.is_lower:
        share = max(share, BFLOAT16_STRICTNESS)
    tolerated = kernel_tolerance(workload, expected)
    tolerance = Tolerance(relative=share * tolerated.relative, absolute=share * tolerated.absolute)
    deviation = compare(expected, actual, tolerance, undefined=undefined)
    assert deviation.acceptable, f"{what}: {deviation.detail}, {deviation.excess:.1f} times too far"


@cache
def block_size() -> int:
    """Return channels per block of the blocked layout on this CPU, 0 if it has none."""
    return default_device().channel_block()


def plain(*shape: int, constant: bool = False, dtype: str = "float32") -> TensorSpec:
    """Return a row-major tensor."""
    return TensorSpec(shape=shape, dtype=dtype, constant=constant)


def blocked(*shape: int) -> TensorSpec:
    """Return a tensor in ONNX Runtime's blocked layout."""
    return TensorSpec(shape=shape, layout=Layout.BLOCKED, block=block_size())


def operation(
    op_type: str,
    inputs: str,
    output: str = "t0",
    *,
    version: int = 0,
    domain: str = "",
    **attributes: AttributeValue,
) -> Operation:
    """Return an operation; `inputs` are references with blanks between, `-` for an omitted one.

    The version defaults to the newest one ONNX Runtime is sure to have (opset 22).
    """
    if not version:
        version = 1 if domain else onnx.defs.get_schema(op_type, 22).since_version
    refs = tuple("" if ref == "-" else ref for ref in inputs.split())
    return Operation(
        op_type=op_type,
        domain=domain,
        version=version,
        inputs=refs,
        output=output,
        attributes=attributes,
    )


def between_reorders(
    family: str, inputs: Sequence[TensorSpec], operations: Sequence[Operation]
) -> Workload:
    """Return a blocked workload as regions of real models are: reorder, operations, reorder.

    The operations read the reordered `x0` as `r0` and make `t0`, `t1`, ...
    """
    data = inputs[0]
    reorder_out = operation(
        "ReorderOutput", "x0", "r0", domain=NCHWC_DOMAIN, channels=data.shape[1], channels_last=0
    )
    last = operations[-1].output
    reorder_in = operation("ReorderInput", last, "r1", domain=NCHWC_DOMAIN, channels_last=0)
    return Workload(
        op_type=family,
        inputs=tuple(inputs),
        operations=(reorder_out, *operations, reorder_in),
        output=data,
    )


def alone_in_blocks(family: str, one: Operation) -> Workload:
    """Return a workload of one operator on a small tensor in blocks, on any CPU."""
    block = block_size() or 8
    data = TensorSpec(shape=(1, block, 4, 4), layout=Layout.BLOCKED, block=block)
    return Workload(op_type=family, inputs=(data,), operations=(one,), output=data)


_EVERYDAY_CASES: dict[Callable[..., None], slice] = {}


def _everyday(cases: slice) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test as slow for all cases of a family but these."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        _EVERYDAY_CASES[test] = cases
        return test

    return mark


_FIRST, _FIRST_THREE, _LAST = slice(1), slice(3), slice(-1, None)


_PRIMES = (3, 5, 7, 13)
_DRAWN_VARIANTS, _DRAWN_SCHEDULES = 3, 12


def _with_prime_extents(case: Workload) -> Iterator[Workload]:
    """Yield a workload with one extent of its inputs, wherever it stands, a prime; innermost first.

    Channels in blocks stay as they are, and what contradicts itself is left out.
    """
    extents = {one: None for spec in case.inputs for one in reversed(spec.shape) if one > 1}
    for extent, prime in product(extents, _PRIMES):
        inputs = tuple(_with_extent(spec, extent, prime) for spec in case.inputs)
        changed = replace(case, inputs=inputs)
        shapes = shapes_of(changed)
        if prime == extent or isinstance(shapes, str):
            continue
        with suppress(ValueError):  # a layout that the new extents do not fit
            yield replace(changed, output=replace(case.output, shape=shapes[case.result]))


def _with_extent(spec: TensorSpec, extent: int, prime: int) -> TensorSpec:
    blocked_axis = 1 if spec.block else None
    shape = (
        prime if one == extent and at != blocked_axis else one for at, one in enumerate(spec.shape)
    )
    return replace(spec, shape=tuple(shape))


class KernelFamilyTests:
    """What every kernel family promises; a subclass names it and gives workloads."""

    family_name: ClassVar[str]  # Name in the registry
    cases: ClassVar[Mapping[str, Workload]]  # Workloads by label, plain ones
    # Workloads the family does not compute, each with a part of its reason.
    refused: ClassVar[Sequence[tuple[Workload, str]]] = ()
    share: ClassVar[float] = STRICTNESS  # Of the product's tolerance, which kernels are held to

    @classmethod
    def all_cases(cls) -> Mapping[str, Workload]:
        """Return every workload; a subclass adds the blocked ones where the CPU has them."""
        return cls.cases

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run tests that take a `workload` once for each case."""
        if "workload" not in metafunc.fixturenames:
            return
        labels = list(self.all_cases())
        everyday = labels[_EVERYDAY_CASES.get(metafunc.function, slice(None))]
        cases = [
            pytest.param(case, id=label, marks=() if label in everyday else pytest.mark.slow)
            for label, case in self.all_cases().items()
        ]
        metafunc.parametrize("workload", cases)

    @property
    def target(self) -> KernelTarget:
        """What the family is told of the CPU; a subclass may hide some of it."""
        return kernel_target()

    @property
    def family(self) -> KernelFamily:
        """The family under test."""
        return get_family(self.family_name)

    def test_case_has_a_legal_space_also_when_read_back_from_its_record(
        self, workload: Workload
    ) -> None:
        assert self.family.name == self.family_name == workload.op_type
        assert self.family.supports(workload).reason == ""
        space = self.family.space(workload, self.target)
        guesses = [tuple(sorted(guess.items())) for guess in space.first_guesses]
        assert 1 <= len(guesses) == len(set(guesses)) <= 7
        assert all(space.is_legal(guess) for guess in space.first_guesses)
        assert 1 <= space.size <= 500
        again = workload_from_json(workload_to_json(workload))
        assert self.family.supports(again)
        assert self.family.space(again, self.target).configurations() == space.configurations()

    def test_what_is_not_computed_is_refused_with_its_reason(self) -> None:
        for workload, reason in self.refused:
            assert reason in self.family.supports(workload).reason

    @_everyday(_FIRST)
    def test_best_guess_computes_what_onnx_runtime_does(self, workload: Workload) -> None:
        space = self.family.space(workload, self.target)
        self._compare(workload, [Configuration(space.first_guesses[0])])

    @_everyday(_LAST)  # another case than the best guess has
    def test_drawn_schedule_computes_what_onnx_runtime_does(self, workload: Workload) -> None:
        space = self.family.space(workload, self.target)
        self._compare(workload, [random.Random(SEED).choice(space.configurations())])

    def test_unscheduled_kernel_computes_what_onnx_runtime_does(self) -> None:
        self._compare(self._first_case(), [], unscheduled=True)

    @pytest.mark.slow
    def test_every_candidate_computes_what_onnx_runtime_does(self, workload: Workload) -> None:
        space = self.family.space(workload, self.target)
        everything = space.configurations()
        sample = random.Random(SEED).sample(everything, min(SAMPLED_SCHEDULES, len(everything)))
        guesses = map(Configuration, space.first_guesses)
        self._compare(workload, [*guesses, *sample], unscheduled=True)

    def _compare(
        self,
        workload: Workload,
        configurations: Sequence[Configuration],
        *,
        unscheduled: bool = False,
    ) -> None:
        """Compare kernels with ONNX Runtime on random and on special values."""
        kernels = {"unscheduled": CompiledKernel(workload)} if unscheduled else {}
        for configuration in configurations:
            label = repr(sorted(configuration.items()))
            if label not in kernels:
                schedule = self.family.schedule(workload, configuration, self.target)
                kernels[label] = CompiledKernel(workload, schedule)
        for kind, make in (("random", random_inputs), ("special", special_inputs)):
            run = run_baseline(workload, make(workload, SEED))
            reached = self._reached(workload, run)
            for label, kernel in kernels.items():
                what = f"{label}, {kind}"
                actual = kernel.run(run.inputs)
                assert_close(
                    workload, actual, run.result, what, share=self.share, undefined=reached
                )

    def _reached(self, workload: Workload, run: BaselineRun) -> Array | None:
        """Return where a NaN of the inputs may come out as a number: of a largest one."""
        kinds = {facts_of(item).kind for item in workload.operations}
        feed = {
            f"x{number}": run.inputs[f"x{number}"]
            for number, spec in enumerate(workload.inputs)
            if not spec.constant
        }
        return reached_by_nan(workload, feed) if OperatorKind.WINDOW in kinds else None

    def _first_case(self) -> Workload:
        return next(iter(self.all_cases().values()))

    @_everyday(_FIRST)
    def test_every_configuration_has_a_schedule_that_survives_json(
        self, workload: Workload
    ) -> None:
        space = self.family.space(workload, self.target)
        for configuration in space.configurations():
            schedule = self.family.schedule(workload, configuration, self.target)
            assert schedule_from_json(schedule_to_json(schedule)) == schedule

    def test_drawn_prime_extents_have_schedules_that_may_be_applied(self) -> None:
        rng = random.Random(SEED)
        for case in rng.sample([*self.all_cases().values()], min(2, len(self.all_cases()))):
            found = filter(self.family.supports, _with_prime_extents(case))
            for variant in islice(found, _DRAWN_VARIANTS):
                space = self.family.space(variant, self.target).configurations()
                self._apply(variant, rng.sample(space, min(_DRAWN_SCHEDULES, len(space))))

    @pytest.mark.slow
    def test_every_prime_extent_has_schedules_that_may_be_applied(self, workload: Workload) -> None:
        rng = random.Random(SEED)
        variants = [one for one in _with_prime_extents(workload) if self.family.supports(one)]
        for variant in variants:
            self._apply(variant, self.family.space(variant, self.target).configurations())
        for variant in rng.sample(variants, min(2, len(variants))):
            try:
                run_baseline(variant, random_inputs(variant, SEED))
            except Exception:  # onnxruntime raises its own unrelated classes
                continue  # its parameters contradict one another
            space = self.family.space(variant, self.target)
            self._compare(variant, [rng.choice(space.configurations())])

    def _apply(self, workload: Workload, configurations: Sequence[Configuration]) -> None:
        """Fail if a schedule is illegal: a search would spend a candidate on it."""
        pipelines: dict[str, Pipeline] = {}
        for configuration in configurations:
            schedule = self.family.schedule(workload, configuration, self.target)
            if schedule.algorithm not in pipelines:
                made = self.family.pipeline(workload, schedule.algorithm)
                pipelines[schedule.algorithm] = made
            legal_steps(pipelines[schedule.algorithm], schedule)

    @_everyday(_FIRST)
    def test_factors_are_rounded_only_where_that_is_allowed(self, workload: Workload) -> None:
        if workload.precision.is_lower:
            assert allowed_space(self.family, workload, self.target) is not None
            return
        for configuration in self.family.space(workload, self.target).configurations():
            schedule = self.family.schedule(workload, configuration, self.target)
            assert not precision_of(schedule.algorithm).is_lower

    @_everyday(_FIRST)
    def test_every_configuration_can_be_applied(self, workload: Workload) -> None:
        space = self.family.space(workload, self.target)
        for configuration in space.configurations():
            schedule = self.family.schedule(workload, configuration, self.target)
            pipeline = self.family.pipeline(workload, schedule.algorithm)
            apply_schedule(pipeline, schedule)

    @_everyday(_FIRST)
    def test_one_thread_gets_no_parallel_loop(self, workload: Workload) -> None:
        target = replace(self.target, threads=1)
        for configuration in self.family.space(workload, target).configurations():
            schedule = self.family.schedule(workload, configuration, target)
            assert not any(isinstance(step, Parallel) for step in schedule.steps)

    @_everyday(_FIRST_THREE)
    def test_buffers_are_as_large_as_the_tensors(self, workload: Workload) -> None:
        pipeline = self.family.pipeline(workload)
        assert np.prod(pipeline.output_extents) == workload.output.size
        as_read = list(pipeline.argument_extents)
        for number, packing in pipeline.packings.items():
            as_read[number] = packing.argument_extents
        sizes = [int(np.prod(extents)) for extents in as_read[: len(workload.inputs)]]
        specs = (*workload.inputs, workload.output)
        for number, view in pipeline.views.items():
            extents = [*as_read, pipeline.output_extents][number]
            pairs = zip(extents, view.strides, strict=True)
            last = view.offset + sum((extent - 1) * stride for extent, stride in pairs)
            assert 0 <= last < specs[view.tensor].size
        dense = [number for number in range(len(sizes)) if number not in pipeline.views]
        assert [sizes[at] for at in dense] == [workload.inputs[at].size for at in dense]

    @pytest.mark.parametrize(
        "step",
        [
            Split("nowhere", "x", "xo", "xi", 2),
            Split("y", "no_such_loop", "xo", "xi", 2),
            Vectorize("y", "no_such_loop", 4),
            ComputeRoot("y"),
        ],
    )
    def test_illegal_step_is_a_schedule_error_that_names_it(self, step: Any) -> None:
        workload = self._first_case()
        with pytest.raises(ScheduleError) as caught:
            apply_schedule(self.family.pipeline(workload), Schedule((step,)))
        assert caught.value.where.startswith(f"{step.stage}: ")

    def test_vector_wider_than_its_loop_is_a_schedule_error(self) -> None:
        workload = self._first_case()
        pipeline = self.family.pipeline(workload)
        name, extent = pipeline.loops["y"][0]
        step = Split("y", name, name, "inner", extent + 1, Tail.SHIFT_INWARDS)
        with pytest.raises(ScheduleError, match="more iterations than the loop has"):
            apply_schedule(pipeline, Schedule((step,)))
