"""Loops of a training in the bank: recorded, looked up by another process, measured again."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import aoe  # noqa: E402
from aoe import FallbackWarning  # noqa: E402
from aoe.torch.modules.backend import aoe_backend  # noqa: E402
from aoe.torch.modules.training.graphs import Choice, TrainingGraph  # noqa: E402
from aoe.torch.modules.training.records import (  # noqa: E402
    region_of_workload,
    workload_of_region,
)
from aoe.torch.modules.training.regions import RegionForm, results_of  # noqa: E402
from aoe.torch.modules.training.remeasuring import measured_again  # noqa: E402
from aoe.torch.modules.training.row_loops import LoopSource, loop_source  # noqa: E402
from aoe.workload import workload_from_json, workload_to_json  # noqa: E402
from aoebank import Bank, quarantine_add  # noqa: E402

A = torch.ops.aten


def _aten(name: str) -> Any:
    return getattr(A, name)


class Asked(Choice):
    """Answers without a clock, and counts what it is asked.

    Args:
        is_faster: The answer for regions.
    """

    def __init__(self, *, is_faster: bool = True) -> None:
        self.is_faster = is_faster
        self.regions = 0
        self.ways: list[str] = []
        self.reasons: list[str] = []

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        self.regions += 1
        return self.is_faster

    def graph(self, eager: Callable[[], object], compiled: Callable[[], object]) -> bool:
        return True

    def told(self, outcome: Any) -> None:
        self.ways.append("" if outcome.reason else outcome.way)
        self.reasons.append(outcome.reason)


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.compiler.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        warnings.filterwarnings("ignore", "The .grad attribute")
        yield
    torch.compiler.reset()
    torch.set_num_threads(threads)


@pytest.fixture
def module() -> Any:
    """Return a network with one region in each direction."""
    return torch.nn.Sequential(torch.nn.Linear(24, 160), torch.nn.GELU(), torch.nn.Linear(160, 24))


def _train(module: Any, folder: Path, kernels: str, choice: Choice, **options: Any) -> list[float]:
    """Train a copy with a bank and a cache of kernels of its own; return the losses."""
    torch.compiler.reset()
    torch.manual_seed(1)
    how = {"bank": folder / "bank", "cache_dir": str(folder / kernels), **options}
    train = partial(TrainingGraph, choice=choice)
    backend = partial(aoe_backend, train=train, options={"tuning_time_limit": 20, **how})
    net = torch.compile(copy.deepcopy(module), backend=backend)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = net(torch.randn(96, 24)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in folder.rglob("*training_loop*.jsonl")
        for line in file.read_text().splitlines()
    ]


def _regions() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    rows, weight = torch.randn(3, 17, 37), torch.randn(37)
    turned = torch.randn(17, 3, 37).transpose(0, 1)
    _, mean, scale = A.native_layer_norm(rows, [37], weight, weight, 1e-5)

    def gradient(dy: Any, x: Any, m: Any, s: Any, w: Any) -> Any:
        found = A.native_layer_norm_backward(dy * 2, x, [37], m, s, w, w, [True, True, True])
        return A.gelu_backward(found[0], x, approximate="tanh"), *found[1:], dy.sum((0, 1))

    def mask(x: Any) -> Any:
        hidden = A.where(A.eq(x, float("-inf")), x, x * 2)
        return _aten("_softmax")(hidden, -1, False), _aten("_to_copy")(x > 0, dtype=torch.float32)

    def classes(dy: Any, y: Any, labels: Any, total: Any) -> Any:
        slope = A.nll_loss_backward(dy, y, labels, None, 1, -100, total)
        return _aten("_log_softmax_backward_data")(slope, y, -1, torch.float32)

    labels = torch.tensor([3, 36, -100] * 17)
    return {
        "classes": (classes, (torch.ones(()), rows.view(51, 37), labels, torch.tensor(34.0))),
        "gradients": (gradient, (turned, rows, mean, scale, weight)),
        "mask": (mask, (rows,)),
        "one result": (lambda x, y: A.sigmoid(x * y) + 1, (rows, weight.expand(3, 17, 37))),
    }


@pytest.mark.parametrize("name", _regions())
def test_record_alone_is_enough_to_compute_its_region(name: str) -> None:
    function, arguments = _regions()[name]
    module = make_fx(function)(*arguments)
    expected = results_of(module(*arguments))
    form = RegionForm.of(module, arguments, expected)
    assert isinstance(form, RegionForm)
    workload = workload_of_region(module, form)
    assert workload is not None
    told = json.loads(json.dumps(workload_to_json(workload), allow_nan=False))
    assert workload_from_json(told) == workload
    again, form_again = region_of_workload(workload_from_json(told))
    assert (form_again.arguments, form_again.results) == (form.arguments, form.results)
    for one, other in zip(expected, results_of(again(*arguments)), strict=True):
        assert torch.equal(one, other)
    sources = loop_source(module, form), loop_source(again, form_again)
    assert all(isinstance(source, LoopSource) for source in sources), sources
    assert sources[0] == sources[1]


def test_record_of_a_loop_is_all_the_next_process_needs(module: Any, tmp_path: Path) -> None:
    first, second, third = Asked(), Asked(), Asked()
    losses = _train(module, tmp_path, "kernels", first)
    assert first.ways == ["loop", "loop"] and first.regions == 2
    (file,) = tmp_path.rglob("*training_loop.json")
    records = [record for (record,) in json.loads(file.read_text()).values()]
    assert {record["knowledge"]["steps"][0][1] for record in records} == {"loop"}
    operators = {one["op"] for record in records for one in record["info_dict"]["operations"]}
    assert operators == {"aten:gelu", "aten:gelu_backward"}
    for line in _lines(tmp_path):
        assert line["event"] == "add" and line["baseline_us"] and line["speedup"]
        assert line["model"]["graph"] == "training" and line["model"]["requires_grad"] == "true"
        assert line["fingerprint"]["torch"] == version("torch")
    assert {line["model"]["direction"] for line in _lines(tmp_path)} == {"forward", "backward"}
    assert _train(module, tmp_path, "other_kernels", second) == losses
    assert second.ways == ["loop", "loop"] and not second.regions
    assert _train(module, tmp_path, "third_kernels", third, lookup_only=True) == losses
    assert third.ways == ["loop", "loop"] and not third.regions
    assert len(_lines(tmp_path)) == 2  # nothing is written twice


def test_loss_is_noted_and_not_measured_again(module: Any, tmp_path: Path) -> None:
    first, second = Asked(is_faster=False), Asked()
    _train(module, tmp_path, "kernels", first)
    assert first.regions == 2
    assert not list(tmp_path.rglob("*training_loop.json"))
    assert [line["event"] for line in _lines(tmp_path)] == ["unsatisfied"] * 2
    _train(module, tmp_path, "other_kernels", second)
    assert second.ways == ["", ""] and not second.regions


def test_bank_that_lost_its_record_gets_it_back(module: Any, tmp_path: Path) -> None:
    _train(module, tmp_path, "kernels", Asked())
    for file in tmp_path.rglob("*training_loop*"):
        file.unlink()
    again = Asked()
    _train(module, tmp_path, "kernels", again)  # its cache of kernels knows the verdicts
    assert again.regions == 2 and list(tmp_path.rglob("*training_loop.json"))


def test_region_without_a_loop_is_left_to_pytorch_with_the_reason(tmp_path: Path) -> None:
    class Waves(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return super().forward(x).sin() * 2

    module, asked = Waves(24, 160), Asked()
    found = _train(module, tmp_path, "kernels", asked)
    assert "sin: no expression" in asked.reasons
    assert found == _train(module, tmp_path, "kernels", Asked(is_faster=False))


@pytest.mark.parametrize("is_left", [True, False], ids=["left in the bank", "taken out"])
def test_loop_in_quarantine_is_not_used_although_the_cache_has_it(
    module: Any, tmp_path: Path, is_left: bool
) -> None:
    _train(module, tmp_path, "kernels", Asked())
    (file,) = tmp_path.rglob("*training_loop.json")
    for key in json.loads(file.read_text()):
        quarantine_add(key, tmp_path / "bank", reason="wrong", keep=is_left)
    for options in ({"lookup_only": True}, {}):
        again = Asked()
        _train(module, tmp_path, "kernels", again, **options)
        assert again.reasons == ["in quarantine: wrong"] * 2 and not again.regions


def test_bank_that_cannot_be_read_costs_records_alone(module: Any, tmp_path: Path) -> None:
    _train(module, tmp_path, "kernels", Asked())
    (file,) = tmp_path.rglob("*training_loop.json")
    file.write_text("{")
    again = Asked()
    with pytest.warns(FallbackWarning, match="no records of this training"):
        _train(module, tmp_path, "other_kernels", again)
    assert again.ways == ["loop", "loop"]
    assert file.read_text() == "{"


def _aoebank(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aoebank", *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_commands_of_the_bank_layer_read_such_records(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", "0.1+of_a_build")  # PyPI's 2.15.0 says 2.15.0+cu132
    ours, theirs = tmp_path / "one", tmp_path / "two"
    _train(module, ours, "kernels", Asked())
    wide = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.GELU(), torch.nn.Linear(64, 24))
    _train(wide, theirs, "kernels", Asked())
    banks = [folder / "bank" for folder in (ours, theirs)]
    valid = _aoebank("validate", banks[0])
    assert valid.returncode == 0, valid.stdout + valid.stderr
    listed = _aoebank("ls", banks[0])
    assert listed.returncode == 0 and "training_loop" in listed.stdout
    (file,) = banks[0].rglob("*training_loop.json")
    key = next(iter(json.loads(file.read_text())))
    shown = _aoebank("show", key, banks[0])
    assert "gelu" in shown.stdout and "algorithm loop" in shown.stdout, shown.stderr
    assert _aoebank("stale", banks[0]).returncode == 0
    differ = _aoebank("diff", *banks)
    assert differ.returncode == 1 and "training_loop" in differ.stdout
    merged = tmp_path / "merged"
    done = _aoebank("merge", *banks, "--output", merged)
    assert done.returncode == 0, done.stdout + done.stderr
    assert _aoebank("validate", merged).returncode == 0
    assert len([*Bank(merged).iter_records(next(merged.rglob("*training_loop.json")))]) == 4


class Words(torch.nn.Module):  # type: ignore[misc]
    """Looks words up, and guesses them."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(131, 37)

    def forward(self, x: Any) -> Any:
        words = (x.abs() * 20).long().clamp(max=36)
        rows = self.table(words).flatten(0, 1)
        return torch.nn.functional.cross_entropy(rows, words.flatten(), ignore_index=0)


