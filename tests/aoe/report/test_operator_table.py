"""The table of operators fits its terminal: columns go, words stay whole."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import replace

import pytest
from support.engine.families import chain_workload
from support.engine.tuning import make_opat_result, make_operator, make_tuned

from aoe.report.tuning import write_operators
from aoe.tasks.operators.operator import TunedOperator
from aoe.workload import Precision
from aoebank import Text
from aoebank.report.output import ColorMode

_CHAIN = ("Exp", "Softplus", "HardSigmoid", "LeakyRelu")
_ALL = ["operator", "computes", "places", "share", "before us", "after us", "speed-up", "bank"]


def _tuned(name: str, **changes: Precision) -> TunedOperator:
    workload = replace(chain_workload(_CHAIN), **changes)
    return replace(make_tuned(name), operator=make_operator(workload, op_names=(name,)))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _drawn(width: int, *tuned: TunedOperator) -> list[str]:
    with contextlib.redirect_stdout(_Terminal()) as terminal, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        write_operators(Text(ColorMode.NEVER, no_color=True), make_opat_result(*tuned))
    return terminal.getvalue().splitlines()[1:]


def _headings(lines: list[str]) -> list[str]:
    return re.split("  +", lines[0].strip())


def test_wide_terminal_has_every_column() -> None:
    lines = _drawn(140, _tuned("/net/conv1"))
    assert _headings(lines) == [*_ALL, "in model"]
    assert any("Exp + Softplus + HardSigmoid + LeakyRelu" in line for line in lines)


def test_least_important_columns_go_first() -> None:
    name = "/model/layers.0/attention/"
    dropped = {
        tuple(sorted(set(_ALL) - set(_headings(_drawn(width, _tuned(name))))))
        for width in range(52, 141)
    }
    in_order = ["places", "bank", "computes", "share", "before us", "after us"]
    assert dropped <= {tuple(sorted(in_order[:count])) for count in range(len(in_order) + 1)}
    assert len(dropped) > 4


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_word_is_broken_and_no_line_too_long(width: int) -> None:
    tuned = [_tuned(f"/model/layers.{number}/act/Mul") for number in range(3)]
    lines = _drawn(width, *tuned)
    assert max(map(len, lines)) <= width
    known = {*_CHAIN, *(item.operator.op_name for item in tuned), *" ".join(_ALL).split()}
    if "share" in _headings(lines):
        assert lines.pop().startswith("shares overlap (150% in all)")
    known |= {"+", "in", "model", "2.00x", "yes", "no", "add", "1", "100.0", "50.0", "50.0%"}
    assert {word for line in lines for word in line.split()} <= known


def test_name_longer_than_the_terminal_is_folded_not_lost() -> None:
    name = "".join(f"/layer{number}" for number in range(12))
    lines = _drawn(80, _tuned(name))
    assert _headings(lines) == ["operator", "speed-up", "in model"]
    assert "".join(line.split()[0] for line in lines[1:]) == name


def test_precision_is_a_column_where_there_are_several_and_never_goes() -> None:
    lower = _tuned("/model/layers.0/attention/Softmax", precision=Precision.BFLOAT16)
    headings = _headings(_drawn(60, _tuned("conv1"), lower))
    assert "precision" in headings
    assert "places" not in headings


def test_shares_of_rows_that_overlap_are_said_to() -> None:
    one = _drawn(140, _tuned("conv"))
    two = _drawn(140, _tuned("conv"), _tuned("fused"), _tuned("relu"))
    assert not any("overlap" in line for line in one)
    assert two[-1].startswith("shares overlap (150% in all)")


def test_rows_that_are_left_out_are_counted() -> None:
    lines = _drawn(140, *(_tuned(f"conv{number}") for number in range(33)))
    assert any("3 more in summary.json" in line for line in lines)
