"""Banks of related chips carry the same keys: where they differ there is a note."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.runtime_kb_lines import FIRST, with_info

from aoebank import Finding, Severity
from aoebank.validation.run import validate

CODES = ("AB516", "AB517")
SHARED = [with_info(m=16 * number) for number in range(1001, 1009)]
LAST = json.loads(with_info(m=16))


def last(**knowledge: int) -> str:
    return json.dumps({**LAST, "knowledge": {**FIRST["knowledge"], **knowledge}})


def name_of(soc: str, cores: int = 24) -> str:
    return f"{soc}_{cores}_AiCore_MatMulV3_runtime_kb.json"


def findings(root: Path, files: Mapping[str, list[str]]) -> list[Finding]:
    for name, lines in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("".join(f"{text}\n" for text in lines))
    return [finding for finding in validate([root]).findings if finding.code in CODES]


def test_a_record_that_most_siblings_have_otherwise_is_one_note(tmp_path: Path) -> None:
    files = {name_of(soc): [*SHARED, last()] for soc in ("Ascend910B1", "Ascend910B2")}
    odd = name_of("Ascend910B2C")
    (finding,) = findings(tmp_path, {**files, odd: [*SHARED, last(baseM=3, baseN=5)]})
    assert (finding.code, finding.severity) == ("AB516", Severity.NOTE)
    assert finding.location.path.name == odd
    assert finding.location.line == len(SHARED) + 1
    assert (finding.got or "").startswith("1 such, for example ")
    assert (finding.got or "").endswith("with baseM 3")
    assert (finding.expected or "").endswith(f"as in {name_of('Ascend910B1')}")
    assert len(finding.key) == 32


def test_many_differences_are_one_note_with_their_number(tmp_path: Path) -> None:
    other = [text.replace('"baseM": ', '"baseM": 1') for text in SHARED]
    assert other != SHARED
    names = [name_of(soc) for soc in ("Ascend910B1", "Ascend910B2", "Ascend910B2C")]
    (finding,) = findings(tmp_path, {names[0]: SHARED, names[1]: SHARED, names[2]: other})
    assert (finding.got or "").startswith(f"{len(SHARED)} such")


def test_records_a_sibling_lacks_are_one_note(tmp_path: Path) -> None:
    files = {name_of(soc): SHARED for soc in ("Ascend910_9381", "Ascend910_9382")}
    short = name_of("Ascend910_9391")
    (finding,) = findings(tmp_path, {**files, short: SHARED[2:]})
    assert (finding.code, finding.location.path.name) == ("AB517", short)
    assert (finding.got or "").startswith("2 missing")


def test_a_record_one_of_three_has_is_nothing_the_others_lack(tmp_path: Path) -> None:
    files = {name_of(soc): SHARED for soc in ("Ascend910B1", "Ascend910B2")}
    assert not findings(tmp_path, {**files, name_of("Ascend910B2C"): [*SHARED, last()]})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (name_of("Ascend910B1"), name_of("Ascend910_9391")),  # other families
        (name_of("Ascend910B1"), name_of("Ascend910B1", 25)),  # other numbers of cores
        (name_of("x86-64-v3"), name_of("x86-64-v4")),  # no family known
        (f"a/{name_of('Ascend910B1')}", f"b/{name_of('Ascend910B2')}"),  # other places
    ],
)
def test_files_that_are_no_siblings_may_differ(tmp_path: Path, first: str, second: str) -> None:
    assert not findings(tmp_path, {first: SHARED, second: [*SHARED[1:], last()]})


def test_siblings_may_lie_in_the_folders_of_their_soc_versions(tmp_path: Path) -> None:
    files = {
        f"{soc}/unified_bank/{name_of(soc)}": lines
        for soc, lines in (("Ascend910B1", SHARED), ("Ascend910B2", SHARED[1:]))
    }
    (finding,) = findings(tmp_path, files)
    assert finding.location.path.name == name_of("Ascend910B2")


def test_a_file_that_shares_less_than_half_was_tuned_apart(tmp_path: Path) -> None:
    own = [with_info(m=16 * number) for number in range(100, 120)]
    files = {name_of("Ascend910B1"): SHARED, name_of("Ascend910B2"): [*SHARED[:2], *own]}
    assert not findings(tmp_path, files)


def test_another_spelling_of_the_same_record_is_no_difference(tmp_path: Path) -> None:
    spelled = [text.replace(": ", ":").replace('"id":', '"id":  ') for text in SHARED]
    files = {name_of("Ascend910B1"): SHARED, name_of("Ascend910B2"): spelled}
    assert not findings(tmp_path, files)


def test_broken_and_empty_files_are_told_as_such_alone(tmp_path: Path) -> None:
    files = {name_of(soc): SHARED for soc in ("Ascend910B1", "Ascend910B2")}
    broken = {name_of("Ascend910B2C"): ["{"], name_of("Ascend910B2D"): ["{}"]}
    assert not findings(tmp_path, {**files, **broken})


def test_what_the_note_says_to_run_tells_the_difference(tmp_path: Path) -> None:
    from aoebank import diff

    files = {name_of("Ascend910B1"): SHARED, name_of("Ascend910B2"): SHARED[1:]}
    (finding,) = findings(tmp_path, files)
    a, b = finding.hint.partition("aoebank diff ")[2].split()[:2]
    assert len(diff(a, b).changes) == 1
