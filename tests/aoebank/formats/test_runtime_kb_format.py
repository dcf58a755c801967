"""Format A: contract, the reader's identity, what it rejects, what it silently changes."""

from __future__ import annotations

import json
import runpy
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sample_bank_files
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from aoebank.errors import RecordError
from aoebank.formats.common_hash import common_hash, common_hashes
from aoebank.formats.operator_schema import (
    FieldError,
    SchemaField,
    StructFields,
    convert,
    operator_schemas,
)
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.registry import FORMATS, find_format
from aoebank.formats.runtime_kb import RuntimeKbFormat, make_runtime_record, runtime_key
from aoebank.model.finding import Finding
from aoebank.model.record import FormatName
from aoebank.testing.format_tests import FormatTests

FORMAT = RuntimeKbFormat()
NAME = sample_bank_files.RUNTIME_KB.name
EXAMPLE = sample_bank_files.RUNTIME_KB.read_bytes()
FIRST: dict[str, Any] = json.loads(EXAMPLE.splitlines()[0])
SCHEMA = json.loads(
    (sample_bank_files.ROOT / "schemas/runtime_kb/1.json").read_text(encoding="utf-8")
)


def parse(data: bytes | str, name: str = NAME) -> ParsedFile:
    return FORMAT.parse(data.encode() if isinstance(data, str) else data, Path(name))


def findings(data: bytes | str, name: str = NAME) -> list[Finding]:
    parsed = parse(data, name)
    return [*parsed.findings, *FORMAT.check(parsed)]


def codes(data: bytes | str, name: str = NAME) -> list[str]:
    return [each.code for each in findings(data, name)]


def line(**changes: Any) -> str:
    return json.dumps({**FIRST, **changes})


def with_info(**changes: Any) -> str:
    info = {**FIRST["info_dict"], **changes}
    key = runtime_key("MatMulV3", info)
    return line(info_dict=info, id=int(key[:8], 16))


def with_knowledge(**changes: Any) -> str:
    return line(knowledge={**FIRST["knowledge"], **changes})


def without(part: str, name: str) -> str:
    return line(**{part: {key: each for key, each in FIRST[part].items() if key != name}})


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = EXAMPLE


class TestContractWithSpacesCrLfAndNoFinalNewline(FormatTests):
    format = FORMAT
    file_name = NAME
    example = b"\r\n".join(
        json.dumps(json.loads(each), separators=(" , ", " : ")).encode()
        for each in EXAMPLE.splitlines()
    )

    # CR LF is a note as long as there is a line end
    def all_findings(self, data: bytes) -> list[Finding]:
        return [each for each in super().all_findings(data) if each.code != "AB106"]


class TestContractOfAnOperatorWithoutSchema(FormatTests):
    format = FORMAT
    file_name = "Ascend910B2_24_AiCore_FFN_runtime_kb.json"
    example = b"".join(
        json.dumps({**FIRST, "op": "FFN", "info_dict": {"m": number}}).encode() + b"\n"
        for number in range(4)
    )

    # an operator without a schema is a note, once per file
    def test_example_is_without_findings(self) -> None:
        found = FORMAT.check(self.parse(self.example))
        assert [each.code for each in found] == ["AB212"]

    def all_findings(self, data: bytes) -> list[Finding]:
        return [each for each in super().all_findings(data) if each.code != "AB212"]


def test_registry_finds_it_by_name_and_by_content() -> None:
    assert find_format(Path(NAME)) is FORMATS[FormatName.RUNTIME_KB]
    assert find_format(Path("renamed.json"), EXAMPLE[:4096]) is FORMATS[FormatName.RUNTIME_KB]


# -- identity -------------------------------------------------------------------------------


