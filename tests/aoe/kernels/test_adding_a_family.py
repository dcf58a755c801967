"""Adding a kernel family takes its file, a line of the registry and a row for its operator."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import halide as hl
import onnx
import pytest
from onnx import helper
from support.contracts.kernels import KernelFamilyTests, operation, plain
from support.engine.fakes import RecordingProgress, ScriptedRunner
from support.engine.models import make_model, save_model

from aoe.device.compiler import KernelSource, compile_kernel
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.anchored import (
    AnchoredNest,
    anchor_operands,
    anchored_pipeline,
    plan_nest,
    split_at_anchor,
)
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.tiling import guided_space, inner_steps, vector_choices
from aoe.kernels.math.functions import constant, strict
from aoe.kernels.registry import FAMILIES
from aoe.om.file import read_manifest
from aoe.operators import OPERATORS, OperatorFacts, OperatorKind, Specials
from aoe.runs.operators.result import OpatResult
from aoe.runs.run import tune_with
from aoe.schedule import (
    ComputeAt,
    Knob,
    Memory,
    Schedule,
    Space,
    StoreIn,
    Values,
    schedule_from_json,
)
from aoe.tuner.mode import TuneSettings
from aoe.tuner.parts import EngineParts
from aoe.workload import Workload, workload_from_json

KEY = ("", "LpNormalization")

# ---- the family's file ----


class UnitLength(PlannedFamily[AnchoredNest]):
    """x / sqrt(sum of squares of its row), then the chain."""

    name = "unit_length"
    anchors = frozenset({KEY})

    def plan(self, workload: Workload) -> AnchoredNest | Support:
        parts = split_at_anchor(workload, self.anchors)
        if isinstance(parts, Support):
            return parts
        shape = workload.output.shape
        if workload.blocked or len(shape) != 2 or parts.anchor.attributes.get("axis", -1) != -1:
            return Support("only rows of a matrix")
        return plan_nest(parts, ("d0_", "d1_"))

    def pipeline_of(self, plan: AnchoredNest, algorithm: str) -> Pipeline:
        operands = anchor_operands(plan)
        source, (column, *rows) = operands.arguments[plan.parts.source], operands.variables
        k = hl.RDom([(0, plan.axes[-1].extent)], "k")
        total, value = hl.Func("total"), source[(hl.Expr(k.x), *rows)]
        total[tuple(rows)] = constant(0.0)
        total[tuple(rows)] = total[tuple(rows)] + value * value
        total.compute_root()
        result = strict(source[(column, *rows)] / hl.sqrt(total[tuple(rows)]))
        loops = {"total": tuple((v.name(), 0) for v in rows)}
        return anchored_pipeline(plan, operands, result, {"total": total}, loops)

    def space_of(self, plan: AnchoredNest, target: KernelTarget) -> Space:
        vectors = vector_choices(plan.axes[-1].extent, target.vector_lanes)
        return guided_space((Knob("vector", vectors),), [(vectors[0],)])

    def schedule_of(self, plan: AnchoredNest, values: Values, target: KernelTarget) -> Schedule:
        *_, row, column = plan.axes
        inner = inner_steps(RESULT, column.name, column.extent, int(values["vector"]), 1)
        placed = (ComputeAt("total", RESULT, row.name), StoreIn("total", Memory.STACK))
        return Schedule((*inner, *placed))


# ---- its line and its row ----


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "unit_length", UnitLength())
    row = OperatorFacts(
        kind=OperatorKind.AXIS,
        shape=lambda operation, shapes: shapes[0],
        specials=Specials.FEW,
        summed=lambda operation, shape: shape[-1],
    )
    monkeypatch.setitem(OPERATORS, KEY, row)


# ---- and everything works ----


class TestUnitLength(KernelFamilyTests):
    family_name = "unit_length"
    cases: Mapping[str, Workload] = {
        label: Workload(
            op_type="unit_length",
            inputs=(plain(*shape),),
            operations=(operation("LpNormalization", "x0", axis=-1), *after),
            output=plain(*shape),
        )
        for label, shape, after in (
            ("rows", (12, 33), ()),
            ("short rows", (40, 3), ()),
            ("chain behind", (7, 64), (operation("Softplus", "t0", "t1"),)),
        )
    }


class _CompilingRunner(ScriptedRunner):
    """Measures by script, but compiles in this process, where the family is registered."""

    def _compile_kernels(self, kernels: list[Any], directory: Path, **_: object) -> dict[str, str]:
        for name, workload, schedule in kernels:
            source = KernelSource(
                name=name,
                workload=workload_from_json(workload),
                schedule=schedule_from_json(schedule),
            )
            compile_kernel(source, self.target, directory)
        return {name: "" for name, _, _ in kernels}


def test_model_is_tuned_with_the_new_family(
    tmp_path: Path,
) -> None:
    nodes = [
        helper.make_node("LpNormalization", ["x"], ["unit"], name="unit", axis=-1),
        helper.make_node("Softplus", ["unit"], ["y"], name="soft"),
    ]
    model: onnx.ModelProto = make_model(nodes, {"x": (256, 128)}, ["y"])
    save_model(model, tmp_path / "net.onnx")
    (tmp_path / "bank").mkdir()

    def scripted(device: Any, target: Any, toolchain: Any, turns: Any) -> ScriptedRunner:
        return _CompilingRunner(
            device=device,
            target=target,
            toolchain=toolchain,
            turns=turns,
            model=lambda baseline, tuned: 1.5,
        )

    (result,) = tune_with(
        TuneSettings(model=tmp_path / "net.onnx", output=tmp_path / "out", core_num=2, trials=3),
        env={"PATH": os.environ["PATH"], "TUNE_BANK_PATH": str(tmp_path / "bank")},
        cwd=tmp_path,
        progress=RecordingProgress(),
        now=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        engine=EngineParts(open_runner=scripted),
    ).modes
    assert isinstance(result, OpatResult)
    (tuned,) = result.operators
    assert tuned.operator.workload.op_type == "unit_length"
    assert [op.op_type for op in tuned.operator.workload.operations] == [
        "LpNormalization",
        "Softplus",
    ]
    assert tuned.schedule is not None
    assert list((tmp_path / "bank").rglob("*_unit_length.json"))
    (use,) = read_manifest(result.places.om_file).kernels
    assert use.op_type == "unit_length"
