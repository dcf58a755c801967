"""The time limit of a run holds over all its phases, whichever of them takes long.

Nothing is measured: a clock that only the phases move on says what each has taken.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.engine.environments import run_environment
from support.engine.fakes import RecordingProgress, ScriptedClock, ScriptedRunner
from support.engine.models import conv_net, save_model, separate_chains_net
from support.engine.quantized import int8_activations, int8_model
from support.engine.scripted_runs import ScriptedCpu
from support.tiers import chosen_every_day, few_every_day

from aoe.device.forks import NO_TIME
from aoe.errors import RunTimeoutError, TurnTimeoutError
from aoe.execute.messages import ModelPart
from aoe.execute.runner import MEASURING_TASKS
from aoe.folders.turns import Turns
from aoe.graph.weights import WeightStore
from aoe.measurement import CpuUse
from aoe.om.file import MODEL, unpack
from aoe.ort import profile
from aoe.ort.profile import LEAST_RUNS, ModelProfile, profile_runs
from aoe.runs import tuned_model
from aoe.runs.operators import run as opat_run
from aoe.runs.operators.result import OpatResult
from aoe.tuner.mode import ModeContext, TuneSettings
from aoe.tuner.parts import EngineParts
from aoe.tuner.precision.settings import parse_precision
from aoe.validation.time_reserve import HURRIED_PROCESSES

_SLACK = 0.05
_NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass
class Costs:
    """Seconds each thing takes."""

    load_s: float = 0.1  # Loading the model into a session
    run_s: float = 0.01  # One run of it
    trial_s: float = 0.2  # A candidate of the search, its policy aside
    compile_s: float = 0.3  # One kernel
    link_s: float = 1.0  # A library
    write_s: float = 0.05  # The weights of the model, once
    process_s: float = 1.5  # A worker, until it can be asked
    optimize_s: float = 0.0  # ONNX Runtime's optimised graph
    given_share: float = 1.0  # CPU time the first profile gets of what it asks for


@dataclass(slots=True, kw_only=True)
class TimedRunner(ScriptedRunner):
    """A scripted runner whose answers take their time."""

    clock: ScriptedClock
    costs: Costs
    is_fresh: bool = True

    def restart(self, following: int = 0) -> None:
        ScriptedRunner.restart(self, following)
        self.is_fresh = True

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        with self.turns.measuring() if task in MEASURING_TASKS else nullcontext():
            return self._called(task, timeout_s, arguments)

    def _called(self, task: str, timeout_s: float, arguments: dict[str, Any]) -> Any:
        needed_s = self._cost_s(task, arguments) + self.costs.process_s * self.is_fresh
        self.is_fresh = False
        self.clock.advance(task, min(needed_s, timeout_s))
        if needed_s > timeout_s:
            raise RunTimeoutError(task, "no answer from the worker", got=f"over {timeout_s} s")
        found = ScriptedRunner.call(self, task, timeout_s=timeout_s, **arguments)
        if task == "compile_kernels" and arguments["all_s"] < self._compiling_s(arguments):
            return dict.fromkeys(found, NO_TIME)
        return found

    def _compiling_s(self, arguments: dict[str, Any]) -> float:
        return self.costs.compile_s * math.ceil(len(arguments["kernels"]) / arguments["at_once"])

    def _cost_s(self, task: str, arguments: dict[str, Any]) -> float:
        costs = self.costs
        if task == "measure_candidates":
            policy = arguments["policy"]
            pairs_s = min(policy.enough_s, 2 * policy.pairs_max * costs.run_s / 10)
            return len(arguments["schedules"]) * (costs.trial_s + pairs_s)
        if task == "compare_models":
            policy = arguments["policy"]
            rounds = len(arguments["terms"].orders) if policy.pairs_max >= 12 else 1
            pairs = policy.pairs_max if rounds > 1 else policy.pairs_min  # theirs hardly scatter
            runs = 2 * rounds * (4 + policy.warmup) + 2 * pairs
            return 2 * rounds * costs.load_s + runs * costs.run_s
        if task == "run_model":
            return costs.load_s + costs.run_s
        if task == "compile_kernels":
            return min(arguments["all_s"], self._compiling_s(arguments))
        return 1.0 if task == "machine_rates" else 0.02


class _WaitingTurns(Turns):
    """Turns of a run; before one of them another run measures."""

    def __init__(self, run: TimedRun, left_s: Callable[[], float]) -> None:
        Turns.__init__(self, None, ())
        self._run, self._left = run, left_s
        self._depth = self._count = 0

    @contextmanager
    def measuring(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[None]:
        if self._depth == 0:
            self._count += 1
            if self._count == self._run.turns_before + 1:
                self._wait()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _wait(self) -> None:
        left_s = self._left()
        self._run.clock.advance("waiting", min(left_s, self._run.waiting_s))
        if self._run.waiting_s > left_s:
            raise TurnTimeoutError("time limit", "it was over before the cores were free")


@dataclass
class TimedRun:
    """A whole run of operator tuning on that clock."""

    root: Path
    clock: ScriptedClock
    progress: RecordingProgress
    costs: Costs
    waiting_s: float = 0.0
    turns_before: int = 0
    parts: dict[str, Any] = field(default_factory=dict)
    # Speed-up of the second of two models.
    model: Callable[[Any, Any], float] = lambda baseline, tuned: 1.5
    net: Callable[[], onnx.ModelProto] = conv_net
    # Result of a model.
    results: Callable[[ModelPart], np.ndarray[Any, Any]] = lambda part: np.ones(3, np.float32)
    # Times of the nodes of a model in it.
    node_us: Callable[[ModelPart], Mapping[str, float]] = lambda part: {}

    def _turns(self, *given: Any) -> Turns:
        """Return turns before one of which another run has the cores for a while."""
        return _WaitingTurns(self, given[3])

    def tune(self, limit_s: float | None, **settings: Any) -> OpatResult:
        bank = self.root / "bank"
        bank.mkdir(exist_ok=True)
        context = ModeContext(
            settings=TuneSettings(
                model=save_model(self.net(), self.root / "net.onnx"),
                output=self.root / "out",
                tuning_time_limit_s=limit_s,
                **settings,
            ),
            env=run_environment(bank),
            cwd=self.root,
            progress=self.progress,
            now=_NOW,
            engine=EngineParts(clock=self.clock, open_turns=self._turns, **self.parts),
        )
        return opat_run.run(context)


def _beyond(limit_s: float) -> float:
    """Return the seconds a run may take that finds itself without a comparison at its limit."""
    return 1.1 * limit_s + 5.0


@pytest.fixture
def costs() -> Costs:
    """Return what things take; a test changes it before it tunes."""
    return Costs()


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, costs: Costs) -> Iterator[TimedRun]:
    """Return a run each phase of which costs what `costs` say."""
    clock = ScriptedClock()

    def runner(device: Any, target: Any, toolchain: Any, turns: Turns) -> TimedRunner:
        return TimedRunner(
            clock=clock,
            turns=turns,
            costs=costs,
            device=device,
            target=target,
            jitter=0.0005,
            drift=0.0,
            model=lambda baseline, tuned: run.model(baseline, tuned),
            node_us=lambda part: run.node_us(part),
            results=lambda part: [run.results(part)],
        )

    def profiled(model: Any, *_: Any, most_s: float = math.inf, **__: Any) -> ModelProfile:
        runs = max(LEAST_RUNS, min(10, int(most_s / costs.run_s) if most_s < 1e6 else 10))
        clock.advance("profile", costs.load_s + profile_runs(runs) * costs.run_s)
        proto = (
            onnx.load(str(model), load_external_data=False) if isinstance(model, Path) else model
        )
        each_us = costs.run_s * 1e6 / len(proto.graph.node)
        return ModelProfile(
            node_us={node.name: each_us for node in proto.graph.node},
            model_us=costs.run_s * 1e6,
            runs=runs,
            load_s=costs.load_s + costs.run_s,
        )

    class TimedCpu(ScriptedCpu):
        def build_library(self, *_: object, file: Path, **__: object) -> Path:
            clock.advance("link", costs.link_s)
            file.write_bytes(b"library")
            return file

        def usage(self) -> CpuUse:
            given_s = costs.given_share * clock.now_s
            return CpuUse(wall_s=clock.now_s, cpu_s=given_s, waited_s=clock.now_s - given_s)

        def optimize(self, *arguments: Any, **how: Any) -> onnx.ModelProto:
            clock.advance("optimize", costs.optimize_s)
            return ScriptedCpu.optimize(self, *arguments, **how)

    written = WeightStore.externalize

    def externalize(store: WeightStore, proto: onnx.ModelProto) -> onnx.ModelProto:
        if "weights" not in clock.spent_s:
            clock.advance("weights", costs.write_s)
        return written(store, proto)

    packed = tuned_model.write_offline_model

    def write_offline_model(*arguments: Any) -> None:
        clock.advance("pack", 3 * costs.write_s)
        packed(*arguments)

    monkeypatch.setattr(tuned_model, "write_offline_model", write_offline_model)
    monkeypatch.setattr(WeightStore, "externalize", externalize)
    run = TimedRun(
        root=tmp_path,
        clock=clock,
        progress=RecordingProgress(),
        costs=costs,
        parts={
            "resolve_target": lambda soc, cores: (TimedCpu(), TimedCpu().describe(cores)),
            "check_toolchain": lambda *_: None,
            "open_runner": runner,
            "profile_model": profiled,
        },
    )
    yield run
    assert profile.profile_runs(10) == 13


SLOW = {
    "all quick": {},
    "loading": {"load_s": 2.5, "run_s": 0.1},
    "running": {"run_s": 0.5},
    "candidates": {"trial_s": 3.0},
    "compiling": {"compile_s": 8.0},
    "linking": {"link_s": 4.0},
    "writing": {"write_s": 2.0},
    "starting": {"process_s": 6.0},
    "everything": {"load_s": 1.5, "run_s": 0.3, "trial_s": 2.0, "compile_s": 2.0, "write_s": 1.0},
}


_EVERYDAY = {("loading", 45.0), ("compiling", 45.0), ("everything", 90.0)}


@pytest.mark.parametrize(
    ("slow", "limit_s"),
    chosen_every_day(((slow, s) for slow in SLOW for s in (45.0, 90.0, 300.0)), _EVERYDAY),
)
def test_limit_holds_whichever_phase_is_slow(
    timed: TimedRun, costs: Costs, slow: str, limit_s: float
) -> None:
    vars(costs).update(SLOW[slow])
    result = timed.tune(limit_s)
    trial_s = costs.trial_s + costs.compile_s + 4.0
    assert timed.clock.now_s <= limit_s * (1 + _SLACK) + trial_s, timed.clock.spent_s
    unpack(result.om_file, timed.root / "unpacked")
    nodes = onnx.load(str(timed.root / "unpacked" / MODEL), load_external_data=False).graph.node
    assert any(node.domain == "aoe" for node in nodes) == bool(result.validation.kept)
    if not result.validation.kept:
        assert result.speedup == 1.0
        assert "time limit" in " ".join(timed.progress.texts("warn")), timed.clock.spent_s


@pytest.mark.parametrize("limit_s", [45.0, 90.0])
def test_limit_holds_where_accuracy_is_traded(
    timed: TimedRun, costs: Costs, limit_s: float
) -> None:
    costs.load_s = 3.0
    timed.tune(limit_s, precision=parse_precision(None, accuracy="cosine>=0.99"))
    assert timed.clock.spent_s["run_model"] > 0
    assert timed.clock.now_s <= limit_s * (1 + _SLACK) + 5.0, timed.clock.spent_s


def test_gain_is_kept_where_the_time_allows_for_a_proof(timed: TimedRun) -> None:
    result = timed.tune(90.0)
    assert result.validation.kept and result.speedup == pytest.approx(1.5, rel=0.01)
    assert timed.progress.texts("warn") == []


def test_large_model_keeps_what_it_gains_within_45_seconds(timed: TimedRun, costs: Costs) -> None:
    # VGG-19 and GPT-2 on 2 cores: 17 s until the operators are known, 0.4 s to load a session
    costs.optimize_s, costs.load_s, costs.run_s = 15.0, 0.4, 0.11
    costs.write_s, costs.process_s, costs.compile_s, costs.trial_s = 0.85, 0.75, 0.8, 0.8
    result = timed.tune(45.0)
    assert result.validation.kept, timed.clock.spent_s
    assert result.validation.estimate.low > 1
    assert timed.clock.spent_s["measure_candidates"] > 5.0  # half a dozen first guesses
    assert timed.clock.now_s <= 45.0 * (1 + _SLACK)


def test_without_a_limit_nothing_is_cut_short(timed: TimedRun, costs: Costs) -> None:
    costs.load_s, costs.run_s = 2.0, 0.2
    result = timed.tune(None)
    assert result.validation.kept
    assert result.tuned_profile.runs == 10


def test_what_there_was_no_time_to_judge_is_judged_by_the_next_run(
    timed: TimedRun, costs: Costs
) -> None:
    usual = replace(costs)
    costs.load_s = 25.0  # not even one process fits
    first = timed.tune(60.0)
    assert first.validation.kept == () and "time limit" in first.validation.undecided
    assert "--lookup_only takes it unmeasured" in " ".join(timed.progress.texts("warn"))
    costs.load_s = usual.load_s
    second = timed.tune(600.0)
    assert second.validation.kept


@pytest.mark.parametrize(("link_s", "is_reported"), [(1.0, False), (200.0, True)])
def test_run_beyond_its_limit_says_what_took_the_time(
    timed: TimedRun, costs: Costs, link_s: float, is_reported: bool
) -> None:
    costs.link_s = link_s  # a linker is not interrupted
    timed.tune(90.0)
    told = [text for text in timed.progress.texts("warn") if "time limit of 90 s" in text]
    assert bool(told) is is_reported
    if told:
        assert re.match(r"took \d{3} s with a time limit of 90 s: 2\d\d s judge, ", told[0])


# ---- early proofs ----


@pytest.fixture
def searched(timed: TimedRun, costs: Costs) -> TimedRun:
    """Return a run whose search takes longer than its limit."""
    costs.trial_s, timed.net = 1.0, partial(separate_chains_net, 12)
    return timed


def _moments(timed: TimedRun) -> list[tuple[float, str]]:
    """Return the steps a run tells, from now on, with the seconds at which it tells them."""
    moments: list[tuple[float, str]] = []
    tell = timed.progress.step

    def step(text: str) -> None:
        moments.append((timed.clock.now_s, text))
        tell(text)

    timed.progress.step = step
    return moments


@pytest.mark.parametrize(
    ("limit_s", "accuracy"), [(45.0, None), (90.0, None), (90.0, "cosine>=0.99")]
)
def test_proven_model_is_there_from_the_first_third_of_the_limit(
    searched: TimedRun, limit_s: float, accuracy: str | None
) -> None:
    moments = _moments(searched)
    result = searched.tune(limit_s, precision=parse_precision(None, accuracy=accuracy))
    written = [at_s for at_s, text in moments if text.startswith("writing")]
    assert len(written) > 1 and written[0] <= limit_s * (1 / 3 + _SLACK) + 2.0
    assert result.validation.kept and searched.clock.now_s <= limit_s * (1 + _SLACK)


def test_model_is_proven_early_only_with_the_accuracy_asked_for(searched: TimedRun) -> None:
    """The results of a model with kernels are off, but for the imported one's."""
    moments = _moments(searched)
    searched.results = lambda part: np.ones(3) * (1 + 0.1 * np.arange(3) * ("variant" in str(part)))
    result = searched.tune(90.0, precision=parse_precision(None, accuracy="cosine>=0.999"))
    early = [text for _, text in moments if text.startswith("not proven faster yet")]
    assert early and "accuracy" in early[0], moments
    assert not any(text.startswith("proven so far") for _, text in moments)
    assert result.validation.accuracy is not None and not result.validation.accuracy.is_kept


