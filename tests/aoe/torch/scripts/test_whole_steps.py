"""Whole steps of a script take turns between PyTorch and what was tuned."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import aoe.torch  # noqa: E402
from aoe.errors import FallbackWarning  # noqa: E402
from aoe.measurement import CpuUse  # noqa: E402
from aoe.settings import environment  # noqa: E402
from aoe.torch.scripts.compiling import compiled_form  # noqa: E402
from aoe.torch.scripts.regions import TunedGraph  # noqa: E402
from aoe.torch.scripts.running import TunedScript  # noqa: E402
from aoe.torch.scripts.whole_steps import (  # noqa: E402
    COMPARED_STEPS,
    SETTLED_STEPS,
    StepGain,
    StepOutcome,
    WholeSteps,
)

ALL = SETTLED_STEPS + COMPARED_STEPS


class Scripted:
    """A training whose steps take a time each way, by a clock of their own."""

    def __init__(self, *, pytorch_s: float, tuned_s: float) -> None:
        self.is_tuned = True
        self.gains: list[StepGain] = []
        self.turns: list[bool] = []  # Of each step, True as tuned
        self.earlier: StepGain | None = None
        self.has = True
        self._seconds = {True: tuned_s, False: pytorch_s}
        self._now_s = 0.0
        self.steps = WholeSteps(self, usage=self._usage)

    def _usage(self) -> CpuUse:
        return CpuUse(wall_s=self._now_s, cpu_s=self._now_s)

    def step(self, *optimizers: Any, noise: float = 1.0) -> None:
        """Take a step that ends with those of optimizers."""
        self.turns.append(self.is_tuned)
        self._now_s += self._seconds[self.is_tuned] * noise
        for one in optimizers:
            self.steps.end_step(one)

    def has_tuned(self) -> bool | None:
        return self.has

    def use(self, *, is_tuned: bool) -> None:
        self.is_tuned = is_tuned

    def known(self) -> StepGain | None:
        return self.earlier

    def decided(self, gain: StepGain) -> None:
        self.gains.append(gain)


def _optimizer() -> Any:
    return torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.1)


def test_pairs_of_steps_are_compared_in_turned_order_behind_the_first_ones() -> None:
    training, optimizer = Scripted(pytorch_s=3.0, tuned_s=2.0), _optimizer()
    for _ in range(ALL):
        training.step(optimizer)
    first, then = training.turns[:SETTLED_STEPS], training.turns[SETTLED_STEPS:]
    assert all(first)
    told = "".join("T" if one else "P" for one in then)
    assert told.startswith("TP" + "PTTPPTTPPTTPPTTP") and set(told[18:]) == {"T"}
    (gain,) = training.gains
    assert gain.outcome is StepOutcome.FASTER and gain.estimate.median == pytest.approx(1.5)
    assert "1.50x (1.50 to 1.50, 8 pairs, 3000 ms in PyTorch)" in training.steps.line


@pytest.mark.parametrize(
    ("tuned_s", "outcome", "words"),
    [
        (2.0, StepOutcome.SLOWER, "slower as tuned: everything is PyTorch's again"),
        (1.0, StepOutcome.UNDECIDED, "undecided: it stays as the passes have decided"),
    ],
)
def test_steps_that_do_not_gain_say_what_becomes_of_them(
    tuned_s: float, outcome: StepOutcome, words: str
) -> None:
    training, optimizer = Scripted(pytorch_s=1.0, tuned_s=tuned_s), _optimizer()
    noise = (1.0, 1.1, 0.9, 1.2, 0.8)
    for number in range(ALL + 4):
        training.step(optimizer, noise=noise[number % 5])
    (gain,) = training.gains
    assert gain.outcome is outcome and words in training.steps.line
    assert all(training.turns[ALL:])  # whatever `decided` makes of it, no turns are left


def test_script_that_ends_early_has_the_pairs_there_are() -> None:
    training, optimizer = Scripted(pytorch_s=3.0, tuned_s=2.0), _optimizer()
    for _ in range(SETTLED_STEPS + 2 + 5):
        training.step(optimizer)
    training.steps.close()
    assert training.is_tuned
    (gain,) = training.gains
    assert gain.estimate.pairs == 2 and gain.outcome is StepOutcome.UNDECIDED


@pytest.mark.parametrize("steps", [1, SETTLED_STEPS - 1, SETTLED_STEPS, SETTLED_STEPS + 3])
def test_script_without_a_pair_is_told_so(steps: int) -> None:
    training, optimizer = Scripted(pytorch_s=3.0, tuned_s=2.0), _optimizer()
    for _ in range(steps):
        training.step(optimizer)
    training.steps.close()
    assert training.is_tuned and not training.gains
    assert training.steps.line.startswith("whole steps: not compared, the script ended")


def test_steps_of_nothing_tuned_are_not_compared() -> None:
    training, optimizer = Scripted(pytorch_s=3.0, tuned_s=2.0), _optimizer()
    training.has = False
    for _ in range(ALL):
        training.step(optimizer)
    training.steps.close()
    assert all(training.turns) and not training.steps.line


def test_what_an_earlier_run_has_found_takes_no_turns() -> None:
    found, optimizer = Scripted(pytorch_s=3.0, tuned_s=2.0), _optimizer()
    for _ in range(ALL):
        found.step(optimizer)
    again = Scripted(pytorch_s=3.0, tuned_s=2.0)
    (again.earlier,) = found.gains
    for _ in range(ALL):
        again.step(optimizer)
    assert all(again.turns) and again.gains == [again.earlier]


def test_optimizers_in_turns_are_one_step_of_the_rarer_one() -> None:
    training = Scripted(pytorch_s=3.0, tuned_s=2.0)
    often, rarely = _optimizer(), _optimizer()
    for number in range(6 * ALL):
        training.step(often, *([rarely] if number % 5 == 4 else []))
    parts = [set(training.turns[at : at + 5]) for at in range(0, len(training.turns), 5)]
    assert all(len(part) == 1 for part in parts)  # no turn ends within a step
    (gain,) = training.gains
    assert gain.eager_ms == 15e3


def test_optimizer_that_steps_no_more_ends_the_comparison_as_tuned() -> None:
    training = Scripted(pytorch_s=3.0, tuned_s=2.0)
    first, second = _optimizer(), _optimizer()
    for _ in range(SETTLED_STEPS + 2):
        training.step(first)
    for _ in range(40):
        training.step(second)
    assert training.is_tuned and all(training.turns[-20:])


# ---- real steps ----


class Net(nn.Module):  # type: ignore[misc]
    """Has a region in each direction."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(24, 160), nn.Linear(160, 24)

    def forward(self, x: Any) -> Any:
        return self.last(nn.functional.gelu(self.first(x)))


