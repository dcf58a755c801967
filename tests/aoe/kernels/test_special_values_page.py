"""The table of special values in docs/kernels.md: kernels, ONNX Runtime and ONNX's reference.

Run as a program this prints the table anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from support.contracts.kernels import (
    CompiledKernel,
    guessed_schedules,
    kernel_target,
    operation,
    plain,
)
from support.tiers import chosen_every_day

from aoe.device.registry import default_device
from aoe.graph.workload_model import workload_model
from aoe.kernels.halide.shapes import shapes_of
from aoe.kernels.registry import classify
from aoe.ort.sessions import session_options
from aoe.workload import Operation, Workload

Array = np.ndarray[Any, Any]
Run = Callable[[Array], Array]
_PAGE = Path(__file__).parents[3] / "docs" / "kernels.md"
_PLACES = 12
_DENORMAL, _LOG_OF_IT = 1e-41, -94.4
_ROWS, _IMAGE = (6, 11), (1, 3, 7, 9)
_WINDOW = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
_AVX512_LANES = 16


def _rows(op_type: str, *others: str, **attributes: Any) -> tuple[Operation, tuple[int, ...]]:
    return operation(op_type, " ".join(["x0", *others]), **attributes), _ROWS


def _image(op_type: str, **attributes: Any) -> tuple[Operation, tuple[int, ...]]:
    return operation(op_type, "x0", **attributes), _IMAGE


_OPERATORS: Mapping[str, tuple[tuple[Operation, tuple[int, ...]], float]] = {
    "Abs": (_rows("Abs"), _DENORMAL),
    "AveragePool 3x3": (_image("AveragePool", **_WINDOW), _DENORMAL),
    "Exp": (_rows("Exp"), _LOG_OF_IT),
    "GlobalMaxPool": (_image("GlobalMaxPool"), _DENORMAL),
    "Log": (_rows("Log"), _DENORMAL),
    "LogSoftmax": (_rows("LogSoftmax", axis=-1), _LOG_OF_IT),
    "Max with 0": (_rows("Max", "s0"), _DENORMAL),
    "MaxPool 3x3": (_image("MaxPool", **_WINDOW), _DENORMAL),
    "Min with 0": (_rows("Min", "s0"), -_DENORMAL),
    "Mish": (_rows("Mish"), _LOG_OF_IT),
    "ReduceMax": (_rows("ReduceMax", axes=(1,), keepdims=1, version=13), _DENORMAL),
    "ReduceMin": (_rows("ReduceMin", axes=(1,), keepdims=1, version=13), -_DENORMAL),
    "ReduceSum": (_rows("ReduceSum", axes=(1,), keepdims=1, version=11), _DENORMAL),
    "Relu": (_rows("Relu"), _DENORMAL),
    "Resize, linear": (
        (
            operation(
                "Resize",
                "x0",
                mode="linear",
                sizes=(1, 3, 14, 18),
                coordinate_transformation_mode="half_pixel",
            ),
            _IMAGE,
        ),
        _DENORMAL,
    ),
    "Sigmoid": (_rows("Sigmoid"), _LOG_OF_IT),
    "Softmax": (_rows("Softmax", axis=-1), _LOG_OF_IT),
    "Softmax over another axis": (_rows("Softmax", axis=0), _LOG_OF_IT),
    "Softplus": (_rows("Softplus"), _LOG_OF_IT),
}
"""By label: the operator, the shape of its input, and what makes a result of the size 1e-41."""


@cache
def _runs(label: str) -> Mapping[str, Run]:
    (one, shape), _ = _OPERATORS[label]
    made = workload_of(one, shape)
    model = workload_model(made, seed=7)
    kernel = CompiledKernel(made, guessed_schedules(made)[0])
    options = session_options(threads=1, optimize=False)
    session = default_device().open_session(model.SerializeToString(), options)
    reference = ReferenceEvaluator(model)
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    return {
        "kernel": lambda x: kernel.run({**constants, "x0": x}),
        "ONNX Runtime": lambda x: session.run(None, {"x0": x})[0],
        "ONNX": lambda x: np.asarray(reference.run(None, {"x0": x})[0]),
    }


def workload_of(one: Operation, shape: tuple[int, ...]) -> Workload:
    """Return an operator of one input, and of 0 where it takes another one, as a workload."""
    first = Workload(
        op_type="any",
        inputs=(plain(*shape),),
        scalars=(0.0,) if "s0" in one.inputs else (),
        operations=(one,),
        output=plain(*shape),
    )
    shapes = shapes_of(first)
    assert not isinstance(shapes, str), shapes
    found = classify(replace(first, output=plain(*shapes[one.output])))
    assert isinstance(found, Workload), found
    return found


def _kind(value: float) -> str:
    if np.isnan(value):
        return "NaN"
    return "number" if np.isfinite(value) else "inf"


def _outcome(run: Run, shape: tuple[int, ...], value: float, reached: Mapping[int, Array]) -> str:
    """Return what comes of one special element, in the results that depend on it."""
    kinds = set()
    for place, mask in reached.items():
        x = _usual(shape)
        x.reshape(-1)[place] = value
        with np.errstate(all="ignore"):
            kinds |= {_kind(one) for one in run(x)[mask]}
    return " or ".join(sorted(kinds))


def _usual(shape: tuple[int, ...]) -> Array:
    drawn = np.random.default_rng(7).standard_normal(shape)
    return (np.abs(drawn) + 0.1).astype(np.float32)


def _denormal(run: Run, label: str) -> str:
    """Return what comes of a result that is denormal, or of the logarithm of such a number."""
    (_, shape), value = _OPERATORS[label]
    x = np.zeros(shape, np.float32)
    softmax, is_log = "Softmax" in label, "Log" in label
    x[(slice(None), 1) if softmax and "another" not in label else (1 if softmax else ...)] = value
    with np.errstate(all="ignore"):
        found = run(x)
    least = np.abs(found[np.isfinite(found)]).min(initial=np.inf)
    is_kept = np.isfinite(found).all() if is_log else 0 < least < 1.2e-38
    return "kept" if is_kept else ("-inf" if is_log else "0")


def _reached(label: str) -> Mapping[int, Array]:
    """Return the results that depend on an element, for some elements."""
    (_, shape), _ = _OPERATORS[label]
    run = _runs(label)["ONNX Runtime"]
    places = np.random.default_rng(1).choice(int(np.prod(shape)), _PLACES, replace=False)
    found = {}
    for place in map(int, places):
        probes = []
        for probe in (-29.0, 31.0):
            x = _usual(shape)
            x.reshape(-1)[place] = probe
            probes.append(run(x))
        found[place] = probes[0] != probes[1]
    return found


def _cells(label: str) -> list[str]:
    reached, shape = _reached(label), _OPERATORS[label][0][1]
    cells = []
    for value in (np.nan, np.inf, None):
        for run in _runs(label).values():
            cells.append(
                _denormal(run, label) if value is None else _outcome(run, shape, value, reached)
            )
    return cells


def _line(label: str, cells: list[str]) -> str:
    return f"| {label} | " + " | ".join(cells) + " |"


@pytest.mark.parametrize(
    "label", chosen_every_day(_OPERATORS, {"MaxPool 3x3", "Softmax", "ReduceMax"})
)
def test_page_says_what_comes_of_special_values(label: str) -> None:
    (said,) = [
        line
        for line in _PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| {label} | ") and line.count("|") == 11
    ]
    found = _cells(label)
    if kernel_target().vector_lanes < _AVX512_LANES:  # ONNX Runtime's depend on the CPU
        written = said.strip("| ").split(" | ")[1:]
        found = [
            old if at % 3 == 1 else new
            for at, (old, new) in enumerate(zip(written, found, strict=True))
        ]
    assert said == _line(label, found)


if __name__ == "__main__":
    for name in _OPERATORS:
        print(_line(name, _cells(name)))
