"""What a worker may be used for follows from what it says of itself."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pytest
from support.engine.fakes import make_target
from support.engine.remote_pools import VERSIONS

from aoe.device.registry import default_device
from aoe.execute.workers.announcement import Announcement, WorkerPart, announce, part_of


def _announced(**changes: Any) -> Announcement:
    facts: dict[str, Any] = {
        "name": "w1",
        "host": "box@10.0.0.5",
        "pid": 7,
        "target": make_target(),
        "cores": ("cpu0", "cpu1"),
        "versions": VERSIONS,
    }
    return Announcement(**(facts | changes))


def _part(**changes: Any) -> tuple[WorkerPart, str]:
    return part_of(_announced(**changes), make_target(), VERSIONS)


def test_same_machine_with_the_same_versions_measures() -> None:
    assert _part() == (WorkerPart.MEASURING, "")


@pytest.mark.parametrize("name", ["aoe", "halide", "onnxruntime"])
def test_other_version_is_refused_by_name(name: str) -> None:
    part, why = _part(versions={**VERSIONS, name: "9.9"})
    assert part is WorkerPart.REFUSED
    assert why == f"{name} 9.9 instead of {VERSIONS[name]}"


def test_what_is_not_installed_is_refused() -> None:
    part, why = _part(versions={"aoe": VERSIONS["aoe"]})
    assert part is WorkerPart.REFUSED
    assert "halide not installed" in why and "onnxruntime not installed" in why


def test_another_soc_version_only_compiles() -> None:
    part, why = _part(target=make_target(soc_version="x86-64-zen5"))
    assert (part, why) == (WorkerPart.COMPILING, "x86-64-zen5 instead of x86-64-test")


def test_too_few_cores_only_compile_and_more_are_no_harm() -> None:
    assert _part(target=make_target(core_num=1))[0] is WorkerPart.COMPILING
    assert _part(target=make_target(core_num=8))[0] is WorkerPart.MEASURING


def test_another_instruction_set_is_of_no_use() -> None:
    part, why = _part(target=make_target(soc_version="arm-v9", architecture="arm-64"))
    assert (part, why) == (WorkerPart.REFUSED, "arm-64 instead of x86-64")


def test_device_is_a_host_and_its_cores() -> None:
    one = _announced()
    assert one.device == "box@10.0.0.5/cpu0,cpu1" == _announced(name="w2", pid=8).device
    assert one.device != replace(one, cores=("cpu2", "cpu3")).device
    assert one.device != replace(one, host="box@10.0.0.6").device


def test_this_machine_says_what_it_is() -> None:
    device = default_device()
    found = announce(device, 1, name="w1", address="tcp://10.0.0.5:41243", pid=7)
    assert found.host.endswith("@10.0.0.5") and found.cores == device.cores()
    assert found.target == device.describe(1)
    assert found.versions["onnxruntime"] == version("onnxruntime")