class Chosen(TunedGraph):
    """Uses every kernel that is right, without a clock."""

    made: list[TunedGraph]

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        Chosen.made.append(self)

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        return True

    def graph(self, eager: Callable[[], object], compiled: Callable[[], object]) -> bool:
        return True


class Clock:
    """Gives a step a time by what has computed it: kernels or PyTorch."""

    def __init__(self, *, tuned_s: float) -> None:
        self.turns: list[bool] = []  # Of each step since the first reading, True as tuned
        self._tuned_s, self._now_s, self._calls = tuned_s, 0.0, 0

    def __call__(self) -> CpuUse:
        calls, before = sum(graph.calls for graph in Chosen.made), self._calls
        self.turns.append(calls > before)
        self._now_s += self._tuned_s if calls > before else 1.0
        self._calls = calls
        return CpuUse(wall_s=self._now_s, cpu_s=self._now_s)


@pytest.fixture(autouse=True)
def _afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path))
    threads = torch.get_num_threads()
    dynamo = import_module("torch._dynamo.config")
    torch.set_num_threads(1)
    torch.compiler.reset()
    Chosen.made = []
    with warnings.catch_warnings(), dynamo.patch(suppress_errors=False):
        warnings.simplefilter("ignore", FallbackWarning)
        yield
    torch.compiler.reset()
    torch.set_num_threads(threads)


def _script(folder: Path, clock: Clock) -> TunedScript:
    return TunedScript(
        "train.py",
        {},
        output=Path("result"),
        env=environment(),
        cwd=folder,
        make_graph=Chosen,
        make_steps=partial(WholeSteps, usage=clock),
    )