def slow_hash(data: bytes) -> int:
    """The hash written down once more, word by word as the facts tell it."""
    h, mask, word = 271828, 2**32 - 1, 0
    for (word,) in struct.iter_unpack("<I", data[: len(data) // 4 * 4]):
        h ^= (word + 0x9E3779B9 + ((h << 6) & mask) + (h >> 2)) & mask
    for i in range(len(data) & 3, 0, -1):
        word = ((word << 8) | data[i - 1]) & mask
    h ^= (word + 0x9E3779B9 + ((h << 6) & mask) + (h >> 2)) & mask
    h ^= len(data)
    return h ^ (h >> 16)


@given(st.binary(max_size=300))
def test_hash_is_the_published_algorithm(data: bytes) -> None:
    assert common_hash(data) == slow_hash(data)


@given(st.integers(0, 260).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=9)
))  # fmt: skip
def test_many_hashes_at_once_are_the_single_ones(structs: list[bytes]) -> None:
    together = common_hashes(structs, len(structs[0]))
    assert list(together) == [common_hash(each) for each in structs]


def test_many_hashes_cross_the_border_of_a_batch() -> None:
    structs = [struct.pack("<QB", number, number % 251) for number in range(5000)]
    assert list(common_hashes(structs, 9)) == [common_hash(each) for each in structs]


def test_tail_takes_its_bytes_from_the_start_of_the_buffer() -> None:
    data = bytes(range(1, 8))
    assert common_hash(data[:4] + b"xyz") == common_hash(data[:4] + b"abc")


def test_no_hash_of_nothing() -> None:
    assert list(common_hashes([], 8)) == []


@pytest.mark.parametrize(
    ("op", "form", "size"),
    [
        ("MatMulV3", "<11q4f6i7?6Q", 183),
        ("QuantBatchMatmulV3", "<11q4f6i7?6Q", 183),
        ("Conv2DV2", "<4i9q3i9q2?3Q3f", 210),
        ("Conv3D", "<4i12Q3i13Q?", 229),
        ("Conv3DV2", "<4iQI7QI2Q3i13Q?3Q3f", 257),
        ("Conv3DBackpropInputV2", "<38i", 152),
        ("Conv3DBackpropFilterV2", "<25iI9i", 140),
    ],
)
def test_key_structs_have_their_published_layout(op: str, form: str, size: int) -> None:
    fields = operator_schemas()[op].workload
    assert fields.size == struct.calcsize(form) == size
    unrolled = struct.Struct("<" + "".join(field.code for field in fields.fields))
    example = list(range(1, len(fields.fields) + 1))
    values = [bool(each % 2) if field.code == "?" else each
              for each, field in zip(example, fields.fields, strict=True)]  # fmt: skip
    assert unrolled.pack(*values) == struct.pack(form, *values)


