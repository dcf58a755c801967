"""What `resolve` warns of, which record it names, and what its exit code says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank import Bank, Reader
from aoebank.errors import UsageError
from aoebank.formats.runtime_kb.format import make_runtime_record
from aoebank.model.record import Record
from aoebank.model.resolution import HAZARDS, Hazard, Query, ReaderOutcome
from aoebank.ops.resolve.records import WantedWorkload, workload_from_file, workload_from_text
from aoebank.ops.resolve.run import ResolveResult, default_readers, resolve
from aoebank.report.resolve import ResolveReport
from aoebank.storage.bank import load_file
from aoebank.storage.readers.environment import surroundings
from aoebank.testing.factories import make_record

SOC = "Ascend910B2"
LATEST = "home/Ascend/latest/data/aoe/custom/op"
CANN = "home/Ascend/cann/data/aoe/custom/op"
GRAPH = "home/Ascend/latest/data/aoe/custom/graph"
QUERY = Query(soc_version=SOC, core_num=24, op_type="MatMulV3")


class World:
    """One folder with a home and an opp directory, and everything set to point there."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.forbidden: dict[Path, int] = {}
        self.env = {"HOME": str(self.folder("home")), "ASCEND_OPP_PATH": str(self.folder("opp"))}

    def folder(self, name: str) -> Path:
        path = self.base / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def file(self, name: str, text: str = "{}") -> Path:
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def bank(self, root: str, *records: Record, soc: str = SOC) -> Path:
        path = self.base / root / soc / "unified_bank" / f"{soc}_24_AiCore_MatMulV3.json"
        Bank(self.base / root).put(path, records)
        return path

    def resolve(
        self,
        *readers: Reader,
        query: Query = QUERY,
        workload: WantedWorkload | None = None,
        writers: bool = False,
        **options: str,
    ) -> ResolveResult:
        around = surroundings(
            env=self.env,
            cwd=self.base,
            **options,
            access=lambda path, mode: not self.forbidden.get(path, 0) & mode,
        )
        return resolve(
            around=around, query=query, readers=readers, workload=workload, writers=writers
        )

    def hazards(self, *readers: Reader, query: Query = QUERY, **options: str) -> list[Hazard]:
        return list(self.resolve(*readers, query=query, **options).hazards)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def codes(hazards: list[Hazard]) -> list[str]:
    return [hazard.code for hazard in hazards]


def exit_code(result: ResolveResult) -> int:
    return ResolveReport(result=result, explain=False).exit_code


def test_nothing_odd_gives_no_warning_and_exit_code_0(world: World) -> None:
    world.bank(LATEST, make_record())
    result = world.resolve(Reader.UNIFIED)
    assert result.hazards == ()
    assert exit_code(result) == 0


def test_default_is_every_reader_and_only_those_of_operators_for_an_op_type() -> None:
    assert default_readers(Query()) == (
        Reader.HOST,
        Reader.CANN_CPP,
        Reader.UNIFIED,
        Reader.CUBE,
        Reader.VECTOR,
        Reader.GRAPH,
        Reader.GRADIENT,
    )
    assert Reader.GRAPH not in default_readers(QUERY)
    assert default_readers(Query(), writers=True) == (
        Reader.HOST,
        Reader.CANN_CPP_WRITER,
        Reader.UNIFIED,
        Reader.CUBE,
        Reader.VECTOR,
        Reader.GRAPH_WRITER,
        Reader.GRADIENT_WRITER,
    )


def test_reader_asked_for_twice_answers_once(world: World) -> None:
    assert len(world.resolve(Reader.HOST, Reader.HOST).answers) == 1


def test_survey_is_found_when_any_reader_finds_and_named_readers_must_all(world: World) -> None:
    world.bank(LATEST, make_record())
    assert exit_code(world.resolve()) == 0
    assert exit_code(world.resolve(Reader.HOST, Reader.UNIFIED)) == 0
    assert exit_code(world.resolve(Reader.HOST, Reader.CANN_CPP)) == 1


def test_survey_on_a_machine_without_cann_is_no_error(world: World) -> None:
    world.env.pop("ASCEND_OPP_PATH")
    world.bank(LATEST, make_record())
    assert exit_code(world.resolve()) == 0
    named = world.resolve(Reader.UNIFIED)
    assert exit_code(named) == 3
    assert "ASCEND_OPP_PATH: is not set" in str(named.error)


