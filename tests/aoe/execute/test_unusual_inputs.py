"""Whole models on unusual inputs: what is a fault there, and what ONNX Runtime does itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.contracts.small_models import SmallModel
from support.engine.cpu import CPU, TwoCoreCpu
from support.engine.models import make_model, save_model

from aoe.device.protocol import Device
from aoe.execute.accuracy import Deviation
from aoe.execute.idle_gate import NoOtherRuns
from aoe.execute.messages import ModelPart, WorkerSetup
from aoe.execute.tasks import ComparisonTerms, make_tasks
from aoe.execute.unusual_inputs import UnusualInputs
from aoe.ort.inputs import MADE_UP
from aoe.ort.thread_pools import ThreadPool
from aoe.tuner.policies import single_run_policy

_SHAPE = (4, 24)
Writer = Callable[[SmallModel, str], str]


def _found(
    folder: Path,
    baseline: onnx.ModelProto,
    tuned: onnx.ModelProto,
    most_s: float = 10.0,
    device: Device = CPU,
) -> Deviation:
    parts = [
        ModelPart(model=save_model(proto, folder / f"{name}.onnx"), optimize=True)
        for name, proto in (("baseline", baseline), ("tuned", tuned))
    ]
    setup = WorkerSetup(
        device=device,
        target=CPU.describe(1),
        compiler=(),
        directory=folder,
        pool=ThreadPool.OWN,
    )
    return UnusualInputs(setup).compared(parts[0], parts[1], [MADE_UP], most_s)


def _written(write: Writer, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    small = SmallModel()
    return small.model(write(small, small.input(*_SHAPE, dtype=dtype)))


def _limited(small: SmallModel, x: str) -> str:
    return small.op("Clip", x, small.constant(-20.0), small.constant(20.0))


def _log_of_softmax(small: SmallModel, x: str, *, flushed: bool = False) -> str:
    grown = small.op("Softmax", x, axis=-1)
    if flushed:
        low = small.op("Less", grown, small.constant(1.2e-38))
        grown = small.op("Where", low, small.constant(0.0), grown)
    return small.op("Log", small.op("Max", grown, small.constant(1e-44)) if not flushed else grown)


def _without_nan(small: SmallModel, x: str) -> str:
    return small.op("Where", small.op("IsNaN", x), small.constant(0.0), x)


def _nan_for_all(small: SmallModel, x: str) -> str:
    total = small.op("ReduceSum", x, keepdims=0)
    return small.op("Add", x, small.op("Mul", total, small.constant(0.0)))


def _divided(small: SmallModel, x: str) -> str:
    most = small.op("ReduceMax", small.op("Abs", x), keepdims=0)
    return small.op("Mul", small.op("Div", x, most), most)


def _rounded_off(small: SmallModel, x: str) -> str:
    low = small.op("Less", small.op("Abs", x), small.constant(0.002))
    return small.op("Where", low, small.constant(0.0), x)


def _as_it_is(small: SmallModel, x: str) -> str:
    return small.op("Add", x, small.constant(0.0))


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        (_as_it_is, _limited, "on inputs times 30: result 0: "),
        (
            _log_of_softmax,
            lambda small, x: _log_of_softmax(small, x, flushed=True),
            "-inf instead of -",
        ),
        (_as_it_is, _without_nan, "on inputs with one NaN: result 0: 0 instead of nan"),
        (_as_it_is, _nan_for_all, "on inputs with one NaN: result 0: nan instead of "),
        (_as_it_is, _divided, "on inputs of zeros: result 0: nan instead of 0"),
        (_as_it_is, _rounded_off, "on inputs times 0.001: result 0: 0 instead of "),
    ],
    ids=["limit", "denormal", "lost NaN", "NaN of another sample", "zeros", "small"],
)
def test_fault_that_normal_inputs_do_not_show_is_found(
    right: Writer, wrong: Writer, words: str, tmp_path: Path
) -> None:
    found = _found(tmp_path, _written(right), _written(wrong))
    assert not found.acceptable and words in found.detail, found


class _LateSession:
    """A session whose runs begin when their time is over."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, *how: Any) -> Any:
        time.sleep(2 * _SHORT_S)
        return self._session.run(*how)


_SHORT_S = 0.2