def test_form_that_was_proven_keeps_its_gain_where_no_time_is_left_for_the_whole(
    searched: TimedRun, costs: Costs
) -> None:
    file = int8_model(searched.root)
    searched.net = lambda: onnx.load(str(file))

    def us(part: ModelPart) -> float:
        return (
            4.0 if int8_activations(onnx.load(str(part.model), load_external_data=False)) else 2.0
        )

    searched.model = lambda baseline, tuned: us(baseline) / us(tuned)
    told = searched.progress.step

    def step(text: str) -> None:
        told(text)
        if text.startswith("proven so far: 2.00x"):
            costs.load_s = 40.0

    searched.progress.step = step
    result = searched.tune(90.0)
    assert not result.validation.kept
    assert result.speedup == pytest.approx(2.0, rel=0.01)
    warned = " ".join(searched.progress.texts("warn"))
    assert "stays without kernels" in warned and "no gain is claimed" not in warned


@pytest.mark.parametrize("ends_at", ["trying the whole model", "judging"])
def test_model_in_a_faster_form_is_written_at_once_and_with_kernels_early(
    searched: TimedRun, ends_at: str
) -> None:
    file = int8_model(searched.root)
    searched.net = lambda: onnx.load(str(file))

    def us(part: ModelPart) -> float:
        proto = onnx.load(str(part.model), load_external_data=False)
        return (4.0 if int8_activations(proto) else 2.0) / (1.5 if part.library else 1.0)

    searched.model = lambda baseline, tuned: us(baseline) / us(tuned)
    moments = _moments(searched)
    told = searched.progress.step

    def step(text: str) -> None:
        told(text)
        if text.startswith(ends_at):
            raise KeyboardInterrupt

    searched.progress.step = step
    with pytest.raises(KeyboardInterrupt):
        searched.tune(90.0)
    proven = [text for _, text in moments if text.startswith("proven so far")]
    assert proven[0] == "proven so far: 2.00x by int8 activations written as uint8"
    with_kernels = {"proven so far: 3.00x"} if ends_at == "judging" else set()
    assert {text[:20] for text in proven[1:]} == with_kernels
    (om_file,) = (searched.root / "out").glob("*.om")
    unpack(om_file, searched.root / "unpacked")
    tuned = onnx.load(str(searched.root / "unpacked" / MODEL), load_external_data=False)
    assert not int8_activations(tuned)
    assert any(node.domain == "aoe" for node in tuned.graph.node) == bool(with_kernels)
    (report,) = (searched.root / "out").glob("aoe_result_opat_*.json")
    improved = json.loads(report.read_text())[1]["OPAT"]["model_performance_improvement"]
    assert float(improved.removesuffix("%")) == pytest.approx(200 if with_kernels else 100, abs=2)


