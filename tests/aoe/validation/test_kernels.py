"""What earlier runs settled about a model is believed; what noise decided is judged again."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from support.engine.fakes import MEMORY, RecordingProgress, ScriptedRunner
from support.engine.families import chain_workload
from support.engine.tuning import guess_of, make_journal, make_operator, make_verdict
from support.engine.validating import FakeAssembly, Machine

from aoe.bank.operators import OperatorBank, key_of
from aoe.bank.verdicts import SETTLED_HALF_WIDTH
from aoe.device.compiler import kernel_name
from aoe.execute.messages import ModelPart
from aoe.measurement.memory import MemoryUse, ModelMemory
from aoe.ort.inputs import MADE_UP
from aoe.results.files import RepoOutcome
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.operators.operator_tasks import TunedOperators
from aoe.tuner.chosen_graph import ChosenGraph
from aoe.tuner.live_report import PhaseTimes, start_stopwatch
from aoe.tuner.precision.settings import KEEP_FLOAT32, PrecisionSettings, parse_precision
from aoe.tuner.tune_context import ModelToTune, RunTime
from aoe.validation.graphs import TunedGraph, validate_graphs
from aoe.validation.kernels import (
    model_comparer,
    over_imported,
    prove_early,
    validate_kernels,
    validate_model,
)
from aoe.validation.model_validator import ValidationResult
from aoe.validation.time_reserve import ModelCosts
from aoe.workload import Precision
from aoebank import Bank, Event

_CONFIRMED = 1
_NAMES = ("a", "b", "c")


@dataclass
class CompilingAssembly(FakeAssembly):
    """Remembers what was compiled; the first error of a kernel's name leaves it out."""

    built: list[frozenset[str]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)

    def surroundings(self, kernel: ChosenKernel) -> frozenset[str]:
        moved = [name for name in kernel.op_names if name in self.moved]
        return FakeAssembly.surroundings(self, kernel).union(moved)

    def build(self, kernels: Sequence[ChosenKernel], *, left_s: float = math.inf) -> dict[str, str]:
        names = frozenset(kernel.source.name for kernel in kernels)
        self.built.append(names)
        return {name: error for name, error in self.errors.items() if name in names}


def _tuned(number: int, *, proven: float | None = 1.25) -> TunedOperator:
    workload = chain_workload(("Exp",), shape=(number + 1, 8))
    schedule, _ = guess_of(workload)
    return TunedOperator(
        operator=make_operator(workload, op_names=(_NAMES[number],)),
        outcome=RepoOutcome.RESERVED,
        reason="in the bank",
        schedule=schedule,
        speedup=1.3,
        proven_speedup=proven,
        before_us=500.0,
        after_us=400.0,
    )


def _lowered(tuned: TunedOperator) -> TunedOperator:
    assert tuned.schedule is not None
    workload = replace(tuned.operator.workload, precision=Precision.BFLOAT16)
    return replace(
        tuned,
        operator=replace(tuned.operator, workload=workload, key=key_of(workload)),
        schedule=replace(tuned.schedule, algorithm="direct_bf16"),
    )


def _kernel_of(tuned: TunedOperator) -> str:
    assert tuned.schedule is not None
    return kernel_name(tuned.operator.workload, tuned.schedule)


