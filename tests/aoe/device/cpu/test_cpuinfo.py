"""`/proc/cpuinfo`, as x86 and Arm kernels write it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engine.processors import KUNPENG_920, SKYLAKE_X

from aoe.device.cpu.cpuinfo import CpuInfo, parse_cpuinfo, read_cpuinfo


def test_only_the_first_processor_counts() -> None:
    info = parse_cpuinfo(SKYLAKE_X.splitlines(keepends=True))
    assert (info.vendor, info.family, info.model, info.stepping) == ("GenuineIntel", 6, 85, 4)
    assert info.name == "Intel(R) Xeon(R) Processor"
    assert "avx512vl" in info.features
    assert "other" not in info.features
    assert str(info) == "GenuineIntel family 6 model 85"


def test_arm_has_an_implementer_and_a_part() -> None:
    info = parse_cpuinfo(KUNPENG_920.splitlines())
    assert (info.vendor, info.family, info.model, info.name) == ("0x48", 0, 0xD01, "")
    assert "asimddp" in info.features
    assert str(info) == "implementer 0x48 part 0xd01"


@pytest.mark.parametrize("text", ["", "\n\nflags : avx\n", "processor : 0\n", "no colon\n"])
def test_what_says_nothing_is_nothing_known(text: str) -> None:
    assert parse_cpuinfo(text.splitlines(keepends=True)) == CpuInfo()


def test_a_number_the_kernel_does_not_know_is_none() -> None:
    info = parse_cpuinfo(["vendor_id : GenuineIntel", "cpu family : 6", "stepping : unknown"])
    assert (info.family, info.model, info.stepping) == (6, -1, 0)


def test_a_machine_without_the_file_is_nothing_known(tmp_path: Path) -> None:
    assert read_cpuinfo(tmp_path / "none") == CpuInfo()


def test_every_line_counts_up_to_the_first_empty_one(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(SKYLAKE_X)
    assert read_cpuinfo(file) == parse_cpuinfo(SKYLAKE_X.splitlines())
