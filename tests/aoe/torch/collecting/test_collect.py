"""`aoe.torch.set_aoe`: what a script computes becomes a dump that can be tuned."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from support.engine.cpu import open_session  # noqa: E402
from support.engine.environments import run_environment  # noqa: E402
from support.engine.fakes import RecordingProgress  # noqa: E402
from support.engine.offline import regions_of, view_of  # noqa: E402
from support.engine.untuned import UntunedEngine  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode  # noqa: E402

import aoe.torch  # noqa: E402
from aoe.bank.operators import key_of  # noqa: E402
from aoe.entry.torch_dump import load_torch_dump  # noqa: E402
from aoe.errors import ModelImportError, OptionError, OutputError  # noqa: E402
from aoe.ort.sessions import session_options  # noqa: E402
from aoe.runs.run import tune_with  # noqa: E402
from aoe.target import Target  # noqa: E402
from aoe.torch.collecting import collect  # noqa: E402
from aoe.torch.collecting.dump import DumpWriter  # noqa: E402
from aoe.torch.modules import optimization  # noqa: E402
from aoe.torch.modules.optimization import optimize_call  # noqa: E402
from aoe.torch.options import OptimizeOptions  # noqa: E402
from aoe.tuner.mode import TuneSettings  # noqa: E402
from aoe.tuner.progress import SilentProgress  # noqa: E402


class Net(nn.Module):
    """Activations between convolutions, where ONNX Runtime blocks channels."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(nn.Mish(), nn.Conv2d(width, width, 3, padding=1), nn.ELU())
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return self.drop(self.blocks(self.norm(self.first(x))).mean((2, 3)) * scale)


class Branching(nn.Module):
    """Cannot be exported as a whole."""

    def forward(self, x: Any) -> Any:
        return F.mish(x) if x.sum() > -1e9 else x


@pytest.fixture(autouse=True)
def _nothing_stays_behind() -> Iterator[None]:
    torch.manual_seed(0)
    call = nn.Module.__call__
    yield
    assert nn.Module.__call__ is call
    assert _get_current_dispatch_mode() is None


def _train(net: Any, x: Any, steps: int = 1) -> list[float]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def _dump(directory: Path) -> Any:
    return json.loads((directory / "dump.json").read_text())


def _graphs(directory: Path) -> list[tuple[str, str, int]]:
    return [(g["module"], g["call"], g["count"]) for g in _dump(directory)["graphs"]]


def _operators(directory: Path) -> dict[tuple[str, str], Any]:
    return {(o["operator"], o["phase"]): o for o in _dump(directory)["operators"]}


# ---- what is in a dump ----


def test_a_training_step_gives_a_graph_and_the_operators(tmp_path: Path) -> None:
    net, x = Net(), torch.randn(2, 3, 8, 8)
    with aoe.torch.set_aoe(dump_path=tmp_path / "new" / "dump") as collector:
        _train(net, x)
    assert _graphs(collector.directory) == [("Net", "float32[2, 3, 8, 8], 1.0", 1)]
    operators = _operators(collector.directory)
    mish = operators["aten.mish.default", "forward"]
    assert mish["inputs"] == ["float32[2, 16, 8, 8]"]
    assert (mish["count"], mish["modules"], mish["graph"]) == (1, ["blocks.0"], "net_0.onnx")
    norm = operators["aten.native_batch_norm.default", "forward"]
    assert norm["attributes"]["training"] is True and norm["modules"] == ["norm"]
    assert operators["aten.mish_backward.default", "backward"]["graph"] is None
    assert not any("foreach" in operator or "addcdiv" in operator for operator, _ in operators)


