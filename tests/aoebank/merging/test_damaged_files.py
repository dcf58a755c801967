"""Files without bytes, cut short, or emptied on purpose: which of them a merge takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import golden_harness, merge_files
from support.merge_files import NAMES, Answer, make_file, records_of

from aoebank import BankFormatError
from aoebank.formats.protocol import find_error
from aoebank.merging.file import merge_file
from aoebank.merging.versions import MergeContext

FORMATS = pytest.mark.parametrize("name", [*NAMES])
RECORDS = {number: Answer() for number in range(4)}
MORE = {**RECORDS, 9: Answer(tile=3)}


def merge(name: str, base: bytes | None, ours: bytes, theirs: bytes) -> bytes | None:
    files = merge_files.versions(name, base, ours, theirs)
    return merge_file(files, NAMES[name], MergeContext(is_two_way=base is None)).data


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2 - 3]


@FORMATS
@pytest.mark.parametrize("damage", ["empty", "blank", "mark", "cut"])
def test_damaged_file_never_takes_the_place_of_a_whole_one(name: str, damage: str) -> None:
    base = make_file(name, RECORDS)
    bad = {"empty": b"", "blank": b" \r\n\t\n", "mark": b"\xef\xbb\xbf\n", "cut": cut(base)}[damage]
    for whole in (base, make_file(name, MORE)):
        for sides in ((whole, bad), (bad, whole)):
            for common in (base, None):
                with pytest.raises(BankFormatError):
                    merge(name, common, *sides)


@FORMATS
def test_file_that_is_damaged_everywhere_or_was_mended_stops_nothing(name: str) -> None:
    whole = make_file(name, RECORDS)
    for bad in (b"", cut(whole)):
        assert merge(name, bad, bad, bad) == bad
        assert merge(name, bad, whole, bad) == whole
        assert merge(name, bad, bad, whole) == whole
        assert merge(name, None, bad, bad) == bad


@FORMATS
def test_file_emptied_on_purpose_removes_its_records(name: str) -> None:
    base, none = make_file(name, RECORDS), make_file(name, {})
    more = make_file(name, MORE)
    for ours, theirs in ((more, none), (none, more)):
        merged = merge(name, base, ours, theirs)
        assert [*records_of(name, merged)] == [merge_files.key_of(name, 9)]
    assert merge(name, base, base, none) == none
    assert merge(name, none, none, base) == base


@FORMATS
@pytest.mark.parametrize("style", [merge_files.Style(), merge_files.Style(has_bom=True)])
def test_merge_that_removes_all_records_leaves_a_file_emptied_on_purpose(
    name: str, style: merge_files.Style
) -> None:
    base = make_file(name, {0: Answer(), 1: Answer()}, style)
    merged = merge(
        name, base, make_file(name, {0: Answer()}, style), make_file(name, {1: Answer()})
    )
    assert merged is not None
    assert merged.strip()
    parsed = merge_files.get(name, merged)
    assert len(parsed) == 0
    assert find_error(parsed) is None
    assert "AB115" in [finding.code for finding in parsed.findings]
    again = merge(name, merged, merged, base)
    assert records_of(name, again) == records_of(name, base)
    put = parsed.format.serialize(
        parsed, {record.key: record for record in merge_files.get(name, base).iter_records()}
    )
    assert records_of(name, put) == records_of(name, base)


@FORMATS
def test_base_without_bytes_is_one_without_records(name: str) -> None:
    ours, theirs = make_file(name, {0: Answer()}), make_file(name, {1: Answer()})
    merged = merge(name, b"", ours, theirs)
    assert {*records_of(name, merged)} == {*records_of(name, ours), *records_of(name, theirs)}


def make_tree(top: Path, files: dict[str, bytes]) -> str:
    for name, data in files.items():
        path = top / "Ascend910B2" / "unified_bank" / NAMES[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return str(top)


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with `base`, `ours`, and `theirs`, where two files are damaged."""
    monkeypatch.chdir(tmp_path)
    base, more = make_file("runtime_kb", RECORDS), make_file("runtime_kb", MORE)
    unified = make_file("unified", RECORDS)
    vector = make_file("vector", RECORDS)
    files = {"runtime_kb": base, "unified": unified, "vector": vector}
    make_tree(Path("base"), files)
    make_tree(Path("ours"), {**files, "vector": make_file("vector", MORE)})
    make_tree(Path("theirs"), {"runtime_kb": more, "unified": b"", "vector": cut(vector)})
    return tmp_path


