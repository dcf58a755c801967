"""Truth tables: which place each program takes, and what it does when it cannot use it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank import BankPathError, Reader, Tier, resolve_bank
from aoebank.model.resolution import Failure, Query, ReaderAnswer, ReaderOutcome
from aoebank.storage.readers.environment import find_answer, surroundings
from aoebank.storage.readers.rules import RULES

SOC = "Ascend910B2"
LATEST = "Ascend/latest/data/aoe/custom/op"
CANN = "Ascend/cann/data/aoe/custom/op"
GRAPH = "Ascend/latest/data/aoe/custom/graph"
QUERY = Query(soc_version=SOC, core_num=24, op_type="MatMulV3")
NAMES = {
    "runtime_kb": f"{SOC}_24_AiCore_MatMulV3_runtime_kb.json",
    "unified": f"{SOC}_24_AiCore_MatMulV3.json",
    "cube": f"AIC_24_L1_SIZE_512_repository_{SOC}_MatMulV3.json",
    "vector": f"{SOC}_AiCore_24_v001_20240102_030405_678901.json",
    "graph": "ascend910b2_l2cache.json",
    "gradient": f"{SOC}_gradient_fusion.json",
}
FOLDERS = {
    "runtime_kb": f"{SOC}/unified_bank",
    "unified": f"{SOC}/unified_bank",
    "cube": f"{SOC}/cube",
    "vector": f"{SOC}/vector",
}
ROOTS = {  # the default root of each program below HOME
    Reader.HOST: LATEST,
    Reader.CANN_CPP: CANN,
    Reader.CANN_CPP_WRITER: CANN,
    Reader.UNIFIED: LATEST,
    Reader.CUBE: LATEST,
    Reader.VECTOR: LATEST,
    Reader.GRAPH: GRAPH,
    Reader.GRAPH_WRITER: GRAPH,
    Reader.GRADIENT: GRAPH,
    Reader.GRADIENT_WRITER: GRAPH,
}
BUILT_IN = {
    Reader.CANN_CPP: f"opp/built-in/data/op/{SOC}/unified_bank",
    Reader.CANN_CPP_WRITER: f"opp/built-in/data/op/{SOC}/unified_bank",
    Reader.UNIFIED: f"opp/built-in/data/op/{SOC}/unified_bank",
    Reader.CUBE: "opp/built-in/data/tiling/Ascend910B",
    Reader.VECTOR: "opp/built-in/data/rl/Ascend910B",
    Reader.GRAPH: "aarch64-linux/data/fusion_strategy/built-in",
    Reader.GRAPH_WRITER: "aarch64-linux/data/fusion_strategy/built-in",
    Reader.GRADIENT: "aarch64-linux/data/fusion_strategy/build_in",
}


@dataclass
class World:
    """A machine: directories below one folder, variables, options and what is forbidden."""

    base: Path
    env: dict[str, str] = field(default_factory=lambda: {"AOE_BUILT_IN_BANK": "off"})
    options: dict[str, str] = field(default_factory=dict)
    forbidden: dict[Path, int] = field(default_factory=dict)

    def folder(self, name: str) -> Path:
        path = self.base / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def file(self, name: str, text: str = "{}") -> Path:
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def set(self, *names: str) -> None:
        """Set variables, or options (`--...`), each to a directory of its own."""
        for name in names:
            target = self.options if name.startswith("--") else self.env
            target[name] = str(self.folder(PATHS[name]))

    def ask(self, reader: Reader, query: Query = QUERY) -> ReaderAnswer:
        around = surroundings(
            env=self.env,
            cwd=self.base,
            op_bank_path=self.options.get("--op"),
            mdl_bank_path=self.options.get("--mdl"),
            access=lambda path, mode: not self.forbidden.get(path, 0) & mode,
        )
        return find_answer(reader, around, query)


PATHS = {
    "TUNE_BANK_PATH": "tune",
    "ASCEND_CACHE_PATH": "cache",
    "HOME": "home",
    "ASCEND_OPP_PATH": "opp",
    "--op": "op_option",
    "--mdl": "mdl_option",
}
ALL = tuple(PATHS)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(base=tmp_path)
    made.set("HOME", "ASCEND_OPP_PATH")
    return made


def custom_file(reader: Reader, root: str) -> str:
    """Return where a file of a reader's format must be below a root it takes."""
    rules = RULES[reader]
    if rules.is_operator:
        return f"{root}/{FOLDERS[rules.format]}/{NAMES[rules.format]}"
    below = f"{SOC}/" if root.startswith("home") else ""
    return f"{root}/{below}{NAMES[rules.format]}"


