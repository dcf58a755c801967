"""Which record `resolve` names."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.resolve_world import CANN, LATEST, SOC, World, codes, exit_code
from support.runtime_kb_lines import make_runtime_record

from aoebank import Bank, Reader, Record, UsageError
from aoebank.model.resolution import Query, ReaderOutcome
from aoebank.resolving.run import workload_from_file, workload_from_text
from aoebank.storage.bank import load_file
from aoebank.testing.factories import make_record


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def text_of(record: Record) -> str:
    return json.dumps(record.workload)


def test_custom_record_is_used_and_the_built_in_one_hidden(world: World) -> None:
    custom = world.bank(LATEST, make_record(1, cost_us=20.0), make_record(2))
    built_in = world.bank("opp/built-in/data/op", make_record(1, cost_us=12.5))
    workload = workload_from_text(text_of(make_record(1)), op_type="MatMulV3")
    result = world.resolve(Reader.UNIFIED, workload=workload)
    (match,) = result.matches
    assert match.used is not None
    assert (match.used.file.path, match.used.record.cost_us) == (custom, 20.0)
    assert [hit.file.path for hit in match.shadowed] == [built_in]
    (hazard,) = result.hazards
    assert (hazard.code, hazard.path) == ("AR301", custom)
    assert "takes 20 us and hides a built_in one of 12.5 us" in hazard.message
    assert exit_code(result) == 0


@pytest.mark.parametrize("cost_us", [20.0, 30.0, None])
def test_record_that_hides_no_faster_one_is_no_hazard(world: World, cost_us: float | None) -> None:
    world.bank(LATEST, make_record(1, cost_us=20.0))
    world.bank("opp/built-in/data/op", make_record(1, cost_us=cost_us))
    workload = workload_from_text(text_of(make_record(1)), op_type=None)
    assert world.resolve(Reader.UNIFIED, workload=workload).hazards == ()


def test_records_of_other_targets_and_core_numbers_hide_nothing(world: World) -> None:
    socs = ("Ascend910B2", "Ascend910B3")
    files = [world.bank(LATEST, make_record(1, cost_us=20.0), soc=soc) for soc in socs]
    faster = files[0].with_name(files[0].name.replace("_24_", "_20_"))
    assert faster != files[0]
    Bank(world.base / LATEST).put(faster, [make_record(1, cost_us=10.0)])
    workload = workload_from_text(text_of(make_record(1)), op_type=None)
    result = world.resolve(Reader.UNIFIED, workload=workload, query=Query())
    found = [match.used.file.path for match in result.matches if match.used is not None]
    assert sorted(found) == sorted([*files, faster])
    assert not any(match.shadowed for match in result.matches)
    assert "AR301" not in codes(list(result.hazards))


def test_own_built_in_record_goes_before_a_custom_one_of_a_related_soc(world: World) -> None:
    related = world.bank(LATEST, make_record(1, cost_us=1.0), soc="Ascend910B1")
    workload = workload_from_text(text_of(make_record(1)), op_type=None)
    result = world.resolve(Reader.UNIFIED, workload=workload)
    assert [(hazard.code, hazard.path) for hazard in result.hazards] == [("AR302", related)]
    own = world.bank("opp/built-in/data/op", make_record(1, cost_us=9.0))
    result = world.resolve(Reader.UNIFIED, workload=workload)
    assert result.matches[0].used is not None
    assert result.matches[0].used.file.path == own
    assert codes(list(result.hazards)) == ["AR301"]


def test_miss_has_exit_code_1(world: World) -> None:
    world.bank(LATEST, make_record(1))
    workload = workload_from_text(text_of(make_record(2)), op_type=None)
    result = world.resolve(Reader.UNIFIED, workload=workload)
    assert result.matches[0].used is None
    assert exit_code(result) == 1
    assert exit_code(world.resolve(workload=workload)) == 1


SPELLINGS = [(", ", ": "), (",", ":")]


def test_both_spellings_of_a_workload_are_looked_for(world: World) -> None:
    """The key is the md5 of a text, and writers differ in blanks."""
    record = make_record(1)
    world.bank(LATEST, record)
    text = json.dumps(record.workload, separators=(",", ":"))
    result = world.resolve(Reader.UNIFIED, workload=workload_from_text(text, op_type=None))
    assert result.matches[0].used is not None


@pytest.mark.parametrize("separators", SPELLINGS)
def test_of_both_spellings_in_one_file_the_one_given_is_used(
    world: World, separators: tuple[str, str]
) -> None:
    for number in range(8):  # not by chance
        record = make_record(number)
        texts = [json.dumps(record.workload, separators=one) for one in SPELLINGS]
        keys = [hashlib.md5(text.encode()).hexdigest() for text in texts]
        world.bank(LATEST, *(replace(record, key=key) for key in keys))
        text = json.dumps(record.workload, separators=separators)
        result = world.resolve(Reader.UNIFIED, workload=workload_from_text(text, op_type=None))
        (match,) = result.matches
        assert match.used is not None
        assert match.used.record.key == hashlib.md5(text.encode()).hexdigest()


def test_broken_bank_is_told_and_hides_nothing(world: World) -> None:
    broken = world.file(f"{LATEST}/{SOC}/unified_bank/{SOC}_24_AiCore_MatMulV3.json", '{"a": [')
    built_in = world.bank("opp/built-in/data/op", make_record(1))
    workload = workload_from_text(text_of(make_record(1)), op_type=None)
    result = world.resolve(Reader.UNIFIED, workload=workload)
    assert result.matches[0].used is not None
    assert result.matches[0].used.file.path == built_in
    assert [(hazard.code, hazard.path) for hazard in result.hazards] == [("AR303", broken)]


def test_broken_file_is_empty_to_python_readers_and_good_lines_count_for_the_other(
    world: World,
) -> None:
    record = make_record(1)
    broken = world.bank(LATEST, record)
    broken.write_text(broken.read_text().rstrip("}\n"))
    workload = workload_from_text(text_of(record), op_type=None)
    assert world.resolve(Reader.UNIFIED, workload=workload).matches[0].used is None
    line = make_runtime_record(op_type="Unlisted", workload={"m": 1}, strategy={})
    query = Query(soc_version=SOC, op_type="Unlisted")
    path = world.base / CANN / SOC / "unified_bank" / f"{SOC}_24_AiCore_Unlisted_runtime_kb.json"
    Bank(world.base / CANN).put(path, [line])
    path.write_bytes(b"not json\n" + path.read_bytes())
    workload = workload_from_text('{"m": 1}', op_type="Unlisted")
    result = world.resolve(Reader.CANN_CPP, query=query, workload=workload)
    assert result.matches[0].used is not None
    assert codes(list(result.hazards)) == ["AR303"]


def test_record_of_the_runtime_bank_is_found_by_what_its_reader_hashes(
    world: World, tmp_path: Path
) -> None:
    record = make_runtime_record(
        op_type="Unlisted", workload={"m": 16, "n": 32}, strategy={"usedCoreNum": 24}
    )
    query = Query(soc_version=SOC, op_type="Unlisted")
    path = world.base / CANN / SOC / "unified_bank" / f"{SOC}_24_AiCore_Unlisted_runtime_kb.json"
    Bank(world.base / CANN).put(path, [record])
    workload = workload_from_text('{"n": 32, "m": 16}', op_type="Unlisted")
    result = world.resolve(Reader.CANN_CPP, query=query, workload=workload)
    assert result.matches[0].used is not None
    assert result.matches[0].used.record.key == record.key
    (tmp_path / "one.json").write_bytes(path.read_bytes())
    workload = workload_from_file(tmp_path / "one.json")
    assert workload.format == "runtime_kb"
    result = world.resolve(Reader.CANN_CPP, Reader.UNIFIED, query=query, workload=workload)
    assert [(match.reader, match.used is not None) for match in result.matches] == [
        (Reader.CANN_CPP, True)
    ]


def test_fastest_record_of_the_first_vector_tier_wins(world: World) -> None:
    """Several files are merged by the smaller time before the tiers are compared."""
    feature = '[[0, [16, 16], "float16"]]'
    for time, ticks in (("1", 70.0), ("2", 50.0)):
        world.file(
            f"{LATEST}/{SOC}/vector/{SOC}_AiCore_24_v001_2024010{time}_000000_000001.json",
            json.dumps({feature: json.dumps([["cheque"], ticks])}),
        )
    world.file(
        f"opp/built-in/data/rl/Ascend910B/{SOC}_AiCore_24_v001.json",
        json.dumps({feature: json.dumps([["cheque"], 10.0])}),
    )
    workload = workload_from_text(feature, op_type=None)
    result = world.resolve(Reader.VECTOR, workload=workload)
    (match,) = result.matches
    assert match.used is not None
    assert match.used.record.cost_us == 50.0
    assert [hit.record.cost_us for hit in match.shadowed] == [70.0, 10.0]


SAMPLES = Path(__file__).resolve().parents[3] / "sample_banks/ascend" / SOC
SAMPLE_FILES = {
    Reader.UNIFIED: f"unified_bank/{SOC}_24_AiCore_matmul.json",
    Reader.CANN_CPP: f"unified_bank/{SOC}_24_AiCore_MatMulV3_runtime_kb.json",
    Reader.CUBE: f"cube/AIC_24_L1_SIZE_512_repository_{SOC}_matmul.json",
    Reader.VECTOR: f"vector/{SOC}_AiCore_24_v001_20260101_000000_000000.json",
    Reader.GRAPH: "graph/ascend910b2_l2cache.json",
    Reader.GRADIENT: f"graph/{SOC}_gradient_fusion.json",
}


@pytest.mark.parametrize(
    ("reader", "spelling"),
    [(reader, spelling) for reader in SAMPLE_FILES for spelling in ("record", "shape")]
    + [(Reader.GRAPH, "id")],
)
def test_each_reader_finds_its_records_however_they_are_asked_for(
    world: World, reader: Reader, spelling: str
) -> None:
    sample = SAMPLES / SAMPLE_FILES[reader]
    is_flat = sample.parent.name == "graph"
    world.env["TUNE_BANK_PATH"] = str(world.folder("tune"))
    below = sample.name if is_flat else f"{SOC}/{SAMPLE_FILES[reader]}"
    world.file(f"tune/{below}").write_bytes(sample.read_bytes())
    parsed = load_file(sample)
    wanted = list(parsed.iter_records())[-1]
    text = wanted.key
    if spelling == "shape" and reader not in (Reader.VECTOR, Reader.GRADIENT):  # key is text
        text = json.dumps(wanted.workload, default=dict)
    workload = workload_from_text(text, op_type=wanted.op_type)
    if spelling == "record":
        one = world.base / sample.name
        empty = parsed.format.parse(parsed.format.empty, one)
        one.write_bytes(parsed.format.serialize(empty, {wanted.key: wanted}))
        workload = workload_from_file(one)
    query = Query(soc_version=SOC, core_num=24)
    (match,) = world.resolve(reader, query=query, workload=workload).matches
    assert match.used is not None
    assert match.used.record.key == wanted.key
    assert (match.shadowed, match.broken) == ((), ())


@pytest.mark.parametrize("text", ['{"a": ', "", "  {a}"])
def test_shape_that_is_no_json_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--shape"):
        workload_from_text(text, op_type=None)


@pytest.mark.parametrize("numbers", [(), (1, 2)])
def test_record_file_must_hold_one_record(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    path = tmp_path / "a_1_AiCore_b.json"
    path.write_text("{}")
    Bank(tmp_path).put(path, map(make_record, numbers))
    with pytest.raises(UsageError, match=f"got {len(numbers)} in"):
        workload_from_file(path)


# ---- old names of CPUs ----

_ZEN4 = Query(soc_version="x86-64-zen4", core_num=24, op_type="MatMulV3")


def test_a_bank_under_an_old_name_is_found_and_said_to_be(world: World) -> None:
    file = world.bank(LATEST, make_record(), soc="x86-64-v4")
    result = world.resolve(Reader.HOST, query=_ZEN4)
    (answer,) = result.answers
    assert answer.outcome is ReaderOutcome.CUSTOM
    assert [(found.path, found.soc_version) for found in answer.files] == [(file, "x86-64-v4")]
    (hazard,) = [hazard for hazard in result.hazards if hazard.code == "AR210"]
    assert (hazard.path, hazard.readers) == (file, (Reader.HOST,))
    assert "under the old name x86-64-v4: counts where x86-64-zen4 has no record" in hazard.message
    assert exit_code(result) == 0


def test_a_record_of_the_new_name_goes_before_one_of_the_old(world: World) -> None:
    record = make_record(1)
    old = world.bank(LATEST, record, soc="x86-64-v4")
    workload = workload_from_text(text_of(record), op_type=None)
    match = world.resolve(Reader.HOST, query=_ZEN4, workload=workload).matches[0]
    assert match.used is not None and match.used.file.path == old
    new = world.bank(LATEST, record, soc="x86-64-zen4")
    match = world.resolve(Reader.HOST, query=_ZEN4, workload=workload).matches[0]
    assert match.used is not None and match.used.file.path == new
    assert [hit.file.path for hit in match.shadowed] == [old]


@pytest.mark.parametrize("soc", ["x86-64-zen4", "Ascend910B2", "x86-64-v3"])
def test_nothing_is_said_where_no_old_name_is_in_use(world: World, soc: str) -> None:
    world.bank(LATEST, make_record(), soc=soc)
    hazards = world.hazards(Reader.HOST, query=Query(soc_version=soc, core_num=24))
    assert "AR210" not in codes(hazards)


def test_old_names_are_the_host_s_alone(world: World) -> None:
    world.bank(LATEST, make_record(), soc="x86-64-v4")
    (answer,) = world.resolve(Reader.UNIFIED, query=_ZEN4).answers
    assert answer.files == ()