MERGE = ["merge", "--base", "base", "ours", "theirs"]


def path_of(top: str, name: str) -> Path:
    return Path(top, "Ascend910B2", "unified_bank", NAMES[name])


@pytest.mark.parametrize("output", ["ours", "new"])
def test_tree_with_damaged_files_is_refused_and_all_are_named(trees: Path, output: str) -> None:
    before = {path: path.read_bytes() for path in trees.rglob("*.json")}
    outcome = golden_harness.run("aoebank", [*MERGE, "-o", output])
    assert outcome.exit_code == 3
    assert NAMES["unified"] in outcome.stderr
    assert NAMES["vector"] in outcome.stderr
    assert "--skip-broken" in outcome.stderr
    assert {path: path.read_bytes() for path in trees.rglob("*.json")} == before


@pytest.mark.parametrize("output", ["ours", "new", "theirs"])
def test_damaged_files_are_skipped_on_demand_and_the_rest_is_merged(
    trees: Path, output: str
) -> None:
    old = {name: path_of(output, name) for name in ("unified", "vector")}
    before = {name: path.read_bytes() if path.exists() else None for name, path in old.items()}
    outcome = golden_harness.run("aoebank", [*MERGE, "-o", output, "--skip-broken"])
    assert outcome.exit_code == 1, outcome.stderr
    assert path_of(output, "runtime_kb").read_bytes() == make_file("runtime_kb", MORE)
    for name, data in before.items():
        expected = path_of("ours", name).read_bytes() if data is None else data
        assert path_of(output, name).read_bytes() == expected
        assert NAMES[name] in outcome.stdout


@pytest.mark.parametrize("output", ["ours", "theirs", "third", "new"])
def test_damaged_file_of_one_of_three_sides_is_skipped_there(trees: Path, output: str) -> None:
    more = make_file("unified", MORE)
    third = {"runtime_kb": make_file("runtime_kb", RECORDS), "unified": more}
    make_tree(Path("third"), {**third, "vector": make_file("vector", RECORDS)})
    outcome = golden_harness.run("aoebank", [*MERGE, "third", "-o", output, "--skip-broken"])
    assert outcome.exit_code == 1, outcome.stderr
    assert path_of(output, "runtime_kb").read_bytes() == make_file("runtime_kb", MORE)
    # what is broken where the result goes stays; else the sound sides are merged
    expected = b"" if output == "theirs" else more
    assert path_of(output, "unified").read_bytes() == expected
    expected = (
        cut(make_file("vector", RECORDS)) if output == "theirs" else make_file("vector", MORE)
    )
    assert path_of(output, "vector").read_bytes() == expected


@pytest.mark.parametrize("output", ["ours", "new"])
def test_file_that_only_the_last_side_breaks_lists_no_conflict_file_it_did_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    base = make_file("unified", RECORDS)
    for top, tile in (("base", 1), ("ours", 4), ("theirs", 5)):
        changed = make_file("unified", {**RECORDS, 0: Answer(tile=tile)})
        make_tree(Path(top), {"unified": base if top == "base" else changed})
    make_tree(Path("third"), {"unified": cut(base), "vector": make_file("vector", RECORDS)})
    arguments = [*MERGE, "third", "-o", output, "--skip-broken", "--policy", "fail", "--json"]
    document = json.loads(golden_harness.run("aoebank", arguments).stdout)
    place = Path(f"{path_of(output, 'unified')}.conflicts")
    assert document["conflict_files"] == ([str(place)] if output == "new" else [])
    assert place.exists() == (output == "new")


def test_skipped_files_are_in_the_document(trees: Path) -> None:
    outcome = golden_harness.run("aoebank", [*MERGE, "--dry-run", "--skip-broken", "--json"])
    assert len(json.loads(outcome.stdout)["skipped"]) == 2


def test_diff_of_trees_tells_damaged_files_and_compares_the_rest(trees: Path) -> None:
    plain = golden_harness.run("aoebank", ["diff", "base", "theirs"])
    assert plain.exit_code == 3
    assert plain.stdout.count("not compared: ") == 2
    assert "1 added" in plain.stdout
    told = golden_harness.run("aoebank", ["diff", "--skip-broken", "base", "theirs"])
    assert (told.exit_code, told.stdout) == (1, plain.stdout)
    same = golden_harness.run("aoebank", ["diff", "theirs", "theirs"])
    assert same.exit_code == 0, same.stdout + same.stderr