class Drawn(TorchDispatchMode):  # type: ignore[misc]
    """Keeps the integers that operators of a training were called with."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, set[int]] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.__name__.partition(".")[0]
        place = {"nll_loss_backward": 2, "embedding_dense_backward": 1}.get(name)
        if place is not None and type(args[place]) is torch.Tensor and not args[place].is_meta:
            self.found.setdefault(name, set()).update(args[place].flatten().tolist())
        return function(*args, **(kwargs or {}))


def test_verify_measures_losses_and_tables_again(tmp_path: Path) -> None:
    words, asked, slow = Words(), Asked(), Asked(is_faster=False)
    eager = _train(words, tmp_path / "eager", "kernels", slow)
    assert _train(words, tmp_path, "kernels", asked) == pytest.approx(eager, rel=1e-5)
    assert asked.ways == ["loop"] * 3 and slow.ways == [""] * 3
    with Drawn() as seen:
        found = aoe.verify(tmp_path / "bank", core_num=1, dry_run=True)
    for operator, count in (("nll_loss_backward", 37), ("embedding_dense_backward", 131)):
        integers = seen.found[operator]
        assert integers <= set(range(count)) and max(integers) > count // 2
    assert len(found.records) == 3
    assert all(one.found.estimate is not None for one in found.records)


def test_passes_of_another_width_are_compared_anew(tmp_path: Path) -> None:
    """Dropout alone is computed otherwise: the code of such a graph says no extent."""

    class Compared(Asked):
        graphs = 0

        def graph(self, eager: Callable[[], object], compiled: Callable[[], object]) -> bool:
            self.graphs += 1
            return True

    counts = []
    for width in (160, 160, 320):
        first, last = (torch.nn.Linear(*n, bias=False) for n in ((24, width), (width, 24)))
        asked = Compared(is_faster=False)
        net = torch.nn.Sequential(first, torch.nn.Dropout(0.1), last)
        _train(net, tmp_path, "kernels", asked)
        counts.append(asked.graphs)
    assert counts == [1, 0, 1]


@pytest.mark.parametrize("step", [0, 2])
def test_classes_with_gaps_between_them_are_measured_again(step: int) -> None:
    """As of a column of a table, or one class for all rows."""
    function, (dy, y, labels, total) = _regions()["classes"]
    arguments = (dy, y, labels.repeat(2).as_strided((51,), (step,)), total)
    module = make_fx(function)(*arguments)
    form = RegionForm.of(module, arguments, results_of(module(*arguments)))
    assert isinstance(form, RegionForm)
    workload = workload_of_region(module, form)
    assert workload is not None
    found = measured_again(workload, "loop", threads=1, seed=0)
    assert found.is_correct, found.detail


def test_verify_measures_records_again_without_a_script(module: Any, tmp_path: Path) -> None:
    _train(module, tmp_path, "kernels", Asked())
    found = aoe.verify(tmp_path / "bank", core_num=1, dry_run=True)
    assert [one.one.op_type for one in found.records] == ["training_loop"] * 2
    assert all(one.found.estimate is not None for one in found.records)
    (file,) = tmp_path.rglob("*training_loop.json")
    file.write_text(file.read_text().replace("aten:gelu", "aten:no_such"))
    lost = aoe.verify(tmp_path, core_num=1, dry_run=True)  # a directory of results has `bank/`
    assert {one.found.verdict.value for one in lost.records} == {"lost"}
    assert not lost.holds
