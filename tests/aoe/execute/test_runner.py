"""The measuring process: whatever happens in it, the parent gets an answer and goes on."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.engine.cpu import CPU, BusyCpu, InterruptingCpu
from support.engine.models import chain_model, make_model, save_model

from aoe.device.forks import NO_TIME
from aoe.device.toolchain import Toolchain
from aoe.errors import RunError, RunTimeoutError, WorkerDiedError
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.execute.tasks import WHOLE_MODELS, ComparedPoint, ComparisonTerms, ModelComparison
from aoe.folders.turns import Turns
from aoe.measurement import Clock, MeasurePolicy, Outcome
from aoe.ort.inputs import MADE_UP, ModelInputs, save_input_sets
from aoe.target import Target
from aoe.workload import Precision

_POLICY = MeasurePolicy(pairs_min=1, pairs_max=1, warmup=0, sample_min_us=0, least_quiet=0)
_LONG_S = 60.0


@pytest.fixture(scope="module")
def plain_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that needs no library."""
    return save_model(chain_model(["Exp"], (1,)), tmp_path_factory.mktemp("m") / "plain.onnx")


def _kernel_model(folder: Path, kernel: str) -> Path:
    node = helper.make_node(kernel, ["x"], ["y"], domain="aoe")
    return save_model(
        make_model([node], {"x": (1,)}, {"y": (1,)}, domains={"aoe": 1}),
        folder / f"{kernel}.onnx",
    )


def _compare(
    runner: Runner,
    baseline: Path,
    tuned: ModelPart,
    timeout_s: float = _LONG_S,
    inputs: ModelInputs = MADE_UP,
    terms: ComparisonTerms = WHOLE_MODELS,
    policy: MeasurePolicy = _POLICY,
) -> Any:
    return runner.call(
        "compare_models",
        timeout_s=timeout_s,
        baseline=ModelPart(model=baseline),
        tuned=tuned,
        policy=policy,
        inputs=inputs,
        terms=terms,
    )


def _assert_works(runner: Runner, model: Path) -> None:
    found = _compare(runner, model, ModelPart(model=model, optimize=False))
    assert isinstance(found, ModelComparison)
    assert found.measurement.outcome is Outcome.CORRECT
    assert found.deviation.max_abs_err == 0


def _worker_pid(runner: Runner) -> int:
    assert runner.process is not None
    return runner.process


