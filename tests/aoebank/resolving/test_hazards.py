"""What `resolve` warns of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.resolve_world import CANN, LATEST, QUERY, SOC, World, codes, exit_code

from aoebank import Reader
from aoebank.model.resolution import HAZARDS, Hazard, Query
from aoebank.testing.factories import make_record


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_missing_path_is_told_once_with_what_each_reader_does(world: World) -> None:
    world.env["TUNE_BANK_PATH"] = str(world.base / "gone")
    hazard = world.hazards(Reader.CANN_CPP, Reader.UNIFIED, Reader.CUBE)[0]
    assert hazard.code == "AR101"
    assert hazard.readers == (Reader.CANN_CPP, Reader.UNIFIED, Reader.CUBE)
    assert "cann-cpp: the custom bank is ignored, silently" in hazard.message
    assert "unified: the job ends with an error (EC0006)" in hazard.message
    assert "cube: the custom bank is ignored, with a warning" in hazard.message
    assert "unset TUNE_BANK_PATH" in hazard.hint


@pytest.mark.parametrize("variable", ["TUNE_BANK_PATH", "ASCEND_CACHE_PATH"])
def test_relative_path_is_told(world: World, variable: str) -> None:
    world.env[variable] = world.folder("banks").name
    (hazard,) = [found for found in world.hazards(Reader.HOST) if found.code == "AR102"]
    assert (hazard.path, hazard.readers) == (world.base / "banks", (Reader.HOST,))
    world.env[variable] = str(world.base / "banks")
    assert "AR102" not in codes(world.hazards(Reader.HOST))


def test_relative_option_is_told_to_those_it_concerns_only(world: World) -> None:
    world.folder("banks")
    assert "AR102" in codes(world.hazards(Reader.UNIFIED, op_bank_path="banks"))
    assert "AR102" not in codes(world.hazards(Reader.HOST, op_bank_path="banks"))


def test_unset_home_is_told_unless_another_variable_decides(world: World) -> None:
    world.env["HOME"] = ""
    assert codes(world.hazards(Reader.CANN_CPP)) == ["AR103"]
    world.env["TUNE_BANK_PATH"] = str(world.folder("tune"))
    assert world.hazards(Reader.CANN_CPP) == []


@pytest.mark.parametrize("opp_path", ["", "nowhere", "file"])
def test_built_in_bank_out_of_sight_is_told(world: World, opp_path: str) -> None:
    world.file("file")
    path = str(world.base / opp_path) if opp_path else ""
    assert codes(world.hazards(Reader.CANN_CPP, opp_path=path)) == ["AR104"]
    assert world.hazards(Reader.HOST, opp_path=path) == []


def test_permissions_that_drop_the_built_in_bank_too_are_told(world: World) -> None:
    world.env["TUNE_BANK_PATH"] = str(world.folder("tune"))
    name = f"{SOC}_24_AiCore_MatMulV3_runtime_kb.json"
    file = world.file(f"tune/{SOC}/unified_bank/{name}", "")
    world.forbidden[file] = os.W_OK
    (hazard,) = world.hazards(Reader.CANN_CPP)
    assert (hazard.code, hazard.path) == ("AR105", file)
    assert "the built-in one included" in hazard.message
    assert exit_code(world.resolve(Reader.CANN_CPP)) == 1


@pytest.mark.parametrize(
    ("reader", "root", "kind"),
    [(Reader.CANN_CPP, LATEST, "_runtime_kb"), (Reader.UNIFIED, CANN, ""), (Reader.HOST, CANN, "")],
)
def test_bank_below_the_default_directory_of_other_readers_is_told(
    world: World, reader: Reader, root: str, kind: str
) -> None:
    world.file(f"{root}/{SOC}/unified_bank/{SOC}_24_AiCore_MatMulV3{kind}.json")
    (hazard,) = world.hazards(reader)
    assert (hazard.code, hazard.path) == ("AR201", world.base / root)
    world.env["TUNE_BANK_PATH"] = str(world.folder("tune"))
    assert world.hazards(reader) == []


def test_options_and_variables_a_reader_is_deaf_to_are_told(world: World) -> None:
    world.env["ASCEND_CACHE_PATH"] = str(world.folder("cache"))
    assert codes(world.hazards(Reader.GRADIENT, query=Query())) == ["AR202"]
    assert world.hazards(Reader.UNIFIED) == []
    option = str(world.folder("option"))
    (deaf,) = world.hazards(Reader.CANN_CPP, Reader.UNIFIED, op_bank_path=option)
    assert (deaf.code, deaf.readers) == ("AR202", (Reader.CANN_CPP,))
    assert world.hazards(Reader.GRAPH, query=Query(), op_bank_path=option)[0].path != option


def test_option_that_a_variable_overrules_is_told(world: World) -> None:
    """The order of the two options is opposite: only --mdl_bank_path beats TUNE_BANK_PATH."""
    world.env["TUNE_BANK_PATH"] = str(world.folder("tune"))
    option = str(world.folder("option"))
    (hazard,) = world.hazards(Reader.UNIFIED, op_bank_path=option)
    assert (hazard.code, hazard.readers) == ("AR202", (Reader.UNIFIED,))
    assert world.hazards(Reader.GRAPH, query=Query(), mdl_bank_path=option) == []


@pytest.mark.parametrize(
    ("reader", "name"),
    [(Reader.GRADIENT, f"{SOC}_gradient_fusion.json"), (Reader.GRAPH, "ascend910b2_l2cache.json")],
)
@pytest.mark.parametrize("folder", [SOC, f"graph/{SOC}"])
def test_subgraph_and_gradient_banks_in_a_folder_are_told(
    world: World, reader: Reader, name: str, folder: str
) -> None:
    world.env["TUNE_BANK_PATH"] = str(world.folder("tune"))
    hidden = world.file(f"tune/{folder}/{name}", "[]")
    found = [hazard for hazard in world.hazards(reader, query=Query()) if hazard.code == "AR203"]
    assert [hazard.path for hazard in found] == [hidden]


@pytest.mark.parametrize("names", [("op", "graph"), ("op",), ("graph",)])
def test_layout_of_the_contradictory_page_is_told(world: World, names: tuple[str, ...]) -> None:
    root = world.folder("tune")
    world.env["TUNE_BANK_PATH"] = str(root)
    for name in names:
        world.folder(f"tune/{name}")
    (hazard,) = world.hazards(Reader.UNIFIED)
    assert (hazard.code, hazard.path) == ("AR204", root)
    assert all(f"{name}/" in hazard.message for name in names)


@pytest.mark.parametrize("name", ["unified_bank", "cube", "vector"])
def test_bank_without_its_soc_folder_is_told(world: World, name: str) -> None:
    world.env["TUNE_BANK_PATH"] = str(world.folder("tune"))
    folder = world.folder(f"tune/{name}")
    assert [(hazard.code, hazard.path) for hazard in world.hazards(Reader.HOST)] == [
        ("AR205", folder)
    ]


def test_built_in_gradient_bank_that_is_spelt_differently_is_told(world: World) -> None:
    folder = world.folder("aarch64-linux/data/fusion_strategy/built-in")
    world.file(f"aarch64-linux/data/fusion_strategy/built-in/{SOC}_gradient_fusion.json", "[]")
    (hazard,) = world.hazards(Reader.GRADIENT, query=Query())
    assert (hazard.code, hazard.path) == ("AR206", folder)
    folder.rename(folder.with_name("build_in"))
    assert world.hazards(Reader.GRADIENT, query=Query()) == []


def test_bank_for_other_cores_is_told(world: World) -> None:
    file = world.bank(LATEST, make_record())
    query = Query(soc_version=SOC, core_num=20, op_type="MatMulV3")
    (hazard,) = world.hazards(Reader.UNIFIED, query=query)
    assert (hazard.code, hazard.path) == ("AR207", file)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (
            Query(soc_version=SOC.lower(), core_num=24, op_type="MatMulV3"),
            f"--soc {SOC} --op MatMulV3",
        ),
        (Query(soc_version=SOC, op_type="matmulv3"), f"--soc {SOC} --op MatMulV3"),
        (Query(op_type="MATMULV3"), "--op MatMulV3"),
        (Query(soc_version=SOC.upper()), f"--soc {SOC}"),
    ],
)
def test_bank_of_another_spelling_is_told(world: World, query: Query, words: str) -> None:
    file = world.bank(LATEST, make_record())
    (hazard,) = world.hazards(Reader.UNIFIED, query=query)
    assert (hazard.code, hazard.path) == ("AR211", file)
    assert hazard.hint == f"ask for {words}, or rename the file"
    for other in (QUERY, Query(soc_version=f"{SOC}C"), Query(op_type="MatMulV2")):
        assert world.hazards(Reader.UNIFIED, query=other) == []


@pytest.mark.parametrize(("reader", "name"), [(Reader.CUBE, "ga"), (Reader.VECTOR, "rl")])
def test_folder_of_an_old_layout_is_told(world: World, reader: Reader, name: str) -> None:
    folder = world.folder(f"{LATEST}/{SOC}/{name}")
    for query in (QUERY, Query()):
        assert [(hazard.code, hazard.path) for hazard in world.hazards(reader, query=query)] == [
            ("AR208", folder)
        ]


def test_cube_bank_without_its_twin_is_told(world: World) -> None:
    file = world.file(f"{LATEST}/{SOC}/cube/repository_{SOC}_MatMulV3.json", "")
    assert [(hazard.code, hazard.path) for hazard in world.hazards(Reader.CUBE)] == [
        ("AR209", file)
    ]
    file.with_suffix(".bin").touch()
    assert world.hazards(Reader.CUBE) == []


def test_every_place_hazard_has_a_test_in_this_folder() -> None:
    files = Path(__file__).parent.glob("test_*.py")
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert all(text.count(f'"{code}"') for code in HAZARDS)


def test_hazard_of_an_unknown_code_is_a_bug() -> None:
    with pytest.raises(ValueError, match="AR999"):
        Hazard(code="AR999", message="")
