"""A script is cut into training steps and never notices."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.join import Join  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from aoe.errors import EndedEarlyError, LeftAloneError, OptionError, RunError  # noqa: E402
from aoe.torch.ddp.script_run import StepGate, TrainingScript  # noqa: E402
from aoe.torch.scripts.main_program import run_script  # noqa: E402

Step = Callable[[], None]
GRADIENT_HOOKS = attrgetter("_post_accumulate_grad_hooks")
"""PyTorch has no public name for them."""


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Be a process group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Script:
    """Training steps that count themselves."""

    def __init__(self) -> None:
        self.ddp = DistributedDataParallel(nn.Linear(4, 4))
        self.forwards = 0

    def forward(self, ddp: Any = None) -> Any:
        """Run a forward."""
        self.forwards += 1
        return (ddp or self.ddp)(torch.ones(1, 4)).sum()

    def train(self, steps: int) -> None:
        """Run whole steps."""
        for _ in range(steps):
            self.forward().backward()


def run_gate(tune: Callable[[Any, Step], Any], script: Callable[[], None]) -> StepGate[Any]:
    """Run a script under a gate."""
    gate: StepGate[Any] = StepGate(tune)
    with gate.watching():
        script()
    return gate


def test_tuner_runs_exactly_the_steps_it_asks_for() -> None:
    script, seen = Script(), []

    def tune(ddp: Any, step: Step) -> str:
        assert ddp is script.ddp
        for _ in range(3):
            before = script.forwards
            step()
            seen.append(script.forwards - before)
        return "done"

    gate = run_gate(tune, lambda: script.train(10))
    assert gate.result == "done" and gate.error is None
    assert seen == [1, 1, 1] and script.forwards == 10


def test_tuner_begins_behind_the_steps_its_script_runs_alone() -> None:
    script, seen = Script(), []
    gate: StepGate[None] = StepGate(lambda ddp, step: seen.append(script.forwards), warmup_steps=5)
    with gate.watching():
        script.train(8)
    assert gate.is_tuned and seen == [6]  # the sixth forward waits


def test_script_is_still_while_the_tuner_works() -> None:
    script = Script()
    at_rest = []

    def tune(ddp: Any, step: Step) -> None:
        for _ in range(3):
            before = script.forwards
            threading.Event().wait(0.02)
            at_rest.append(script.forwards == before)
            step()

    run_gate(tune, lambda: script.train(8))
    assert at_rest == [True] * 3


def _accumulated(script: Script) -> None:
    with script.ddp.no_sync():
        script.forward().backward()
        script.forward().backward()
    script.forward().backward()


def _two_losses(script: Script) -> None:
    (script.forward() + script.forward()).backward()


def _evaluated(script: Script) -> None:
    script.train(1)
    with torch.no_grad():
        script.forward()


@pytest.mark.parametrize(
    ("train", "forwards"), [(_accumulated, 3), (_two_losses, 2), (_evaluated, 2)]
)
def test_all_forwards_around_one_reduction_belong_to_one_step(
    train: Callable[[Script], None], forwards: int
) -> None:
    script, seen = Script(), []

    def tune(ddp: Any, step: Step) -> None:
        for _ in range(2):
            before = script.forwards
            step()
            seen.append(script.forwards - before)

    run_gate(tune, lambda: [train(script) for _ in range(8)])  # type: ignore[arg-type, return-value]
    assert seen == [forwards] * 2


def test_first_model_that_trains_is_the_tuned_one_and_others_run_along() -> None:
    script, other = Script(), DistributedDataParallel(nn.Linear(4, 4))
    tuned = []

    def train() -> None:
        for _ in range(6):
            script.forward().backward()
            script.forward(other).backward()

    run_gate(lambda ddp, step: (tuned.append(ddp), step(), step()), train)
    assert tuned == [script.ddp]


def test_error_of_the_tuner_ends_the_script() -> None:
    script = Script()

    def tune(ddp: Any, step: Step) -> None:
        step()
        raise RunError("bank", "full")

    with pytest.raises(RunError, match="bank: full"):
        run_gate(tune, lambda: script.train(10))
    assert script.forwards < 10


def test_script_that_ends_early_ends_the_tuner() -> None:
    script = Script()

    def tune(ddp: Any, step: Step) -> None:
        while True:
            step()

    gate = run_gate(tune, lambda: script.train(6))
    assert isinstance(gate.error, RunError)
    assert "ended after 5 steps, before tuning was finished" in str(gate.error)
    assert not any(thread.name == "aoe-gradients" for thread in threading.enumerate())


def test_error_of_the_script_comes_through_and_ends_the_tuner() -> None:
    script = Script()

    def train() -> None:
        script.train(5)
        raise KeyError("label")

    with pytest.raises(KeyError, match="label"):
        run_gate(lambda ddp, step: [step() for _ in range(100)], train)
    assert not any(thread.name == "aoe-gradients" for thread in threading.enumerate())


def test_tuner_that_returns_nothing_has_tuned() -> None:
    """As it does in every process but the first."""
    gate = run_gate(lambda ddp, step: step(), lambda: Script().train(4))
    assert gate.is_tuned and gate.result is None


def test_script_without_ddp_is_not_tuned() -> None:
    gate = run_gate(lambda ddp, step: "done", lambda: None)
    assert not gate.is_tuned and gate.error is None and gate.steps == 0


def _refuse(ddp: Any, step: Step) -> None:
    raise OptionError("model", "cannot be tuned")


@pytest.mark.parametrize("tune", [lambda ddp, step: step(), _refuse])
def test_script_that_is_not_to_go_on_ends_however_often_it_catches_that(
    tune: Callable[[Any, Step], None],
) -> None:
    script, ends = Script(), []
    gate: StepGate[None] = StepGate(tune, ends_script=True)
    with gate.watching():
        for _ in range(10):
            try:
                script.train(1)
            except SystemExit as end:
                ends.append(end.code)
    assert len(ends) >= 6 and set(ends) == {0}
    assert gate.is_tuned == (gate.error is None)


def test_script_that_is_not_to_go_on_ends_where_its_inputs_do() -> None:
    script = Script()
    gate: StepGate[None] = StepGate(lambda ddp, step: step(), ends_script=True)
    with pytest.raises(SystemExit), gate.watching(), Join([script.ddp]):
        script.train(1)
    assert isinstance(gate.error, LeftAloneError)


def test_nothing_is_left_behind() -> None:
    forward = DistributedDataParallel.forward
    script = Script()
    run_gate(lambda ddp, step: step(), lambda: script.train(6))
    assert DistributedDataParallel.forward is forward
    assert not any(map(GRADIENT_HOOKS, script.ddp.parameters()))


def test_model_is_kept_until_the_process_ends() -> None:
    """With it goes the process group, and that may wait for threads that wait for the GIL."""
    kept = []

    def script() -> None:
        made = Script()
        kept.append(weakref.ref(made.ddp))
        made.train(4)

    run_gate(lambda ddp, step: step(), script)
    gc.collect()
    assert kept[0]() is not None


def test_script_that_trains_too_little_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('nothing to train')")
    with pytest.raises(RunError, match=r"train\.py: ended after 0 training steps"):
        TrainingScript(path=tmp_path / "train.py").run(lambda training: "tuned")


@pytest.mark.parametrize(("given", "expected"), [(0, 3), (7, 7)])
def test_script_that_trains_too_little_ends_with_its_own_failure(
    tmp_path: Path, given: int, expected: int
) -> None:
    (tmp_path / "train.py").write_text(f"import sys; sys.exit({given})")
    with pytest.raises(RunError, match="ended after 0 training steps") as caught:
        TrainingScript(path=tmp_path / "train.py").run(lambda training: "tuned")
    assert caught.value.exit_code == expected


_TRAIN = """
import torch
from torch.nn.parallel import DistributedDataParallel
ddp = DistributedDataParallel(torch.nn.Linear(4, 4))
for _ in range(6):
    ddp(torch.ones(1, 4)).sum().backward()
