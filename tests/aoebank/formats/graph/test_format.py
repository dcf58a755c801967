"""Format E: contract, version line, groups that fit together, identities."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from support import sample_bank_files
from support.format_reading import FormatReading

from aoebank import make_graph_record
from aoebank.formats.graph.format import GraphFormat, render_graph
from aoebank.formats.registry import find_format, get_format
from aoebank.testing.format_tests import FormatTests

FORMAT = GraphFormat()
NAME = sample_bank_files.GRAPH.name
READING = FormatReading(FORMAT, NAME)
parse, codes = READING.parse, READING.codes
EXAMPLE = sample_bank_files.GRAPH.read_bytes()
HEADER = '{"version": "2.1"}\n'
GROUP: dict[str, Any] = {"cut": [1, 2], "fusionType": [True, False], "scopeId": [-1, -2]}
FEATURE: dict[str, Any] = {"feature": [{"struct": []}]}
SCHEMA = json.loads((sample_bank_files.ROOT / "schemas/graph/1.json").read_text(encoding="utf-8"))


def subgraph(**changes: Any) -> str:
    strategy = {"modelName": "m", "end2EndTime": 80910, "group": [GROUP]}
    document = {"feature": FEATURE, "graphID": "7", "strategy": strategy, **changes}
    return json.dumps({name: value for name, value in document.items() if value is not ...})


def with_group(**changes: Any) -> str:
    group = {name: value for name, value in {**GROUP, **changes}.items() if value is not ...}
    return subgraph(strategy={"group": [group]})


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = EXAMPLE


def test_version_line_alone_is_enough_to_recognize_a_file() -> None:
    assert find_format(Path("x.json"), HEADER.encode()) is get_format("graph")


def test_identity_is_the_graph_id_and_the_time_is_left_in_the_strategy() -> None:
    record = FORMAT.record(parse(HEADER + subgraph()), 0)
    assert (record.key, record.cost_us, record.workload) == ("7", None, FEATURE)
    assert record.strategy["end2EndTime"] == 80910  # type: ignore[index, call-overload]


def test_changed_record_keeps_unknown_members_and_the_version_line() -> None:
    parsed = parse(HEADER + subgraph(mine=[1.50]))
    record = replace(FORMAT.record(parsed, 0), strategy={"group": []})
    data = FORMAT.serialize(parsed, {"7": record}).decode()
    assert data.startswith(HEADER)
    assert json.loads(data.splitlines()[1])["mine"] == [1.5]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEADER + subgraph(), []),
        (HEADER, ["AB115"]),
        ("{}", ["AB115"]),
        ("", ["AB110"]),
        (subgraph(), ["AB214"]),
        (subgraph() + "\n" + HEADER, ["AB214", "AB214"]),
        ('{"version": "3"}\n' + subgraph(), ["AB214"]),
        (HEADER + "\n" + subgraph(), ["AB112"]),
        (HEADER + "{}", ["AB113"]),
        (HEADER + "[]", ["AB204"]),
        (HEADER + "{", ["AB103"]),
        (HEADER + subgraph(graphID=...), ["AB205"]),
        (HEADER + subgraph(feature=..., strategy=...), ["AB205", "AB205"]),
        (HEADER + subgraph(feature=[]), ["AB206"]),
        (HEADER + subgraph(graphID=7), ["AB309"]),
        (HEADER + subgraph(graphID="-7"), ["AB309"]),
        (HEADER + subgraph(graphID="07"), ["AB309"]),
        (HEADER + subgraph(graphID=str(2**64)), ["AB309"]),
        (HEADER + subgraph(graphID=str(2**64 - 1)), []),
        (HEADER + subgraph(mine=1), ["AB207"]),
        (HEADER + subgraph(feature={}), ["AB205"]),
        (HEADER + subgraph(strategy={}), ["AB205"]),
        (HEADER + subgraph(strategy={"group": 1}), ["AB206"]),
        (HEADER + subgraph(strategy={"group": [1]}), ["AB206"]),
        (HEADER + subgraph(strategy={"group": []}), ["AB213"]),
        (HEADER + subgraph(strategy={"group": [GROUP], "end2EndTime": 0}), ["AB402"]),
        (HEADER + with_group(cut=[1]), ["AB213"]),
        (HEADER + with_group(scopeId=[]), ["AB213"]),
        (HEADER + with_group(fusionType=...), ["AB205"]),
        (HEADER + with_group(fusionType="x"), ["AB206"]),
        (HEADER + subgraph() + "\n" + subgraph(), ["AB305"]),
        (HEADER + subgraph() + "\n" + subgraph(strategy={"group": [GROUP]}), ["AB306"]),
        (HEADER + subgraph() + "\n" + subgraph(graphID="8"), ["AB311"]),
        (HEADER + subgraph().replace('"graphID":', '"graphID": "1", "graphID":'), ["AB109"]),
    ],
)
def test_findings(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_lengths_that_differ_are_named_with_the_group() -> None:
    parsed = parse(HEADER + with_group(cut=[1]))
    (finding,) = FORMAT.check(parsed)
    assert finding.location.pointer == "/strategy/group/0"
    assert finding.got == "1, 2, 2"


# -- schema -----------------------------------------------------------------------------------

anything = st.sampled_from([None, True, 7, 2.5, "text", [], {}, [1], {"a": 1}])
lists = anything | st.just([1])
groups = st.fixed_dictionaries({}, optional=dict.fromkeys(GROUP, lists))
strategies = st.fixed_dictionaries({}, optional={"group": st.lists(groups | anything) | anything})
features = st.fixed_dictionaries({}, optional={"feature": anything})
near_lines = st.fixed_dictionaries(
    {},
    optional={
        "feature": features | anything,
        "graphID": st.sampled_from(["7", "0", "00", "x", ""]) | anything,
        "strategy": strategies | anything,
    },
)


@given(near_lines | anything)
def test_published_schema_and_fast_checks_agree(value: Any) -> None:
    is_valid = Draft202012Validator(SCHEMA).is_valid(value)
    found = {*codes(HEADER + json.dumps(value))}
    assert is_valid == (not found & {"AB113", "AB204", "AB205", "AB206", "AB309"})


@given(st.sampled_from([{"version": "2.1"}, {"version": "2"}, {"version": 2.1}, {"a": 1}]))
def test_published_schema_and_fast_checks_agree_about_the_version_line(value: Any) -> None:
    is_valid = Draft202012Validator(SCHEMA).is_valid(value)
    assert is_valid == (codes(json.dumps(value)) == ["AB115"])


def made(**changes: Any) -> Any:
    parts: dict[str, Any] = {
        "graph_id": "7",
        "feature": [{"struct": [{"op": "Conv"}, {"op": "Relu"}]}],
        "groups": [GROUP],
        "end_to_end_ns": 80910,
    }
    return make_graph_record(**{**parts, **changes})


def test_made_record_is_a_sound_line() -> None:
    line = render_graph(made(model_name="m")).decode()
    assert codes(f"{HEADER}{line}\n") == []
    assert json.loads(line)["strategy"]["modelName"] == "m"
    assert "modelName" not in made().strategy


@pytest.mark.parametrize(
    "changes",
    [
        {"graph_id": "-7"},
        {"graph_id": str(2**64)},
        {"end_to_end_ns": 0},
        {"groups": []},
        {"groups": [{**GROUP, "cut": [1]}]},
        {"groups": [{"cut": [1, 2]}]},
    ],
)
def test_made_record_is_never_one_that_validate_refuses(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\(got .*expected "):
        made(**changes)
