"""What `resolve` says and exits with, whatever the surroundings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.resolve_world import CANN, LATEST, QUERY, SOC, World, exit_code

from aoebank import Reader, UsageError
from aoebank.model.resolution import Query, ReaderOutcome
from aoebank.resolving.report import ResolveReport
from aoebank.resolving.run import default_readers, workload_from_text
from aoebank.testing.factories import make_record


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


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
