"""Format A: what its reader rejects, and what it silently changes."""

from __future__ import annotations

import json

import pytest
from support.runtime_kb_lines import (
    EXAMPLE,
    FIRST,
    FORMAT,
    codes,
    findings,
    line,
    name_for,
    parse,
    whole_record,
    with_info,
    with_knowledge,
    without,
)

from aoebank.formats.runtime_kb.operator_schema import operator_schemas


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (line(), []),
        ("", ["AB110"]),
        ("\n", ["AB110", "AB112"]),
        ("{}", ["AB115"]),
        (line() + "\n{}", ["AB113"]),
        ("[1]", ["AB204"]),
        ("null", ["AB204"]),
        ("{", ["AB103"]),
        (line() + " " + line(), ["AB107"]),
        (
            line() + "\n\n" + line(version=1, info_dict={**FIRST["info_dict"], "k": 64}),
            ["AB112", "AB307"],
        ),
        (json.dumps({"id": 1}), ["AB205"] * 4),
        (line(id="1"), ["AB206"]),
        (line(op=7), ["AB206"]),
        (line(version=None), ["AB206"]),
        (line(info_dict=[]), ["AB206"]),
        (line(knowledge="x"), ["AB206"]),
        (line(mine=1), ["AB207"]),
        (without("info_dict", "m"), ["AB205"]),
        (line(info_dict={**FIRST["info_dict"], "m": "16"}), ["AB206"]),
        (line(info_dict={**FIRST["info_dict"], "trans_a_flag": 0}), ["AB206"]),
        (line(info_dict={**FIRST["info_dict"], "M": 1}), ["AB211"]),
        (without("knowledge", "baseM"), ["AB209"]),
        (with_knowledge(baseM="16"), ["AB206"]),
        (with_knowledge(baseM=-1), ["AB405"]),
        (with_knowledge(baseM=2**32), ["AB405"]),
        (with_knowledge(baseM=1.5), ["AB407"]),
        (with_knowledge(baseM=True), ["AB407"]),
        (with_knowledge(**{"baseM ": 1}), ["AB211"]),
        (with_knowledge(usedCoreNum=25), ["AB406"]),
        (with_knowledge(usedCoreNum=25.0), ["AB406"]),
        (with_knowledge(usedCoreNum=24), []),
        (with_info(m=2**63), ["AB405"]),
        (line(id=7), ["AB307"]),
        (line(id=2**32), ["AB308"]),
        (line(id=-1), ["AB308"]),
        (line() + "\n" + line(), ["AB305"]),
        (line() + "\n" + with_knowledge(baseM=2), ["AB306"]),
        (line(op="QuantBatchMatmulV3", knowledge={}), ["AB215", "AB209"]),
        (line(op="Foo"), ["AB215", "AB212"]),
        (line().replace('"baseM":', '"baseM": 1, "baseM":'), ["AB109"]),
        ("\ufeff" + line(), ["AB105"]),
        ("<<<<<<< ours\n" + line(), ["AB104"]),
    ],
)
def test_findings(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_unknown_field_comes_with_the_name_it_may_mean() -> None:
    record = json.loads(with_knowledge(**{"baseM ": 1}))
    del record["knowledge"]["baseM"]
    _, finding = findings(json.dumps(record))
    assert finding.got == '"baseM "'
    assert finding.expected == "baseM"
    assert finding.location.pointer == "/knowledge/baseM "


def test_unknown_field_is_to_be_removed_where_the_name_is_taken() -> None:
    (finding,) = findings(with_knowledge(**{"baseM ": 1}))
    assert (finding.hint, finding.expected) == ("remove it", None)


def missing(op: str, *names: str) -> list[tuple[str, str | None]]:
    record = whole_record(op)
    for name in names:
        del record["knowledge"][name]
    return [(finding.code, finding.got) for finding in findings(json.dumps(record), name_for(op))]


@pytest.mark.parametrize("op", [*operator_schemas()])
def test_record_with_every_field_has_no_finding(op: str) -> None:
    assert missing(op) == []


@pytest.mark.parametrize(
    ("op", "name", "code"),
    [
        ("MatMulV3", "baseM", "AB209"),
        ("Conv2DV2", "multiNBL1", "AB218"),
        ("Conv2DV2", "nBL1", "AB209"),
        ("Conv2DV2", "mStep", "AB216"),
        ("Conv2DV2", "weightKStride", "AB216"),
        ("Conv2DV2", "roundMode", "AB216"),
        ("Conv2DV2", "khL1", "AB217"),
        ("Conv2DV2", "woDim", "AB217"),
        ("Conv2DV2", "innerBatch", "AB210"),
        ("Conv3D", "reserved1", "AB210"),
        ("Conv3D", "offsetx", "AB209"),
        ("Conv3DV2", "bl1FullLoad", "AB216"),
        ("Conv3DV2", "khL1", "AB210"),
        ("Conv3DV2", "woL1", "AB209"),
    ],
)
def test_missing_field_is_as_bad_as_what_the_operator_does_without_it(
    op: str, name: str, code: str
) -> None:
    assert missing(op, name) == [(code, f"no {name}")]


def test_missing_fields_are_told_by_kind_worst_first() -> None:
    names = ("innerBatch", "mStep", "kwL1", "multiNBL1", "nStep", "khL1", "woDim", "nBL1")
    assert missing("Conv2DV2", *names) == [
        ("AB209", "no nBL1"),
        ("AB218", "no multiNBL1"),
        ("AB217", "no khL1, kwL1, woDim"),
        ("AB216", "no mStep, nStep"),
        ("AB210", "no innerBatch"),
    ]


def test_hint_says_what_a_missing_field_should_hold() -> None:
    record = whole_record("Conv2DV2")
    for name in ("multiNBL1", "khL1", "woDim"):
        del record["knowledge"][name]
    unused, warning = findings(json.dumps(record), name_for("Conv2DV2"))
    assert unused.hint.startswith("add multiNBL1 = ceil(nBL1 / nL0);")
    assert warning.expected == "every field of the DMA and Conv1D path"


@pytest.mark.parametrize("bad", ["", "{}", "nonsense", line(id=None), with_knowledge(baseM=[])])
def test_eight_bad_lines_are_more_than_the_reader_survives(bad: str) -> None:
    assert "AB114" not in codes("\n".join([line(), *[bad] * 7, with_info(m=160)]))
    assert codes("\n".join([line(), *[bad] * 8, with_info(m=160)])).count("AB114") == 1


def test_two_workloads_of_one_hash_are_two_records_and_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "aoebank.formats.runtime_kb.format.common_hashes",
        lambda structs, length: [5] * len(structs),
    )
    parsed = parse(line(id=5) + "\n" + line(id=5, info_dict={**FIRST["info_dict"], "m": 320}))
    assert len(set(parsed.keys)) == 2
    assert [finding.code for finding in FORMAT.check(parsed)] == ["AB310"]


def test_finding_points_at_line_column_and_pointer() -> None:
    lines = EXAMPLE.decode().splitlines()
    lines[2] = lines[2].replace('"baseM":', '"baseM":-')
    (finding,) = findings("\n".join(lines))
    assert (finding.location.line, finding.location.pointer) == (3, "/knowledge/baseM")
    assert lines[2][finding.location.column - 1 :].startswith("-")


def test_a_very_long_line_is_no_trouble() -> None:
    text = with_knowledge(note="x" * 5_000_000)
    assert codes(text) == ["AB211"]
    assert codes("x" * 5_000_000) == ["AB103"]


@pytest.mark.parametrize(
    "number", ["9" * 6000, "-" + "9" * 400, "1e400", "1e-400", "0." + "1" * 900]
)
def test_huge_numbers_are_findings_or_nothing(number: str) -> None:
    for name in ("m", "l1_fused_num"):
        old = json.dumps({name: FIRST["info_dict"][name]})[1:-1]
        text = line().replace(old, f'"{name}": {number}')
        assert text != line()
        parsed = parse(text)
        assert len(parsed) == 1
        assert {finding.code for finding in FORMAT.check(parsed)} <= {"AB307", "AB405", "AB407"}
        FORMAT.record(parsed, 0)