# T: TUNE_BANK_PATH, C: ASCEND_CACHE_PATH, O: --op_bank_path, M: --mdl_bank_path, -: HOME.
# Which of them decides, when all those in the head of a column are set.
#                    T C O M |  C O M |  O M |  C |  T O M | (none but HOME)
ORDER = {
    Reader.HOST: ("T", "C", "-", "C", "T", "-"),
    Reader.CANN_CPP: ("T", "C", "-", "C", "T", "-"),
    Reader.CANN_CPP_WRITER: ("T", "C", "-", "C", "T", "-"),
    Reader.UNIFIED: ("T", "O", "O", "C", "T", "-"),
    Reader.CUBE: ("T", "O", "O", "C", "T", "-"),
    Reader.VECTOR: ("T", "O", "O", "C", "T", "-"),
    Reader.GRAPH: ("M", "M", "M", "-", "M", "-"),
    Reader.GRAPH_WRITER: ("T", "C", "-", "C", "T", "-"),
    Reader.GRADIENT: ("T", "-", "-", "-", "T", "-"),
    Reader.GRADIENT_WRITER: ("T", "-", "-", "-", "T", "-"),
}
COLUMNS = ("TCOM", "COM", "OM", "C", "TOM", "")
LETTERS = {"T": "TUNE_BANK_PATH", "C": "ASCEND_CACHE_PATH", "O": "--op", "M": "--mdl", "-": "HOME"}
SOURCES = {
    "T": "TUNE_BANK_PATH",
    "C": "ASCEND_CACHE_PATH",
    "O": "--op-bank-path",
    "M": "--mdl-bank-path",
    "-": "HOME",
}


def test_every_program_has_rules_and_a_truth_table() -> None:
    assert set(RULES) == set(Reader) == set(ORDER) == set(ROOTS)


@pytest.mark.parametrize("column", range(len(COLUMNS)))
@pytest.mark.parametrize("reader", Reader)
def test_which_variable_decides(world: World, reader: Reader, column: int) -> None:
    world.set(*(LETTERS[letter] for letter in COLUMNS[column]))
    winner = ORDER[reader][column]
    root = {
        "T": "tune",
        "C": "cache/aoe_data",
        "O": "op_option",
        "M": "mdl_option",
        "-": f"home/{ROOTS[reader]}",
    }[winner]
    file = world.file(custom_file(reader, root))
    answer = world.ask(reader)
    assert answer.variable == SOURCES[winner]
    assert answer.root == world.base / root
    assert [found.path for found in answer.files] == [file]
    assert answer.files[0].tier is Tier.CUSTOM
    assert answer.outcome is ReaderOutcome.CUSTOM
    assert answer.troubles == ()


# What each does about a variable that names no directory.
MISSING = {
    "TUNE_BANK_PATH": {
        Reader.HOST: Failure.STOP,
        Reader.CANN_CPP: Failure.SILENT,
        Reader.CANN_CPP_WRITER: Failure.STOP,
        Reader.UNIFIED: Failure.STOP,
        Reader.CUBE: Failure.WARN,
        Reader.VECTOR: Failure.STOP,
        Reader.GRAPH: Failure.UNKNOWN,
        Reader.GRAPH_WRITER: Failure.STOP,
        Reader.GRADIENT: Failure.NEXT,
        Reader.GRADIENT_WRITER: Failure.STOP,
    },
    "ASCEND_CACHE_PATH": {
        Reader.HOST: Failure.STOP,
        Reader.CANN_CPP: Failure.SILENT,
        Reader.CANN_CPP_WRITER: Failure.STOP,
        Reader.UNIFIED: Failure.STOP,
        Reader.CUBE: Failure.WARN,
        Reader.VECTOR: Failure.STOP,
        Reader.GRAPH: None,
        Reader.GRAPH_WRITER: Failure.STOP,
        Reader.GRADIENT: None,
        Reader.GRADIENT_WRITER: None,
    },
    "HOME": {
        Reader.HOST: Failure.STOP,
        Reader.CANN_CPP: None,
        Reader.CANN_CPP_WRITER: Failure.STOP,
        Reader.UNIFIED: None,
        Reader.CUBE: None,
        Reader.VECTOR: None,
        Reader.GRAPH: None,
        Reader.GRAPH_WRITER: None,
        Reader.GRADIENT: None,
        Reader.GRADIENT_WRITER: None,
    },
}
CODES = {
    (Reader.UNIFIED, "TUNE_BANK_PATH"): "EC0006",
    (Reader.UNIFIED, "ASCEND_CACHE_PATH"): "EC0006",
}