def test_seven_operators_are_known_and_each_is_a_file() -> None:
    folder = sample_bank_files.ROOT / "schemas/runtime_kb/operators"
    files = {path.stem for path in folder.glob("*.json")}
    assert files == {*operator_schemas()}
    assert len(files) == 7
    for path in folder.glob("*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        assert document["bytes"] == operator_schemas()[path.stem].workload.size
        assert document["op"] == path.stem


def test_key_starts_with_the_hash_of_the_reader() -> None:
    info = FIRST["info_dict"]
    packed = operator_schemas()["MatMulV3"].workload.pack(info)
    assert runtime_key("MatMulV3", info)[:8] == f"{common_hash(packed):08x}"
    assert parse(EXAMPLE).keys[0] == runtime_key("MatMulV3", info)


def test_key_does_not_depend_on_the_order_or_spelling_of_members() -> None:
    info = FIRST["info_dict"]
    backwards = dict(reversed(info.items()))
    assert runtime_key("MatMulV3", backwards) == runtime_key("MatMulV3", info)
    text = line().replace('"l1_fused_num": 0.0', '"l1_fused_num": 0e7')
    assert parse(text).keys == [runtime_key("MatMulV3", info)]


def test_unknown_members_of_the_workload_take_no_part_in_the_key() -> None:
    info = {**FIRST["info_dict"], "note": "mine"}
    assert runtime_key("MatMulV3", info) == runtime_key("MatMulV3", FIRST["info_dict"])


def test_operator_without_a_schema_is_known_by_its_canonical_json() -> None:
    key = runtime_key("FFN", {"a": 1e-4, "b": [1]})
    assert key == runtime_key("FFN", {"b": [1], "a": 0.0001})
    assert key != runtime_key("FFN2", {"a": 1e-4, "b": [1]})
    assert parse(line(op="FFN", info_dict={"b": [1], "a": 1e-4})).keys == [key]


def test_number_beyond_floats_in_an_unknown_operator_is_no_trouble() -> None:
    text = line(op="FFN").replace('"m": 16', '"m": 1e999, "x": ' + "1" * 5000)
    assert len(parse(text)) == 1
    assert codes(text, "Ascend910B2_24_AiCore_FFN_runtime_kb.json") == ["AB212"]


# -- conversions of the reader ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("c_type", "value", "stored"),
    [
        ("uint8_t", 255, 255), ("uint8_t", 256, 0), ("uint8_t", -1, 255), ("int8_t", 128, -128),
        ("uint32_t", 2**32, 0), ("int64_t", 2**63, -(2**63)), ("uint64_t", -1, 2**64 - 1),
        ("int32_t", 2.9, 2), ("int32_t", -2.9, -2), ("uint32_t", True, 1), ("float", 1, 1.0),
        ("float", 1e300, float("inf")), ("float", -(10**400), float("-inf")), ("bool", True, True),
        ("double", 1e300, 1e300), ("uint64_t", float("inf"), 0),
    ],
)  # fmt: skip
def test_values_are_converted_as_in_cpp(c_type: str, value: Any, stored: Any) -> None:
    assert convert(SchemaField(name="x", c_type=c_type), value) == stored


@pytest.mark.parametrize(
    ("c_type", "value"),
    [
        ("bool", 1), ("bool", "true"), ("int64_t", True), ("ge::Format", True), ("float", None),
        ("uint32_t", "1"), ("uint32_t", [1]), ("double", {}),
    ],
)  # fmt: skip
def test_types_the_reader_rejects_raise(c_type: str, value: Any) -> None:
    with pytest.raises(FieldError):
        convert(SchemaField(name="x", c_type=c_type), value)


FIELDS = [SchemaField(name=f"f{place}", c_type=each) for place, each in enumerate(
    ("int8_t", "uint8_t", "int32_t", "uint32_t", "int64_t", "uint64_t", "float", "bool")
)]  # fmt: skip
numbers = st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.booleans()


@given(st.lists(st.tuples(*[numbers] * 7, st.booleans()), min_size=1, max_size=5))
def test_fast_packing_agrees_with_field_by_field_conversion(rows: list[tuple[Any, ...]]) -> None:
    fields = StructFields(FIELDS)
    pack = struct.Struct("<" + "".join(field.code for field in FIELDS)).pack
    for row in rows:
        values = dict(zip(fields.names, row, strict=True))
        try:
            expected = pack(*(convert(*pair) for pair in zip(FIELDS, row, strict=True)))
        except FieldError:
            with pytest.raises(FieldError):
                fields.pack(values)
            continue
        assert fields.pack(values) == fields.pack(values) == expected