def _train(net: Any, steps: int = ALL) -> tuple[list[float], list[Any]]:
    """Return the losses of accumulated steps, and which form of the optimizer made them."""
    torch.manual_seed(3)
    optimizer = torch.optim.AdamW(net.parameters())
    losses, forms = [], []
    optimizer.register_step_post_hook(lambda one, *_: forms.append(one.param_groups[0]["fused"]))
    for number in range(steps):
        optimizer.zero_grad()
        if number % 7 == 6:  # what fails between forward and backward is no step
            with pytest.raises(ZeroDivisionError):
                net(torch.randn(96, 24)).mean() / (1 // 0)
        for _ in range(2):
            loss = net(torch.randn(96, 24)).square().mean()
            loss.backward()
        optimizer.step()
        with torch.no_grad():
            net(torch.randn(3, 24))
        losses.append(loss.item())
    return losses, forms


def test_gain_of_whole_steps_is_told_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    net, clock = Net(), Clock(tuned_s=0.5)
    expected, _ = _train(copy.deepcopy(net))
    with _script(tmp_path, clock):
        losses, forms = _train(net)
    assert losses == pytest.approx(expected, rel=1e-4)
    turns = clock.turns[1:]  # the first reading ends no step
    assert turns[:6] == [True, False, False, True, True, False]
    assert [form is True for form in forms[SETTLED_STEPS:]][: len(turns)] == turns
    assert all(forms[SETTLED_STEPS + len(turns) :]) and compiled_form(net) is not None
    told = capsys.readouterr().err
    assert "aoe: whole steps: 2.00x (2.00 to 2.00, 8 pairs, 1000 ms in PyTorch)\n" in told
    result = tmp_path / "result"
    summary = json.loads((result / "summary.json").read_text())
    assert summary["steps"]["speedup"] == {"median": 2.0, "low": 2.0, "high": 2.0}
    assert summary["performance_improvement"] == "100.00%"
    steps = json.loads((result / "training.json").read_text())["steps"]
    assert steps == summary["steps"] and steps["outcome"] == "faster" and not steps["is_known"]
    (file,) = result.glob("aoe_result_opat_*.json")
    (report,) = json.loads(file.read_text()).values()
    assert report[1]["OPAT"]["model_baseline_performance(ms)"] == 1000.0


def test_slower_steps_are_pytorchs_again_and_not_tried_by_the_next_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):
        torch.manual_seed(0)
        net, clock = Net(), Clock(tuned_s=2.0)
        script = _script(tmp_path, clock)
        with script:
            _, forms = _train(net)
        turns = clock.turns[1:]
        assert len(turns) == (18 if number == 0 else 0)
        rest = forms[SETTLED_STEPS + len(turns) :]
        assert compiled_form(net) is None and set(rest) == {None}
        assert not any(graph.is_used for graph in script.training.graphs)
        told = capsys.readouterr().err
        again = " in an earlier run" if number else ""
        assert f"1000 ms in PyTorch){again}, slower as tuned: everything is PyTorch's" in told
        assert "optimizer AdamW: as it is (whole steps are slower with it)" in told
        summary = json.loads((tmp_path / "result" / "summary.json").read_text())
        assert summary["performance_improvement"] == "0.00%" and summary["tuned_ops"] == 0
        torch.compiler.reset()
        Chosen.made = []
    # nor loaded by a script that names its results
    aoe.torch.set_option({"ACL_OP_COMPILER_CACHE_DIR": str(tmp_path / "result")})
    try:
        _train(net, 4)
    finally:
        aoe.torch.set_option({})
    assert compiled_form(net) is None
    assert "modules are trained by PyTorch: whole steps were slower" in capsys.readouterr().err


def test_steps_without_an_optimizer_lie_between_forwards(tmp_path: Path) -> None:
    net, clock = Net(), Clock(tuned_s=0.5)
    script = _script(tmp_path, clock)
    with script:
        for _ in range(ALL + 2):
            net(torch.randn(96, 24)).square().mean().backward()
            with torch.no_grad():
                for one in net.parameters():
                    one -= 0.1 * one.grad
                    one.grad = None
    steps = script.training.steps
    assert steps is not None and steps.gain is not None
    assert steps.gain.outcome is StepOutcome.FASTER


def test_module_that_a_checkpoint_computes_again_is_not_compared(tmp_path: Path) -> None:
    net, clock = Net(), Clock(tuned_s=0.5)
    script = _script(tmp_path, clock)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with script:
        for _ in range(ALL):
            x = torch.randn(96, 24)
            checkpoint(net, x, use_reentrant=False).square().mean().backward()
            optimizer.step()
    steps = script.training.steps
    assert steps is not None and steps.gain is None and not clock.turns
