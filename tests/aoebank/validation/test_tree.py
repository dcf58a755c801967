"""Files in the wrong place, names for other targets, links that never end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aoebank import Bank, Severity
from aoebank.storage.bank import load_file
from aoebank.testing.factories import make_record
from aoebank.validation.run import check_bank, validate


def codes(*paths: Path) -> list[str]:
    return [finding.code for finding in validate(paths).findings]


def put(root: Path, soc: str) -> Path:
    file = Bank(root).unified_file(soc_version=soc, core_num=2, op_type="LRN")
    Bank(root).put(file, [make_record()])
    return file


def test_name_for_another_soc_version_is_told(tmp_path: Path) -> None:
    file = put(tmp_path, "Ascend910B3")
    moved = file.with_name(file.name.replace("B3", "B4"))
    file.rename(moved)
    (finding,) = validate([tmp_path]).findings
    assert (finding.code, finding.got, finding.expected) == ("AB503", "Ascend910B4", "Ascend910B3")


def test_file_outside_a_bank_folder_may_have_any_soc_version(tmp_path: Path) -> None:
    file = put(tmp_path, "Ascend910B3")
    file.rename(tmp_path / file.name)
    assert codes(tmp_path) == []


def test_folder_spelled_in_other_letters_is_another_soc_version(tmp_path: Path) -> None:
    file = put(tmp_path, "Ascend910B3")
    file.parent.parent.rename(tmp_path / "ascend910b3")
    assert codes(tmp_path) == ["AB503"]


@pytest.mark.parametrize("folder", ["unified_bank", "cube"])
def test_stranger_among_banks_is_a_finding(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "notes.txt").write_text("remember the milk\n")
    (finding,) = validate([tmp_path]).findings
    assert (finding.code, finding.severity) == ("AB504", Severity.WARNING)


def test_files_of_a_source_repository_are_passed_over_and_counted(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"source{number}.cpp").write_text("int main() {}\n")
    put(tmp_path, "Ascend910B3")
    result = validate([tmp_path])
    assert result.findings == ()
    assert (result.files, result.passed_over) == (1, 3)


def test_stranger_named_by_the_caller_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk\n")
    result = validate([tmp_path, path])
    assert [(finding.code, finding.severity) for finding in result.findings] == [
        ("AB504", Severity.ERROR)
    ]
    assert (result.files, result.passed_over) == (1, 0)


def test_backup_of_a_dead_write_is_told(tmp_path: Path) -> None:
    file = put(tmp_path, "Ascend910B3")
    file.with_name(file.name + ".aoe").write_bytes(file.read_bytes())
    assert codes(tmp_path) == ["AB505"]


def test_link_to_a_folder_above_is_told_once(tmp_path: Path) -> None:
    file = put(tmp_path, "Ascend910B3")
    (file.parent / "again").symlink_to(tmp_path, target_is_directory=True)
    (file.parent / "self").symlink_to(file.parent, target_is_directory=True)
    findings = validate([tmp_path]).findings
    assert [(finding.code, finding.location.path.name) for finding in findings] == [
        ("AB511", "again"),
        ("AB511", "self"),
    ]


def test_link_to_a_folder_outside_is_walked_and_nothing_to_tell(tmp_path: Path) -> None:
    put(tmp_path / "outside", "Ascend910B3")
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / "link").symlink_to(tmp_path / "outside", target_is_directory=True)
    result = validate([tmp_path / "ab"])
    assert (result.files, result.findings) == (1, ())


def test_link_to_a_folder_above_the_tree_is_told_and_not_followed(tmp_path: Path) -> None:
    file = put(tmp_path / "bank", "Ascend910B3")
    put(tmp_path / "other", "Ascend910B3")
    (tmp_path / "bank" / "up").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "bank" / "root").symlink_to("/", target_is_directory=True)
    result = validate([tmp_path / "bank"])
    assert result.checked == (file,)
    assert [(finding.code, finding.severity) for finding in result.findings] == [
        ("AB511", Severity.WARNING),
        ("AB511", Severity.WARNING),
    ]


def test_loop_behind_a_link_is_told(tmp_path: Path) -> None:
    put(tmp_path / "outside" / "deep", "Ascend910B3")
    (tmp_path / "outside" / "deep" / "loop").symlink_to(tmp_path / "outside")
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "link").symlink_to(tmp_path / "outside")
    (finding,) = validate([tmp_path / "bank"]).findings
    assert (finding.code, finding.severity) == ("AB511", Severity.WARNING)
    assert finding.location.path == tmp_path / "bank" / "link" / "deep" / "loop"


def test_missing_path_is_told_apart_from_an_empty_one(tmp_path: Path) -> None:
    result = validate([tmp_path, tmp_path / "gone"])
    assert result.missing == (tmp_path / "gone",)
    assert [finding.code for finding in result.findings] == ["AB501"]


SAMPLES = Path(__file__).resolve().parents[3] / "sample_banks" / "ascend" / "Ascend910B2"


def copy(sample: str, folder: Path) -> Path:
    (source,) = SAMPLES.glob(sample)
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(source, folder))


@pytest.mark.parametrize(
    ("sample", "folder", "wrong"),
    [
        ("graph/*_l2cache.json", "graph/Ascend910B2", False),
        ("graph/*_l2cache.json", "graph/Ascend910B3", True),
        ("graph/*_gradient_fusion.json", "graph/Ascend910B2", False),
        ("graph/*_gradient_fusion.json", "graph/Ascend910_9391", True),
        ("graph/*_gradient_fusion.json", ".", False),
        ("vector/*.json", "Ascend910B2/vector", False),
        ("vector/*.json", "Ascend910B2C/vector", False),
        ("vector/*.json", "Ascend910B3/vector", True),
        ("cube/*.json", "ascend910B2/cube", False),
        ("cube/*.json", "ascend910b2/cube", True),
        ("cube/*.json", "Ascend910B3/cube", True),
        ("vector/*.json", "ascend910b2/vector", True),
        ("graph/*_l2cache.json", "graph/ascend910b2", True),
        ("unified_bank/*_runtime_kb.json", "Ascend910B2/unified_bank", False),
        ("unified_bank/*_runtime_kb.json", "Ascend910B2C/unified_bank", True),
    ],
)
def test_each_format_has_its_own_rule_for_the_folder(
    tmp_path: Path, sample: str, folder: str, wrong: bool
) -> None:
    copy(sample, tmp_path / folder)
    assert ("AB503" in codes(tmp_path)) == wrong


def test_binary_twin_is_no_stranger_and_is_missed(tmp_path: Path) -> None:
    folder = tmp_path / "Ascend910B2" / "cube"
    copy("cube/*.json", folder)
    assert codes(tmp_path) == ["AB508"]
    copy("cube/*.bin", folder)
    assert codes(tmp_path) == []


def test_model_file_beside_cube_banks_is_a_stranger(tmp_path: Path) -> None:
    (tmp_path / "cube").mkdir()
    (tmp_path / "cube" / "cost_model_matmul.bin").write_bytes(b"\x00")
    assert codes(tmp_path) == ["AB504"]


@pytest.mark.parametrize("link", ["a", "z"])  # before and behind the folder it leads to
def test_folder_linked_twice_is_looked_at_once_and_the_link_is_told(
    tmp_path: Path, link: str
) -> None:
    file = put(tmp_path / "m", "Ascend910B3")
    (tmp_path / link).symlink_to(tmp_path / "m", target_is_directory=True)
    result = validate([tmp_path])
    assert (result.files, result.records, result.checked) == (1, 1, (file,))
    (finding,) = result.findings
    assert (finding.code, finding.severity) == ("AB511", Severity.NOTE)
    assert finding.location.path == tmp_path / link
    assert finding.got == f"leads to {tmp_path / 'm'}"


def test_byte_order_mark_is_as_bad_as_its_reader_takes_it(tmp_path: Path) -> None:
    severities = {}
    for path in sorted(SAMPLES.rglob("*.json")):
        (tmp_path / path.name).write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        parsed = load_file(tmp_path / path.name)
        (severity,) = (
            finding.severity for finding in check_bank(parsed) if finding.code == "AB105"
        )
        severities[str(parsed.format.name)] = str(severity)
    assert severities == {
        "unified": "error",
        "cube": "error",
        "vector": "error",
        "runtime_kb": "note",
        "graph": "note",
        "gradient": "note",
    }