# -- findings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (line(), []),
        ("", ["AB110"]),
        ("\n", ["AB110", "AB112"]),
        ("{}", ["AB113"]),
        ("[1]", ["AB204"]),
        ("null", ["AB204"]),
        ("{", ["AB103"]),
        (line() + " " + line(), ["AB107"]),
        (line() + "\n\n" + line(version=1, info_dict={**FIRST["info_dict"], "k": 64}),
         ["AB112", "AB307"]),
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
)  # fmt: skip
def test_findings(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_unknown_field_comes_with_the_name_it_may_mean() -> None:
    (finding,) = findings(with_knowledge(**{"baseM ": 1}))
    assert finding.got == '"baseM "'
    assert finding.expected == "did you mean baseM?"
    assert finding.location.pointer == "/knowledge/baseM "


def test_missing_field_with_a_default_is_a_note_and_without_one_an_error() -> None:
    fields = operator_schemas()["Conv2DV2"]
    info = {each.name: each.code == "?" for each in fields.workload.fields}
    info = {name: value if value else 0 for name, value in info.items()}
    info |= {each.name: False for each in fields.workload.fields if each.code == "?"}
    strategy = {each.name: 1 for each in fields.strategy.fields}
    del strategy["innerBatch"], strategy["mStep"]
    record = make_runtime_record(op_type="Conv2DV2", workload=info, strategy=strategy)
    data = FORMAT.serialize(parse(b""), {record.key: record})
    found = findings(data, "Ascend950PR_9579_28_AiCore_Conv2DV2_runtime_kb.json")
    assert [(each.code, each.got) for each in found] == [
        ("AB209", "no mStep"), ("AB210", "no innerBatch")
    ]  # fmt: skip


@pytest.mark.parametrize("bad", ["", "{}", "nonsense", line(id=None), with_knowledge(baseM=[])])
def test_eight_bad_lines_are_more_than_the_reader_survives(bad: str) -> None:
    assert "AB114" not in codes("\n".join([line(), *[bad] * 7, with_info(m=160)]))
    assert codes("\n".join([line(), *[bad] * 8, with_info(m=160)])).count("AB114") == 1


def test_two_workloads_of_one_hash_are_two_records_and_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "aoebank.formats.runtime_kb.common_hashes", lambda structs, length: [5] * len(structs)
    )
    parsed = parse(line(id=5) + "\n" + line(id=5, info_dict={**FIRST["info_dict"], "m": 320}))
    assert len(set(parsed.keys)) == 2
    assert [each.code for each in FORMAT.check(parsed)] == ["AB310"]


def test_finding_points_at_line_column_and_pointer() -> None:
    lines = EXAMPLE.decode().splitlines()
    lines[2] = lines[2].replace('"baseM":', '"baseM":-')
    (finding,) = findings("\n".join(lines))
    assert (finding.location.line, finding.location.pointer) == (3, "/knowledge/baseM")
    assert lines[2][finding.location.column - 1 :].startswith("-")


def test_first_of_two_equal_keys_is_used_and_replacing_leaves_one() -> None:
    parsed = parse(line() + "\n" + with_knowledge(baseM=2) + "\n")
    assert parsed.find(parsed.keys[0]) == 0
    record = FORMAT.record(parsed, 0)
    changed = replace(record, strategy={**FIRST["knowledge"], "baseM": 4})
    again = parse(FORMAT.serialize(parsed, {record.key: changed}))
    assert [each.strategy["baseM"] for each in again.iter_records()] == [4]  # type: ignore[index, call-overload]


# -- writing ----------------------------------------------------------------------------------


def test_new_record_is_compact_with_sorted_members_and_the_hash_as_id() -> None:
    record = make_runtime_record(
        op_type="MatMulV3", workload=FIRST["info_dict"], strategy=FIRST["knowledge"]
    )
    data = FORMAT.serialize(parse(b""), {record.key: record})
    assert data == EXAMPLE.splitlines(keepends=True)[0]


def test_changed_record_keeps_id_version_and_unknown_members() -> None:
    record = FORMAT.record(parse(line(id=9, version=3, mine="x")), 0)
    data = FORMAT.serialize(parse(b""), {record.key: replace(record, strategy={"a": 1})})
    assert json.loads(data) == {
        **FIRST, "id": 9, "version": 3, "mine": "x", "knowledge": {"a": 1}
    }  # fmt: skip


