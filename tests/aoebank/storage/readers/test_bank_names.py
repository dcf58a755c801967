"""Which file names each reader takes for its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aoebank.model.resolution import Query
from aoebank.storage.readers import bank_names as names
from aoebank.storage.readers.rules import RULES

SOC = "Ascend910B4-1"
OWN = Query(soc_version=SOC, core_num=20, op_type="matmul")

TABLE: list[tuple[Callable[[str, Query], bool], str]] = [
    (names.matches_unified, f"{SOC}_20_AiCore_matmul.json"),
    (names.matches_unified, f"{SOC}_20_VectorCore_matmul.json"),
    (names.matches_runtime, f"{SOC}_20_AiCore_matmul_runtime_kb.json"),
    (names.matches_cube, f"AIC_20_L1_SIZE_512_repository_{SOC}_matmul.json"),
    (names.matches_cube, f"AIC_20_L1_SIZE_512_L2_FUSION_repository_{SOC}_matmul.json"),
    (names.matches_cube, "repository_ascend910B4-1_matmul.json"),
    (names.matches_vector, f"{SOC}_AiCore_20_v001.json"),
    (names.matches_vector, f"dynamic_{SOC}_AiCore_20_v002.json"),
    (names.matches_vector, f"static_{SOC}_VectorCore_20_v001_20240102_030405_678901.json"),
    (names.matches_graph, "ascend910b4_1_l2cache.json"),
    (names.matches_graph, "ascend910b4_1_l1fusion.json"),
    (names.matches_gradient, f"{SOC}_gradient_fusion.json"),
]
NO_CORES = ("repository_ascend910B4-1_matmul.json",)
PER_OPERATOR = (names.matches_unified, names.matches_runtime, names.matches_cube)
PER_CORES = (*PER_OPERATOR, names.matches_vector)


@pytest.mark.parametrize(("matches", "name"), TABLE)
def test_own_name_matches_whatever_is_left_open(
    matches: Callable[[str, Query], bool], name: str
) -> None:
    for query in (
        OWN,
        Query(),
        Query(soc_version=SOC),
        Query(core_num=20),
        Query(op_type="matmul"),
    ):
        assert matches(name, query)


@pytest.mark.parametrize(("matches", "name"), TABLE)
def test_each_part_a_name_holds_must_agree(
    matches: Callable[[str, Query], bool], name: str
) -> None:
    for soc in ("Ascend910B4", "Ascend310P3", "Ascend910B4-11"):
        assert not matches(name, Query(soc_version=soc))
    assert matches(name, Query(core_num=24)) == (matches not in PER_CORES or name in NO_CORES)
    assert matches(name, Query(op_type="mul")) == (matches not in PER_OPERATOR)


@pytest.mark.parametrize(("matches", "name"), TABLE)
def test_no_other_reader_takes_the_name(matches: Callable[[str, Query], bool], name: str) -> None:
    takers = {rules.matches for rules in RULES.values() if rules.matches(name, Query())}
    assert takers == {matches}


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".json",
        "notes.json",
        "a_AiCore_b.json",
        "repository_.json",
        "_gradient_fusion.json",
        f"{SOC}_20_AiCore_matmul.json.aoe",
        f"{SOC}_20_AiCore_matmul.json.provenance.jsonl",
        f"{SOC}_20_VectorCore_matmul_runtime_kb.json",
        "AIC_x_L1_SIZE_512_repository_a_b.json",
    ],
)
def test_other_names_are_nobodys(name: str) -> None:
    assert not [rules.reader for rules in RULES.values() if rules.matches(name, Query())]


def test_name_a_reader_would_open_is_one_it_takes() -> None:
    for rules in RULES.values():
        name = rules.file_name(OWN).replace("<KiB>", "512").replace("<time>", "1")
        assert rules.matches(name, OWN)
        assert "<soc_version>" in rules.file_name(Query())


@pytest.mark.parametrize(
    ("soc", "short"),
    [
        ("Ascend910B2C", "Ascend910B"),
        ("Ascend910_9391", "Ascend910B"),
        ("Ascend910A", "ascend910"),
        ("Ascend310P3", "Ascend310P"),
        ("Ascend950PR_9579", "Ascend950PR_9579"),
    ],
)
def test_folder_of_built_in_cube_and_vector_banks(soc: str, short: str) -> None:
    assert names.short_soc(soc) == short


def test_no_soc_version_is_its_own_alternative() -> None:
    for soc, others in names.SOC_ALTERNATIVES.items():
        assert soc not in others
        assert len(set(others)) == len(others) > 0
