"""Operators of format A: their structs, and what C++ makes of JSON values."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import sample_bank_files

from aoebank.formats.runtime_kb.operator_schema import (
    FieldError,
    SchemaField,
    StructFields,
    convert,
    operator_schemas,
)


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
    values = [
        bool(number % 2) if field.code == "?" else number
        for number, field in zip(example, fields.fields, strict=True)
    ]
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


@pytest.mark.parametrize(
    ("c_type", "value", "stored"),
    [
        ("uint8_t", 255, 255),
        ("uint8_t", 256, 0),
        ("uint8_t", -1, 255),
        ("int8_t", 128, -128),
        ("uint32_t", 2**32, 0),
        ("int64_t", 2**63, -(2**63)),
        ("uint64_t", -1, 2**64 - 1),
        ("int32_t", 2.9, 2),
        ("int32_t", -2.9, -2),
        ("uint32_t", True, 1),
        ("float", 1, 1.0),
        ("float", 1e300, float("inf")),
        ("float", -(10**400), float("-inf")),
        ("bool", True, True),
        ("double", 1e300, 1e300),
        ("uint64_t", float("inf"), 0),
    ],
)
def test_values_are_converted_as_in_cpp(c_type: str, value: Any, stored: Any) -> None:
    assert convert(SchemaField(name="x", c_type=c_type), value) == stored


@pytest.mark.parametrize(
    ("c_type", "value"),
    [
        ("bool", 1),
        ("bool", "true"),
        ("int64_t", True),
        ("ge::Format", True),
        ("float", None),
        ("uint32_t", "1"),
        ("uint32_t", [1]),
        ("double", {}),
    ],
)
def test_types_the_reader_rejects_raise(c_type: str, value: Any) -> None:
    with pytest.raises(FieldError):
        convert(SchemaField(name="x", c_type=c_type), value)


FIELDS = [
    SchemaField(name=f"f{place}", c_type=c_type)
    for place, c_type in enumerate(
        ("int8_t", "uint8_t", "int32_t", "uint32_t", "int64_t", "uint64_t", "float", "bool")
    )
]
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


def documents() -> list[dict[str, Any]]:
    folder = sample_bank_files.ROOT / "schemas/runtime_kb/operators"
    return [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]


def test_what_a_file_says_about_the_reader_is_about_its_own_fields_and_has_a_source() -> None:
    readers = {schema["op"]: schema for schema in documents() if "reader" in schema}
    assert {"Conv2DV2", "Conv3DV2"} <= {*readers}
    for document in readers.values():
        reader = document["reader"]
        assert {*reader} <= {"source", "not_read", "conditional", "values", "unused"}
        assert {*reader.get("unused", ())} <= {*reader.get("values", ())}
        assert "commit" in reader["source"]
        names = [
            *reader.get("not_read", ()),
            *reader.get("conditional", ()),
            *reader.get("values", ()),
        ]
        assert {*names} <= {name for name, *_ in document["knowledge"]}
        assert len(names) == len({*names})


def test_conv2d_takes_one_of_the_seventeen_late_fields_on_all_paths() -> None:
    late = (
        "khL1",
        "kwL1",
        "multiNBL1",
        "kernelHxkernelW",
        "cinAInCore",
        "cinATailInCore",
        "oriHinxWin",
        "cinOffsetBlockInGM",
        "mStep",
        "fmapKStride",
        "nStep",
        "kStep",
        "weightKStride",
        "coutOffsetBlock",
        "cinBInCore",
        "cinBTailInCore",
        "nL1DivBlockSize",
    )
    fields = operator_schemas()["Conv2DV2"].strategy.names
    assert not [name for name in late if fields[name].is_required]
    assert [name for name in late if fields[name].reaches] == ["multiNBL1"]
    assert [name for name in late if fields[name].path] == ["khL1", "kwL1"]
