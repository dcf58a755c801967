"""Structs from headers: facts, in their order, and nothing guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.formats.runtime_kb.operator_schema import C_TYPES
from aoebank.formats.runtime_kb.releases import TilingHeader, parse_header

HEADER = """
/* struct Conv9DInputArgs { int64_t old; }; */
#pragma pack(push, 1)
struct Conv9DInputArgs {
    ge::DataType a_dtype = ge::DT_FLOAT16;
    int64_t m;   // int64_t commented;
    bool flag;
};
#pragma pack(pop)
#define TUNING_TILING_DATA_FIELD_DEF_WITH_INITVALUE(data_type, field_name, value) \\
    data_type field_name = value;
BEGIN_TUNING_TILING_DEF(Conv9DTunnerTiling)
TUNING_TILING_DATA_FIELD_DEF(uint32_t, baseM);
// TUNING_TILING_DATA_FIELD_DEF(uint32_t, gone);
TUNING_TILING_DATA_FIELD_DEF_WITH_INITVALUE(uint8_t, isC04Flag, 0);
  TUNING_TILING_DATA_FIELD_DEF_WITH_INITVALUE( bool , deep , true ) ;
END_TUNING_TILING_DEF
DECLARE_SCHEMA(Conv9DTunnerTiling, FIELD(Conv9DTunnerTiling, baseM));
"""


def test_structs_are_read_in_their_order_with_defaults() -> None:
    assert parse_header(HEADER) == TilingHeader(
        name="Conv9D",
        workload=(("a_dtype", "ge::DataType"), ("m", "int64_t"), ("flag", "bool")),
        strategy=(("baseM", "uint32_t"), ("isC04Flag", "uint8_t", 0), ("deep", "bool", 1)),
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("uint32_t, baseM", "std::string, baseM", "std::string"),
        ("int64_t m;", "size_t m;", "size_t"),
        ("(uint32_t, baseM)", "(uint32_t, baseM[3])", "not known"),
        ("BEGIN_TUNING_TILING_DEF", "BEGIN_DEF", "0 tiling"),
        ("struct Conv9DInputArgs {\n    ge", "class Conv9DInputArgs {\n    ge", "0 key"),
        ("isC04Flag, 0", "isC04Flag, SOME_NAME", "SOME_NAME"),
    ],
)
def test_header_written_in_another_way_is_refused(old: str, new: str, said: str) -> None:
    assert old in HEADER
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        parse_header(HEADER.replace(old, new))


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("Conv3D", "Conv3D"),
        ("Conv3DV2", "Conv3DV2"),
        ("Conv3DBackpropFilter", "Conv3DBackpropFilterV2"),
        ("Mystery", "Mystery"),
        ("MatMul", "MatMulV3"),
    ],
)
def test_operator_is_the_known_one_or_its_version(name: str, op: str) -> None:
    known = ("Conv3D", "Conv3DV2", "Conv3DBackpropFilterV2", "MatMulV3", "QuantBatchMatmulV3")
    assert TilingHeader(name=name, workload=(), strategy=()).op(known) == op


NAMES = st.from_regex(r"[a-z]\w{0,9}", fullmatch=True)
ROWS = st.tuples(NAMES, st.sampled_from(C_TYPES)) | st.tuples(
    NAMES, st.sampled_from(C_TYPES), st.integers(-9, 9)
)


@given(st.lists(ROWS, min_size=1))
def test_every_field_written_is_read(rows: list[tuple[str, str] | tuple[str, str, int]]) -> None:
    fields = "".join(
        f"TUNING_TILING_DATA_FIELD_DEF({row[1]}, {row[0]});\n"
        if len(row) == 2
        else f"TUNING_TILING_DATA_FIELD_DEF_WITH_INITVALUE({row[1]}, {row[0]}, {row[2]});\n"
        for row in rows
    )
    begin, end = "BEGIN_TUNING_TILING_DEF(AnyTunerTiling)", "END_TUNING_TILING_DEF"
    text = f"struct AnyArgs {{ int64_t m; }};\n{begin}\n{fields}{end}\n"
    assert parse_header(text).strategy == tuple(rows)