def test_run_that_ends_before_its_last_comparison_leaves_the_model_proven_early(
    searched: TimedRun,
) -> None:
    """As by Ctrl-C or a signal: the file is the last one that was written."""

    def step(text: str) -> None:
        if "judging" in text:
            raise KeyboardInterrupt

    searched.progress.step = step
    with pytest.raises(KeyboardInterrupt):
        searched.tune(90.0)
    (om_file,) = (searched.root / "out").glob("*.om")
    unpack(om_file, searched.root / "unpacked")
    nodes = onnx.load(str(searched.root / "unpacked" / MODEL), load_external_data=False).graph.node
    assert any(node.domain == "aoe" for node in nodes)
    (report,) = (searched.root / "out").glob("aoe_result_opat_*.json")
    section = json.loads(report.read_text())[1]["OPAT"]
    assert section["opat_tuning_result"] == "tuning incomplete"
    improved = section["model_performance_improvement"]
    assert float(improved.removesuffix("%")) == pytest.approx(50, abs=1)
    assert any(f"is proven, {improved} faster" in text for text in searched.progress.texts("warn"))


@pytest.mark.parametrize("later", [0.8, math.inf])
def test_last_comparison_that_proves_nothing_leaves_the_model_proven_early(
    searched: TimedRun, costs: Costs, later: float
) -> None:
    is_over = [False]
    moments = _moments(searched)
    tell = searched.progress.step

    def step(text: str) -> None:
        tell(text)
        if "judging" in text:
            is_over[0] = True
            costs.load_s = 100.0 if math.isinf(later) else costs.load_s

    searched.progress.step = step
    searched.model = lambda *_: later if is_over[0] else 1.5
    result = searched.tune(90.0)
    assert result.validation.kept
    assert result.speedup == pytest.approx(1.5, rel=0.01)
    assert any("the model proven before stays" in text for _, text in moments)
    unpack(result.om_file, searched.root / "unpacked")
    nodes = onnx.load(str(searched.root / "unpacked" / MODEL), load_external_data=False).graph.node
    assert any(node.domain == "aoe" for node in nodes)


