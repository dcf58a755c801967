"""A model of float16 or bfloat16 in float32, where the precision of a run allows that.

The form is held against the model as written before anything is tuned: what it makes must keep the
bound on accuracy, and numbers that float16 cannot hold count for nothing, for there the model as
written is the one that is wrong. Which of both is faster is decided when operators are tuned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from aoe.entry.protocol import ImportedModel
from aoe.execute.messages import ModelPart, TaskRunner
from aoe.graph.rewrites.half_precision import is_half_precision, written_in_float32
from aoe.graph.weights import WeightStore, is_outside
from aoe.om.file import WEIGHTS
from aoe.ort.inputs import ModelInputs
from aoe.ort.offline_optimization import is_fully_optimized
from aoe.ort.sessions import OpenSession
from aoe.tuner.precision.constraint import AccuracyConstraint, Results, told
from aoe.tuner.progress import Progress

_TIMEOUT_S = 600.0
_NO_BFLOAT16 = (
    "ONNX Runtime computes no bfloat16 on a CPU: what is tuned, and what it is measured against, "
    "is the model in float32"
)


def as_host_computes_it(model: ImportedModel, open_session: OpenSession) -> ImportedModel:
    """Return a model of bfloat16 in float32, if ONNX Runtime cannot compute it as written."""
    if not is_half_precision(model.proto, TensorProto.BFLOAT16):
        return model
    if is_fully_optimized(model.proto, open_session):
        return model
    caveat = "; ".join(filter(None, (model.caveat, _NO_BFLOAT16)))
    return replace(model, proto=written_in_float32(model.proto), caveat=caveat)


def find_float32_form(
    model: ImportedModel,
    *,
    runner: TaskRunner,
    inputs: Sequence[ModelInputs],
    constraint: AccuracyConstraint,
    folder: Path,
    progress: Progress,
    is_checked: bool = True,
) -> onnx.ModelProto | None:
    """Return a model in float32; None if nothing in it is narrower, or it computes something else.

    Args:
        model: As it was imported.
        runner: Runs both.
        inputs: What they are run on, every set; of a range, at each of its shapes.
        constraint: What the form has to keep.
        folder: Is made for both models.
        progress: Is told what was found.
        is_checked: False to believe it.

    Raises:
        AccuracyError: the metric fails.
        RunError: the model as written cannot be run.
    """
    form = written_in_float32(model.proto)
    if form is model.proto:
        return None
    if not is_checked:
        return form
    progress.step("writing what is narrower than float32 in float32")
    reference, results = _results((model.proto, form), folder, runner, inputs)
    reference, overflown = _without_overflow(reference, results)
    value = constraint.value(reference, results)
    if overflown:
        progress.warn(
            f"the model as written makes infinities or NaN of {overflown} values that float32 holds"
        )
    found = f"{constraint.name} {told(value)} to the model as written"
    if not constraint.holds(value):
        progress.warn(
            f"in float32 it computes something else, {found} where {constraint} is wanted: "
            "tensors keep their types"
        )
        return None
    progress.step(f"in float32: {found}")
    return form


def _results(
    models: Sequence[onnx.ModelProto],
    folder: Path,
    runner: TaskRunner,
    inputs: Sequence[ModelInputs],
) -> tuple[Results, Results]:
    """Return the results of two models."""
    folder.mkdir()
    parts = []
    with WeightStore(folder / WEIGHTS) as store:
        for number, proto in enumerate(models):
            file = folder / f"{number}.onnx"
            file.write_bytes(store.externalize(proto).SerializeToString())
            parts.append(ModelPart(model=file, is_large=is_outside(proto)))
    first, second = (
        [
            found
            for one in inputs
            for found in runner.call("run_model", timeout_s=_TIMEOUT_S, part=part, inputs=one)
        ]
        for part in parts
    )
    return first, second


def _without_overflow(reference: Results, results: Results) -> tuple[Results, int]:
    """Return results with those of another model where that one's alone are finite, and how many.

    Sequences and maps stay as they are.
    """
    count = 0

    def filled(one: Any, other: Any) -> Any:
        nonlocal count
        if not isinstance(one, np.ndarray) or one.dtype.kind != "f" or one.shape != other.shape:
            return one
        lost = ~np.isfinite(one) & np.isfinite(other)
        count += int(lost.sum())
        return np.where(lost, other, one)

    found = [
        [filled(one, other) for one, other in zip(left, right, strict=True)]
        for left, right in zip(reference, results, strict=True)
    ]
    return found, count
