"""`torch.compile(module, backend="aoe")` with gradients: as autograd, with kernels in between."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import torch.nn.functional as F  # noqa: E402
from support.trainings_compiled import Always, LoopCalls, Never, compiled  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from aoe import FallbackWarning  # noqa: E402
from aoe.errors import RunError  # noqa: E402
from aoe.torch.modules.backend import aoe_backend  # noqa: E402
from aoe.torch.modules.training.graphs import TrainingGraph  # noqa: E402


@pytest.fixture(autouse=True)
def _afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Dynamo forget what other tests compiled; one thread, so that sums have one order."""
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path))  # no record of another test is known
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.compiler.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        warnings.filterwarnings("ignore", "The .grad attribute")  # which Dynamo looks at
        yield
    torch.compiler.reset()
    torch.set_num_threads(threads)


@pytest.fixture
def counted() -> LoopCalls:
    """Return a counter of the calls of loops."""
    return LoopCalls()


class Operators(nn.Module):
    """One operator, or a chain, for each part of its argument; extents are odd."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LayerNorm(37)
        self.rms = nn.Parameter(torch.randn(37))
        self.group = nn.GroupNorm(3, 9)
        self.batch = nn.BatchNorm2d(9)
        self.table = nn.Embedding(131, 37, padding_idx=3)

    def forward(self, rows: Any, images: Any, labels: Any) -> Any:
        residual = rows + self.layer(rows)
        scale = torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-6)
        return {
            "residual": F.gelu(residual) * 2 + residual,
            "rms": rows * scale * self.rms,
            "tanh": F.gelu(rows, approximate="tanh") * rows.sigmoid(),
            "swiglu": F.silu(rows) * rows,
            "group": F.silu(self.group(images)) + images,
            "batch": torch.relu(self.batch(images)),
            "softmax": (rows * 0.3).softmax(-1),
            "loss": F.cross_entropy(rows.flatten(0, 1), labels.repeat(5), ignore_index=4),
            "embedding": self.table(labels) * rows[:, 1],
        }


def _arguments() -> tuple[Any, ...]:
    rows = torch.randn(31, 5, 37, requires_grad=True)
    images = torch.randn(3, 9, 13, 17, requires_grad=True)
    return rows, images, torch.randint(0, 11, (31,))


def _results(module: Any, arguments: Any, seed: int = 0) -> list[Any]:
    """Return results, buffers and gradients of one step."""
    torch.manual_seed(seed)
    returned = module(*arguments)
    results = list(returned.values()) if isinstance(returned, dict) else [returned]
    module.zero_grad()
    sum(
        (one * torch.linspace(-1, 1, one.numel()).view(one.shape).to(one)).sum() for one in results
    ).backward()
    tensors = [one for one in arguments if one.requires_grad]
    found = [one.detach() for one in results]
    found += [one.grad for one in (*module.parameters(), *tensors)]
    for one in tensors:
        one.grad = None
    return [*found, *module.buffers()]


def _in_float64(module: Any, arguments: Any) -> tuple[Any, Any]:
    exact = [
        one.detach().double().requires_grad_(one.requires_grad) if one.is_floating_point() else one
        for one in arguments
    ]
    return copy.deepcopy(module).double(), exact


def test_every_operator_agrees_with_autograd_in_float64(counted: LoopCalls) -> None:
    module, arguments = Operators(), _arguments()
    exact = _results(*_in_float64(module, arguments))
    eager = _results(copy.deepcopy(module), arguments)
    trained = compiled(module, counted)
    untuned = copy.deepcopy(module.state_dict())
    for step in range(3):  # the first tunes, the second is compared, the third has kernels alone
        module.load_state_dict(untuned)
        found = _results(trained, arguments, step)
        for reference, one, other in zip(exact, eager, found, strict=True):
            assert other.stride() == one.stride()
            bound = 4 * (one - reference).abs().max() + 2e-6 * reference.abs().max()
            assert (other - reference).abs().max() <= bound
    assert counted.count > 12


class Block(nn.Module):
    """A small network with what a training has."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.first = nn.Linear(48, 96)
        self.norm = nn.LayerNorm(96)
        self.second = nn.Linear(96, 48)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Any) -> Any:
        return x + self.dropout(self.second(F.gelu(self.norm(self.first(x)))) * 0.5)


