"""The driver by itself: three files, an exit code, and what is left in the second file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import golden_harness
from support.faulty_system import FaultySystem
from support.git_work_tree import EVERY_FORMAT, SAMPLES, SOME_FORMATS, SampleBank

from aoebank.merging.decisions import Three
from aoebank.merging.merge_bytes import merge_ancestors

UNIFIED = next(bank for bank in SAMPLES.values() if bank.name.endswith("_matmul.json"))


@pytest.fixture(autouse=True)
def _outside_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / ".gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def _drive(
    base: bytes, ours: bytes, theirs: bytes, *options: str, path: str = UNIFIED.name
) -> golden_harness.Outcome:
    for name, data in (("O", base), ("A", ours), ("B", theirs)):
        Path(name).write_bytes(data)
    return golden_harness.run("aoebank", ["merge-driver", *options, "O", "A", "B", "7", path])


def _result() -> bytes:
    return Path("A").read_bytes()


@EVERY_FORMAT
def test_clean_merge_is_silent_and_exits_with_0(bank: SampleBank) -> None:
    outcome = _drive(bank.without(0, 1), bank.without(0), bank.without(1), path=bank.name)
    assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, "", "")
    assert bank.records(_result()) == bank.records(bank.data)


@EVERY_FORMAT
def test_empty_ancestor_means_that_both_added_the_file(bank: SampleBank) -> None:
    assert _drive(b"", bank.without(0), bank.without(1), path=bank.name).exit_code == 0
    assert bank.records(_result()) == bank.records(bank.data)


@EVERY_FORMAT
def test_all_records_removed_leaves_a_file_of_the_format(bank: SampleBank) -> None:
    half = len(bank.keys) // 2
    ours, theirs = bank.without(*range(half)), bank.without(*range(half, len(bank.keys)))
    assert _drive(bank.data, ours, theirs, path=bank.name).exit_code == 0
    assert bank.records(_result()) == {}


def test_conflict_exits_with_1_and_names_the_key() -> None:
    Path(".gitconfig").write_text('[aoebank "merge"]\npolicy = fail\n')
    outcome = _drive(UNIFIED.data, UNIFIED.bumped(0, 1), UNIFIED.bumped(0, 2))
    assert outcome.exit_code == 1
    assert f"{UNIFIED.keys[0]}: policy-fail (ours 380.19 us, theirs 380.19 us)" in outcome.stdout
    assert UNIFIED.records(_result()) == UNIFIED.records(UNIFIED.bumped(0, 1))


def test_times_are_compared_where_no_side_car_can_be_found() -> None:
    slow, fast = UNIFIED.retimed(0, 300.0), UNIFIED.retimed(0, 200.0)
    outcome = _drive(b"", UNIFIED.bumped(0, 1, of=slow), UNIFIED.bumped(0, 2, of=fast))
    assert outcome.exit_code == 0
    assert UNIFIED.records(_result())[UNIFIED.keys[0]].cost_us == 200.0


def test_many_conflicts_are_counted() -> None:
    Path(".gitconfig").write_text('[aoebank "merge"]\npolicy = fail\n')
    ours = theirs = UNIFIED.data
    for number in range(6):
        ours, theirs = UNIFIED.bumped(number, 1, of=ours), UNIFIED.bumped(number, 2, of=theirs)
    outcome = _drive(UNIFIED.data, ours, theirs)
    assert "6 conflicts" in outcome.stdout
    assert "and 1 more" in outcome.stdout


def test_dry_run_tells_and_writes_nothing() -> None:
    ours = UNIFIED.bumped(0, 1)
    outcome = _drive(UNIFIED.data, ours, UNIFIED.without(0), "--dry-run")
    assert outcome.exit_code == 1
    assert _result() == ours
    assert sorted(path.name for path in Path().iterdir()) == ["A", "B", "O"]


def test_document_holds_the_decisions() -> None:
    outcome = _drive(UNIFIED.data, UNIFIED.bumped(0, 1), UNIFIED.without(0), "--json")
    document = json.loads(outcome.stdout)
    assert document["schema"] == "aoebank.merge-driver/1"
    assert [decision["reason"] for decision in document["decisions"]] == ["deleted-and-changed"]
    assert document["conflict_file"] is None  # outside of a work tree there is no place for it


BROKEN = UNIFIED.data[:-20]


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        (BROKEN, UNIFIED.without(0), UNIFIED.without(1)),
        (UNIFIED.data, BROKEN, UNIFIED.without(1)),
        (UNIFIED.data, UNIFIED.without(0), BROKEN),
        (UNIFIED.data, UNIFIED.without(0), b"\xff\xfe"),
        (UNIFIED.data, UNIFIED.without(0), b"<<<<<<< a\n" + UNIFIED.data),
        (UNIFIED.data, UNIFIED.without(0), SAMPLES["graph-dient_fusion"].data),
    ],
    ids=["base", "ours", "theirs", "bytes", "markers", "other format"],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_broken_version_is_a_conflict_and_keeps_ours(
    base: bytes, ours: bytes, theirs: bytes, options: tuple[str, ...]
) -> None:
    outcome = _drive(base, ours, theirs, *options)
    assert outcome.exit_code == 1
    assert _result() == ours
    if "--json" in options:
        assert json.loads(outcome.stdout)["error"]["code"] == "bank_format"
    else:
        assert "has our version alone" in outcome.stderr


@pytest.mark.parametrize("ours", [BROKEN, b"\xff", b"<<<<<<< a\n"])
def test_ancestors_that_are_broken_become_their_own_base(ours: bytes) -> None:
    assert _drive(UNIFIED.data, ours, UNIFIED.without(1), "--inner").exit_code == 0
    assert _result() == UNIFIED.data


def test_write_that_fails_keeps_ours(system: FaultySystem) -> None:
    system.fail("os.fsync", OSError(28, "No space left on device"))
    outcome = _drive(UNIFIED.without(0, 1), UNIFIED.without(0), UNIFIED.without(1))
    assert outcome.exit_code == 129
    assert "no space left" in outcome.stderr
    assert _result() == UNIFIED.without(0)
    assert sorted(path.name for path in Path().iterdir()) == ["A", "B", "O"]


def test_file_that_is_no_bank_is_a_conflict() -> None:
    outcome = _drive(b"O", b"A", b"B", path="README.md")
    assert outcome.exit_code == 1
    assert "is no bank file" in outcome.stderr
    assert _result() == b"A"


@EVERY_FORMAT
@pytest.mark.parametrize("options", [(), ("--inner",)])
@pytest.mark.parametrize("blank", [b"", b" \n\n"])
def test_side_without_bytes_never_counts_as_one_without_records(
    bank: SampleBank, options: tuple[str, ...], blank: bytes
) -> None:
    whole = bank.without(0)
    outcome = _drive(bank.data, whole, blank, *options, path=bank.name)
    assert outcome.exit_code == (0 if options else 1)
    assert _result() == (bank.data if options else whole)
    outcome = _drive(bank.data, blank, whole, *options, path=bank.name)
    assert outcome.exit_code == (0 if options else 1)
    assert _result() == (bank.data if options else blank)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["O"],
        ["O", "A", "B", "x", "p"],
        ["--nonsense"],
        ["O", "A", "B", "7"],
        ["none", "A", "B", "7", UNIFIED.name],
        ["O", "A", ".", "7", UNIFIED.name],
    ],
)
def test_bad_call_exits_with_129_and_keeps_ours(arguments: list[str]) -> None:
    for name in ("O", "A", "B"):
        Path(name).write_bytes(name.encode())
    outcome = golden_harness.run("aoebank", ["merge-driver", *arguments])
    assert outcome.exit_code == 129
    assert outcome.stderr.startswith("error: ")
    assert _result() == b"A"


def test_quarantine_that_cannot_be_read_is_not_merged() -> None:
    outcome = _drive(b"", b"{\n", b"", path="banks/.aoebank/quarantine.jsonl")
    assert outcome.exit_code == 1
    assert _result() == b"{\n"


def test_side_cars_keep_the_lines_of_both() -> None:
    outcome = _drive(b"a\n", b"a\nb\n", b"a\nc\n", path=f"{UNIFIED.name}.provenance.jsonl")
    assert outcome.exit_code == 0
    assert _result() == b"a\nb\nc\n"


@EVERY_FORMAT
def test_ancestors_that_disagree_get_the_record_of_theirs(bank: SampleBank) -> None:
    """As `--inner` is called: what the two bases answer differently is as before both."""
    base = bank.without(4)
    ours, theirs = bank.bumped(0, 1), bank.bumped(0, 2)
    ours = bank.bumped(4, 1, of=bank.without(1, 2, of=ours))
    theirs = bank.bumped(1, 3, of=bank.without(3, of=theirs))
    outcome = _drive(base, ours, theirs, "--inner", path=bank.name)
    assert (outcome.exit_code, outcome.stdout) == (0, "")
    merged, old = bank.records(_result()), bank.records(base)
    for number in (0, 1):  # changed in two ways, and removed against changed
        assert merged[bank.keys[number]].raw == old[bank.keys[number]].raw
    for number in (2, 3, 4):  # removed by one, and added by both in two ways
        assert bank.keys[number] not in merged


EDITS = st.dictionaries(st.integers(0, 5), st.sampled_from(["remove", 1, 2]), max_size=6)


def _edited(bank: SampleBank, edits: dict[int, str | int]) -> bytes:
    data = bank.data
    for number, edit in edits.items():
        if isinstance(edit, int):
            data = bank.bumped(number, edit, of=data)
    return bank.without(*(place for place, edit in edits.items() if edit == "remove"), of=data)


@SOME_FORMATS
@given(base=EDITS, ours=EDITS, theirs=EDITS)
def test_merge_of_ancestors_invents_nothing_and_does_not_depend_on_the_side(
    bank: SampleBank,
    base: dict[int, str | int],
    ours: dict[int, str | int],
    theirs: dict[int, str | int],
) -> None:
    old, left, right = (_edited(bank, edits) for edits in (base, ours, theirs))
    path = Path(bank.name)
    results = [
        bank.records(merge_ancestors(Three(base=old, ours=a, theirs=b), path) or b"")
        if (a, b) != (old, old)
        else bank.records(old)
        for a, b in ((left, right), (right, left))
    ]
    assert {key: kept.raw for key, kept in results[0].items()} == {
        key: kept.raw for key, kept in results[1].items()
    }
    sides = [bank.records(data) for data in (old, left, right)]
    for key, record in results[0].items():
        assert record.raw in [side[key].raw for side in sides if key in side]
