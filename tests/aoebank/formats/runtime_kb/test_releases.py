"""Releases read records differently: by name, by revision, or as the fields tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.git_work_tree import WorkTree
from support.runtime_kb_lines import parse, whole_record

import aoebank
from aoebank import BankFormatError, HistoryError, Release, UsageError
from aoebank.formats.release import NEWEST
from aoebank.formats.runtime_kb.operator_schema import operator_schemas
from aoebank.formats.runtime_kb.releases import (
    RELEASES,
    TilingHeader,
    known_releases,
    make_release,
    parse_release,
    serialize_release,
)
from aoebank.validation.schema import get_release

FILTER = "Conv3DBackpropFilterV2"
TAGS = {
    "cann-8.5.0": "v8.5.0",
    "cann-9.0.0": "v9.0.0",
    "cann-9.0.1": "v9.0.1",
    "cann-9.1.0-beta.1": "v9.1.0-beta.1",
    "cann-9.1.0-beta.2": "v9.1.0-beta.2.pre",
    "cann-9.1.0-beta.3": "v9.1.0-beta.3",
    "cann-9.1.0": "v9.1.0.pre",
}
EVERYDAY = ("newest", "cann-8.5.0")


def name_for(op: str) -> str:
    return f"Ascend950PR_9589_32_AiCore_{op}_runtime_kb.json"


def record_of(release: Release, op: str, **more: Any) -> dict[str, Any]:
    """Return a record with every field the release reads."""
    record = whole_record(op)
    rows = release.tilings.get(op)
    if rows is not None:
        record["knowledge"] = {row[0]: row[1] == "bool" or 1 for row in rows}
    record["knowledge"] |= more
    return record


SOME_RELEASES = pytest.mark.parametrize(  # every day the newest and the oldest
    "release",
    [
        pytest.param(release, marks=() if release.name in EVERYDAY else pytest.mark.slow)
        for release in known_releases()
    ],
    ids=lambda release: str(release.name),
)


def told(record: dict[str, Any], release: Release) -> list[tuple[str, str | None]]:
    parsed = parse(json.dumps(record), name_for(record["op"]))
    found = parsed.format.read_by(release).check(parsed)
    return [(finding.code, finding.got) for finding in found]


def write_bank(folder: Path, *records: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for record in records:
        path = folder / name_for(record["op"])
        path.write_text(json.dumps(record) + "\n")
    return folder


def test_releases_are_known_newest_first() -> None:
    names = [release.name for release in known_releases()]
    assert names == ["newest", *reversed(TAGS)]


@pytest.mark.parametrize("release", known_releases(), ids=lambda release: str(release.name))
@pytest.mark.parametrize("op", [*operator_schemas()])
def test_record_with_every_field_of_a_release_has_no_finding_in_it(
    release: Release, op: str
) -> None:
    assert told(record_of(release, op), release) == []


def test_document_of_a_release_comes_back_and_is_the_file() -> None:
    for release in known_releases()[1:]:
        text = serialize_release(release)
        assert parse_release(json.loads(text)) == release
        assert (RELEASES / f"{release.name}.json").read_text() == text
        assert all(len(line) <= 100 for line in text.splitlines())


def test_record_carried_to_another_release_is_checked_against_it() -> None:
    old, new = get_release("cann-9.1.0-beta.2", cwd=Path()), get_release("9.1.0", cwd=Path())
    record = record_of(old, FILTER)
    assert told(record, new) == [("AB209", "no groupEnlarge")]
    assert told(record_of(new, FILTER), old) == [("AB211", '"groupEnlarge"')]
    assert ("AB211", '"stepM"') in told(record, NEWEST)


INPUT = "Conv3DBackpropInputV2"


def without(record: dict[str, Any], *names: str) -> dict[str, Any]:
    kept = {name: value for name, value in record["knowledge"].items() if name not in names}
    return {**record, "knowledge": kept}


def write_lines(folder: Path, *records: dict[str, Any]) -> Path:
    """Write records of any operators, each with a workload of its own."""
    for number, record in enumerate(records):
        value = {**record, "info_dict": {**record["info_dict"]}}
        member = next(iter(value["info_dict"]))
        value["info_dict"][member] = number
        with (folder / name_for(record["op"])).open("a") as stream:
            stream.write(json.dumps(value) + "\n")
    return folder


def test_release_that_explains_the_fields_is_guessed_and_said_to_be_sure(tmp_path: Path) -> None:
    release = get_release("cann-9.1.0", cwd=tmp_path)
    record = record_of(release, FILTER)
    bank = write_bank(tmp_path / "bank", record)
    result = aoebank.validate(bank)
    assert (result.reader.name, result.is_guessed, result.findings) == ("cann-9.1.0", True, ())
    assert result.guess is not None
    assert result.guess.is_sure
    result = aoebank.validate(write_bank(bank, without(record, "groupEnlarge")))
    assert (result.reader.name, result.findings) == ("cann-9.1.0-beta.3", ())
    assert result.guess is not None
    assert not result.guess.is_sure
    assert result.guess.equals == ("cann-9.1.0-beta.2", "cann-9.1.0-beta.1")


def test_field_some_records_lack_is_a_fault_and_no_evidence(tmp_path: Path) -> None:
    record = record_of(get_release("cann-9.1.0", cwd=tmp_path), FILTER)
    result = aoebank.validate(write_lines(tmp_path, record, without(record, "groupEnlarge")))
    assert result.reader.name == "cann-9.1.0"
    assert [finding.code for finding in result.findings if finding.code == "AB209"] == ["AB209"]
    assert result.guess is not None
    assert (result.guess.explained, result.guess.records, result.guess.is_sure) == (1, 2, False)


def test_operators_at_odds_are_judged_by_the_release_that_misses_nothing(tmp_path: Path) -> None:
    """As in the trees of 9.1.0-beta.2 and beta.3: one operator ahead of the headers."""
    new, old = (get_release(name, cwd=tmp_path) for name in ("9.1.0", "9.1.0-beta.3"))
    write_lines(tmp_path, *[record_of(new, FILTER)] * 3, record_of(old, INPUT))
    result = aoebank.validate(tmp_path)
    assert result.reader.name == "cann-9.1.0-beta.3"
    assert {finding.code for finding in result.findings} & {"AB209", "AB211"} == {"AB211"}


def test_headers_in_the_repository_of_banks_decide(tmp_path: Path) -> None:
    tree = WorkTree(tmp_path)
    workload = "".join(
        f"    {field.c_type} {field.name};\n"
        for field in operator_schemas()[FILTER].workload.fields
    )
    header = (
        f"struct {FILTER}InputArgs {{\n{workload}}};\n"
        f"BEGIN_TUNING_TILING_DEF({FILTER}TunnerTiling)\n"
        "TUNING_TILING_DATA_FIELD_DEF(uint32_t, ownField);\nEND_TUNING_TILING_DEF\n"
    )
    tree.write("op/filter_tuning_tiling.h", header.encode())
    record = {**whole_record(FILTER), "knowledge": {"ownField": 1, "groupEnlarge": 1}}
    tree.write(f"banks/{name_for(FILTER)}", json.dumps(record).encode() + b"\n")
    tree.git("add", ".")
    tree.git("commit", "-q", "-m", "banks")
    for output in (
        tree.aoebank("validate", "banks", "--json"),
        tree.aoebank("validate", "git:HEAD", "--json"),
    ):
        document = json.loads(output.stdout)
        assert "error" not in document, document
        assert not document["reader"]["guessed"]
        assert [found["code"] for found in document["findings"]] == ["AB211"]
    imported = tree.aoebank("schema", "import", "git:HEAD", "--json")
    assert "ownField" in imported.stdout, imported.stderr


def test_bank_that_fits_all_is_judged_by_the_newest(tmp_path: Path) -> None:
    record = whole_record(FILTER)
    assert aoebank.validate(write_bank(tmp_path / "bank", record)).reader is NEWEST
    record["knowledge"]["of_no_release"] = 1
    result = aoebank.validate(write_bank(tmp_path / "bank", record))
    assert result.reader is NEWEST
    assert [finding.code for finding in result.findings] == ["AB211"]


def test_fields_of_two_releases_that_never_met_are_judged_by_the_newest(tmp_path: Path) -> None:
    record = whole_record(FILTER)  # reservedParam1 and stepM
    record["knowledge"]["stepM"] = 1
    assert aoebank.validate(write_bank(tmp_path / "bank", record)).reader is NEWEST


@SOME_RELEASES
@pytest.mark.parametrize("name", ["stepM", "groupEnlarge ", "reservedParam9", "baseMM", "zzz"])
@pytest.mark.parametrize("without", ["", "groupEnlarge", "baseM"])
def test_following_the_hint_about_a_field_removes_the_finding(
    release: Release, name: str, without: str
) -> None:
    record = record_of(release, FILTER, **{name: 1})
    record["knowledge"].pop(without, None)
    parsed = parse(json.dumps(record), name_for(FILTER))
    for finding in parsed.format.read_by(release).check(parsed):
        if finding.code != "AB211":
            continue
        knowledge = dict(record["knowledge"])
        value = knowledge.pop(json.loads(finding.got or ""))
        if finding.hint == "rename it":
            assert finding.expected is not None
            meant = finding.expected
            assert meant not in knowledge
            knowledge[meant] = value
        else:
            assert (finding.hint, finding.expected) == ("remove it", None)
        assert "AB211" not in [
            code for code, _ in told({**record, "knowledge": knowledge}, release)
        ]


@SOME_RELEASES
@pytest.mark.parametrize("op", [*operator_schemas()])
def test_adding_the_missing_fields_removes_the_finding(release: Release, op: str) -> None:
    whole = record_of(release, op)
    for name in whole["knowledge"]:
        rest = {known: value for known, value in whole["knowledge"].items() if known != name}
        (finding,) = told({**whole, "knowledge": rest}, release)
        assert finding[1] == f"no {name}"
        assert finding[0] in ("AB209", "AB210", "AB216", "AB217", "AB218")


def test_release_with_another_key_struct_is_refused() -> None:
    header = TilingHeader(
        name="MatMul", workload=(("m", "int32_t"),), strategy=(("baseM", "uint32_t"),)
    )
    with pytest.raises(ValueError, match="key struct of MatMulV3"):
        make_release("mine", "here", [header])


def test_release_nobody_knows_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cann-9\.1\.0-beta\.3"):
        get_release("cann-1.0", cwd=tmp_path)
    for text in ("[]", "nonsense", '{"schema": "aoebank.schema-import/1"}', '{"schema": 3}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(BankFormatError, match="not a document of a release"):
            get_release("bad.json", cwd=tmp_path)


def test_revision_without_headers_is_an_error(tmp_path: Path) -> None:
    tree = WorkTree(tmp_path)
    (tree.top / "a").write_text("a")
    tree.git("add", "-A")
    tree.git("commit", "-qm", "a")
    with pytest.raises(HistoryError, match="no tiling headers"):
        aoebank.schema_import("git:HEAD", beside=tree.top)
    (tree.top / "x_tuning_tiling.h").write_text("struct Nothing {};\n")
    tree.git("add", "-A")
    tree.git("commit", "-qm", "b")
    with pytest.raises(BankFormatError, match=r"x_tuning_tiling\.h.*0 key and 0 tiling structs"):
        aoebank.schema_import("HEAD", beside=tree.top)


@pytest.mark.parametrize(
    "names", [EVERYDAY[1:], pytest.param([*TAGS], marks=pytest.mark.slow)], ids=["one", "all"]
)
def test_data_files_are_what_the_headers_of_their_tags_say(
    shared_data: Path, tmp_path: Path, names: Sequence[str]
) -> None:
    bundle = shared_data / "ops_nn_history.bundle"
    if not bundle.exists():
        pytest.skip("no history at hand")
    tree = WorkTree(tmp_path)
    tree.git("fetch", "-q", str(bundle), "refs/tags/*:refs/tags/*")
    for name in names:
        release = aoebank.schema_import(f"git:{TAGS[name]}", name=name, beside=tree.top)
        assert serialize_release(release) == (RELEASES / f"{name}.json").read_text()
    tree.git("checkout", "-q", "v9.1.0-beta.2.pre")
    counts = {
        reader: sum(finding.code == "AB211" for finding in found.findings)
        for reader in ("", "newest", "cann-9.1.0-beta.2")
        if (found := aoebank.validate(tree.top, reader=reader))
    }
    assert counts == {"": 20, "newest": 40, "cann-9.1.0-beta.2": 20}