def _losses(module: Any, steps: int, step: Callable[[Any, Any], Any] | None = None) -> list[float]:
    """Return the losses of a training; inputs and masks of dropout are the same in each."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(3)
    losses = []
    torch.manual_seed(5)
    for _ in range(steps):
        x = torch.randn(128, 48, generator=generator)
        loss = step(module, x) if step else (module(x) - x.sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_for_50_steps_has_the_losses_of_eager(counted: LoopCalls) -> None:
    module = Block()
    eager = _losses(copy.deepcopy(module), 50)
    assert _losses(compiled(module, counted), 50) == pytest.approx(eager, rel=1e-4)
    assert eager[-1] < eager[0]
    assert counted.count > 100


@pytest.mark.slow
def test_what_is_no_faster_is_left_to_pytorch_bit_for_bit(counted: LoopCalls) -> None:
    module = Block()
    eager = _losses(copy.deepcopy(module), 4)
    with pytest.warns(FallbackWarning, match="no kernel for any of its regions") as caught:
        found = _losses(compiled(module, counted, Never()), 4)
    assert found == eager
    assert len(caught) == 1


@pytest.mark.slow
def test_a_kernel_that_computes_something_else_is_not_used() -> None:
    class Wrong(LoopCalls):
        def compute(self, call: Callable[..., Any], *arguments: Any) -> Any:
            return [one * (1 + 1e-3) for one in call(*arguments)]

    module, counted = Block(), Wrong()
    eager = _losses(copy.deepcopy(module), 3)
    with pytest.warns(FallbackWarning, match="an error of .* eager has"):
        assert _losses(compiled(module, counted), 3) == eager


@pytest.mark.parametrize(
    "error",
    [
        RunError("region", "no compiler"),
        pytest.param(ValueError("a bug"), marks=pytest.mark.slow),
    ],
    ids=["expected", "unexpected"],
)
def test_a_tuning_that_fails_is_a_warning(error: Exception) -> None:
    def fails(settings: Any) -> Any:
        raise error

    module = Block()
    eager = _losses(copy.deepcopy(module), 2)
    train = partial(TrainingGraph, loops=fails)
    with pytest.warns(FallbackWarning, match=r"[12] of [12] regions? .*(no compiler|a bug)"):
        trained = torch.compile(module, backend=partial(aoe_backend, train=train))
        assert _losses(trained, 2) == eager


class BrokenLoops:
    """Loops that fail whenever they are called; what is decided of them is kept."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def digest(self, *texts: str) -> str:
        return ""

    def verdict(self, digest: str) -> str | None:
        return None

    def keep(self, digest: str, reason: str) -> None:
        self.kept.append(reason)

    def compile(self, sources: Any) -> Any:
        def call(*arguments: Any) -> Any:
            raise RuntimeError("no memory left")

        return dict.fromkeys(sources, call)


def test_failure_of_one_process_is_no_verdict_for_the_next() -> None:
    module, loops = Block(), BrokenLoops()
    train = partial(TrainingGraph, loops=lambda settings: loops)
    with pytest.warns(FallbackWarning, match="it cannot be compared: no memory left"):
        trained = torch.compile(module, backend=partial(aoe_backend, train=train))
        _losses(trained, 2)
    assert not [reason for reason in loops.kept if "compared" in reason]


class Breaking(Block):
    """Has a graph break, a frozen layer and a checkpoint."""

    def forward(self, x: Any) -> Any:
        x = super().forward(x)
        x = _graph_break(x)
        return F.silu(checkpoint(super().forward, x, use_reentrant=False)) * x


@torch.compiler.disable
def _graph_break(x: Any) -> Any:
    return x + 1