def test_kernel_that_loses_in_the_model_is_put_back_with_its_times(searched: TimedRun) -> None:
    """Of all kernels, one takes 900 us among its neighbours, for nodes of 10 us each."""
    slow: list[str] = []

    def node_us(part: ModelPart) -> dict[str, float]:
        nodes = onnx.load(str(part.model), load_external_data=False).graph.node
        slow.extend(node.name for node in nodes if node.domain == "aoe" and not slow)
        return {node.name: 900.0 if node.name in slow else 10.0 for node in nodes}

    searched.node_us = node_us
    result = searched.tune(60.0)
    put_back = [one for one in result.validation.drops.values() if "in the model" in one.reason]
    assert result.validation.kept and len(put_back) == 1 and not put_back[0].is_final
    assert "takes 900 us for what takes 20 us without it" in put_back[0].reason
    steps = searched.progress.texts("step")
    (told,) = {text for text in steps if text.startswith("put back")}
    assert put_back[0].reason in told
    assert any(text.startswith("in the model ") and "by its profiles" in text for text in steps)


@pytest.mark.parametrize(("chains", "profiles"), [(1, False), (2, True)])
def test_kernel_that_stands_alone_is_not_profiled_in_the_model(
    timed: TimedRun, chains: int, profiles: bool
) -> None:
    timed.net = partial(separate_chains_net, chains)
    result = timed.tune(20.0)
    assert len(result.validation.kept) == chains
    assert ("profile_models" in timed.clock.spent_s) is profiles


