"""Copies between targets, names in two spellings, look-ups that fall back to newer versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import golden_harness
from support.smallest_trees import ROW, G, H, rows, table, write_tree

from aoebank import Finding, make_unified_record
from aoebank.validation.run import validate

FOUR = rows(**{str(2**n): {**ROW, "num_warps": 2**n} for n in range(4)})
H20 = G.replace("H200", "H20")


def found(root: Path, files: dict[str, str], code: str) -> list[Finding]:
    write_tree(root, files)
    return [finding for finding in validate([root]).findings if finding.code == code]


def test_copy_of_another_targets_file_is_told_whatever_its_layout(tmp_path: Path) -> None:
    flat = json.dumps(json.loads(FOUR), indent=1)
    (copy,) = found(tmp_path, {G: FOUR, H20: flat}, "AB519")
    assert copy.location.path.name == G  # the later one by name
    assert copy.got == "4 of 4 as for NVIDIA_H20"


@pytest.mark.parametrize(
    "other",
    [
        {H20: FOUR.replace('"num_warps": 8', '"num_warps": 4')},  # one row differs
        {G.replace("N=64", "N=96"): FOUR},  # the same target
        {H20.replace("N=64", "N=96"): FOUR},  # another workload
    ],
)
def test_files_that_may_well_be_equal_are_no_copies(tmp_path: Path, other: dict[str, str]) -> None:
    assert found(tmp_path, {G: FOUR, **other}, "AB519") == []


def test_times_that_are_equal_to_the_last_digit_are_copies_in_banks_of_cann_too(
    tmp_path: Path,
) -> None:
    def bank(first_us: float) -> str:
        members = {}
        for number in range(3):
            record = make_unified_record(
                workload={"op_type": "x", "a": number},
                strategy={"tile": 8},
                cost_us=first_us + number,
                origin="aoe",
            )
            answer = {
                "knowledge": record.strategy,
                "info_dict": record.workload,
                "cost_time": record.cost_us,
            }
            members[record.key] = [answer]
        return json.dumps(members)

    name = "Ascend910B{}_24_AiCore_x.json"
    assert (
        found(tmp_path / "a", {name.format(1): bank(9.5), name.format(2): bank(9.25)}, "AB519")
        == []
    )
    (copy,) = found(tmp_path / "b", {name.format(1): bank(9.5), name.format(2): bank(9.5)}, "AB519")
    assert copy.got == "3 of 3 as for Ascend910B1"


def test_rows_copied_to_another_device_are_told_once(tmp_path: Path) -> None:
    lines = [f"{units},{m},64,64,1,{m}.5" for units in (80, 304) for m in (4, 5, 6)]
    (copy,) = found(tmp_path, {H: table(*lines)}, "AB519")
    assert (copy.location.line, copy.got) == (5, "3 rows of cu80 as for cu304")
    lines[-1] = lines[-1].replace("6.5", "6.25")
    assert found(tmp_path, {H: table(*lines)}, "AB519") == []


def test_fall_back_to_an_older_version_is_none(tmp_path: Path) -> None:
    files = {f"triton_3_10_0/{G.replace('N=64', 'N=96')}": rows(), f"triton_3_9_0/{G}": rows()}
    (newer,) = found(tmp_path, files, "AB522")
    assert newer.location.path.name == "triton_3_9_0"
    assert "1 names, such as E=8,N=96" in (newer.got or "")


@pytest.mark.parametrize("output", ["text", "json", "sarif", "junit", "github"])
def test_every_output_takes_a_finding_about_a_folder(tmp_path: Path, output: str) -> None:
    files = {f"triton_3_4_0/{G.replace('N=64', 'N=96')}": rows(), f"triton_3_5_0/{G}": rows()}
    write_tree(tmp_path, files)
    outcome = golden_harness.run(
        "aoebank", ["validate", str(tmp_path), "--notes", "--format", output]
    )
    assert outcome.exit_code == 0
    assert "AB522" in outcome.stdout
