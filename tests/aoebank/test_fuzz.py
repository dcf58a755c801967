"""The fuzzer: a short run finds nothing, and it would find what must not be."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fuzz import oracles, run
from support.fuzz.inputs import FuzzInput, make_input, sample_files
from support.fuzz.oracles import check_input
from support.fuzz.reader import FindError, NotReadableError, canonical, read_pairs
from support.fuzz.run import FuzzState, fuzz, load_state
from support.tiers import few_every_day

from aoebank.diffing.fields import diff_fields, plain
from aoebank.formats.registry import find_format
from aoebank.formats.text.json_text import dumps, loads
from aoebank.merging.file import FileMerge
from aoebank.merging.merge_bytes import is_of_lines, merge_side_cars
from aoebank.model.digest import canonical_text

INPUTS = int(os.environ.get("AOEBANK_FUZZ_INPUTS", "160"))
BANKS = [(name, data) for name, data in sample_files() if not is_of_lines(Path(name))]


@pytest.mark.parametrize("inputs", few_every_day([40, INPUTS]))
def test_short_run_finds_nothing(inputs: int) -> None:
    state = FuzzState()
    fuzz(state, inputs=inputs)
    assert state.finds == []
    assert state.done == inputs
    assert state.most_calls > (1000, 1000)


def test_input_depends_on_its_number_alone() -> None:
    inputs = [make_input(number) for number in range(200)]
    assert inputs == [make_input(number) for number in range(200)]
    assert {tried.name for tried in inputs} == {name for name, _ in sample_files()}
    assert len({tried.theirs for tried in inputs}) > 150


def test_run_that_was_ended_goes_on_where_it_was(tmp_path: Path) -> None:
    place = tmp_path / "state.json"
    fuzz(FuzzState(first=40), inputs=6, place=place)
    again = load_state(place)
    assert (again.first, again.done) == (40, 6)
    fuzz(again, inputs=9, place=place)
    assert load_state(place).done == 9


@pytest.mark.parametrize(("name", "data"), BANKS, ids=[name[-30:] for name, _ in BANKS])
def test_the_other_reader_sees_what_the_product_sees(name: str, data: bytes) -> None:
    known = find_format(Path(name))
    assert known is not None
    assert len(read_pairs(known.name, data)) == len(known.parse(data, Path(name))) > 1
    with pytest.raises(NotReadableError):
        read_pairs(known.name, data[: len(data) * 3 // 5])


def test_values_readers_tell_apart_are_apart() -> None:
    assert canonical({"b": 1, "a": [1e0]}) == canonical({"a": [1.0], "b": 1})
    assert canonical(1) != canonical(1.0)


def _whole(number: int = 1) -> FuzzInput:
    """Return an input in which each side changed another record."""
    name, data = BANKS[1]
    lines = data.split(b"\n")
    ours, theirs = list(lines), list(lines)
    ours[1] = ours[1].replace(b'"tile": 16', b'"tile": 3')
    theirs[2] = theirs[2].replace(b'"tile": 16', b'"tile": 4')
    return FuzzInput(
        number=number,
        name=name,
        whole=data,
        base=data,
        ours=b"\n".join(ours),
        theirs=b"\n".join(theirs),
    )


def _losing(merge: Callable[..., FileMerge]) -> Callable[..., FileMerge]:
    def merged(versions: Any, path: Path, context: Any) -> FileMerge:
        found = merge(versions, path, context)
        return FileMerge(plan=found.plan, data=versions.ours)

    return merged


def _blind(_: Callable[..., Any]) -> Callable[..., Any]:
    class Nothing:
        changes = ()

    return lambda *_: Nothing


def _broken(_: Callable[..., Any]) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    return fail


FAULTS = {
    "merge loses": ("merge_bytes", _losing, FindError),
    "diff is blind": ("diff", _blind, FindError),
    "internal error": ("show", _broken, UnicodeEncodeError),
}


@pytest.mark.parametrize(("name", "fault", "error"), FAULTS.values(), ids=FAULTS.keys())
def test_fault_is_a_find(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    fault: Callable[..., Any],
    error: type[Exception],
) -> None:
    check_input(_whole(), tmp_path)
    monkeypatch.setattr(oracles, name, fault(getattr(oracles, name)))
    with pytest.raises(error):
        check_input(_whole(), tmp_path)


def test_find_is_noted_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracles, "validate", _broken(oracles.validate))
    told: list[str] = []
    state = FuzzState(first=7)
    fuzz(state, inputs=3, place=tmp_path / "state.json", on_event=told.append)
    assert [number for number, _ in state.finds] == [7, 8, 9]
    assert len(told) == 3
    assert load_state(tmp_path / "state.json").finds == state.finds


def test_too_much_work_is_a_find(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "CALLS_FREE", 0)
    monkeypatch.setattr(run, "CALLS_PER_BYTE", 0)
    state = FuzzState()
    assert "calls for" in run.try_number(0, tmp_path, state)


def test_marks_before_a_line_of_a_side_car_do_not_make_it_another_line() -> None:
    """Found by inputs 40 and 175: a line with two marks lost one of them in each merge."""
    mark = b"\xef\xbb\xbf"
    assert merge_side_cars(b"", b'{"a":1}\n', mark * 2 + b'{"b":1}\n') == b'{"a":1}\n{"b":1}\n'
    assert merge_side_cars(b"", b'{"a":1}\n', mark * 2 + b'{"a":1}\n') == b'{"a":1}\n'


def test_deep_value_that_a_later_one_hides_is_passed_over_where_a_problem_is_located() -> None:
    """Found by input 102477: the place of a problem behind such a member ended the command."""
    text = '{"op":"MatMulV3","a":' + "[" * 300 + "]" * 300 + ',"a":1,"info_dict":7,"knowledge":{}}'
    path = Path("Ascend910B2_24_AiCore_MatMulV3_runtime_kb.json")
    known = find_format(path)
    assert known is not None
    (place,) = (
        finding.location
        for finding in known.parse(text.encode(), path).findings
        if finding.code == "AB206"
    )
    assert (place.pointer, place.column) == ("/info_dict", text.index("7,") + 1)


def test_minus_nought_is_nought() -> None:
    """Found by inputs 105112, 109168 and 113350: a diff told of a change from 0 to -0."""
    assert canonical_text(loads("[-0, -0.0]")) == "[0,-0.0]"
    assert dumps(loads('{"a": -0}')) == '{"a": -0}'
    assert plain(loads("-0")) == 0
    assert pickle.loads(pickle.dumps(loads("-0"))).text == "-0"


def test_numbers_too_long_for_python_are_told_apart() -> None:
    """Found by inputs 252233 and 261151: as floats all of them are infinite, and equal."""
    one, other = loads(f'{{"a": [{"9" * 5000}]}}'), loads(f'{{"a": [{"9" * 5001}]}}')
    assert canonical_text(one) != canonical_text(other)
    assert [change.pointer for change in diff_fields(one, other)] == ["/a/0"]
    assert canonical_text(loads("[1e999]")) == canonical_text(loads("[1E+999]"))


def test_tick_of_minus_nought_stays_what_it_is() -> None:
    """Found by inputs 281604 and 289790: --fix-class text made it 0."""
    path = Path("Ascend910B2_AiCore_24_v001.json")
    known = find_format(path)
    assert known is not None
    data = b'{\n    "[[1]]": "[[1], -1e-999]"\n}'
    record = known.record(known.parse(data, path), 0)
    empty = known.parse(known.empty, path)
    assert known.serialize(empty, {record.key: replace(record)}) == data