@pytest.mark.slow
def test_the_graph_is_the_inference_form(tmp_path: Path) -> None:
    net, x = Net(), torch.randn(2, 3, 8, 8)
    with aoe.torch.set_aoe(tmp_path), torch.no_grad():
        net(x)
    model = tmp_path / "net_0.onnx"
    session = open_session(model, session_options(threads=1, optimize=True))
    (name,) = [value.name for value in session.get_inputs()]
    found = torch.from_numpy(session.run(None, {name: x.numpy()})[0])
    torch.testing.assert_close(found, net.eval()(x).detach(), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_collecting_changes_nothing_for_the_script(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 8, 8)
    losses = []
    for collected in (False, True):
        torch.manual_seed(3)
        net = Net()
        if collected:
            aoe.torch.set_aoe(tmp_path, steps=2)
        losses.append(_train(net, x, steps=3))
        assert net.training and all(submodule.training for submodule in net.modules())
    assert losses[0] == losses[1]


@pytest.mark.slow
def test_arguments_may_have_any_name(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Any, *, module: float) -> Any:
            return F.mish(x) * module

    x = torch.randn(2, 16)
    with aoe.torch.set_aoe(dump_path=tmp_path) as collector, torch.no_grad():
        torch.testing.assert_close(Scaled()(x, module=2.0), F.mish(x) * 2)
    assert [name for name, _, _ in _graphs(collector.directory)] == ["Scaled"]


def test_arguments_that_a_hook_adds_are_no_error(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Any, scale: Any) -> Any:
            return F.mish(x) * scale

    net, x = Scaled(), torch.randn(64, 256)
    net.register_forward_pre_hook(lambda module, args: (*args, 2.0))
    with (
        pytest.warns(UserWarning, match="not in the dump: Scaled: its forward takes other"),
        aoe.torch.set_aoe(dump_path=tmp_path) as collector,
        torch.no_grad(),
    ):
        torch.testing.assert_close(net(x), F.mish(x) * 2)
    assert ("aten.mish.default", "forward") in _operators(collector.directory)


def test_each_form_of_a_call_is_a_graph_and_weights_are_kept_once(tmp_path: Path) -> None:
    net = Net().eval()
    with torch.no_grad(), aoe.torch.set_aoe(tmp_path, steps=9):
        for width in (8, 9, 8):
            net(torch.randn(1, 3, 8, width))
    assert _graphs(tmp_path) == [
        ("Net", "float32[1, 3, 8, 8], 1.0", 2),
        ("Net", "float32[1, 3, 8, 9], 1.0", 1),
    ]
    weights = sum(file.stat().st_size for file in tmp_path.glob("weights_*.bin"))
    assert weights < 1.5 * sum(p.numel() * 4 for p in net.parameters())


@pytest.mark.slow
def test_operators_outside_of_modules_are_dumped_one_by_one(tmp_path: Path) -> None:
    with aoe.torch.set_aoe(tmp_path):
        F.softplus(torch.randn(64, 512))
        torch.randn(64, 512).relu_()
        F.softplus(torch.randn(3))
        torch.arange(40000) + 1
    dump = {(o["operator"], str(o["inputs"])): o for o in _dump(tmp_path)["operators"]}
    assert dump["aten.softplus.default", "['float32[64, 512]']"]["graph"] is not None
    assert dump["aten.relu_.default", "['float32[64, 512]']"]["graph"] is not None
    small = dump["aten.softplus.default", "['float32[3]']"]
    assert small["graph"] is None and "3 elements only" in small["reason"]
    integers = dump["aten.add.Tensor", "['int64[40000]']"]
    assert "no floating-point tensor" in integers["reason"]


@pytest.mark.slow
def test_a_module_that_cannot_be_exported_is_taken_apart(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), Branching())
    with (
        torch.no_grad(),
        pytest.warns(UserWarning, match=r"module 1 .Branching.: cannot be exported"),
        aoe.torch.set_aoe(tmp_path) as collector,
    ):
        net(torch.randn(2, 3, 66, 66))
    assert list(collector.problems) == ["module 1 (Branching)"]
    modules = {graph["module"] for graph in _dump(tmp_path)["graphs"]}
    assert {"mish", "convolution"} <= modules
    convolution = _operators(tmp_path)["aten.convolution.default", "forward"]
    weights = onnx.load(str(tmp_path / convolution["graph"])).graph.initializer
    assert (4, 3, 3, 3) in [tuple(tensor.dims) for tensor in weights]