@pytest.mark.parametrize("variable", MISSING)
@pytest.mark.parametrize("reader", Reader)
def test_path_that_does_not_exist(world: World, reader: Reader, variable: str) -> None:
    built_in = world.file(f"{BUILT_IN.get(reader, 'none')}/{NAMES[RULES[reader].format]}")
    world.env[variable] = str(world.base / "gone")
    answer = world.ask(reader)
    failure = MISSING[variable][reader]
    assert [found.failure for found in answer.troubles] == ([failure] if failure else [])
    assert (answer.outcome is ReaderOutcome.STOPS) == (failure is Failure.STOP)
    if failure in (Failure.SILENT, Failure.WARN, Failure.UNKNOWN):
        assert answer.ignores_custom
        assert [found.path for found in answer.files] == [built_in]
    for trouble in answer.troubles:
        assert trouble.error.path == world.base / "gone"
        assert trouble.error.variable == variable
        if failure is Failure.STOP and variable != "HOME":
            assert trouble.cann_code == CODES.get((reader, variable), trouble.cann_code)


@pytest.mark.parametrize("reader", Reader)
def test_no_falling_through_from_a_variable_that_is_set_but_unusable(
    world: World, reader: Reader
) -> None:
    """Only the gradient reader goes on to HOME; nobody else reads the good bank there."""
    world.env["TUNE_BANK_PATH"] = str(world.base / "gone")
    good = world.file(custom_file(reader, f"home/{ROOTS[reader]}"))
    found = [file.path for file in world.ask(reader).files]
    assert found == ([good] if reader is Reader.GRADIENT else [])


# What each does when TUNE_BANK_PATH may not be written.
DENIED = {
    Reader.HOST: Failure.STOP,
    Reader.UNIFIED: Failure.STOP,
    Reader.CUBE: Failure.WARN,
    Reader.VECTOR: Failure.STOP,
    Reader.GRAPH: Failure.UNKNOWN,
    Reader.GRAPH_WRITER: Failure.STOP,
    Reader.CANN_CPP: None,
    Reader.CANN_CPP_WRITER: None,
    Reader.GRADIENT: None,
    Reader.GRADIENT_WRITER: None,
}


@pytest.mark.parametrize("mode", [os.R_OK, os.W_OK, os.X_OK])
@pytest.mark.parametrize("reader", Reader)
def test_directory_without_one_permission(world: World, reader: Reader, mode: int) -> None:
    world.set("TUNE_BANK_PATH")
    world.forbidden[world.base / "tune"] = mode
    failures = [trouble.failure for trouble in world.ask(reader).troubles]
    assert failures == ([DENIED[reader]] if DENIED[reader] else [])


def test_unified_names_the_code_of_cann_for_directories(world: World) -> None:
    world.set("TUNE_BANK_PATH")
    world.forbidden[world.base / "tune"] = os.W_OK
    assert [trouble.cann_code for trouble in world.ask(Reader.UNIFIED).troubles] == ["EC0006"]


def test_tuner_wants_the_directory_of_the_files_and_only_if_it_exists(world: World) -> None:
    world.set("TUNE_BANK_PATH")
    folder = world.base / "tune" / SOC / "unified_bank"
    world.forbidden[folder] = os.X_OK
    assert world.ask(Reader.CANN_CPP_WRITER).troubles == ()
    folder.mkdir(parents=True)
    (trouble,) = world.ask(Reader.CANN_CPP_WRITER).troubles
    assert (trouble.failure, trouble.cann_code) == (Failure.STOP, "EC0011")


def test_tuner_stops_at_a_missing_home_even_if_another_variable_decides(world: World) -> None:
    world.set("TUNE_BANK_PATH")
    world.env["HOME"] = str(world.base / "gone")
    assert world.ask(Reader.CANN_CPP_WRITER).outcome is ReaderOutcome.STOPS
    assert world.ask(Reader.CANN_CPP).troubles == ()