@dataclass(frozen=True, slots=True)
class _LateCpu(TwoCoreCpu):
    """A machine that is too slow once the untuned and the tuned model have been run."""

    opened: list[Any] = field(default_factory=list)

    def open_session(self, *how: Any) -> Any:
        self.opened.append(TwoCoreCpu.open_session(self, *how))
        return self.opened[-1] if len(self.opened) < 3 else _LateSession(self.opened[-1])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (_without_nan, "on inputs with one NaN: result 0: 0 instead of nan"),
        (_nan_for_all, ""),  # nobody knows where it may come out
        (_limited, "on inputs times 30: result 0: "),
    ],
)
def test_fault_is_one_though_no_time_is_left_to_see_what_onnx_runtime_makes_of_it(
    wrong: Writer, words: str, tmp_path: Path
) -> None:
    device = _LateCpu()
    found = _found(tmp_path, _written(_as_it_is), _written(wrong), _SHORT_S, device)
    assert found.acceptable is not bool(words) and words in found.detail
    assert len(device.opened) > 2


def _sine_of_product(parts: int) -> onnx.ModelProto:
    """Return the sine of large numbers: rounding decides about all digits."""
    small = SmallModel()
    x = small.input(8, 256)
    w = np.random.default_rng(7).standard_normal((256, 64)).astype(np.float32)
    names = [
        small.op(
            "MatMul",
            small.op(
                "Slice", x, *(small.constant([at]) for at in (first, first + 256 // parts, 1))
            ),
            small.constant(w[first : first + 256 // parts]),
        )
        for first in range(0, 256, 256 // parts)
    ]
    total = names[0] if parts == 1 else small.op("Sum", *names)
    return small.model(small.op("Sin", small.op("Mul", total, small.constant(1e3))))


def _arg_max(slope: float) -> onnx.ModelProto:
    small = SmallModel()
    x = small.input(64, 32)
    added = small.constant((slope * np.arange(16)).astype(np.float32))
    return small.model(
        small.op("ArgMax", small.op("Add", small.op("MatMul", x, small.weight(32, 16)), added))
    )


def _gathered(scale: float) -> onnx.ModelProto:
    """Return rows that the numbers themselves choose: times 30 there are none."""
    small = SmallModel()
    x = small.input(*_SHAPE)
    rows = small.op("Cast", x, to=TensorProto.INT64)
    return small.model(
        small.op("Mul", small.op("Gather", small.weight(16, 3), rows), small.constant(scale))
    )


def _normalised(*, is_windowed: bool) -> onnx.ModelProto:
    """Return LRN, or what it means: ONNX Runtime keeps a running sum of the channels."""
    small = SmallModel()
    x = small.input(1, 24, 3, 5)
    if not is_windowed:
        return small.model(small.op("LRN", x, size=5, alpha=0.5))
    pads = small.constant([0, 2, 0, 0, 0, 2, 0, 0])
    squares = small.op("Pad", small.op("Mul", x, x), pads)
    axis = small.constant([1])
    near = [
        small.op("Slice", squares, small.constant([at]), small.constant([at + 24]), axis)
        for at in range(5)
    ]
    mean = small.op("Mul", small.op("Sum", *near), small.constant(0.1))
    below = small.op("Pow", small.op("Add", mean, small.constant(1.0)), small.constant(0.75))
    return small.model(small.op("Div", x, below))


@pytest.mark.parametrize(
    ("baseline", "tuned"),
    [
        (_sine_of_product(1), _sine_of_product(4)),
        (_arg_max(0.0), _arg_max(1e-7)),
        (_gathered(1.0), _gathered(1.0 + 1e-6)),
        (_normalised(is_windowed=False), _normalised(is_windowed=True)),
    ],
    ids=["rounding", "ties", "illegal", "NaN of a running sum"],
)
def test_what_onnx_runtime_itself_does_not_settle_is_no_fault(
    baseline: onnx.ModelProto, tuned: onnx.ModelProto, tmp_path: Path
) -> None:
    assert _found(tmp_path, baseline, tuned).acceptable


def _endless_with_zeros() -> onnx.ModelProto:
    """Return a loop that adds the largest element up until the sum is 10."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["before", "most"], ["after"]),
            helper.make_node("Less", ["after", "ten"], ["goes_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, []),
        ],
    )
    nodes = [
        helper.make_node("Abs", ["x"], ["sizes"]),
        helper.make_node("ReduceMax", ["sizes"], ["most"], keepdims=0),
        helper.make_node("Loop", ["", "true", "zero"], ["y"], body=body),
    ]
    weights = {
        "true": np.array(True),
        "zero": np.array(0, np.float32),
        "ten": np.array(10, np.float32),
    }
    return make_model(nodes, {"x": _SHAPE}, ["y"], weights=weights)


def test_loop_without_an_end_is_ended(tmp_path: Path) -> None:
    model = _endless_with_zeros()
    assert _found(tmp_path, model, model, most_s=0.3).acceptable


def test_settings_and_integers_keep_their_values(tmp_path: Path) -> None:
    """Thirty times the scales of a Resize would be 900 times the pixels."""
    small = SmallModel()
    x = small.input(1, 1, 2, 2)
    scales = small.input(4)
    rows = small.input(2, dtype=TensorProto.INT64)
    sizes = small.op("Gather", small.constant(np.array([1, 1, 2, 3], np.float32)), rows)
    kept = small.op("Mul", scales, small.constant(0.0))
    table = small.op("Add", kept, small.constant(np.array([1, 1, 2, 3], np.float32)))
    image = small.op("Resize", x, "", table)
    model = small.model(small.op("Add", image, small.op("ReduceSum", sizes, keepdims=0)))
    assert _found(tmp_path, model, model).acceptable


def test_empty_tensor_of_a_decoder_without_a_past_stays_empty(tmp_path: Path) -> None:
    def decoder(write: Writer) -> onnx.ModelProto:
        small = SmallModel()
        past, now = small.input(1, 2, 0, 4), small.input(1, 2, 3, 4)
        return small.model(write(small, small.op("Concat", past, now, axis=2)))

    assert _found(tmp_path, decoder(_as_it_is), decoder(_as_it_is)).acceptable
    found = _found(tmp_path, decoder(_as_it_is), decoder(_limited))
    assert "on inputs times 30: result 0: " in found.detail


def test_untuned_model_runs_once_for_all_candidates(tmp_path: Path) -> None:
    opened: list[Path | bytes] = []

    class _Counting(type(CPU)):  # type: ignore[misc]
        def open_session(self, model: Path | bytes, options: object) -> object:
            opened.append(model)
            return CPU.open_session(model, options)

    part = ModelPart(model=save_model(_written(_as_it_is), tmp_path / "m.onnx"), optimize=True)
    other = ModelPart(model=save_model(_written(_as_it_is), tmp_path / "n.onnx"), optimize=True)
    setup = WorkerSetup(
        device=_Counting(),
        target=CPU.describe(1),
        compiler=(),
        directory=tmp_path,
        pool=ThreadPool.OWN,
    )
    unusual = UnusualInputs(setup)
    for _ in range(2):
        assert unusual.compared(part, other, [MADE_UP], 10.0).acceptable
    assert opened == [part.model, other.model, other.model]


# ---- models that round to integers ----


def _quantized(small: SmallModel, x: str, *, factor: float = 1.0) -> str:
    """Return quantised numbers; one in ten thousand is next to where rounding changes."""
    step, zero = small.constant(0.02), small.constant(np.array(0, np.int8))
    codes = small.op("QuantizeLinear", small.op("Mul", x, small.constant(factor)), step, zero)
    return small.op("DequantizeLinear", codes, step, zero)


def _of_many(write: Writer) -> onnx.ModelProto:
    small = SmallModel()
    return small.model(write(small, small.input(400, 300)))


def _compared(folder: Path, tuned: Writer, *, rounds: bool, is_large: bool = False) -> Deviation:
    """Compare a quantised model with another one on usual inputs, as a run does."""
    setup = WorkerSetup(
        device=CPU, target=CPU.describe(1), compiler=(), directory=folder, pool=ThreadPool.OWN
    )
    parts = [
        ModelPart(
            model=save_model(_of_many(write), folder / f"{name}.onnx"),
            optimize=True,
            is_large=is_large,
        )
        for name, write in (("baseline", _quantized), ("tuned", tuned))
    ]
    found = make_tasks(setup, NoOtherRuns())["compare_models"](
        baseline=parts[0],
        tuned=parts[1],
        policy=replace(single_run_policy(1), least_quiet=0.0),
        inputs=MADE_UP,
        terms=ComparisonTerms(rounding=parts[0] if rounds else None),
    )
    deviation: Deviation = found.deviation
    return deviation


@pytest.mark.parametrize("is_large", [False, True])
def test_a_step_that_rounding_moves_is_no_fault_of_a_quantised_model(
    tmp_path: Path, is_large: bool
) -> None:
    """Neither of two that are loaded together, nor of large ones, which are loaded in turns."""

    def moved(small: SmallModel, x: str) -> str:
        return _quantized(small, x, factor=1 + 2e-6)

    assert not _compared(tmp_path, moved, rounds=False, is_large=is_large).acceptable
    found = _compared(tmp_path, moved, rounds=True, is_large=is_large)
    assert found.acceptable, found.detail
    assert "of 120,000 values differ beyond rounding" in found.note
    assert "of ONNX Runtime's own" in found.note


def test_other_integers_are_a_fault_of_a_quantised_model_too(tmp_path: Path) -> None:
    def wrong(small: SmallModel, x: str) -> str:
        return _quantized(small, x, factor=1.05)

    found = _compared(tmp_path, wrong, rounds=True)
    assert not found.acceptable and found.detail.startswith("result 0: ")
