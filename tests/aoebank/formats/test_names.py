"""Names of bank files: what they tell, which reader takes them, what it would look for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank.formats.names import CORE_TYPES, RUNTIME_SUFFIX, BankName, build_operator_name
from aoebank.formats.names import parse_operator_name as parse_name
from aoebank.formats.registry import FORMATS, find_format, get_format
from aoebank.model.resolution import Query
from aoebank.storage.readers.folders import file_name, is_asked_for
from aoebank.storage.readers.rules import RULES

SOC, SOC_9391 = "Ascend910B4-1", "Ascend910_9391"
OWN = Query(soc_version=SOC, core_num=20, op_type="matmul")
TABLE = [
    ("unified", f"{SOC}_20_AiCore_matmul.json"),
    ("unified", f"{SOC}_20_VectorCore_matmul.json"),
    ("runtime_kb", f"{SOC}_20_AiCore_matmul_runtime_kb.json"),
    ("cube", f"AIC_20_L1_SIZE_512_repository_{SOC}_matmul.json"),
    ("cube", f"AIC_20_L1_SIZE_512_L2_FUSION_repository_{SOC}_matmul.json"),
    ("cube", "repository_ascend910B4-1_matmul.json"),
    ("vector", f"{SOC}_AiCore_20_v001.json"),
    ("vector", f"dynamic_{SOC}_AiCore_20_v002.json"),
    ("vector", f"static_{SOC}_VectorCore_20_v001_20240102_030405_678901.json"),
    ("vector", f"{SOC}_AiCore_20_v001_merged.json"),
    ("graph", "ascend910b4_1_l2cache.json"),
    ("graph", "ascend910b4_1_l1fusion.json"),
    ("gradient", f"{SOC}_gradient_fusion.json"),
]
NO_CORES = ("repository_ascend910B4-1_matmul.json",)
PER_OPERATOR = ("unified", "runtime_kb", "cube")
PER_CORES = (*PER_OPERATOR, "vector")


def takers(name: str, query: Query) -> set[str]:
    """Return the formats whose readers take a name for one they were asked for."""
    return {rules.format for rules in RULES.values() if is_asked_for(name, rules, query)}


@pytest.mark.parametrize(("owner", "name"), TABLE)
def test_own_name_matches_whatever_is_left_open(owner: str, name: str) -> None:
    for query in (
        OWN,
        Query(),
        Query(soc_version=SOC),
        Query(core_num=20),
        Query(op_type="matmul"),
    ):
        assert takers(name, query) == {owner}


@pytest.mark.parametrize(("owner", "name"), TABLE)
def test_each_part_a_name_holds_must_agree(owner: str, name: str) -> None:
    for soc in ("Ascend910B4", "Ascend310P3", "Ascend910B4-11"):
        assert not takers(name, Query(soc_version=soc))
    assert bool(takers(name, Query(core_num=24))) == (owner not in PER_CORES or name in NO_CORES)
    assert bool(takers(name, Query(op_type="mul"))) == (owner not in PER_OPERATOR)


@pytest.mark.parametrize(("owner", "name"), TABLE)
def test_format_of_a_file_is_the_one_its_reader_reads(owner: str, name: str) -> None:
    assert find_format(Path(name)) is get_format(owner)


@pytest.mark.parametrize(
    ("owner", "name", "soc", "cores", "op"),
    [
        ("cube", "repository_ascend910_matmul.json", "ascend910", None, "matmul"),
        (
            "cube",
            "repository_Ascend310P3_conv2d_forward.json",
            "Ascend310P3",
            None,
            "conv2d_forward",
        ),
        (
            "cube",
            "AIC_24_L1_SIZE_512_repository_Ascend910B4-1_conv2d_bp_input.json",
            SOC,
            24,
            "conv2d_bp_input",
        ),
        ("cube", "AIC_2_L1_SIZE_1024_L2_FUSION_repository_Ascend910_9391_a.json", SOC_9391, 2, "a"),
        ("vector", "Ascend310_AiCore_2_v001_20210824_155338_854171.json", "Ascend310", 2, None),
        ("vector", "Ascend910B4-1_VectorCore_40_v001.json", SOC, 40, None),
        ("vector", "static_Ascend910_9391_AiCore_24_v002.json", SOC_9391, 24, None),
        ("graph", "ascend910b2_l2cache.json", "ascend910b2", None, None),
        ("graph", "ascend910b4_1_l2cache.json", "ascend910b4_1", None, None),
        ("graph", "ascend310_l2fusion.json", "ascend310", None, None),
        ("graph", "ascend610_l1fusion.json", "ascend610", None, None),
        ("gradient", "Ascend910_9391_gradient_fusion.json", SOC_9391, None, None),
    ],
)
def test_name_tells_soc_cores_and_operator_as_they_are_spelled(
    owner: str, name: str, soc: str, cores: int | None, op: str | None
) -> None:
    told = get_format(owner).parse_name(name)
    assert told is not None
    assert (told.soc_version, told.core_num, told.op_type) == (soc, cores, op)
    assert find_format(Path(name)) is get_format(owner)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".json",
        "notes.json",
        "a_AiCore_b.json",
        "repository_.json",
        "repository_Ascend910B2.json",  # of no operator, so nobody asks for it
        "repository_npu.json",  # of another program
        "X_AiCore_24_v01.json",  # versions have three digits
        "_gradient_fusion.json",
        f"{SOC}_20_AiCore_matmul.json.aoe",
        f"{SOC}_20_AiCore_matmul.json.provenance.jsonl",
        f"{SOC}_20_VectorCore_matmul_runtime_kb.json",
        "AIC_x_L1_SIZE_512_repository_a_b.json",
    ],
)
def test_other_names_are_nobodys(name: str) -> None:
    assert not takers(name, Query())
    assert find_format(Path(name)) is None


def test_longer_soc_version_is_another_one() -> None:
    name = "repository_Ascend910_9391_matmul.json"
    assert takers(name, Query(soc_version="Ascend910_9391")) == {"cube"}
    assert not takers(name, Query(soc_version="Ascend910"))


def test_operator_is_the_whole_end_of_a_name() -> None:
    name = "repository_Ascend910B2_conv2d_bp_input.json"
    assert takers(name, Query(op_type="conv2d_bp_input")) == {"cube"}
    assert not takers(name, Query(op_type="input"))


def test_core_type_asked_for_must_be_that_of_the_name() -> None:
    name = f"{SOC}_20_VectorCore_matmul.json"
    assert takers(name, Query(core_type="VectorCore"))
    assert not takers(name, Query(core_type="AiCore"))


def test_name_a_reader_would_open_is_one_it_takes() -> None:
    for rules in RULES.values():
        name = file_name(rules, OWN).replace("<KiB>", "512").replace("<time>", "1")
        assert is_asked_for(name, rules, OWN)
        assert "<soc_version>" in file_name(rules, Query())


def test_every_format_of_cann_has_a_reader() -> None:
    names = {known.name for known in FORMATS}
    assert names - {rules.format for rules in RULES.values()} == {
        "vllm",
        "aiter",
        "aiter_triton",
        "akg",
        "flashinfer",
        "metaschedule",
        "tunable_op",
        "kernel_tuner",
        "t4",
    }


@pytest.mark.parametrize(
    ("name", "soc_version", "core_num", "core_type", "op_type"),
    [
        ("Ascend910B1_25_AiCore_matmul.json", "Ascend910B1", 25, "AiCore", "matmul"),
        ("Ascend910_9391_24_AiCore_conv2d.json", "Ascend910_9391", 24, "AiCore", "conv2d"),
        ("Ascend910B4-1_20_AiCore_a_b.json", "Ascend910B4-1", 20, "AiCore", "a_b"),
        ("BS9SX2AB_48_VectorCore_x.json", "BS9SX2AB", 48, "VectorCore", "x"),
        ("x86-64-v4_zen5_2_AiCore_Softmax.json", "x86-64-v4_zen5", 2, "AiCore", "Softmax"),
    ],
)
def test_file_name_keeps_soc_version_verbatim(
    name: str, soc_version: str, core_num: int, core_type: str, op_type: str
) -> None:
    expected = BankName(
        soc_version=soc_version, core_num=core_num, core_type=core_type, op_type=op_type
    )
    assert parse_name(name, ".json") == expected
    assert build_operator_name(expected, ".json") == name


def test_runtime_bank_name_keeps_its_suffix_apart_from_the_op_type() -> None:
    name = "Ascend310P3_8_AiCore_MatMulV3_runtime_kb.json"
    parsed = get_format("runtime_kb").parse_name(name)
    assert parsed is not None
    assert parsed.op_type == "MatMulV3"
    assert get_format("unified").parse_name(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "matmul.json",
        "Ascend910_AiCore_matmul.json",
        "Ascend910_32_AICORE_matmul.json",
        "Ascend910_032_AiCore_matmul.json",
        "_32_AiCore_matmul.json",
        "a_1_AiCore_.json",
        "Ascend910_32_AiCore_matmul.json.aoe",
        "",
    ],
)
def test_other_names_are_no_bank_file_names(name: str) -> None:
    assert parse_name(name, ".json") is None


@given(
    soc=st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True),
    core_num=st.integers(0, 99),
    core_type=st.sampled_from(CORE_TYPES),
    op_type=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9]{0,9}", fullmatch=True),
    suffix=st.sampled_from((".json", RUNTIME_SUFFIX)),
)
def test_file_name_round_trip(
    soc: str, core_num: int, core_type: str, op_type: str, suffix: str
) -> None:
    name = BankName(soc_version=soc, core_num=core_num, core_type=core_type, op_type=op_type)
    assert parse_name(build_operator_name(name, suffix), suffix) == name


@pytest.mark.parametrize("soc_version", ["", "a/b", "../x"])
def test_file_name_refuses_what_would_leave_the_folder(soc_version: str) -> None:
    with pytest.raises(ValueError):
        BankName(soc_version=soc_version, core_num=1, op_type="x")