"""


@pytest.mark.filterwarnings("ignore:not tuned")
@pytest.mark.parametrize(("goes_on", "code"), [(True, 0), (False, 3)])
def test_script_left_alone_is_a_failure_only_of_what_would_have_ended_it(
    tmp_path: Path, goes_on: bool, code: int
) -> None:
    (tmp_path / "train.py").write_text(_TRAIN)
    script = TrainingScript(path=tmp_path / "train.py", goes_on=goes_on)
    with pytest.raises(OptionError, match="one process reduces nothing") as caught:
        script.run(lambda training: "tuned")
    assert caught.value.exit_code == code


@pytest.mark.parametrize(("goes_on", "code"), [(True, 0), (False, 3)])
def test_script_that_is_too_short_is_a_failure_only_of_what_would_have_ended_it(
    tmp_path: Path, goes_on: bool, code: int
) -> None:
    (tmp_path / "train.py").write_text(_TRAIN.replace("range(6)", "range(2)"))
    script = TrainingScript(path=tmp_path / "train.py", goes_on=goes_on)
    with pytest.raises(EndedEarlyError, match="ended after 1 training steps") as caught:
        script.run(lambda training: "tuned")
    assert caught.value.exit_code == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(5)", 5),
        ("import sys; sys.exit('no')", 1),
        ("import sys; assert sys.argv[1:] == ['--a', 'b c'], sys.argv", 0),
        ("import beside; assert __name__ == '__main__'", 0),
    ],
)
def test_script_runs_as_python_runs_it(
    tmp_path: Path, text: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "train.py").write_text(text)
    assert run_script(tmp_path / "train.py", ["--a", "b c"]) == code


@pytest.mark.parametrize("text", ["1 / 0", "import not_there", "def", "raise ValueError('x')"])
def test_script_that_fails_is_an_error_with_its_traceback(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(text)
    with pytest.raises(RunError, match=r"train\.py: failed: ") as caught:
        run_script(tmp_path / "train.py", [])
    assert caught.value.exit_code == 1
    assert "Traceback" in capsys.readouterr().err