def _many_ways(module: Any, x: Any) -> Any:
    """Accumulate gradients over two batches, another shape among them, and evaluate between."""
    (module(x).square().mean() / 2).backward()
    with torch.no_grad():
        module(x)
    return (module(x[:37]) - 1).square().mean()


@pytest.mark.slow
def test_graph_breaks_shapes_frozen_layers_and_checkpoints_go_on(counted: LoopCalls) -> None:
    module = Breaking()
    module.first.requires_grad_(False)
    eager = _losses(copy.deepcopy(module), 3, _many_ways)
    found = _losses(compiled(module, counted), 3, _many_ways)
    assert found == pytest.approx(eager, rel=1e-4)
    assert module.first.weight.grad is None


@pytest.mark.slow
def test_an_exception_between_the_passes_leaves_a_graph_that_works(counted: LoopCalls) -> None:
    module, x = Block(dropout=0), torch.randn(128, 48)
    trained = compiled(module, counted)
    trained(x)  # nobody asks for its gradients
    with pytest.raises(RuntimeError):
        trained(torch.randn(128, 47))
    expected = _results(copy.deepcopy(module), [x])
    for _ in range(3):
        found = _results(trained, [x])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_gradients_that_are_nothing_and_empty_tensors_pass(counted: LoopCalls) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Parameter(torch.randn(64, 64))
            self.unused = nn.Parameter(torch.randn(3))

        def forward(self, x: Any) -> Any:
            return F.silu(x.t() * self.used) * 2, x[:0] * 2, self.unused.detach()

    module, x = Odd(), torch.randn(64, 64)
    trained = compiled(module, counted)
    for _ in range(3):
        results = trained(x)
        assert results[1].shape == (0, 64)
        module.zero_grad()
        results[0].sum().backward()
        assert module.unused.grad is None
        assert module.used.grad.stride() == module.used.stride()


def test_autocast_to_bfloat16_is_right(counted: LoopCalls) -> None:
    module = Block(dropout=0)

    def step(model: Any, x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float().square().mean()

    eager = _losses(copy.deepcopy(module), 3, step)
    assert _losses(compiled(module, counted), 3, step) == pytest.approx(eager, rel=2e-2)


def test_script_trains_with_records_that_name_the_training(tmp_path: Path) -> None:
    module = Block()
    eager = _losses(copy.deepcopy(module), 3)
    options = {"bank": tmp_path, "tuning_time_limit": 20, "trials": 1}
    trained = torch.compile(module, backend="aoe", options=options)
    assert _losses(trained, 3) == pytest.approx(eager, rel=1e-4)
    files = tmp_path.rglob("*.jsonl")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert all(line["model"]["graph"] == "training" for line in lines)
    assert {line["model"]["direction"] for line in lines} <= {"forward", "backward"}


def test_training_loads_neither_exporter_nor_engine() -> None:
    heavy = ("onnx", "onnxruntime", "halide", "aoe.kernels.registry", "aoebank.formats.registry")
    code = f"import sys, aoe.torch.modules.backend; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_next_process_asks_nothing_that_was_decided(tmp_path: Path) -> None:
    asked = []

    class Counting(Always):
        def region(self, module: Any, call: Any, arguments: Any) -> bool:
            asked.append("region")
            return True

        def graph(self, eager: Any, compiled: Any) -> bool:
            asked.append("graph")
            return True

    module = Block()
    eager = _losses(copy.deepcopy(module), 3)
    options = {"bank": tmp_path, "tuning_time_limit": 20, "cache_dir": str(tmp_path / "kernels")}
    train = partial(TrainingGraph, choice=Counting())
    for number in (0, 1):
        torch.compiler.reset()
        backend = partial(aoe_backend, train=train, options=options)
        found = _losses(torch.compile(copy.deepcopy(module), backend=backend), 3)
        assert found == pytest.approx(eager, rel=1e-4)
        if number == 0:
            assert asked.count("graph") == 1
            assert asked.count("region") > 1
            asked.clear()
    assert not asked