@pytest.mark.parametrize(
    ("variable", "root", "failure"),
    [
        ("TUNE_BANK_PATH", "tune", Failure.DROP_ALL),
        ("ASCEND_CACHE_PATH", "cache/aoe_data", Failure.DROP_ALL),
        ("HOME", f"home/{CANN}", Failure.SILENT),
    ],
)
def test_read_only_runtime_bank_drops_the_built_in_one_too_unless_it_is_the_default(
    world: World, variable: str, root: str, failure: Failure
) -> None:
    world.set(variable)
    built_in = world.file(f"{BUILT_IN[Reader.CANN_CPP]}/{NAMES['runtime_kb']}")
    file = world.file(custom_file(Reader.CANN_CPP, root))
    assert [found.path for found in world.ask(Reader.CANN_CPP).files] == [file, built_in]
    world.forbidden[file] = os.W_OK
    answer = world.ask(Reader.CANN_CPP)
    assert [trouble.failure for trouble in answer.troubles] == [failure]
    is_dropped = failure is Failure.DROP_ALL
    assert [found.path for found in answer.files] == ([] if is_dropped else [built_in])
    assert answer.outcome is (ReaderOutcome.NOTHING if is_dropped else ReaderOutcome.BUILT_IN)
    assert answer.ignores_custom


def test_unreadable_built_in_runtime_bank_drops_the_custom_one_too(world: World) -> None:
    built_in = world.file(f"{BUILT_IN[Reader.CANN_CPP]}/{NAMES['runtime_kb']}")
    world.file(custom_file(Reader.CANN_CPP, f"home/{CANN}"))
    world.forbidden[built_in] = os.W_OK  # only reading counts here
    assert len(world.ask(Reader.CANN_CPP).files) == 2
    world.forbidden[built_in] = os.R_OK
    answer = world.ask(Reader.CANN_CPP)
    assert (answer.files, answer.outcome) == ((), ReaderOutcome.NOTHING)


@pytest.mark.parametrize("text", [None, ""])
@pytest.mark.parametrize("reader", Reader)
def test_no_home(world: World, reader: Reader, text: str | None) -> None:
    world.env.pop("HOME")
    if text is not None:
        world.env["HOME"] = text
    expected = {
        Reader.HOST: Failure.STOP,
        Reader.CANN_CPP: None,
        Reader.CANN_CPP_WRITER: Failure.STOP,
        Reader.UNIFIED: Failure.STOP,
    }.get(reader, Failure.UNKNOWN)
    answer = world.ask(reader)
    assert answer.root is None
    assert [trouble.failure for trouble in answer.troubles] == ([expected] if expected else [])
    world.set("TUNE_BANK_PATH")
    world.file(custom_file(reader, "tune"))  # without it gradient goes on to HOME
    assert world.ask(reader).troubles == ()


def test_unified_stops_without_the_variable_of_the_built_in_bank(world: World) -> None:
    world.env.pop("ASCEND_OPP_PATH")
    world.set("TUNE_BANK_PATH")
    (trouble,) = world.ask(Reader.UNIFIED).troubles
    assert (trouble.failure, trouble.cann_code) == (Failure.STOP, "EC0008")
    for reader in set(Reader) - {Reader.UNIFIED}:
        assert world.ask(reader).troubles == ()


@pytest.mark.parametrize("reader", BUILT_IN)
def test_built_in_bank_comes_after_the_custom_one(world: World, reader: Reader) -> None:
    built_in = world.file(f"{BUILT_IN[reader]}/{NAMES[RULES[reader].format]}")
    answer = world.ask(reader)
    assert ([found.path for found in answer.files], answer.outcome) == (
        [built_in],
        ReaderOutcome.BUILT_IN if RULES[reader].is_reader else ReaderOutcome.CUSTOM,
    )
    custom = world.file(custom_file(reader, f"home/{ROOTS[reader]}"))
    answer = world.ask(reader)
    assert ([found.path for found in answer.files], answer.outcome) == (
        [custom, built_in],
        ReaderOutcome.CUSTOM,
    )


def test_gradient_reader_does_not_see_the_folder_the_installer_makes(world: World) -> None:
    world.file(f"aarch64-linux/data/fusion_strategy/built-in/{NAMES['gradient']}")
    assert world.ask(Reader.GRADIENT).outcome is ReaderOutcome.NOTHING


def test_gradient_falls_through_a_root_without_its_file_or_with_an_empty_one(
    world: World,
) -> None:
    world.set("TUNE_BANK_PATH")
    default = world.file(f"home/{GRAPH}/{SOC}/{NAMES['gradient']}")
    assert [found.path for found in world.ask(Reader.GRADIENT).files] == [default]
    assert world.ask(Reader.GRADIENT_WRITER).files == ()
    named = world.file(f"tune/{NAMES['gradient']}", "")
    assert [found.path for found in world.ask(Reader.GRADIENT).files] == [default]
    named.write_text("[]")
    assert [found.path for found in world.ask(Reader.GRADIENT).files] == [named]