@pytest.mark.parametrize(("kernel_us", "tries"), [(19.6, 0), (10.0, 1)])
def test_early_proof_is_left_out_where_profiles_show_too_little(
    searched: TimedRun, kernel_us: float, tries: int
) -> None:
    """Alone every kernel is 2x as fast as what it replaces, two nodes of 10 us."""

    def node_us(part: ModelPart) -> dict[str, float]:
        nodes = onnx.load(str(part.model), load_external_data=False).graph.node
        return {node.name: kernel_us if node.domain == "aoe" else 10.0 for node in nodes}

    searched.node_us = node_us
    result = searched.tune(60.0)
    steps = searched.progress.texts("step")
    assert sum(text.startswith("trying the whole model with") for text in steps) == tries
    too_little = [text for text in steps if "profiles of the model show" in text]
    assert bool(too_little) == (tries == 0)
    assert result.validation.kept  # the last comparison decides either way


@pytest.mark.parametrize(("chains", "tries"), [(48, 0), (12, 1)])
def test_early_proof_that_cannot_prove_what_kernels_promise_is_left_out(
    searched: TimedRun, costs: Costs, chains: int, tries: int
) -> None:
    """Three processes fit a quarter of this minute, which prove 1.24x.

    A kernel saves half of its operator. Those found in time save too little of 48 operators
    together, and enough of twelve.
    """
    searched.net, costs.load_s = partial(separate_chains_net, chains), 1.6
    searched.tune(60.0)
    steps = searched.progress.texts("step")
    assert sum(text.startswith("trying the whole model with") for text in steps) == tries
    assert sum(text.startswith("compiling") for text in steps) == tries + 1  # the last comparison