def test_spelling_of_numbers_survives_a_change() -> None:
    text = line().replace('"l1_fused_num": 0.0', '"l1_fused_num": 0.00')
    record = FORMAT.record(parse(text), 0)
    data = FORMAT.serialize(parse(b""), {record.key: replace(record, strategy={})})
    assert b'"l1_fused_num":0.00' in data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"A\nB\n", b"A\nB\nN\n"), (b"A\nB", b"A\nB\nN"), (b"A\r\nB\r\n", b"A\r\nB\r\nN\r\n"),
        (b"", b"N\n"), (b"\xef\xbb\xbf", b"\xef\xbb\xbfN\n"), (b"A\n\n", b"A\n\nN\n"),
    ],
)  # fmt: skip
def test_added_record_follows_the_line_ends_of_the_file(data: bytes, expected: bytes) -> None:
    names = {b"A": line(), b"B": with_info(m=64), b"N": with_info(m=128)}

    def spelled(template: bytes) -> bytes:
        for name, text in names.items():
            template = template.replace(name, text.encode())
        return template

    (new,) = parse(names[b"N"]).iter_records()
    assert FORMAT.serialize(parse(spelled(data)), {new.key: new}) == spelled(expected)


operations = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["put", "put", "remove"]), st.integers(1, 99)),
    max_size=12,
)
starts = st.sampled_from([b"", b"\xef\xbb\xbf", EXAMPLE, EXAMPLE[:-1], b"\n" + EXAMPLE])


@given(starts, operations, st.booleans())
def test_file_behaves_as_a_dict_and_leaves_other_bytes_alone(
    data: bytes, steps: list[tuple[int, str, int]], crlf: bool
) -> None:
    data = data.replace(b"\n", b"\r\n") if crlf else data
    expected: dict[str, Any] = {each.key: each.strategy for each in parse(data).iter_records()}
    for number, verb, tile in steps:
        record = make_runtime_record(
            op_type="MatMulV3", workload={**FIRST["info_dict"], "m": 16 * number},
            strategy={**FIRST["knowledge"], "baseM": tile},
        )  # fmt: skip
        before = {each.key: each.raw for each in parse(data).iter_records()}
        data = FORMAT.serialize(parse(data), {record.key: record if verb == "put" else None})
        if verb == "put":
            expected[record.key] = record.strategy
        else:
            expected.pop(record.key, None)
        after = {each.key: each for each in parse(data).iter_records()}
        assert {key: each.strategy for key, each in after.items()} == expected
        assert all(after[key].raw == raw for key, raw in before.items()
                   if key in after and key != record.key)  # fmt: skip


def test_record_whose_bytes_are_undecodable_is_read_with_replacements() -> None:
    data = line(mine="x").encode().replace(b'"x"', b'"\xff"')
    parsed = parse(data)
    assert [each.code for each in parsed.findings] == ["AB102"]
    assert FORMAT.record(parsed, 0).extra["mine"] == "\ufffd"


def test_unreadable_line_is_no_record_but_its_neighbours_are() -> None:
    parsed = parse(line() + "\n" + line(op=None) + "\n" + with_info(m=64))
    assert len([*parsed.iter_records()]) == len(parsed) == 2


def test_record_that_changed_under_way_raises_with_its_place() -> None:
    good = parse(line())
    broken = replace(good, data=good.data.replace(b'"op":', b'"up":'))
    with pytest.raises(RecordError, match="member op is missing"):
        FORMAT.record(broken, 0)


# -- schema and fuzz --------------------------------------------------------------------------

anything = st.sampled_from([None, True, 7, -1, 2.5, "text", [], {}, [1], {"a": 1}])
near_lines = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("id", "info_dict", "knowledge", "op", "version"), anything)
)


def test_published_schema_holds_the_rules_of_every_operator() -> None:
    path = sample_bank_files.ROOT / "docs" / "generate_schemas.py"
    generator = runpy.run_path(str(path))
    assert generator["render"]() == generator["TARGET"].read_text(encoding="utf-8")


edits = st.dictionaries(
    st.sampled_from([*FIRST["info_dict"], *FIRST["knowledge"], "more"]),
    st.sampled_from([None, True, 7, -1, 2.5, "text", [], {}, ...]),
    max_size=3,
)


