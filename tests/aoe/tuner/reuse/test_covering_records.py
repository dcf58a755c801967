"""Fixed shapes a record of a range of shapes answers, and those it does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from support.engine.open_rows import opened, parsed
from support.engine.tuning import make_bank, make_journal, make_target, make_verdict

from aoe.bank.operators import OperatorBank
from aoe.bank.records.operator import StoredAnswer
from aoe.graph.open_extents import OpenRegion, find_open_region
from aoe.graph.open_images import OpenImages, find_open_images
from aoe.graph.open_rows import OpenRows, find_open_rows
from aoe.kernels.family import KernelTarget
from aoe.kernels.registry import get_family
from aoe.tuner.reuse.covering_records import CoveringRecords, GuardedRecords
from aoe.tuner.search.book import opening
from aoe.workload import Workload
from aoebank import AoebankError, Event

_EXTENTS = {"N": 2, "S": 48, "K": 64, "H": 32, "W": 40}
_TARGET = KernelTarget.of(make_target())
_MATMUL = ("t = MatMul(x, w) u = Add(t, b) y = Relu(u)", "float[64,96] w, float[96] b")
_GEMM = ("t = Gemm(x, w, b) y = Relu(t)", _MATMUL[1])
_NORM = ("y = LayerNormalization(x, g)", "float[64] g")
_SOFTMAX = ("y = Softmax(x)", "")
_ATTENTION = ("s = MatMul(x, k) p = Softmax(s) y = MatMul(p, v)", "")
_CONV = (
    "t = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w) y = Relu(t)",
    "float[8,3,3,3] w",
)


def _fixed(inputs: str, body: tuple[str, str]) -> Workload:
    """Return the largest workload of a model of fixed shape."""
    _, _, parts = opened(parsed(inputs, body[0], weights=body[1]), {})
    return max((one.workload for one in parts.regions), key=lambda one: len(one.operations))


def _of_range(inputs: str, body: tuple[str, str], rows: Sequence[int] = ()) -> list[Workload]:
    """Return the workloads that a range of a model has records of."""
    graph, shapes, parts = opened(parsed(inputs, body[0], weights=body[1]), _EXTENTS)
    region = max(parts.regions, key=lambda one: len(one.workload.operations))
    image = find_open_images(region, shapes, _EXTENTS)
    if isinstance(image, OpenImages):
        return [image.workload]
    found: OpenRegion | OpenRows | str = find_open_region(graph, region, shapes)
    if isinstance(found, str):
        found = find_open_rows(graph, region, shapes)
    assert not isinstance(found, str), found
    return [block for count in rows if (block := found.of(count)) is not None]


def _saved(root: Path, workloads: Sequence[Workload], *, of_range: bool = True) -> OperatorBank:
    """Return a bank with a record of the last of the first guesses for each workload."""
    journal = make_journal(root, model="net")
    journal.model |= {"shape_range": "x:1~2,1~48,64"} if of_range else {}
    bank = OperatorBank(journal, core_num=make_target().core_num)
    for workload in workloads:
        family = get_family(workload.op_type)
        chosen = opening(family.space(workload, _TARGET), ())[0]
        schedule = family.schedule(workload, chosen, _TARGET)
        bank.save(workload, schedule, chosen, make_verdict(Event.ADD, 2.0, limit=8))
    return make_bank(root, model="other")


def _answers(bank: OperatorBank, workload: Workload) -> list[StoredAnswer]:
    return [*CoveringRecords(bank, _TARGET)(workload)]


@pytest.mark.parametrize(
    ("open_input", "fixed_input", "body"),
    [
        ("float[N,S,64] x", "float[24,64] x", _MATMUL),
        ("float[N,S,64] x", "float[48,64] x", _GEMM),  # as ONNX Runtime spells it for fixed shapes
        ("float[N,S,64] x", "float[2,24,64] x", _MATMUL),
        ("float[S,64] x", "float[2,3,4,64] x", _MATMUL),
        ("float[N,S,64] x", "float[3,7,64] x", _NORM),
        ("float[N,S,64] x", "float[2,5,64] x", _SOFTMAX),
    ],
)
def test_blocks_of_rows_answer_rows_of_any_rank(
    tmp_path: Path, open_input: str, fixed_input: str, body: tuple[str, str]
) -> None:
    of_range = _MATMUL if body is _GEMM else body
    blocks = _of_range(open_input, of_range, rows=(64, 16, 4, 1))
    found = _answers(_saved(tmp_path, blocks), _fixed(fixed_input, body))
    assert found and found[0].range_model == "net over x:1~2,1~48,64"
    assert found[0].cost_us is None and found[0].speedup is None  # of other shapes


def test_schedule_is_that_of_the_fixed_shape_by_the_knobs_of_the_nearest_block(
    tmp_path: Path,
) -> None:
    bank = _saved(tmp_path, _of_range("float[N,S,64] x", _MATMUL, rows=(64, 16, 4, 1)))
    workload = _fixed("float[2,24,64] x", _MATMUL)
    sixteen, *_ = _of_range("float[N,S,64] x", _MATMUL, rows=(16,))
    exact = bank.find(sixteen)
    found = _answers(bank, workload)[0]
    assert exact is not None and found.key == exact.key
    family = get_family(workload.op_type)
    assert found.schedule == family.schedule(workload, exact.configuration, _TARGET)


@pytest.mark.parametrize(
    "inputs",
    [
        "float[2,4,20,16] x, float[2,4,16,30] k, float[2,4,30,24] v",
        "float[1,4,100,16] x, float[1,4,16,100] k, float[1,4,100,24] v",
    ],
)
def test_blocks_of_attention_answer_a_fixed_one(tmp_path: Path, inputs: str) -> None:
    open_inputs = "float[N,4,S,16] x, float[N,4,16,K] k, float[N,4,K,24] v"
    bank = _saved(tmp_path, _of_range(open_inputs, _ATTENTION, rows=(100, 16, 5, 1)))
    assert _answers(bank, _fixed(inputs, _ATTENTION))


def test_mask_may_be_a_constant_of_the_fixed_shape(tmp_path: Path) -> None:
    masked = "s = MatMul(x, k) t = Add(s, m) p = Softmax(t) y = MatMul(p, v)"
    of_range = "float[N,4,S,16] x, float[N,4,16,S] k, float[N,4,S,24] v, float[S,S] m"
    fixed = "float[2,4,40,16] x, float[2,4,16,40] k, float[2,4,40,24] v"
    bank = _saved(tmp_path, _of_range(of_range, (masked, ""), rows=(16, 5, 1)))
    assert _answers(bank, _fixed(fixed, (masked, "float[40,40] m")))


def test_steps_of_a_record_stand_where_its_knobs_are_no_choice(tmp_path: Path) -> None:
    bank = _saved(tmp_path, blocks := _of_range("float[N,S,64] x", _MATMUL, rows=(16,)))
    workload, exact = _fixed("float[1,2,64] x", _MATMUL), bank.find(blocks[0])
    assert exact is not None
    space = get_family(workload.op_type).space(workload, _TARGET)
    assert not space.is_legal(exact.configuration)
    assert [one.schedule for one in _answers(bank, workload)] == [exact.schedule]


def test_open_images_answer_images_of_any_size_with_as_many_channels(tmp_path: Path) -> None:
    body = ("t = Relu(x) y = Exp(t)", "")
    bank = _saved(tmp_path, _of_range("float[N,8,H,W] x", body))
    assert _answers(bank, _fixed("float[1,8,17,90] x", body))
    assert not _answers(bank, _fixed("float[1,16,17,90] x", body))


@pytest.mark.parametrize(
    ("fixed_input", "body"),
    [
        (
            "float[2,24,32] x",
            ("t = MatMul(x, w) u = Add(t, b) y = Relu(u)", "float[32,96] w, float[96] b"),
        ),
        ("float[2,24,64] x", ("t = MatMul(x, w) u = Add(t, b) y = Tanh(u)", _MATMUL[1])),
        ("float[24,64] x", ("y = Softmax <axis = 0> (x)", "")),
    ],
)
def test_other_computations_are_not_answered(
    tmp_path: Path, fixed_input: str, body: tuple[str, str]
) -> None:
    blocks = _of_range("float[N,S,64] x", _MATMUL, rows=(64, 16, 4, 1))
    blocks += _of_range("float[N,S,64] x", _SOFTMAX, rows=(16, 1))
    assert not _answers(_saved(tmp_path, blocks), _fixed(fixed_input, body))


def test_records_of_fixed_shapes_answer_no_other(tmp_path: Path) -> None:
    blocks = _of_range("float[N,S,64] x", _MATMUL, rows=(64, 16))
    bank = _saved(tmp_path, blocks, of_range=False)
    assert not _answers(bank, _fixed("float[2,24,64] x", _MATMUL))


@pytest.mark.parametrize(
    ("error", "ends"), [(IndexError("of a family"), False), (AoebankError("corrupt"), True)]
)
def test_fault_of_a_family_is_told_once_and_costs_its_answers_alone(
    tmp_path: Path, error: Exception, ends: bool
) -> None:
    bank = _saved(tmp_path, blocks := _of_range("float[N,S,64] x", _MATMUL, rows=(16,)))
    exact, told = bank.find(blocks[0]), list[str]()
    assert exact is not None

    def answers(workload: Workload) -> Iterator[StoredAnswer]:
        yield exact
        raise error

    guarded, found = GuardedRecords(answers, told.append), list[StoredAnswer]()
    for _ in range(2):
        with pytest.raises(AoebankError) if ends else nullcontext():
            for one in guarded(blocks[0]):
                found.append(one)
    assert found == [exact, exact]
    assert [("IndexError" in one, blocks[0].op_type in one) for one in told] == (
        [] if ends else [(True, True)]
    )