@pytest.mark.parametrize(("load_s", "run_s"), [(2.0, 0.1), (1.0, 0.3)])
def test_gain_of_a_tenth_is_decided_in_a_minute(
    searched: TimedRun, costs: Costs, load_s: float, run_s: float
) -> None:
    """Four processes prove it; the time of as many is kept, however much there is to search."""
    costs.load_s, costs.run_s, costs.process_s = load_s, run_s, 1.0
    searched.model = lambda *_: 1.1
    result = searched.tune(60.0)
    assert result.validation.kept, result.validation.undecided
    assert result.validation.processes >= 4
    assert searched.clock.now_s <= 60.0 * (1 + _SLACK)


@pytest.mark.parametrize("limit_s", few_every_day([22.0, 24.0, 26.0, 28.0], 2))
def test_gain_of_a_tenth_with_long_calls_is_decided_in_a_short_time(
    searched: TimedRun, costs: Costs, limit_s: float
) -> None:
    """BERT of six layers on one thread of two cores: 6 s until its operators are known.

    Where two or three processes fit the limit, four decide a little behind it.
    """
    costs.optimize_s, costs.load_s, costs.run_s, costs.write_s = 4.0, 0.35, 0.137, 0.3
    costs.process_s, costs.compile_s, costs.link_s, costs.trial_s = 0.4, 0.4, 0.4, 1.5
    searched.model = lambda *_: 1.117
    result = searched.tune(limit_s)
    assert result.validation.kept, (result.validation.undecided, searched.clock.spent_s)
    assert result.validation.processes == HURRIED_PROCESSES
    assert searched.clock.now_s <= _beyond(limit_s), searched.clock.spent_s


