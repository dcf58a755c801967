"""Records in words: workloads in one short line, strategies as a small tree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sample_bank_files import ALL, GRADIENT, GRAPH, RUNTIME_KB

import aoebank
from aoebank import Record
from aoebank.formats.registry import FORMATS
from aoebank.formats.words import WIDTH, words_of, workload_line


def text_of(workload: Any, format_: str = "unified") -> str:
    return workload_line(Record(key="k", workload=workload, strategy={}, format=format_))


@pytest.mark.parametrize(
    ("workload", "text"),
    [
        (
            {"op_type": "Softmax", "shape": [1, 2], "axis": -1, "x": True, "y": None},
            "op_type=Softmax shape=[1,2] axis=-1 x=true y=null",
        ),
        ({"a b": "c d"}, '"a b"="c d"'),
        ({"x": "true", "y": "null", "z": "false"}, 'x="true" y="null" z="false"'),
        ([1, [2]], "[1,[2]]"),
        ("x", '"x"'),
        ({}, ""),
    ],
)
def test_members_stand_in_their_order(workload: Any, text: str) -> None:
    assert text_of(workload) == text


def test_runtime_bank_leaves_out_zeros_and_ones_but_no_data_type() -> None:
    workload = {"a_dtype": 1, "b_dtype": 0, "m": 16, "batch": 1, "bias": False, "t": True, "f": 0.0}
    assert text_of(workload, "runtime_kb").startswith("a_dtype=1 b_dtype=0 m=16 (")


def test_subgraph_is_its_operators_and_a_digest() -> None:
    struct = [{"op": "Conv2D"}, {"op": "Relu"}, {"op": "Conv2D"}]
    text = text_of({"feature": [{"struct": struct}]}, "graph")
    assert text.startswith("Conv2D x2 + Relu (")
    assert text != text_of({"feature": [{"struct": [*struct, struct[0]]}]}, "graph")
    assert text_of({}, "graph").startswith("subgraph (")


def test_long_text_is_cut_and_still_tells_two_workloads_apart() -> None:
    first, second = (text_of({"x": "y" * 500 + end}) for end in "ab")
    assert first != second
    assert len(first) <= WIDTH + len(" (12345678)")


def test_sample_of_each_format_is_told_without_json() -> None:
    told = {path: words_of(aoebank.show(path).records[0].record) for path in ALL}
    names = {path: f"{path.parent.name}/{path.name.rpartition('_')[2]}" for path in ALL}
    assert {names[path]: one.computes for path, one in told.items()} == {
        "unified_bank/kb.json": "MatMulV3 16x16 by 16x16 FLOAT16",
        "unified_bank/matmul.json": "matmul 1x16 by 16x64",
        "cube/matmul.json": "matmul 1x4x16x16 float16 by 4x4x16x16",
        "vector/000000.json": "2 tensors: 24x1, scalar",
        "graph/l2cache.json": "Conv2D x4: 24x1x7x7x16",
        "graph/fusion.json": "48 gradients, 144.1 MiB",
        "gpu/MI300X-GEMM-A8W8-N=1024-K=8192.json": "class=medium_M8 N=1024 K=8192",
        "gpu/gemm.csv": "M=1 N=1024 K=512",
        "gpu/tuner.json": "problem_size=[10000000] block_size_x=32 vector=2",
        "gpu/add-t4-results.json": "block_size_x=32 vector=2",
        "gpu/repository.json": "Mul + TensorAdd, inputs: 2",
        "gpu/B200.py": "MoERunner 16x512 by 8x192x64 by 0",
        "gpu/record.json": "workload 0: float16 16x64 by 64x192",
        "gpu/results0.csv": "params=nt_512_4096_64 M=512 N=4096 K=64",
        "gpu/shape=[128,128].json": "M=8 E=8 N=1024 dtype=fp8_w8a8 block_shape=[128,128]",
    }
    assert told[GRAPH].strategy == ("4 of 4 nodes fused", "of model synthetic")
    assert told[GRADIENT].strategy[1] == "sizes from 2048 to 9437184 bytes"
    assert told[RUNTIME_KB].strategy[0].startswith("usedCoreNum=24 singleCoreM=16")
    assert told[RUNTIME_KB].strategy_line.endswith("...")


@pytest.mark.parametrize(
    ("op_type", "workload", "words"),
    [
        (
            "Conv3DBackpropInputV2",
            {"batch_n": 2, "groups": 1, "dedx_d": 4, "dedx_cin": 8, "dedx_h": 6, "dedx_w": 6}
            | {"dedy_d": 4, "dedy_cout": 16, "dedy_h": 3, "dedy_w": 3, "kernel_d": 1}
            | {"kernel_h": 3, "kernel_w": 3, "stride_d": 1, "stride_h": 2, "stride_w": 2},
            "Conv3DBackpropInputV2 1x3x3 8->16 stride 1x2x2, batch 2 of 4x6x6 -> 4x3x3",
        ),
        (
            "Conv3DBackpropFilterV2",
            {"batch": 1, "groups": 2, "co": 16, "ci": 8, "dout": 1, "ho": 3, "wo": 3, "di": 1}
            | {"hi": 3, "wi": 3, "kd": 1, "kh": 1, "kw": 1, "a_dtype": 27, "b_dtype": 27},
            "Conv3DBackpropFilterV2 1x1x1 8->16 in 2 groups, batch 1 of 1x3x3 -> 1x3x3 BF16",
        ),
    ],
)
def test_gradient_of_a_convolution_is_told_by_its_geometry(
    op_type: str, workload: dict[str, Any], words: str
) -> None:
    record = Record(key="k", workload=workload, strategy={}, format="runtime_kb", op_type=op_type)
    assert words_of(record).computes == words


def test_schedule_is_a_tree_of_stages_and_groups_of_a_subgraph_are_lines() -> None:
    steps = [["split", "y", "x", "xo", "xi", 8, "guard"], ["parallel", "y", "xo", None]]
    steps += [["compute_at", "sum", "y", "xo"], ["vectorize", "sum", "xi", 8]]
    knobs = {"vector": 8, "tasks": 2}
    tuned = Record(key="k", workload={}, strategy={"knobs": knobs, "steps": steps})
    assert words_of(tuned).strategy == (
        "vector=8 tasks=2",
        *("y", "  split x -> xo, xi by 8 (guard)", "  parallel xo"),
        *("sum", "  compute at y xo", "  vectorize xi by 8"),
    )
    groups = [{"cut": [2], "ubPass": {}}, {"cut": [1, 1], "ubPass": {"AutomaticUbFusion": [0, 1]}}]
    subgraph = Record(key="k", workload={}, strategy={"group": groups}, format="graph")
    assert words_of(subgraph).strategy == (
        "2 groups: batch in 2 pieces; AutomaticUbFusion for 2",
        "  group 1: batch in 2 pieces",
        "  group 2: AutomaticUbFusion for 2",
    )


def test_task_of_no_iterations_is_told() -> None:
    lines = [aoebank.step_words(["parallel", "y", "x", size]) for size in (None, 0, 4)]
    assert lines == ["y: parallel x", "y: parallel x by 0", "y: parallel x by 4"]


def test_strategy_of_another_engine_is_told_by_its_members() -> None:
    strategy = {"knobs": {}, "steps": [["warp", "y", 3]]}
    (line,) = words_of(Record(key="k", workload={}, strategy=strategy)).strategy
    assert line == 'knobs={} steps=[["warp","y",3]]'


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from([known.name for known in FORMATS]),
)
def test_any_workload_is_one_printable_line(workload: Any, format_: str) -> None:
    text = text_of(workload, format_)
    assert text.isascii()
    assert text.isprintable()


@pytest.mark.parametrize(
    "workload",
    [
        {"operations": [{"op": "Conv"}], "inputs": [], "output": {}},
        {"operations": [], "inputs": [{}], "output": {"shape": [1]}},
        {"operations": "Conv", "inputs": {"shape": 1}, "output": None},
        {"operations": [{"op": "QLinearConv", "in": ["x0"]}], "inputs": [1], "output": 2},
    ],
)
def test_workload_of_another_engine_is_told_by_its_members(workload: Any) -> None:
    told = workload_line(Record(key="k", strategy={}, workload=workload))
    assert told.startswith("operations=")
