"""Which kernels of lower precision a model may have, and what it has in their places."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.contracts.networks import shipped_network
from support.engine.assembling import assembling
from support.engine.cpu import CPU, open_session
from support.engine.fakes import ScriptedRunner
from support.engine.models import matmul_net
from support.engine.offline import first_guess
from support.engine.tuning import make_kernel, make_tuned
from support.engine.validating import FakeAssembly

from aoe.device.toolchain import Toolchain
from aoe.errors import AccuracyError, RunError
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.graph.model_graph import ModelGraph
from aoe.kernels.family import KernelTarget
from aoe.ort.inputs import MADE_UP, InputSet, ModelInputs
from aoe.ort.profile import profile_model
from aoe.ort.static_shapes import infer_tensors
from aoe.schedule import Schedule
from aoe.target import Target
from aoe.tasks.operators.chosen_kernel import ChosenKernel, lowest_precision, worth_lowering
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.operators.operators import find_operators
from aoe.tuner.precision.constraint import parse_accuracy
from aoe.tuner.precision.plan import PrecisionPlan
from aoe.tuner.precision.settings import parse_precision
from aoe.validation.accuracy import HeldAccuracy
from aoe.validation.kernel_accuracy import AccuracyChecker, one_per_occurrence
from aoe.workload import Precision

_TWO_SETS = ModelInputs(sets=(InputSet(place="a", files={}), InputSet(place="b", files={})))


def _kernel(
    name: str,
    *places: int,
    lower: bool = False,
    quantised: bool = False,
    algorithm: str = "direct",
    gain_us: float = 100.0,
) -> ChosenKernel:
    """Return a kernel for the results of these nodes."""
    kernel = make_kernel(0)
    region = kernel.regions[0]
    workload = kernel.source.workload
    if lower:
        workload = replace(workload, precision=Precision.BFLOAT16)
    if quantised:
        workload = replace(workload, precision=Precision.INT8)
    suffix = "_int8" if quantised else "_bf16" if lower else ""
    return replace(
        kernel,
        source=replace(
            kernel.source,
            name=name,
            workload=workload,
            schedule=Schedule(algorithm=algorithm + suffix),
        ),
        regions=tuple(replace(region, nodes=(n,), output=f"t{n}") for n in places),
        op_names=tuple(f"n{n}" for n in places),
        gain_us=gain_us,
    )


def _checker(
    errors: Mapping[str, float], bound: str, inputs: ModelInputs = MADE_UP, **times: Any
) -> tuple[AccuracyChecker, ScriptedRunner]:
    """Return a keeper of a model whose only result is off by the errors of its kernels."""
    assembly = FakeAssembly()

    def results(part: ModelPart) -> list[object] | RunError:
        error = sum(errors[name] for name in assembly.contents.get(str(part.model), ()))
        if math.isinf(error):
            return RunError("run_model", "the worker ended with signal 11")
        return [np.array([1.0 + error, 1.0], np.float32)]

    runner = ScriptedRunner(results=results)
    checker = AccuracyChecker(
        assembly,  # type: ignore[arg-type]
        runner,  # type: ignore[arg-type]
        constraint=parse_accuracy(bound),
        inputs=inputs,
        **times,
    )
    return checker, runner


def _places(kernels: tuple[ChosenKernel, ...]) -> dict[str, str]:
    """Return the kernel of each place."""
    return {name: kernel.source.name for kernel in kernels for name in kernel.op_names}


def test_lower_kernel_takes_its_places_and_leaves_the_others() -> None:
    exact = _kernel("exact", 0, 1, 2, gain_us=300.0)
    lower = _kernel("lower", 0, 2, lower=True)
    chosen = one_per_occurrence((exact, lower), frozenset({"lower"}))
    assert _places(chosen) == {"n0": "lower", "n1": "exact", "n2": "lower"}
    assert {kernel.source.name: kernel.gain_us for kernel in chosen} == {
        "exact": 100.0,
        "lower": 100.0,
    }
    assert _places(one_per_occurrence((exact, lower), frozenset())) == dict.fromkeys(
        ("n0", "n1", "n2"), "exact"
    )


def test_place_without_a_kernel_in_float32_goes_back_to_onnx_runtime() -> None:
    assert one_per_occurrence((_kernel("lower", 0, lower=True),), frozenset()) == ()


def test_everything_stays_where_the_constraint_holds() -> None:
    kernels = (_kernel("a", 0), _kernel("b", 0, lower=True), _kernel("c", 1, lower=True))
    checker, runner = _checker({"a": 0, "b": 0.01, "c": 0.02}, "max_relative<=0.1", _TWO_SETS)
    held = checker.hold(kernels)
    assert _places(held.kernels) == {"n0": "b", "n1": "c"}
    assert held.trade.roll_back == ()
    assert (held.sets, held.made_up) == (2, False)
    assert held.trade.alone == {"b": pytest.approx(0.01), "c": pytest.approx(0.02)}
    assert len(runner.asked("run_model")) == 4
    assert str(held) == "max_relative 0.03 on 2 input sets (max_relative <= 0.1)"


def test_nothing_is_looked_at_alone_in_the_time_of_what_follows() -> None:
    kernels = (_kernel("b", 0, lower=True), _kernel("c", 1, lower=True))
    errors, bound = {"b": 0.01, "c": 0.02}, "max_relative<=0.1"
    for left_s, looked_at in ((30.0, {"b", "c"}), (10.0, set())):
        checker, _ = _checker(errors, bound, left_s=lambda s=left_s: s, run_s=1.0, following_s=20.0)
        held = checker.hold(kernels)
        assert {kernel.source.name for kernel in held.kernels} == {"b", "c"}
        assert held.trade.in_time and held.trade.alone.keys() == looked_at


def test_harmful_kernels_go_back_to_float32() -> None:
    kernels = (
        _kernel("a", 0),
        _kernel("b", 0, lower=True),
        _kernel("c", 1, lower=True),
        _kernel("d", 2, lower=True),
    )
    checker, _ = _checker({"a": 0, "b": 0.2, "c": 0.03, "d": 0.3}, "max_relative<=0.1")
    held = checker.hold(kernels)
    assert _places(held.kernels) == {"n0": "a", "n1": "c"}
    assert held.trade.roll_back == ("d", "b")
    assert held.trade.alone["b"] == pytest.approx(0.2)
    assert held.trade.value == pytest.approx(0.03)
    assert held.made_up


def test_int8_goes_back_to_bfloat16_before_float32() -> None:
    kernels = (
        _kernel("exact", 0),
        _kernel("rounded", 0, lower=True),
        _kernel("quantised", 0, quantised=True),
        _kernel("other", 1, quantised=True),
    )
    errors = {"exact": 0, "rounded": 0.01, "quantised": 0.2, "other": 0.03}
    for bound, place in (("0.5", "quantised"), ("0.1", "rounded")):
        held = _checker(errors, f"max_relative<={bound}")[0].hold(kernels)
        assert _places(held.kernels) == {"n0": place, "n1": "other"}
    assert held.trade.roll_back == ("quantised",)
    strict = _checker(errors, "max_relative<=1e-3")[0].hold(kernels)
    assert _places(strict.kernels) == {"n0": "exact"}


def test_winograd_goes_back_last_and_direct_sums_never() -> None:
    kernels = (
        _kernel("plain", 0),
        _kernel("winograd", 1, algorithm="winograd_4x4"),
        _kernel("lower", 2, lower=True),
    )
    errors = {"plain": 1e-7, "winograd": 1e-5, "lower": 1e-2}
    loose, _ = _checker(errors, "max_relative<=1e-3")
    assert _places(loose.hold(kernels).kernels) == {"n0": "plain", "n1": "winograd"}
    tight, _ = _checker(errors, "max_relative<=1e-6")
    assert _places(tight.hold(kernels).kernels) == {"n0": "plain"}


def test_kernel_that_cannot_be_run_in_the_model_goes_back() -> None:
    kernels = (_kernel("deadly", 0, lower=True), _kernel("fine", 1, lower=True))
    checker, _ = _checker({"deadly": math.inf, "fine": 0.01}, "cosine>=0.99")
    held = checker.hold(kernels)
    assert _places(held.kernels) == {"n1": "fine"}


def test_metric_that_fails_ends_the_run() -> None:
    checker, _ = _checker({"a": 0.01}, "math:dist>=2")
    with pytest.raises(Exception, match="the metric failed"):
        checker.hold((_kernel("a", 0, lower=True),))


def test_bound_out_of_reach_is_refused_before_anything_is_tuned(tmp_path: Path) -> None:
    file = tmp_path / "metric.py"
    file.write_text("def score(reference, results):\n    return 0.7\n")
    good, runner = _checker({}, f"{file}:score>=0.5", _TWO_SETS)
    good.check()
    assert len(runner.asked("run_model")) == 1
    bad, _ = _checker({}, f"{file}:score>=0.8")
    with pytest.raises(AccuracyError, match="the untuned model itself misses the bound") as caught:
        bad.check()
    assert "score 0.7" in str(caught.value)
    broken, _ = _checker({}, "math:dist>=2")
    with pytest.raises(AccuracyError, match="the metric failed"):
        broken.check()


def test_later_trade_is_told_with_the_earlier_one() -> None:
    kernels = (_kernel("a", 0, lower=True), _kernel("b", 1, lower=True))
    first, _ = _checker({"a": 0.2, "b": 0.01}, "max_relative<=0.1")
    second, _ = _checker({"a": 0.2, "b": 0.2}, "max_relative<=0.1")
    held = first.hold(kernels)
    both = held.followed_by(second.hold(held.kernels))
    assert both.trade.roll_back == ("a", "b")
    assert both.weighed == kernels
    assert both.trade.lowered == frozenset()
    assert both.trade.at_first == held.trade.at_first


def test_lowest_precision_is_that_of_any_kernel() -> None:
    exact, lower = _kernel("a", 0), _kernel("b", 1, lower=True)
    assert lowest_precision(()) is lowest_precision((exact,)) is Precision.FLOAT32
    assert lowest_precision((exact, lower)) is Precision.BFLOAT16
    quantised = _kernel("c", 1, quantised=True)
    assert lowest_precision((exact, quantised, lower)) is Precision.INT8


def _tuned(speedup: float | None, *, lower: bool = False, quantised: bool = False) -> TunedOperator:
    tuned = make_tuned("n0")
    operator = tuned.operator
    if lower or quantised:
        precision = Precision.INT8 if quantised else Precision.BFLOAT16
        operator = replace(operator, workload=replace(operator.workload, precision=precision))
    schedule = tuned.schedule if speedup is not None else None
    return replace(tuned, operator=operator, speedup=speedup, schedule=schedule)


@pytest.mark.parametrize(
    ("exact", "lower", "worth"),
    [(3.0, 3.1, True), (3.0, 3.05, False), (3.0, 1.9, False), (None, 1.05, True)],
)
def test_lower_precision_has_to_be_faster_than_float32(
    exact: float | None, lower: float, worth: bool
) -> None:
    operators = [_tuned(exact, lower=False), _tuned(lower, lower=True)]
    assert (operators[1] in worth_lowering(operators)) is worth
    assert operators[0] in worth_lowering(operators)


@pytest.mark.parametrize(
    ("rounded", "quantised", "worth"),
    [(3.0, 3.1, True), (3.0, 3.05, False), (1.5, 2.1, True), (1.5, 2.02, False), (None, 2.1, True)],
)
def test_int8_has_to_be_faster_than_bfloat16_and_float32(
    rounded: float | None, quantised: float, worth: bool
) -> None:
    operators = [_tuned(2.0), _tuned(rounded, lower=True), _tuned(quantised, quantised=True)]
    assert (operators[2] in worth_lowering(operators)) is worth


def test_lower_precision_alone_has_nothing_to_be_faster_than() -> None:
    alone = _tuned(1.05, lower=True)
    assert worth_lowering([alone]) == (alone,)


@pytest.mark.parametrize(
    ("mode", "lowest", "places"),
    [
        ("allow_fp32_to_bf16", Precision.BFLOAT16, 0),
        pytest.param("allow_mix_precision_int8", Precision.INT8, 2, marks=pytest.mark.slow),
    ],
)
def test_real_kernels_below_float32_are_held_to_a_bound(
    mode: str,
    lowest: Precision,
    places: int,
    tmp_path: Path,
    target: Target,
    toolchain: Toolchain,
) -> None:
    """Places may go back to a kernel in float32 where there is one, else to ONNX Runtime."""
    if lowest not in target.precisions:
        pytest.skip(f"this CPU has no {lowest.value}")
    net = matmul_net(width=128)
    graph, kernels = _real_kernels(net, mode, tmp_path, target)
    assert lowest_precision(kernels) is lowest
    with (
        Runner(CPU, target, toolchain) as runner,
        assembling(tmp_path, net, graph, runner) as assembly,
    ):
        assert not assembly.build(kernels)
        for bound, stay in (("max_relative<=0.05", 2), ("max_relative<=1e-5", places)):
            checker = AccuracyChecker(
                assembly, runner, constraint=parse_accuracy(bound), inputs=MADE_UP
            )
            held = checker.hold(kernels)
            assert sum(len(kernel.regions) for kernel in held.kernels) == stay
            assert 1e-5 < held.trade.at_first < 3e-2
        assert held.trade.value < 1e-5


def _real_kernels(
    net: onnx.ModelProto, mode: str, folder: Path, target: Target
) -> tuple[ModelGraph, list[ChosenKernel]]:
    """Return the optimised graph of a model and the first guess for every operator in it."""
    proto = CPU.optimize(net, folder / "o.onnx", threads=target.core_num)
    graph = ModelGraph(proto, infer_tensors(proto, open_session), block=CPU.channel_block())
    settings = parse_precision(mode)
    plan = PrecisionPlan(settings=settings, target=KernelTarget.of(target), imported=net)
    profile = profile_model(proto, folder, open_session, threads=target.core_num, runs=1)
    return graph, [
        ChosenKernel(
            source=first_guess(operator.regions[0], target),
            key=operator.key,
            regions=operator.regions,
            op_names=operator.op_names,
            gain_us=1.0,
        )
        for operator in find_operators(graph, profile, plan).operators
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "inception_v1"])
def test_network_in_bfloat16_goes_back_as_far_as_its_bound_demands(
    name: str, tmp_path: Path, target: Target, toolchain: Toolchain
) -> None:
    if Precision.BFLOAT16 not in target.precisions:
        pytest.skip("this CPU has no bfloat16")
    net = shipped_network(name)
    graph, kernels = _real_kernels(net, "allow_fp32_to_bf16", tmp_path, target)
    with (
        Runner(CPU, target, toolchain) as runner,
        assembling(tmp_path, net, graph, runner) as assembly,
    ):
        assert not assembly.build(kernels)

        def held(bound: float) -> HeldAccuracy[ChosenKernel]:
            constraint = parse_accuracy(f"max_relative<={bound}")
            checker = AccuracyChecker(assembly, runner, constraint=constraint, inputs=MADE_UP)
            return checker.hold(kernels)

        loose = held(1.0).trade
        assert not loose.roll_back
        assert 1e-5 < loose.at_first < 0.2
        before = len(loose.lowered)
        for share in (0.75, 0.4):
            trade = held(share * loose.at_first).trade
            assert trade.holds and trade.value <= share * loose.at_first
            assert 0 < len(trade.roll_back) == before - len(trade.lowered)
            harms = [trade.alone[kernel] for kernel in trade.roll_back]
            assert min(harms) >= max((trade.alone[k] for k in trade.lowered), default=0.0)