def test_packages_of_their_own_hide_the_built_in_file_of_the_same_name(world: World) -> None:
    """The first file counts and is not merged with the others."""
    name = NAMES["runtime_kb"]
    places = [
        f"opp/{package}built-in/data/op/{SOC}/unified_bank/{name}"
        for package in ("", "ops_transformer/", "ops_nn/")
    ]
    for place in places:
        file = world.file(place)
        assert [found.path for found in world.ask(Reader.CANN_CPP).files] == [file]
    other = world.file(places[0].replace("MatMulV3", "Conv3D"))
    query = Query(soc_version=SOC)
    names = {found.path for found in world.ask(Reader.CANN_CPP, query).files}
    assert names == {file, other}


def test_unified_takes_the_first_built_in_directory_whole(world: World) -> None:
    second = world.file(f"opp/data/built_in/op/{SOC}/unified_bank/{NAMES['unified']}")
    assert [found.path for found in world.ask(Reader.UNIFIED).files] == [second]
    world.folder("opp/built-in/data/op")
    assert world.ask(Reader.UNIFIED).files == ()


def test_own_soc_of_both_tiers_goes_before_related_ones(world: World) -> None:
    """custom(own) > built-in(own) > custom(related) > built-in(related), same core number."""

    def place(root: str, soc: str, cores: int = 24) -> Path:
        return world.file(f"{root}/{soc}/unified_bank/{soc}_{cores}_AiCore_MatMulV3.json")

    custom, built_in = f"home/{LATEST}", "opp/built-in/data/op"
    place(custom, "Ascend910B1", 25)  # not the core number asked about
    place(custom, "Ascend910B3")  # not related
    files = [
        place(built_in, "Ascend910B1"),
        place(custom, "Ascend910B1"),
        place(built_in, SOC),
        place(custom, SOC),
    ]
    answer = world.ask(Reader.UNIFIED)
    assert [found.path for found in answer.files] == files[::-1]
    assert [found.soc_version for found in answer.files] == [SOC, SOC, "Ascend910B1", "Ascend910B1"]
    assert [found.path for found in world.ask(Reader.HOST).files] == [files[3]]


def test_vector_reads_the_first_of_its_three_folders_that_has_banks(world: World) -> None:
    name = NAMES["vector"]
    files = [
        world.file(f"home/{LATEST}/{folder}/{name}")
        for folder in ("Ascend910B/rl", "Ascend910B/custom", f"{SOC}/vector")
    ]
    for file in reversed(files):
        assert [found.path for found in world.ask(Reader.VECTOR).files] == [file]
        file.unlink()


def test_custom_subgraph_bank_of_any_name_is_told_by_its_content(world: World) -> None:
    world.set("TUNE_BANK_PATH")
    bank = world.file(
        "tune/subgraph.json",
        '{"version":"2.1"}\n{"feature":{"feature":[]},"graphID":"1","strategy":{"group":[]}}\n',
    )
    world.file("tune/notes.json", "[1, 2]")
    world.file(f"tune/{SOC}/{NAMES['graph']}")
    assert [found.path for found in world.ask(Reader.GRAPH).files] == [bank]


@pytest.mark.parametrize("reader", [reader for reader in Reader if RULES[reader].is_operator])
def test_other_soc_and_other_cores_are_other_files(world: World, reader: Reader) -> None:
    world.set("TUNE_BANK_PATH")
    file = world.file(custom_file(reader, "tune"))
    for query in (
        Query(soc_version=SOC, core_num=25),
        Query(soc_version="Ascend910B", core_num=24),
        Query(soc_version="Ascend310P3"),
    ):
        assert world.ask(reader, query).files == ()
    for query in (Query(), Query(soc_version=SOC), Query(core_num=24), QUERY):
        assert [found.path for found in world.ask(reader, query).files] == [file]


@pytest.mark.parametrize("reader", [reader for reader in Reader if RULES[reader].is_operator])
def test_file_in_the_folder_of_another_soc_is_not_found(world: World, reader: Reader) -> None:
    world.set("TUNE_BANK_PATH")
    world.file(custom_file(reader, "tune").replace(f"{SOC}/", "Ascend310/", 1))
    assert world.ask(reader).files == ()
    assert world.ask(reader, Query()).files == ()