@dataclass
class Model:
    """A model whose kernels save these shares of its time, and runs that judge it.

    Those in `lower` compute in bfloat16, and are this far off. Those in `moved` stand between
    others than in the model of `base`.
    """

    root: Path
    saves: tuple[float, ...] = (0.1, 0.1, 0.1)
    wrong: frozenset[int] = frozenset()
    jitter: float = 0.0005
    given_share: float = 1.0
    accept_busy: bool = False
    errors: dict[str, str] = field(default_factory=dict)
    precision: PrecisionSettings = KEEP_FLOAT32
    lower: Mapping[int, float] = field(default_factory=dict)
    comparisons: int = 0
    restarts: int = 0
    name: str = "net"
    base: Path | None = None
    moved: tuple[int, ...] = ()
    progress: RecordingProgress = field(default_factory=RecordingProgress)
    kernel_memory_mib: int | None = None
    kept_mib: int = 0
    runner: ScriptedRunner = field(default_factory=ScriptedRunner)  # Of the last run

    @property
    def bank(self) -> OperatorBank:
        base = Bank(self.base) if self.base is not None else None
        return OperatorBank(make_journal(self.root, model=self.name), core_num=2, base=base)

    @property
    def tuned(self) -> list[TunedOperator]:
        tuned = [_tuned(number) for number in range(len(self.saves))]
        return [_lowered(one) if at in self.lower else one for at, one in enumerate(tuned)]

    def judged(self, *, repeat_tune: bool = False) -> list[str]:
        """Judge the model and return the nodes of the kernels that stay."""
        validation = self.validation(repeat_tune=repeat_tune)
        return sorted(name for kernel in validation.kept for name in kernel.op_names)

    def validation(self, *, repeat_tune: bool = False) -> ValidationResult:
        tuning, assembly = self.context(repeat_tune=repeat_tune)
        found = validate_model(tuning, self.bank, assembly, self.tuned)
        self.comparisons = len(self.runner.asked("compare_models"))
        self.restarts = self.runner.restarts
        return found

    def context(
        self,
        *,
        repeat_tune: bool = False,
        limit_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> tuple[Any, Any]:
        """Return the context of a run, and its assembly."""
        moved = [_NAMES[number] for number in self.moved]
        assembly = CompilingAssembly(errors=self.errors, moved=moved)
        numbers = {_kernel_of(tuned): number for number, tuned in enumerate(self.tuned)}
        lower = {name: self.lower[at] for name, at in numbers.items() if at in self.lower}
        numbers |= {_kernel_of(_tuned(number)): number for number in self.lower}
        machine = Machine(assembly, numbers, self.saves, wrong=self.wrong)

        def results(part: ModelPart) -> list[object]:
            held = assembly.contents.get(str(part.model), ())
            return [np.array([1.0 + sum(lower.get(name, 0) for name in held)])]

        def memory(baseline: ModelPart, tuned: ModelPart) -> ModelMemory:
            kept = len(assembly.contents.get(str(tuned.model), ())) * self.kept_mib << 20
            untuned = MEMORY.baseline
            taken = MemoryUse(resident_bytes=untuned.peak_bytes or 0.0)
            more = MemoryUse(resident_bytes=taken.resident_bytes + kept)
            return ModelMemory(baseline=taken, tuned=more)

        runner = self.runner = ScriptedRunner(
            model=machine,
            memory=memory,
            results=results,
            jitter=self.jitter,
            drift=0.0,
            given_share=self.given_share,
        )
        stopwatch = start_stopwatch(clock, limit_s)
        tuning = SimpleNamespace(
            settings=SimpleNamespace(
                repeat_tune=repeat_tune,
                accept_busy=self.accept_busy,
                precision=self.precision,
                run_loop=None,
                lookup_only=False,
                kernel_memory_mib=self.kernel_memory_mib,
                proves_settled=False,
                anonymous=False,
            ),
            banks=SimpleNamespace(base=None, journal=make_journal(self.root, model=self.name)),
            places=SimpleNamespace(bank=None),
            subject=ModelToTune(
                model=SimpleNamespace(proto=onnx.ModelProto()),  # type: ignore[arg-type]
                inputs=MADE_UP,
                calibration=MADE_UP,
            ),
            machine=SimpleNamespace(runner=runner),
            threads_validated=runner.target.core_num,
            progress=self.progress,
            time=RunTime(stopwatch=stopwatch, phases=PhaseTimes(stopwatch)),
        )
        return tuning, assembly

    def verdicts(self) -> list[Event | None]:
        return [self.bank.model_verdict(tuned.operator.workload) for tuned in self.tuned]


def test_second_run_chooses_nothing_and_keeps_the_same(tmp_path: Path) -> None:
    model = Model(tmp_path, saves=(0.1, -0.1, 0.1))
    assert model.judged() == ["a", "c"]
    assert model.verdicts() == [Event.KEPT, Event.DROPPED, Event.KEPT]
    noted = {file: file.read_bytes() for file in tmp_path.rglob("*.jsonl")}
    assert model.judged() == ["a", "c"]
    assert model.comparisons == _CONFIRMED
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.jsonl")} == noted


@pytest.mark.parametrize("repeat_tune", [False, True])
def test_dropped_kernel_comes_back_with_repeat_tune_only(tmp_path: Path, repeat_tune: bool) -> None:
    Model(tmp_path, saves=(0.1, -0.1, 0.1)).judged()
    improved = Model(tmp_path)
    names = improved.judged(repeat_tune=repeat_tune)
    assert names == (["a", "b", "c"] if repeat_tune else ["a", "c"])


@pytest.mark.parametrize("repeat_tune", [False, True])
def test_kept_kernel_that_has_got_worse_goes_with_repeat_tune_only(
    tmp_path: Path, repeat_tune: bool
) -> None:
    Model(tmp_path).judged()
    worse = Model(tmp_path, saves=(0.1, -0.01, 0.1))
    names = worse.judged(repeat_tune=repeat_tune)
    assert names == (["a", "c"] if repeat_tune else ["a", "b", "c"])
    assert repeat_tune or worse.comparisons == _CONFIRMED


def test_gain_that_is_mostly_gone_is_proven_anew(tmp_path: Path) -> None:
    Model(tmp_path).judged()
    spoilt = Model(tmp_path, saves=(0.1, -0.1, 0.1))
    assert spoilt.judged() == ["a", "c"]
    assert any("all is proven anew" in line for line in spoilt.progress.texts("step"))
    assert spoilt.verdicts() == [Event.KEPT, Event.DROPPED, Event.KEPT]
    assert spoilt.judged() == ["a", "c"]  # what is left was proven: few pairs of it again
    assert spoilt.comparisons == _CONFIRMED


def test_no_kernel_of_a_model_that_gains_no_more_stays(tmp_path: Path) -> None:
    Model(tmp_path).judged()
    assert Model(tmp_path, saves=(0.0, 0.0, 0.0), jitter=0.01).judged() == []


def test_what_was_proven_is_checked_by_few_pairs_of_the_usual_inputs(tmp_path: Path) -> None:
    model = Model(tmp_path)
    model.judged()
    proof = [call.arguments["policy"].pairs_max for call in model.runner.asked("compare_models")]
    assert sum(proof) > 30 and model.runner.asked("compare_unusual")
    model.judged()
    (check,) = model.runner.asked("compare_models")
    assert check.arguments["policy"].pairs_max <= 10
    assert model.runner.asked("compare_unusual") == []
    for file in tmp_path.rglob("*.jsonl"):  # as of another schedule, or of an older release
        file.write_text(re.sub('"kernel": ?"[^"]*"', '"kernel": "other"', file.read_text()))
    assert model.judged() == ["a", "b", "c"]
    (compared,) = model.runner.asked("compare_models")
    assert compared.arguments["policy"].pairs_max > 10
    assert model.runner.asked("compare_unusual")


def test_wrong_result_of_what_was_proven_is_found_by_the_check(tmp_path: Path) -> None:
    Model(tmp_path).judged()
    assert Model(tmp_path, wrong=frozenset({1})).judged() == ["a", "c"]


@pytest.mark.parametrize(("save", "jitter"), [(0.01, 0.1), (0.05, 0.4)])
def test_what_noise_decided_is_judged_again(tmp_path: Path, save: float, jitter: float) -> None:
    noisy = Model(tmp_path, saves=(save,) * 3, jitter=jitter)
    noisy.judged()
    assert noisy.verdicts() == [None] * 3
    quiet = Model(tmp_path)
    assert quiet.judged() == ["a", "b", "c"]
    assert quiet.comparisons > _CONFIRMED
    assert quiet.verdicts() == [Event.KEPT] * 3


def test_what_noise_decided_twice_alike_is_settled(tmp_path: Path) -> None:
    noisy = Model(tmp_path, saves=(0.01,) * 3, jitter=0.1)
    names = noisy.judged()
    assert noisy.verdicts() == [None] * 3
    if noisy.judged() == names:
        assert None not in noisy.verdicts()
        assert noisy.judged() == names
        assert noisy.comparisons == _CONFIRMED


def test_gain_beyond_its_wide_interval_is_settled(tmp_path: Path) -> None:
    noisy = Model(tmp_path, jitter=0.1)
    validation = noisy.validation()
    assert validation.estimate.half_width > SETTLED_HALF_WIDTH
    assert noisy.verdicts() == [Event.KEPT] * 3
    assert noisy.judged() == ["a", "b", "c"]
    assert noisy.comparisons == _CONFIRMED


def test_wrong_kernel_is_out_for_good(tmp_path: Path) -> None:
    wrong = Model(tmp_path, wrong=frozenset({1}))
    assert wrong.judged() == ["a", "c"]
    assert wrong.judged() == ["a", "c"]
    assert wrong.comparisons == _CONFIRMED


def test_kernel_that_went_wrong_since_is_noted_and_the_rest_stays_settled(tmp_path: Path) -> None:
    Model(tmp_path).judged()
    spoilt = Model(tmp_path, wrong=frozenset({0}))
    assert spoilt.judged() == ["b", "c"]
    assert spoilt.verdicts() == [Event.DROPPED, Event.KEPT, Event.KEPT]


def test_kernel_that_does_not_compile_is_said_and_left_out(tmp_path: Path) -> None:
    model = Model(tmp_path)
    name = _kernel_of(model.tuned[1])
    model.errors[name] = "no such loop"
    assert model.judged() == ["a", "c"]
    assert model.progress.texts("warn") == [f"kernel {name} left out: no such loop"]


def test_promise_of_a_kernel_is_the_lower_end_of_its_interval(tmp_path: Path) -> None:
    (kernel,) = Model(tmp_path, saves=(0.1,)).validation().kept
    assert kernel.gain_us == pytest.approx(100.0)  # 500 us at 1.25x


def test_record_without_a_side_car_promises_nothing(tmp_path: Path) -> None:
    class Unknown(Model):
        @property
        def tuned(self) -> list[TunedOperator]:
            return [replace(_tuned(0), proven_speedup=None)]

    (kernel,) = Unknown(tmp_path, saves=(0.1,)).validation().kept
    assert kernel.gain_us == 0


_MIXED = parse_precision("allow_mix_precision_bf16", accuracy="max_relative<=0.05")


def test_kernel_of_lower_precision_stays_within_the_bound(tmp_path: Path) -> None:
    model = Model(tmp_path, precision=_MIXED, lower={1: 0.01})
    validation = model.validation()
    assert sorted(name for kernel in validation.kept for name in kernel.op_names) == ["a", "b", "c"]
    assert validation.accuracy is not None
    assert validation.accuracy.trade.value == pytest.approx(0.01)
    assert "made-up inputs" in model.progress.texts("warn")[0]


def test_second_run_trades_alike(tmp_path: Path) -> None:
    model = Model(tmp_path, saves=(0.1, 0.1, -0.1), precision=_MIXED, lower={0: 0.2, 1: 0.01})
    assert model.judged() == ["b"]
    assert model.verdicts() == [None, Event.KEPT, Event.DROPPED]
    assert any("goes back" in text for text in model.progress.texts("step"))
    assert model.judged() == ["b"]
    assert model.comparisons == _CONFIRMED


def test_wider_bound_lets_a_kernel_come_again(tmp_path: Path) -> None:
    Model(tmp_path, precision=_MIXED, lower={0: 0.2}).judged()
    wide = parse_precision("allow_mix_precision_bf16", accuracy="max_relative<=0.5")
    assert Model(tmp_path, precision=wide, lower={0: 0.2}).judged() == ["a", "b", "c"]


def test_errors_that_no_longer_cancel_out_are_seen(tmp_path: Path) -> None:
    """Two kernels whose errors cancel: without the slow one the other is too far off."""
    model = Model(tmp_path, saves=(0.1, -0.1, 0.1), precision=_MIXED, lower={0: 0.2, 1: -0.2})
    validation = model.validation()
    assert [name for kernel in validation.kept for name in kernel.op_names] == ["c"]
    assert validation.accuracy is not None
    assert validation.accuracy.trade.holds
    assert len(validation.accuracy.trade.roll_back) == 1


def test_nothing_lower_is_said_and_costs_nothing(tmp_path: Path) -> None:
    model = Model(tmp_path, precision=parse_precision("allow_fp32_to_bf16"))
    validation = model.validation()
    assert validation.accuracy is None
    assert model.progress.texts("warn") == ["no kernel in bfloat16 was proven faster than float32"]


# ---- beside what is settled ----


def _stored(model: Model) -> None:
    """Put the kernels of a model into its bank."""
    for one in model.tuned:
        _, configuration = guess_of(one.operator.workload)
        assert one.schedule is not None
        verdict = make_verdict(Event.ADD, 1.3, limit=8)
        model.bank.save(one.operator.workload, one.schedule, configuration, verdict)


def test_new_kernel_is_judged_beside_those_that_are_settled(tmp_path: Path) -> None:
    Model(tmp_path, saves=(0.1, 0.1)).judged()
    model = Model(tmp_path, saves=(0.1, 0.1, 0.1))
    assert model.judged() == ["a", "b", "c"]
    assert (model.comparisons, model.restarts) == (2, 0)  # without it, and the figures
    assert model.verdicts() == [Event.KEPT] * 3
    losing = Model(tmp_path / "other", saves=(0.1, 0.1))
    losing.judged()
    losing.saves = (0.1, 0.1, -0.1)
    assert losing.judged() == ["a", "b"]
    assert losing.verdicts() == [Event.KEPT, Event.KEPT, Event.DROPPED]


# ---- behind another model ----


def test_kernels_of_a_second_model_are_held_to_what_those_of_the_first_kept(
    tmp_path: Path,
) -> None:
    """Alone each has proven to save a fifth of its time; in company it saves half of that."""
    first = Model(tmp_path, saves=(0.05, 0.05), name="first")
    _stored(first)
    assert first.judged() == ["a", "b"]
    tests_of_first = first.comparisons - first.restarts
    second = Model(tmp_path, saves=(0.05, 0.05, 0.05), name="second", moved=(0, 1))
    assert second.judged() == ["a", "b", "c"]
    assert second.comparisons - second.restarts == 1 < tests_of_first
    alone = Model(tmp_path / "alone", saves=(0.05, 0.05, 0.05), name="second")
    assert alone.judged() == ["a", "b", "c"]
    assert alone.comparisons - alone.restarts > 1


def test_what_a_first_model_kept_in_the_same_place_has_no_test_in_a_second(tmp_path: Path) -> None:
    first = Model(tmp_path, saves=(0.1, 0.1), name="first")
    _stored(first)
    assert first.judged() == ["a", "b"]
    second = Model(tmp_path, saves=(0.1, 0.1, 0.1), name="second")
    assert second.judged() == ["a", "b", "c"]
    assert (second.comparisons, second.restarts) == (1, 1) < (first.comparisons, first.restarts)
    assert second.verdicts() == [Event.KEPT] * 3
    slow = Model(tmp_path, saves=(0.0, 0.0), name="third")
    assert slow.judged() == []  # what is believed is proven as a whole all the same


@pytest.mark.parametrize("moved", [(), (0, 1)])
def test_kernel_that_loses_in_a_second_model_is_found(
    tmp_path: Path, moved: tuple[int, ...]
) -> None:
    first = Model(tmp_path, saves=(0.05, 0.05), name="first")
    _stored(first)
    first.judged()
    second = Model(tmp_path, saves=(0.05, 0.05, -0.1), name="second", moved=moved)
    assert second.judged() == ["a", "b"]


# ---- after a change of the model ----


def _changed(root: Path, **facts: Any) -> Model:
    """Return a changed model whose earlier rewrite has kept its first two kernels."""
    earlier = Model(root / "base", saves=(0.1, 0.1), name="earlier")
    _stored(earlier)
    assert earlier.judged() == ["a", "b"]
    model = Model(root / "own", saves=(0.1, 0.1, 0.1), base=root / "base", **facts)
    for one in model.tuned:
        model.bank.adopt(one.operator.workload)
    return model


def test_what_an_earlier_model_kept_in_the_same_place_has_no_test(tmp_path: Path) -> None:
    model = _changed(tmp_path)
    assert model.judged() == ["a", "b", "c"]
    assert (model.comparisons, model.restarts) == (1, 1)  # it shows what the new one saves, too
    assert model.verdicts() == [Event.KEPT] * 3  # from now on it is this model that says so
    assert model.judged() == ["a", "b", "c"]
    assert model.comparisons == _CONFIRMED


def test_new_kernel_that_saves_nothing_is_left_out_once(tmp_path: Path) -> None:
    model = _changed(tmp_path)
    model.saves = (0.1, 0.1, 0.0)
    assert model.judged() == ["a", "b", "c"]
    assert model.comparisons == model.restarts + 1
    losing = _changed(tmp_path / "other")
    losing.saves = (0.1, 0.1, -0.1)
    assert losing.judged() == ["a", "b"]
    assert losing.verdicts() == [Event.KEPT, Event.KEPT, Event.DROPPED]


def test_chain_of_changes_goes_on_believing(tmp_path: Path) -> None:
    """What was judged in one process says how far processes scatter as the one before it did."""
    second = _changed(tmp_path)
    assert second.judged() == ["a", "b", "c"]
    _stored(second)
    second.judged()
    third = Model(tmp_path / "third", saves=(0.1, 0.1, 0.1), name="third", base=second.root)
    for one in third.tuned:
        third.bank.adopt(one.operator.workload)
    assert third.judged() == ["a", "b", "c"]
    assert (third.comparisons, third.restarts) == (1, 1)


def _behind(root: Path, earlier_saves: tuple[float, ...], **facts: Any) -> Model:
    """Return a changed model with all kernels its earlier rewrite has judged."""
    earlier = Model(root / "base", saves=earlier_saves, name="earlier")
    _stored(earlier)
    earlier.judged()
    model = Model(root / "own", base=root / "base", **facts)
    for one in model.tuned:
        model.bank.adopt(one.operator.workload)
    return model


def test_what_an_earlier_model_dropped_in_the_same_place_stays_out(tmp_path: Path) -> None:
    losing = (0.1, -0.1, 0.1)
    model = _behind(tmp_path, losing, saves=losing)
    assert model.judged() == ["a", "c"]
    assert (model.comparisons, model.restarts) == (1, 1)
    (told,) = (text for text in model.progress.texts("step") if text.startswith("left out"))
    assert "as in the earlier model: the model is" in told
    assert model.verdicts() == [Event.KEPT, Event.DROPPED, Event.KEPT]
    assert model.judged() == ["a", "c"]
    assert model.comparisons == _CONFIRMED


def test_early_proof_leaves_out_what_an_earlier_model_dropped(tmp_path: Path) -> None:
    """It would stay in the model if the last judgement were not better, though it is left out."""
    model = _behind(tmp_path, (0.1, -0.1, 0.1), saves=(0.2, 0.2, 0.2))
    tuning, assembly = model.context(limit_s=1e5)
    early = prove_early(model.bank, assembly, ModelCosts(), tuning, model.tuned)
    assert not isinstance(early, str)
    assert [name for kernel in early.kept for name in kernel.op_names] == ["a", "c"]
    assert not model.progress.texts("warn") and "left out" not in str(model.progress.texts("step"))


def test_kernel_that_stays_as_proven_before_is_not_told_as_gone(tmp_path: Path) -> None:
    """A later profile speaks against one of them: the model without it is slower."""
    model = Model(tmp_path, saves=(0.2, 0.2, 0.2))
    tuning, assembly = model.context(limit_s=300.0)
    early = prove_early(model.bank, assembly, ModelCosts(), tuning, model.tuned)
    assert not isinstance(early, str) and len(early.kept) == 3
    slow = early.kept[0].name

    def node_us(part: ModelPart) -> dict[str, float]:
        held = assembly.contents.get(str(part.model), frozenset())
        times = dict.fromkeys(_NAMES, 100.0)
        for kernel in early.kept:
            if kernel.name in held:
                (name,) = kernel.op_names
                times[f"{name}_{kernel.name}"] = 200.0 if kernel.name == slow else 50.0
        return times

    model.runner.node_us = node_us
    costs = ModelCosts(load_s=5.0, run_s=0.1)  # no time for groups
    found, noted = validate_kernels(tuning, model.bank, assembly, model.tuned, costs, proven=early)
    assert any(text.startswith(f"put back {slow}") for text in model.progress.texts("step"))
    assert {kernel.name for kernel in found.kept} == {kernel.name for kernel in early.kept}
    assert not found.drops and not found.undecided
    assert [note.event for _, note in noted] == [Event.KEPT] * 3


def test_model_of_a_chosen_graph_that_computes_something_else_is_told(tmp_path: Path) -> None:
    model = Model(tmp_path)
    found = model.validation()
    for wrong in (frozenset[int](), frozenset({1})):
        model.wrong = wrong
        tuning, assembly = model.context()
        comparer = model_comparer(tuning, assembly, ModelCosts())
        measured = over_imported(tuning, comparer, found, assembly.imported)
        assert measured.kept == found.kept and measured.graph_chosen
        assert ["2 instead of 1" in text for text in model.progress.texts("warn")] == [True] * len(
            wrong
        )


def test_accuracy_of_a_model_that_was_proven_before_takes_no_time_in_the_end(
    tmp_path: Path,
) -> None:
    """Its kernels would go, though it is accurate, faster and written."""
    precision = parse_precision("allow_mix_precision_bf16", accuracy="max_relative<=0.01")
    model = Model(tmp_path, saves=(0.3, -0.2), lower={0: 0.001}, precision=precision)
    now_s = 0.0
    tuning, assembly = model.context(limit_s=1000.0, clock=lambda: now_s)
    costs = ModelCosts(load_s=5.0, run_s=0.1)
    early = prove_early(model.bank, assembly, costs, tuning, model.tuned[:1])
    assert not isinstance(early, str) and early.accuracy is not None
    machine, now_s = model.runner.model, 900.0

    def last(baseline: ModelPart, tuned: ModelPart) -> Any:
        nonlocal now_s
        now_s = 995.0
        return machine(baseline, tuned)

    model.runner.model = last
    found, _ = validate_kernels(tuning, model.bank, assembly, model.tuned, costs, proven=early)
    assert [kernel.op_names for kernel in found.kept] == [("a",)]
    assert found.accuracy == early.accuracy and found.estimate == early.estimate


@dataclass
class AloneAssembly(CompilingAssembly):
    """Assembly of the imported graph beside that of a chosen one."""

    def write_model(self, kernels: Sequence[ChosenKernel], name: str = "model.onnx") -> ModelPart:
        return CompilingAssembly.write_model(self, kernels, f"alone_{name}")


@pytest.mark.parametrize(("off", "is_lower"), [(0.0, True), (9.0, False)])
def test_rewrites_are_held_against_one_accurate_kernel_for_each_operator(
    off: float, is_lower: bool, tmp_path: Path
) -> None:
    """Operators that only the imported graph has were in no model whose accuracy was checked."""
    precision = parse_precision("allow_mix_precision_bf16", accuracy="max_relative<=0.01")
    model = Model(tmp_path, saves=(0.1, -0.05), lower={1: off}, precision=precision)
    tuning, assembly = model.context()
    of_both, lowered = model.tuned
    choice = (_tuned(1), replace(lowered, speedup=1.5))
    chosen = ChosenGraph(proto=onnx.ModelProto(), uses=())
    made, alone = (
        TunedGraph(
            tuning=SimpleNamespace(**vars(tuning) | {"subject": subject}),  # type: ignore[arg-type]
            graph=None,  # type: ignore[arg-type]
            profile=None,  # type: ignore[arg-type]
            tuned=TunedOperators(operators=operators, refusals=()),
            assembly=one,
            costs=ModelCosts(),
        )
        for subject, operators, one in (
            (replace(tuning.subject, chosen=chosen), (of_both,), assembly),
            (tuning.subject, (of_both, *choice), AloneAssembly(contents=assembly.contents)),
        )
    )
    stays, found = validate_graphs(made, alone, model.bank)
    assert stays is made and len(found.kept) == 1
    held = {_kernel_of(of_both), _kernel_of(choice[is_lower])}
    assert assembly.contents["alone_model.onnx"] == held


@pytest.mark.parametrize(
    ("earlier_saves", "facts", "repeat_tune"),
    [
        ((0.1, -0.1, 0.1), {"moved": (1,)}, False),
        ((0.1, -0.1, 0.1), {}, True),
        ((0.0, 0.0, 0.0), {}, False),  # a model that gains nothing says nothing of each kernel
    ],
)
def test_what_was_dropped_elsewhere_is_tried(
    tmp_path: Path, earlier_saves: tuple[float, ...], facts: dict[str, Any], repeat_tune: bool
) -> None:
    model = _behind(tmp_path, earlier_saves, **facts)
    assert model.judged(repeat_tune=repeat_tune) == ["a", "b", "c"]


@pytest.mark.parametrize("moved", [(0,), (0, 1)])
def test_kernel_between_other_neighbours_is_judged(tmp_path: Path, moved: tuple[int, ...]) -> None:
    model = _changed(tmp_path, moved=moved)
    model.saves = (-0.1, 0.1, 0.1)
    assert model.judged() == ["b", "c"]
    assert model.verdicts()[0] is Event.DROPPED


def test_believed_kernel_that_computes_wrongly_here_is_found(tmp_path: Path) -> None:
    model = _changed(tmp_path, wrong=frozenset({0}))
    assert model.judged() == ["b", "c"]
    assert any("every kernel is looked at" in text for text in model.progress.texts("step"))


def test_repeat_tune_believes_no_earlier_model(tmp_path: Path) -> None:
    model = _changed(tmp_path)
    model.judged(repeat_tune=True)
    assert model.restarts > 2


# ---- a busy machine ----


@pytest.mark.parametrize("saves", [(0.1, 0.1, 0.1), (0.1, -0.2, 0.1)])
def test_what_a_busy_machine_says_is_neither_believed_nor_remembered(
    tmp_path: Path, saves: tuple[float, ...]
) -> None:
    model = Model(tmp_path, saves=saves, given_share=0.6)
    found = model.validation()
    assert found.kept == ()
    assert all("the machine was busy: 60% of" in reason for reason in found.dropped.values())
    assert len(found.dropped) == 3
    assert model.verdicts() == [None] * 3
    (warning,) = model.progress.texts("warn")
    assert "stays untuned: not decided, the machine was busy: 60% of" in warning
    model.given_share = 1.0
    assert model.judged() == [name for name, saved in zip(_NAMES, saves, strict=True) if saved > 0]


def test_who_accepts_a_busy_machine_is_served_by_it(tmp_path: Path) -> None:
    model = Model(tmp_path, given_share=0.6, accept_busy=True)
    assert model.judged() == list(_NAMES)
    assert model.verdicts() == [Event.KEPT] * 3
    assert model.progress.texts("warn") == []


def test_wrong_results_are_remembered_however_busy_the_machine(tmp_path: Path) -> None:
    model = Model(tmp_path, wrong=frozenset({1}), given_share=0.6)
    assert model.validation().kept == ()
    assert model.verdicts() == [None, Event.DROPPED, None]


def test_what_is_settled_stays_however_busy_the_machine(tmp_path: Path) -> None:
    model = Model(tmp_path)
    assert model.judged() == list(_NAMES)
    model.given_share = 0.6
    assert model.judged() == list(_NAMES)


def test_kernels_beyond_the_limit_are_left_out_for_this_run_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aoe.validation.kernels.bytes_kept_beside", lambda kernel: 8 << 20)
    bounded = Model(tmp_path, kernel_memory_mib=20)
    first = bounded.judged()
    assert len(first) == 2
    (told,) = [text for text in bounded.progress.texts("step") if text.startswith("left out ")]
    assert told.endswith("it keeps 8.0 MiB, and all may keep 20.0 MiB")
    assert bounded.judged() == first  # a second run leaves out the same
    assert Model(tmp_path, kernel_memory_mib=24).judged() == ["a", "b", "c"]


def test_what_went_for_the_memory_of_the_model_is_judged_again_once_the_user_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aoe.validation.kernels.bytes_kept_beside", lambda kernel: 8 << 20)
    model = Model(tmp_path, kept_mib=8)
    first = model.judged()
    assert len(first) == 1  # 12 MiB more than 120 are allowed, two of them would be 16
    comparisons = model.comparisons
    assert model.judged() == first  # a second run knows
    assert model.comparisons == _CONFIRMED < comparisons
    assert Model(tmp_path, kept_mib=8, kernel_memory_mib=64).judged() == ["a", "b", "c"]


def test_no_memory_leaves_kernels_that_keep_nothing(tmp_path: Path) -> None:
    assert Model(tmp_path, kernel_memory_mib=0).judged() == ["a", "b", "c"]