# ---- when it collects ----


def test_collecting_ends_by_itself_after_the_steps(tmp_path: Path) -> None:
    net, x = Net(), torch.randn(1, 3, 8, 8)
    plain_call = nn.Module.__call__
    collector = aoe.torch.set_aoe(tmp_path, steps=2)
    _train(net, x, steps=1)
    assert nn.Module.__call__ is not plain_call
    _train(net, x, steps=4)
    assert nn.Module.__call__ is plain_call
    assert _graphs(tmp_path)[0][2] == 2
    collector.close()


@pytest.mark.slow
def test_gradient_accumulation_is_one_step(tmp_path: Path) -> None:
    net, x = Net(), torch.randn(1, 3, 8, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    aoe.torch.set_aoe(tmp_path)
    for number in range(4):
        net(x).sum().backward()
        if number == 2:
            optimizer.step()
    assert _graphs(tmp_path)[0][2] == 3


@pytest.mark.slow
def test_a_pipeline_of_modules_is_one_step_of_inference(tmp_path: Path) -> None:
    first, second = nn.Linear(4, 5), nn.Linear(5, 3)
    with torch.no_grad():
        aoe.torch.set_aoe(tmp_path)
        for _ in range(3):
            second(first(torch.randn(2, 4)))
    assert [graph[1:] for graph in _graphs(tmp_path)] == [
        ("float32[2, 4]", 1),
        ("float32[2, 5]", 1),
    ]


@pytest.mark.slow
def test_a_dump_is_continued(tmp_path: Path) -> None:
    net = Net().eval()
    for width in (8, 8, 9):
        with torch.no_grad(), aoe.torch.set_aoe(tmp_path):
            net(torch.randn(1, 3, 8, width))
    assert [graph[2] for graph in _graphs(tmp_path)] == [2, 1]
    assert len(load_torch_dump(tmp_path, {}).proto.graph.input) == 2


@pytest.mark.slow
def test_a_failing_step_leaves_a_readable_dump(tmp_path: Path) -> None:
    net = Net().eval()
    with (
        pytest.raises(RuntimeError, match="channels"),
        torch.no_grad(),
        aoe.torch.set_aoe(tmp_path, steps=5),
    ):
        net(torch.randn(1, 3, 8, 8))
        net(torch.randn(1, 4, 8, 8))
    assert len(_graphs(tmp_path)) == 1


def test_only_the_thread_that_asked_is_watched(tmp_path: Path) -> None:
    net = nn.Linear(4, 4)

    def work() -> None:
        with torch.no_grad():
            net(torch.randn(7, 4))

    with pytest.warns(UserWarning, match="no step"), aoe.torch.set_aoe(tmp_path, steps=5):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert _graphs(tmp_path) == []


def test_only_one_process_of_a_job_collects(tmp_path: Path) -> None:
    first = False
    net = nn.Linear(256, 256)
    collector = collect.Collector(DumpWriter(tmp_path), steps=1, is_first_rank=lambda: first)
    with torch.no_grad(), collector:
        collector.start()
        net(torch.randn(256, 256))
        first = True  # the process group is gone
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_wrappers_are_seen_through(tmp_path: Path) -> None:
    module = nn.Linear(4, 4).eval()
    with torch.no_grad(), aoe.torch.set_aoe(tmp_path, steps=3):
        nn.DataParallel(module)(torch.randn(2, 4))
        torch.compile(module, backend="eager")(torch.randn(2, 4))
    assert {graph[0] for graph in _graphs(tmp_path)} == {"Linear"}


@pytest.mark.slow
def test_a_mode_of_the_script_stays_where_it_is(tmp_path: Path) -> None:
    class Counting(TorchDispatchMode):  # type: ignore[misc]
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):  # type: ignore[no-untyped-def]
            self.count += 1
            return func(*args, **(kwargs or {}))

    net, x = nn.Linear(4, 4), torch.randn(2, 4)
    with torch.no_grad():
        with Counting() as alone:
            net(x)
        with aoe.torch.set_aoe(tmp_path), Counting() as watched:
            net(x)
            net(x)  # collecting ends here, below the other mode
            assert _get_current_dispatch_mode() is watched
    assert watched.count == 2 * alone.count
    assert _graphs(tmp_path)[0][2] == 1