@given(edits, edits)
def test_published_schema_and_fast_checks_agree_about_fields(
    workload: dict[str, Any], strategy: dict[str, Any]
) -> None:
    value = dict(FIRST)
    for part, changes in (("info_dict", workload), ("knowledge", strategy)):
        fields = {**FIRST[part], **changes}
        value[part] = {name: each for name, each in fields.items() if each is not ...}
    is_valid = Draft202012Validator(SCHEMA).is_valid(value)
    assert is_valid == (not {*codes(json.dumps(value))} & {"AB205", "AB206"})


@given(near_lines | anything)
def test_published_schema_and_fast_checks_agree(value: Any) -> None:
    is_valid = Draft202012Validator(SCHEMA).is_valid(value)
    found = {*codes(json.dumps(value))}
    assert is_valid == (not found & {"AB113", "AB204", "AB205", "AB206"})


def test_published_schema_is_itself_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)


mutations = st.tuples(
    st.sampled_from(["info_dict", "knowledge"]),
    st.sampled_from([*FIRST["info_dict"], *FIRST["knowledge"], "", "x" * 200, "~/\u00e4"]),
    anything | numbers | st.text(max_size=5),
)


@given(st.lists(mutations, max_size=4))
def test_mutated_records_never_raise_and_never_vanish_silently(edits: list[Any]) -> None:
    document = json.loads(line())
    for part, name, value in edits:
        document[part][name] = value
    text = json.dumps(document)
    if "Infinity" in text:
        return
    parsed = parse(text)
    assert len(parsed) == 1 or parsed.findings
    assert all(each.location.line == 1 for each in findings(text) if each.code != "AB114")


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
        assert {each.code for each in FORMAT.check(parsed)} <= {"AB307", "AB405", "AB407"}
        FORMAT.record(parsed, 0)


# -- real banks -------------------------------------------------------------------------------


def real_files(shared_data: Path) -> list[Path]:
    return sorted((shared_data / "cann_banks").rglob("*_runtime_kb.json"))


def test_shipped_banks_come_back_byte_for_byte(shared_data: Path) -> None:
    files = real_files(shared_data)
    assert files
    for path in files:
        parsed = FORMAT.parse(path.read_bytes(), path)
        assert len(parsed) == sum(1 for each in parsed.data.splitlines() if each.strip())
        assert FORMAT.serialize(parsed, {}) == parsed.data
        changes = {each.key: each for each in parsed.iter_records()}
        assert FORMAT.serialize(parsed, changes) == parsed.data


@pytest.mark.parametrize(
    ("soc", "equal", "records"),
    [
        ("Ascend310P3_8", 3, 3), ("Ascend310P5_8", 3, 3), ("Ascend310P7_8", 3, 3),
        ("Ascend910B3_20", 13, 13), ("Ascend910B4_20", 2, 2), ("Ascend910B1_24", 116, 118),
    ],
)  # fmt: skip
def test_recomputed_hashes_are_the_shipped_ids(
    shared_data: Path, soc: str, equal: int, records: int
) -> None:
    (path,) = (shared_data / "cann_banks/v9.0.0").rglob(f"{soc}_AiCore_MatMulV3_runtime_kb.json")
    parsed = FORMAT.parse(path.read_bytes(), path)
    ids = [each.extra["id"] for each in parsed.iter_records()]
    assert len(ids) == records
    assert sum(id_ == int(key[:8], 16) for id_, key in zip(ids, parsed.keys, strict=True)) == equal


@pytest.mark.parametrize(
    ("release", "records", "differ"), [("v8.5.0", 4248, 3308), ("v9.0.0", 4397, 3409)]
)
def test_most_shipped_ids_are_no_hashes(
    shared_data: Path, release: str, records: int, differ: int
) -> None:
    found: list[str] = []
    number = 0
    for path in real_files(shared_data):
        if release in path.parts:
            parsed = FORMAT.parse(path.read_bytes(), path)
            number += len(parsed)
            found += [each.code for each in FORMAT.check(parsed)]
    assert number == records
    assert found.count("AB307") + found.count("AB308") == differ
    assert {*found} <= {"AB209", "AB210", "AB307", "AB308"}  # every other rule is kept