def test_resolve_bank_follows_the_rules_of_the_reader_asked_for(world: World) -> None:
    found = resolve_bank(env=world.env, cwd=world.base, reader=Reader.CANN_CPP)
    assert found.root == world.base / "home" / CANN
    env = {**world.env, "TUNE_BANK_PATH": "gone"}
    with pytest.raises(BankPathError, match="does not exist"):
        resolve_bank(env=env, cwd=world.base, reader=Reader.CANN_CPP)
    with pytest.raises(BankPathError, match="no variable says"):
        resolve_bank(env={}, cwd=world.base, reader=Reader.CANN_CPP)


def test_two_dots_behind_a_link_lead_where_the_system_says(world: World) -> None:
    world.folder("far/away")
    world.folder("far/bank")
    world.folder("bank")
    (world.base / "link").symlink_to(world.base / "far" / "away")
    world.env["TUNE_BANK_PATH"] = "link/../bank"
    root = resolve_bank(env=world.env, cwd=world.base).root
    assert root.samefile(world.base / "far" / "bank")


ODD_PATHS = st.one_of(
    st.sampled_from(
        [
            "",
            ".",
            "..",
            "/",
            "tune",
            "home",
            "file",
            "loop",
            "gone",
            "tune/../home",
            "x" * 300,
            "~",
            "cache",
            "opp",
            "/dev/null",
        ]
    ),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
)
VARIABLES = st.dictionaries(
    st.sampled_from(["TUNE_BANK_PATH", "ASCEND_CACHE_PATH", "HOME", "ASCEND_OPP_PATH"]), ODD_PATHS
)
QUERIES = st.builds(
    Query,
    soc_version=st.sampled_from([None, SOC, "x" * 300, "Ascend910_9391"]),
    core_num=st.sampled_from([None, 0, 24]),
    op_type=st.sampled_from([None, "MatMulV3", "*", "["]),
)


@pytest.fixture(scope="module")
def odd_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(base=tmp_path_factory.mktemp("odd"))
    for name in ("tune", "home", "cache", "opp"):
        made.folder(name)
    made.file("file")
    (made.base / "loop").symlink_to("loop")
    for reader in Reader:
        for root in ("tune", "cache/aoe_data", f"home/{ROOTS[reader]}"):
            made.file(custom_file(reader, root))
    return made


@given(
    env=VARIABLES,
    option=ODD_PATHS,
    query=QUERIES,
    mask=st.integers(0, 7),
    reader=st.sampled_from(Reader),
)
def test_any_environment_has_one_answer_and_no_traceback(
    odd_world: World, env: Mapping[str, str], option: str, query: Query, mask: int, reader: Reader
) -> None:
    def allowed(path: Path, mode: int) -> bool:
        return not (mask and crc32(bytes(path)) % 3 == 0 and mode & mask)

    around = surroundings(
        env=env, cwd=odd_world.base, op_bank_path=option, mdl_bank_path=option, access=allowed
    )
    answer = find_answer(reader, around, query)
    assert repr(find_answer(reader, around, query)) == repr(answer)
    assert sum(attempt.taken for attempt in answer.tried if attempt.tier is Tier.CUSTOM) <= 1
    assert (answer.outcome is ReaderOutcome.STOPS) == (answer.stop is not None)
    assert all(found.path.is_file() for found in answer.files)


@given(env=VARIABLES)
def test_host_agrees_with_resolve_bank(odd_world: World, env: Mapping[str, str]) -> None:
    answer = find_answer(Reader.HOST, surroundings(env=env, cwd=odd_world.base), Query())
    try:
        resolution = resolve_bank(env=env, cwd=odd_world.base)
    except BankPathError as error:
        assert str(answer.stop) == str(error)
    else:
        assert answer.stop is None
        assert (answer.root, answer.variable) == (resolution.root, resolution.variable)
        tried = [place for place in answer.tried if place.tier is Tier.CUSTOM]
        assert tried == [*resolution.tried]


def test_host_looks_into_the_bank_of_its_package_last(world: World) -> None:
    del world.env["AOE_BUILT_IN_BANK"]
    world.set("TUNE_BANK_PATH")
    (tried,) = [
        place for place in world.ask(Reader.HOST, Query()).tried if place.tier is Tier.BUILT_IN
    ]
    assert tried.path is not None and tried.path.parts[-3:] == ("aoe", "bank", "built_in")
    world.env["AOE_BUILT_IN_BANK"] = str(world.folder("site"))
    file = world.file(custom_file(Reader.HOST, "site"))
    (found,) = world.ask(Reader.HOST, QUERY).files
    assert (found.path, found.tier) == (file, Tier.BUILT_IN)