@pytest.mark.parametrize("steps", [0, -1, 1.5, True])
def test_steps_must_be_a_number(tmp_path: Path, steps: Any) -> None:
    with pytest.raises(OptionError, match="not a number of steps"):
        aoe.torch.set_aoe(tmp_path, steps=steps)


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        aoe.torch.set_aoe(tmp_path / "file" / "dump")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "dump.json").write_text('{"schema": "aoe.torch_dump/9"}')
    with pytest.raises(ModelImportError, match="unknown version"):
        aoe.torch.set_aoe(tmp_path / "old")


# ---- tuning a dump ----


@pytest.mark.slow
def test_a_dump_holds_the_workloads_that_optimize_will_look_up(
    tmp_path: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, x = Net(), torch.randn(1, 3, 32, 32)
    with aoe.torch.set_aoe(tmp_path / "dump"):
        _train(net, x)
    seen: list[onnx.ModelProto] = []

    class Looking(UntunedEngine):
        def __call__(self, settings: TuneSettings, env: Any, progress: Any) -> Path:
            seen.append(onnx.load(str(settings.model)))
            return super().__call__(settings, env, progress)

    optimize_call(net, (x,), {}, OptimizeOptions(), progress=SilentProgress(), engine=Looking())
    keys = []
    for number, proto in enumerate((load_torch_dump(tmp_path / "dump", {}).proto, seen[0])):
        (scratch := tmp_path / str(number)).mkdir()
        graph = view_of(proto, scratch, target)
        keys.append({key_of(region.workload) for region in regions_of(graph)})
    assert keys[0] == keys[1]
    assert len(keys[0]) >= 2


@pytest.mark.slow
def test_optimize_finds_what_was_tuned_from_a_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AOE_ACCEPT_BUSY", "True")  # a busy machine's verdicts are not remembered
    net, x = Net(), torch.randn(1, 3, 64, 64)
    with aoe.torch.set_aoe(tmp_path / "dump"):
        _train(net, x)
    (bank := tmp_path / "bank").mkdir()
    settings = TuneSettings(
        model=tmp_path / "dump",
        framework=None,
        output=tmp_path / "tuned",
        trials=1,
        core_num=1,
        accept_busy=True,
    )
    env = run_environment(bank)
    progress = RecordingProgress()
    now = datetime(2026, 1, 2, tzinfo=UTC)
    tune_with(settings, env=env, cwd=tmp_path, progress=progress, now=now)
    assert progress.texts("operator")
    later = RecordingProgress()
    tuned = optimization.optimize(
        net, x, bank=bank, output=tmp_path / "out", trials=1, core_num=1, progress=later
    )
    assert not later.texts("trial")
    operators = json.loads((tmp_path / "out" / "summary.json").read_text())["operators"]
    assert operators
    assert all(operator["outcome"] in ("reserved", "unsatisfied") for operator in operators)
    with torch.no_grad():
        torch.testing.assert_close(
            tuned.eval()(x), net(x), rtol=1e-3, atol=1e-3
        )  # what comes out of the real engine


def test_set_aoe_is_what_the_package_exports() -> None:
    assert aoe.torch.set_aoe is collect.set_aoe