@pytest.mark.parametrize("slower", few_every_day([2.0, 4.0, 6.0, 8.0], 2))
@pytest.mark.parametrize(("load_s", "run_s", "chains"), [(0.4, 0.02, 24), (1.0, 0.3, 12)])
@pytest.mark.parametrize("limit_s", [60.0, 120.0])
def test_what_was_found_is_compared_however_slow_the_machine_becomes(
    searched: TimedRun,
    costs: Costs,
    limit_s: float,
    load_s: float,
    run_s: float,
    chains: int,
    slower: float,
) -> None:
    """The first profile says what a comparison takes; then others come to the machine."""
    searched.net = partial(separate_chains_net, chains)
    costs.load_s, costs.run_s = load_s, run_s
    profiled = searched.parts["profile_model"]

    def profile(*arguments: Any, **how: Any) -> ModelProfile:
        found: ModelProfile = profiled(*arguments, **how)
        if costs.load_s == load_s:
            for name in ("load_s", "run_s", "link_s", "process_s", "trial_s", "compile_s"):
                setattr(costs, name, slower * getattr(costs, name))
        return found

    searched.parts["profile_model"] = profile
    result = searched.tune(limit_s)
    assert result.validation.kept, (result.validation.undecided, searched.clock.spent_s)
    assert result.speedup == pytest.approx(1.5, rel=0.02)
    assert searched.clock.now_s <= _beyond(limit_s), searched.clock.spent_s


# ---- beside another run ----


@pytest.mark.parametrize("turns_before", [0, 1])
def test_run_that_has_no_turn_before_its_limit_ends_with_a_word(
    timed: TimedRun, turns_before: int
) -> None:
    timed.waiting_s, timed.turns_before = 500.0, turns_before
    with pytest.raises(TurnTimeoutError, match="over before the cores were free"):
        timed.tune(60.0)
    assert timed.clock.now_s <= 60.0 * (1 + _SLACK)


@pytest.mark.parametrize("turns_before", few_every_day([2, 3, 4, 6, 8, 10], 3))
@pytest.mark.parametrize("waiting_s", [20.0, 500.0])
def test_limit_holds_wherever_another_run_is_waited_for(
    timed: TimedRun, turns_before: int, waiting_s: float
) -> None:
    timed.waiting_s, timed.turns_before = waiting_s, turns_before
    timed.tune(60.0)
    assert timed.clock.now_s <= 60.0 * (1 + _SLACK) + 5.0, timed.clock.spent_s
    timed.waiting_s = 0.0
    again = timed.tune(600.0)  # nothing that was not measured is remembered
    assert again.validation.kept