def _ends(pid: int, timeout_s: float = 20.0) -> bool:
    """Return True once a process has ended, a zombie included."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)


def test_comparison_tells_the_memory_of_both_sessions(runner: Runner, plain_model: Path) -> None:
    memory = _compare(runner, plain_model, ModelPart(model=plain_model)).memory
    if memory is None:
        pytest.skip("the system does not say")
    for use in (memory.baseline, memory.tuned):
        assert 0 <= use.resident_bytes < 64 << 20
        assert use.peak_bytes is None or use.peak_bytes >= use.resident_bytes


def test_models_are_compared_in_streams_at_the_same_time(runner: Runner, plain_model: Path) -> None:
    terms = ComparisonTerms(streams=2)
    found = _compare(runner, plain_model, ModelPart(model=plain_model), terms=terms)
    assert found.measurement.outcome is Outcome.CORRECT
    assert len(found.measurement.tuned_us) == 1


def test_two_threads_of_a_busy_machine_are_judged_by_cpu_time_of_threads_that_sleep(
    target: Target, toolchain: Toolchain, plain_model: Path
) -> None:
    policy = MeasurePolicy(pairs_min=10, pairs_max=10, warmup=0, threads=2)
    with Runner(BusyCpu(), replace(target, core_num=2), toolchain) as runner:
        plain = ModelPart(model=plain_model)
        found = _compare(runner, plain_model, plain, policy=policy).measurement
        assert (found.clock, found.counts, found.load.is_quiet) == (Clock.CPU, True, False)
        assert len(found.tuned_cpu_us) == len(found.tuned_us) == 10
        waiting = _compare(runner, plain_model, plain, policy=replace(policy, least_quiet=0.0))
        assert (waiting.measurement.clock, waiting.measurement.counts) == (Clock.WALL, True)


def test_calls_share_one_worker(runner: Runner, plain_model: Path) -> None:
    _assert_works(runner, plain_model)
    first = _worker_pid(runner)
    _assert_works(runner, plain_model)
    assert _worker_pid(runner) == first


def test_different_results_are_told(runner: Runner, plain_model: Path, tmp_path: Path) -> None:
    other = save_model(chain_model(["Neg"], (1,)), tmp_path / "other.onnx")
    found = _compare(runner, plain_model, ModelPart(model=other))
    assert found.measurement.outcome is Outcome.CORRECTNESS
    assert not found.deviation.acceptable
    assert found.measurement.tuned_us


def test_error_the_engine_knows_keeps_its_message(
    runner: Runner, plain_model: Path, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.onnx"
    with pytest.raises(RunError, match=r"missing\.onnx: ONNX Runtime cannot load it") as caught:
        _compare(runner, plain_model, ModelPart(model=missing))
    assert "Traceback" not in str(caught.value)
    _assert_works(runner, plain_model)


def test_error_keeps_got_expected_and_hint(runner: Runner, tmp_path: Path) -> None:
    model = save_model(chain_model(["Exp"], ("n",)), tmp_path / "open.onnx")
    with pytest.raises(RunError, match=r"input x: no random value .*got tensor\(float\)") as caught:
        _compare(runner, model, ModelPart(model=model))
    assert caught.value.hint == "give a file: --input x:x.npy"


def test_unknown_error_arrives_with_its_traceback(runner: Runner, plain_model: Path) -> None:
    with pytest.raises(RunError, match="no_such_task: failed in the worker") as caught:
        runner.call("no_such_task", timeout_s=_LONG_S)
    assert "KeyError" in str(caught.value)
    _assert_works(runner, plain_model)


def test_crash_is_an_error_with_its_cause_and_the_next_call_works(
    runner: Runner, plain_model: Path, abi_library: Path, tmp_path: Path
) -> None:
    deadly = ModelPart(model=_kernel_model(tmp_path, "crash"), library=abi_library, optimize=False)
    with pytest.raises(RunError, match="the worker ended with signal 11"):
        _compare(runner, plain_model, deadly)
    _assert_works(runner, plain_model)


def test_hang_is_a_timeout_and_the_next_call_works(
    runner: Runner, plain_model: Path, abi_library: Path, tmp_path: Path
) -> None:
    _assert_works(runner, plain_model)
    pid = _worker_pid(runner)
    hanging = ModelPart(model=_kernel_model(tmp_path, "hang"), library=abi_library, optimize=False)
    with pytest.raises(RunTimeoutError, match="no answer from the worker") as caught:
        _compare(runner, plain_model, hanging, timeout_s=0.5)
    assert isinstance(caught.value, TimeoutError)
    assert _ends(pid)
    _assert_works(runner, plain_model)


def test_killed_worker_is_replaced_at_the_next_call(runner: Runner, plain_model: Path) -> None:
    _assert_works(runner, plain_model)
    pid = _worker_pid(runner)
    os.kill(pid, signal.SIGKILL)
    assert _ends(pid)
    _assert_works(runner, plain_model)
    assert _worker_pid(runner) != pid


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_worker_leaves_signals_of_the_group_to_its_parent(
    runner: Runner, plain_model: Path, number: signal.Signals
) -> None:
    _assert_works(runner, plain_model)
    pid = _worker_pid(runner)
    os.kill(pid, number)
    _assert_works(runner, plain_model)
    assert _worker_pid(runner) == pid


def test_answer_of_an_interrupted_call_is_never_taken_for_the_next_one_s(
    target: Target, toolchain: Toolchain, plain_model: Path, tmp_path: Path
) -> None:
    other = save_model(chain_model(["Neg"], (1,)), tmp_path / "other.onnx")
    device = InterruptingCpu()
    with Runner(device, target, toolchain, look_s=0.0) as own:
        device.interrupts.append(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            _compare(own, plain_model, ModelPart(model=other))
        _assert_works(own, plain_model)


def test_arguments_that_cannot_be_sent_spoil_nothing(runner: Runner, plain_model: Path) -> None:
    with pytest.raises((TypeError, AttributeError)):
        runner.call("compare_models", timeout_s=_LONG_S, baseline=lambda: None)
    _assert_works(runner, plain_model)


class _LateTurns(Turns):
    """Cores another run keeps for a moment."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(None, ())
        self._wait_s = wait_s

    @contextmanager
    def compiling(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[None]:
        time.sleep(self._wait_s)
        yield


def test_waiting_for_the_cores_takes_of_the_time_to_compile(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    with Runner(CPU, target, toolchain, _LateTurns(0.3)) as own:
        kernels = [("never_begun", {}, {})]
        found = own.call(
            "compile_kernels", timeout_s=_LONG_S, kernels=kernels, directory=tmp_path, all_s=0.2
        )
    assert found == {"never_begun": NO_TIME}


class _CountingTurns(Turns):
    """Turns that count how often they have given way."""

    given = 0

    def give_way(self) -> float:
        self.given += 1
        return super().give_way()


def test_run_measures_in_the_middle_of_the_measurement_of_another_one(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    endless = replace(_POLICY, pairs_min=10_000_000, pairs_max=10_000_000)
    ours, theirs = (_CountingTurns(tmp_path, ["cpu0"]) for _ in range(2))
    ended: list[RunError] = []

    def measure(other: Runner) -> None:
        try:
            other.call("compare_itself", timeout_s=600.0, policy=endless)
        except RunError as error:
            ended.append(error)

    with (
        Runner(CPU, target, toolchain, ours) as own,
        Runner(CPU, target, toolchain, theirs) as other,
    ):
        thread = threading.Thread(target=measure, args=(other,))
        thread.start()
        while theirs.owner() is None:
            time.sleep(0.01)
        policy = replace(endless, pairs_min=1500, pairs_max=1500)
        found = own.call("compare_itself", timeout_s=_LONG_S, policy=policy)
        assert len(found.tuned_us) == 1500
        assert theirs.given > 0 and thread.is_alive() and not ended
        other.interrupt()
        thread.join(60)
    assert len(ended) == 1
    assert ours.given > 0  # whose pairs take longer than a slice, too


def test_restart_gives_another_process(runner: Runner, plain_model: Path) -> None:
    _assert_works(runner, plain_model)
    pid = _worker_pid(runner)
    runner.restart()
    assert _ends(pid)
    _assert_works(runner, plain_model)
    assert _worker_pid(runner) != pid


@pytest.mark.slow
def test_workers_of_restarts_that_will_come_start_beside_each_other(
    target: Target, toolchain: Toolchain, plain_model: Path
) -> None:
    with Runner(CPU, target, toolchain) as own:
        _assert_works(own, plain_model)
        own.restart(following=3)
        _assert_works(own, plain_model)
        waiting = own.waiting
        assert len(waiting) == 3
        own.restart()
        _assert_works(own, plain_model)
        assert _worker_pid(own) == waiting[0]
        os.kill(waiting[1], signal.SIGKILL)  # one that died while it waited is passed over
        assert _ends(waiting[1])
        own.restart()
        _assert_works(own, plain_model)
        assert _worker_pid(own) == waiting[2]
        own.restart(following=1)
        _assert_works(own, plain_model)
        (left,) = own.waiting
    assert _ends(left)


def test_worker_on_the_measured_cores_stays_when_others_are_left_to_a_compiler(
    toolchain: Toolchain,
) -> None:
    with Runner(CPU, CPU.describe(1), toolchain) as runner:
        runner.start(is_apart=True)
        started = runner.waiting
        if runner.apart() is None:
            pytest.skip("all cores share something with the measured one")
        assert runner.waiting == started
    with Runner(CPU, CPU.describe(1), toolchain) as runner:
        runner.start()
        started = runner.waiting
        assert runner.apart() is not None
        assert len(runner.waiting) == 1 and runner.waiting != started


def test_worker_that_was_started_is_the_one_that_answers(
    target: Target, toolchain: Toolchain, plain_model: Path
) -> None:
    with Runner(CPU, target, toolchain) as own:
        own.start()
        own.start()
        (started,) = own.waiting
        own.await_start()
        _assert_works(own, plain_model)
        assert _worker_pid(own) == started
        own.start()
        assert not own.waiting


def test_closing_ends_the_worker_and_removes_its_files(
    target: Target,
    toolchain: Toolchain,
    plain_model: Path,
    tmp_path: Path,
) -> None:
    with Runner(CPU, target, toolchain, root=tmp_path) as own:
        assert list(tmp_path.iterdir())
        _assert_works(own, plain_model)
        pid = _worker_pid(own)
    assert _ends(pid)
    assert list(tmp_path.iterdir()) == []


def test_runner_that_was_never_used_closes_quietly(target: Target, toolchain: Toolchain) -> None:
    with Runner(CPU, target, toolchain) as own:
        sibling = own.sibling()
    sibling.close()
    sibling.close()


_ORPHAN = """
import os, signal
from aoe.errors import RunError
from aoe.execute.runner import Runner
from aoe.device.toolchain import Toolchain
from aoe.device.registry import default_device
device = default_device()
runner = Runner(device, device.describe(1), Toolchain(command=("cc",)))
try:
    runner.call("no_such_task", timeout_s=60)
except RunError:
    print(runner.process, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def orphaned(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Return the end of a script that is killed while it has a worker.

    It has no `if __name__ == "__main__"`: a child of multiprocessing would import it.
    """
    folder = tmp_path_factory.mktemp("orphaned")
    script = folder / "script.py"
    script.write_text("print('started', flush=True)\n" + _ORPHAN)
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def test_script_that_uses_a_runner_is_not_run_again_in_the_worker(
    orphaned: subprocess.CompletedProcess[str],
) -> None:
    assert orphaned.stdout.count("started") == 1
    assert len(orphaned.stdout.splitlines()) == 2


def test_what_a_kernel_prints_stays_out_of_the_answer(
    runner: Runner,
    plain_model: Path,
    abi_library: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    deadly = ModelPart(
        model=_kernel_model(tmp_path, "give_up"), library=abi_library, optimize=False
    )
    with pytest.raises(RunError, match="the worker ended with signal 6\nthese were my last words"):
        _compare(runner, plain_model, deadly)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def _open_files() -> set[int]:
    """Return the files this process has open."""
    listed = [*Path("/proc/self/fd").iterdir()]  # one of them is that of the listing
    return {int(one.name) for one in listed if one.is_symlink()}


@pytest.mark.parametrize("free", [0, 2, 4, 5])
def test_worker_without_files_to_talk_through_is_an_error_and_leaves_none_open(
    target: Target, toolchain: Toolchain, plain_model: Path, free: int
) -> None:
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Runner(CPU, target, toolchain) as runner:
        before = _open_files()
        least = next(one for one in range(usual[0]) if one - sum(n < one for n in before) == free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, usual[1]))
        try:
            with pytest.raises(RunError, match="worker: it cannot be started: "):
                runner.call("load", timeout_s=_LONG_S)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        assert _open_files() == before
        _assert_works(runner, plain_model)


def test_worker_that_cannot_start_says_why(target: Target, toolchain: Toolchain) -> None:
    with Runner(CPU, target, toolchain, boot="import no_such_module") as own:
        with pytest.raises(RunError, match="the worker ended with exit code 1") as caught:
            own.call("anything", timeout_s=_LONG_S)
        assert "No module named 'no_such_module'" in str(caught.value)


_DYING = """
import os, struct
from multiprocessing.connection import Connection
pipe = int(sys.argv[1])
connection = Connection(pipe)
setup, request = connection.recv(), connection.recv()
os.write(pipe, struct.pack("!i", 1000) + b"not a thousand bytes")
os.abort()
"""


def test_worker_that_dies_in_the_middle_of_its_answer_is_an_error_with_its_cause(
    target: Target, toolchain: Toolchain
) -> None:
    with (
        Runner(CPU, target, toolchain, boot=_DYING) as own,
        pytest.raises(WorkerDiedError, match="the worker ended with signal 6"),
    ):
        own.call("anything", timeout_s=_LONG_S)


_HUNG_ORPHAN = """
import os, signal, sys, threading
from pathlib import Path
from aoe.errors import RunError
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.folders.turns import Turns
from aoe.measurement import MeasurePolicy
from aoe.ort.inputs import MADE_UP
from aoe.device.toolchain import Toolchain
from aoe.device.registry import default_device
device = default_device()
runner = Runner(device, device.describe(1), Toolchain(command=("cc",)))
plain, deadly, library = map(Path, sys.argv[1:])
hanging = ModelPart(model=deadly, library=library, optimize=False)
policy = MeasurePolicy(pairs_min=1, pairs_max=1, warmup=0, sample_min_us=0)
try:
    runner.call("compare_models", timeout_s=60, policy=policy, inputs=MADE_UP,
                baseline=ModelPart(model=plain), tuned=ModelPart(model=plain))
    print(runner.process, flush=True)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    runner.call("compare_models", timeout_s=60, policy=policy, inputs=MADE_UP,
                baseline=ModelPart(model=plain), tuned=hanging)
finally:
    runner.close()
"""


def test_worker_that_hangs_does_not_outlive_a_killed_parent(
    tmp_path: Path, plain_model: Path, abi_library: Path
) -> None:
    script = tmp_path / "orphan.py"
    script.write_text(_HUNG_ORPHAN)
    deadly = _kernel_model(tmp_path, "hang")
    done = subprocess.run(
        [sys.executable, str(script), str(plain_model), str(deadly), str(abi_library)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert _ends(int(done.stdout))


def test_worker_does_not_outlive_a_killed_parent(
    orphaned: subprocess.CompletedProcess[str],
) -> None:
    assert orphaned.returncode == -signal.SIGKILL, orphaned.stderr
    assert _ends(int(orphaned.stdout.splitlines()[-1]))


def _relu_and_abs(folder: Path) -> list[Path]:
    return [
        save_model(chain_model([op_type], (2,)), folder / f"{op_type}.onnx")
        for op_type in ("Relu", "Abs")
    ]


def test_results_are_compared_on_every_input_set(runner: Runner, tmp_path: Path) -> None:
    relu, magnitude = _relu_and_abs(tmp_path)
    positive, negative = np.array([1, 2], np.float32), np.array([-1, 2], np.float32)
    for last, outcome in ((positive, Outcome.CORRECT), (negative, Outcome.CORRECTNESS)):
        sets = save_input_sets([{"x": positive}, {"x": last}], tmp_path)
        found = _compare(runner, relu, ModelPart(model=magnitude), inputs=ModelInputs(sets=sets))
        assert found.measurement.outcome is outcome


def test_same_sessions_are_compared_at_further_points(runner: Runner, tmp_path: Path) -> None:
    relu, magnitude = _relu_and_abs(tmp_path)
    positive, negative = np.array([1, 2], np.float32), np.array([-1, 2], np.float32)
    here, *elsewhere = (
        ModelInputs(sets=(one,))
        for one in save_input_sets(
            [{"x": each} for each in (positive, positive, negative)], tmp_path
        )
    )
    twice = MeasurePolicy(pairs_min=2, pairs_max=2)
    for other, outcome in zip(elsewhere, (Outcome.CORRECT, Outcome.CORRECTNESS), strict=True):
        points = (ComparedPoint(inputs=other, policy=twice),)
        terms = ComparisonTerms(points=points)
        found = _compare(runner, relu, ModelPart(model=magnitude), inputs=here, terms=terms)
        assert found.measurement.outcome is outcome  # one wrong result is one of all
        assert [len(one.tuned_us) for one in found.points] == [2, 1]


def test_model_gives_its_results_for_every_input_set(runner: Runner, tmp_path: Path) -> None:
    file = save_model(chain_model(["Abs"], (2,)), tmp_path / "abs.onnx")
    arrays = [np.array([-1, 2], np.float32), np.array([-3, -4], np.float32)]
    inputs = ModelInputs(sets=save_input_sets([{"x": array} for array in arrays], tmp_path))
    part = ModelPart(model=file)
    found = runner.call("run_model", timeout_s=_LONG_S, part=part, inputs=inputs)
    assert len(found) == 2
    for (result,), array in zip(found, arrays, strict=True):
        np.testing.assert_array_equal(result, np.abs(array))


def test_below_float32_results_may_differ_by_numbers_only(runner: Runner, tmp_path: Path) -> None:
    relu, magnitude = _relu_and_abs(tmp_path)
    sets = save_input_sets([{"x": np.array([-1, 2], np.float32)}], tmp_path)
    lower = ModelPart(model=magnitude, precision=Precision.BFLOAT16)
    found = _compare(runner, relu, lower, inputs=ModelInputs(sets=sets))
    assert found.measurement.outcome is Outcome.CORRECT
    assert found.deviation.max_abs_err == 1


def test_worker_profiles_models_with_the_threads_it_measures_with(
    runner: Runner, tmp_path: Path
) -> None:
    """A process that has shared threads refuses a session with threads of its own."""
    proto = chain_model(["Exp"], (1,))
    proto.graph.node[0].name = "exp"
    model = save_model(proto, tmp_path / "named.onnx")
    _assert_works(runner, model)
    part = ModelPart(model=model, optimize=False)
    found = runner.call(
        "profile_models", timeout_s=_LONG_S, models=(part, part), inputs=MADE_UP, most_s=1.0
    )
    assert [[*times] for times in found] == [["exp"]] * 2