def test_exit_code_1_when_a_reader_goes_on_without_the_bank_it_was_given(world: World) -> None:
    world.env["TUNE_BANK_PATH"] = "gone"
    world.file(f"opp/built-in/data/op/{SOC}/unified_bank/{SOC}_24_AiCore_MatMulV3_runtime_kb.json")
    result = world.resolve(Reader.CANN_CPP)
    assert result.answers[0].files
    assert (result.error, exit_code(result)) == (None, 1)


def test_exit_code_3_when_a_reader_stops(world: World) -> None:
    world.env["TUNE_BANK_PATH"] = "gone"
    assert exit_code(world.resolve()) == 3
    assert exit_code(world.resolve(Reader.UNIFIED)) == 3
    assert exit_code(world.resolve(Reader.GRADIENT, query=Query())) == 1


def test_writer_needs_no_file_yet_only_a_place_it_may_use(world: World) -> None:
    result = world.resolve(writers=True)
    assert [answer.outcome for answer in result.answers] == [ReaderOutcome.CUSTOM] * 5
    assert (exit_code(result), exit_code(world.resolve())) == (0, 1)
    assert exit_code(world.resolve(Reader.GRADIENT_WRITER, query=Query())) == 0
    world.env["TUNE_BANK_PATH"] = "gone"
    assert exit_code(world.resolve(writers=True)) == 3


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


def test_every_place_hazard_has_a_test_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(text.count(f'"{code}"') for code in HAZARDS)


def test_hazard_of_an_unknown_code_is_a_bug() -> None:
    with pytest.raises(ValueError, match="AR999"):
        Hazard(code="AR999", message="")


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


def test_both_spellings_of_a_workload_are_looked_for(world: World) -> None:
    """The key is the md5 of a text, and writers differ in blanks."""
    record = make_record(1)
    world.bank(LATEST, record)
    text = json.dumps(record.workload, separators=(",", ":"))
    result = world.resolve(Reader.UNIFIED, workload=workload_from_text(text, op_type=None))
    assert result.matches[0].used is not None


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


SAMPLES = Path(__file__).resolve().parents[4] / "sample_banks/ascend" / SOC
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


ODD_TEXTS = st.one_of(
    st.sampled_from(["", ".", "..", "/", "tune", "home", "file", "loop", "x" * 300, "/dev/null"]),
    st.text(max_size=6),
    st.text(st.characters(categories=["Cs", "Cc"]), max_size=3),
)


class Lines:
    """Stands in for the terminal; a part that is no text would fail there."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def line(self, *parts: str | tuple[str, str]) -> None:
        self.texts.append("".join(part if isinstance(part, str) else part[0] for part in parts))


@pytest.fixture(scope="module")
def odd_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("odd"))
    world.file("file")
    (world.base / "loop").symlink_to("loop")
    for root in ("tune", LATEST, CANN):
        world.bank(root, make_record())
        world.file(f"{root}/{SOC}/unified_bank/{SOC}_24_AiCore_MatMulV3_runtime_kb.json", "{}\n\0")
    world.file(f"tune/graph/{SOC}/{SOC}_gradient_fusion.json", "[")
    return world


@given(
    env=st.dictionaries(
        st.sampled_from(["TUNE_BANK_PATH", "ASCEND_CACHE_PATH", "HOME", "ASCEND_OPP_PATH"]),
        ODD_TEXTS,
    ),
    option=ODD_TEXTS,
    soc=st.sampled_from([None, SOC, "Ascend910B1"]),
    writers=st.booleans(),
    readers=st.lists(st.sampled_from(Reader), max_size=3),
    text=st.text(max_size=6),
)
def test_any_surroundings_have_one_report_and_no_traceback(
    odd_world: World,
    env: dict[str, str],
    option: str,
    soc: str | None,
    writers: bool,
    readers: list[Reader],
    text: str,
) -> None:
    try:
        workload = workload_from_text(text, op_type="MatMulV3")
    except UsageError:
        workload = None
    odd_world.env = env

    def ask() -> ResolveReport:
        result = odd_world.resolve(
            *readers,
            query=Query(soc_version=soc),
            writers=writers,
            workload=workload,
            op_bank_path=option,
            mdl_bank_path=option,
        )
        return ResolveReport(result=result, explain=True)

    report = ask()
    assert json.dumps(report.document()) == json.dumps(ask().document())
    assert report.exit_code in (0, 1, 3)
    lines = Lines()
    report.write(lines)
    assert lines.texts


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
